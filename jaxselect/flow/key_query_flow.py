"""The flow of a key-query matrix W before a fixed p, which is that of u = W p."""

import jax.numpy as jnp
from jaxtyping import Array, Float, Scalar

from ..corpora.checks import for_corpus
from ..corpora.corpus import Corpus
from ..model.parameters import Parameters
from ..precision import full_precision
from .cls_flow import cls_flow
from .result import Flow
from .settings import FlowSettings


@for_corpus(by_head=True)
@full_precision
def key_query_flow(
    parameters: Parameters,
    key_query: Float[Array, "dim dim"],
    corpus: Corpus,
    *,
    until_norm: Float[Scalar, ""] | float = jnp.inf,
    until_log_time: Float[Scalar, ""] | float = 1e15,
    path_log_times: Float[Array, " times"] | None = None,
    settings: FlowSettings = FlowSettings(),
) -> tuple[Float[Array, "dim dim"], Flow]:
    """Gradient flow of a key-query matrix W in front of a fixed p.

    The scores are E W p, so dW/dt = Eᵀ(−∂L/∂a) pᵀ and u = W p obeys the flow of a CLS
    embedding in the time ‖p‖² t. W follows from it by `key_query_of`.

    Source: mathematics, section 3h.

    Args:
        parameters: (E, p, v), all fixed; p ≠ 0.
        key_query: W_0.
        corpus: n labelled bags.
        until_norm: ‖W p‖ to stop at.
        until_log_time: log(1 + ‖p‖² t) to stop at.
        path_log_times: increasing values of it to save W p at; none by default.
        settings: tolerances and bounds.

    Returns:
        W at the end, and the flow of W p in the time ‖p‖² t.

    Example:
        See `cls_flow` and `key_query_of`.
    """
    query = key_query @ parameters.query
    flow = cls_flow(
        Parameters(parameters.embeddings, query, parameters.head),
        corpus,
        until_norm=until_norm,
        until_log_time=until_log_time,
        path_log_times=path_log_times,
        settings=settings,
    )
    return key_query_of(key_query, parameters.query, flow.query), flow


@full_precision
def key_query_of(
    key_query: Float[Array, "dim dim"],
    cls: Float[Array, " dim"],
    query: Float[Array, " dim"],
) -> Float[Array, "dim dim"]:
    """W_t = W_0 + (u_t − W_0 p) pᵀ / ‖p‖²: a flow moves W along p alone.

    Source: mathematics, section 3h.

    Args:
        key_query: W_0.
        cls: p ≠ 0.
        query: u_t, which W_t makes of p.

    Returns:
        W_t.

    Example:
        >>> cls, query = jnp.array([2.0, 0.0]), jnp.array([6.0, 4.0])
        >>> key_query_of(jnp.eye(2), cls, query).tolist()
        [[3.0, 0.0], [2.0, 1.0]]
    """
    return key_query + jnp.outer(query - key_query @ cls, cls) / (cls @ cls)
