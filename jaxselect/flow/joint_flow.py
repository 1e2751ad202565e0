"""Flows in which p is not alone: with a trained head, or behind a key-query matrix."""

from typing import Any

import diffrax as dfx
import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree, Scalar

from ..model.corpus import Corpus
from ..model.objective import negative_gradient
from ..model.parameters import Parameters
from ._rosenbrock import Rodas5P, from_autodiff
from .cls_flow import Flow, FlowSettings, FlowStatus, cls_flow


class HeadFlow(eqx.Module):
    """Where a flow of p and v ended.

    Attributes:
        cls: p at the end.
        head: v at the end.
        log_time: log(1+t) at the end.
        status: a `FlowStatus`.
        num_steps: steps tried.
    """

    cls: Float[Array, " dim"]
    head: Float[Array, " dim"]
    log_time: Float[Scalar, ""]
    status: Int[Scalar, ""]
    num_steps: Int[Scalar, ""]


def cls_head_flow(
    parameters: Parameters,
    corpus: Corpus,
    until_log_time: Float[Scalar, ""] | float,
    settings: FlowSettings = FlowSettings(),
) -> HeadFlow:
    """Gradient flow of p and v together, with E fixed.

    dp/ds = e^s Eᵀ(−∂L/∂a), dv/ds = e^s Eᵀ(−∂L/∂b), s = log(1+t). The head grows like
    log t and the pull on p fades with the loss, so ‖p‖ grows like log log t; where it
    points is what training p alone would make of the same selection.

    Source: mathematics, section 3.

    Args:
        parameters: (E, p_0, v_0).
        corpus: n bags with labels ±1.
        until_log_time: log(1+t) to stop at.
        settings: tolerances and bounds.

    Returns:
        The end of the flow and its status.

    Example:
        >>> from jaxselect.model.corpus import from_sequences
        >>> bags = from_sequences([[0, 2], [1, 2]], [1, -1], vocabulary=3)
        >>> v = jnp.array([1.0, -1.0, 0.0])
        >>> start = Parameters(jnp.eye(3), jnp.zeros(3), v)
        >>> end = cls_head_flow(start, bags, until_log_time=1e4)
        >>> (end.head / jnp.linalg.norm(end.head)).round(2)[:2].tolist()
        [0.71, -0.71]
    """
    dim = len(parameters.cls)
    solution: Any = dfx.diffeqsolve(
        dfx.ODETerm(_joint_field),
        Rodas5P(from_autodiff(_joint_field)),
        t0=jnp.zeros((), parameters.cls.dtype),
        t1=jnp.asarray(until_log_time, parameters.cls.dtype),
        dt0=None,
        y0=jnp.concatenate([parameters.cls, parameters.head]),
        args=(parameters.embeddings, corpus),
        stepsize_controller=settings.step_control(),
        max_steps=settings.max_steps,
        adjoint=settings.adjoint,
        throw=False,
    )
    end = solution.ys[0]
    slow = solution.result == dfx.RESULTS.max_steps_reached
    status = jnp.where(slow, FlowStatus.OUT_OF_STEPS, FlowStatus.FAILED)
    reached = (solution.result == dfx.RESULTS.successful) & jnp.isfinite(end).all()
    return HeadFlow(
        end[:dim],
        end[dim:],
        solution.ts[0],
        jnp.where(reached, FlowStatus.REACHED, status).astype(jnp.int32),
        solution.stats["num_steps"],
    )


def key_query_flow(
    parameters: Parameters,
    key_query: Float[Array, "dim dim"],
    corpus: Corpus,
    until_norm: Float[Scalar, ""] | float = jnp.inf,
    until_log_time: Float[Scalar, ""] | float = 1e15,
    settings: FlowSettings = FlowSettings(),
) -> tuple[Float[Array, "dim dim"], Flow]:
    """Gradient flow of a key-query matrix W in front of a fixed p.

    The scores are E W p, so dW/dt = Eᵀ(−∂L/∂a) pᵀ and u = W p obeys the flow of a CLS
    embedding in the time ‖p‖² t: W_t = W_0 + (u_t − u_0) pᵀ / ‖p‖².

    Source: mathematics, section 3.

    Args:
        parameters: (E, p, v), all fixed; p ≠ 0.
        key_query: W_0.
        corpus: n bags with labels ±1.
        until_norm: ‖W p‖ to stop at.
        until_log_time: log(1 + ‖p‖² t) to stop at.
        settings: tolerances and bounds.

    Returns:
        W at the end, and the flow of W p in the time ‖p‖² t.

    Example:
        >>> from jaxselect.model.corpus import from_sequences
        >>> bags = from_sequences([[0, 2], [1, 2]], [1, -1], vocabulary=3)
        >>> v = jnp.array([1.0, -1.0, 0.0])
        >>> start = Parameters(jnp.eye(3), jnp.ones(3), v)
        >>> matrix, flow = key_query_flow(start, jnp.zeros((3, 3)), bags, 100.0)
        >>> round(jnp.linalg.norm(matrix @ start.cls).item(), 6)
        100.0
    """
    cls = parameters.cls
    query = key_query @ cls
    start = Parameters(parameters.embeddings, query, parameters.head)
    flow = cls_flow(
        start,
        corpus,
        until_norm=until_norm,
        until_log_time=until_log_time,
        settings=settings,
    )
    return key_query + jnp.outer(flow.cls - query, cls) / (cls @ cls), flow


def _joint_field(
    log_time: PyTree, state: PyTree, args: PyTree
) -> Float[Array, " state"]:
    embeddings, corpus = args
    cls, head = jnp.split(state, 2)
    descent = negative_gradient(embeddings @ cls, embeddings @ head, corpus, log_time)
    return jnp.concatenate([descent.scores @ embeddings, descent.values @ embeddings])
