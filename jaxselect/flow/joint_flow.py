"""Flows in which p is not alone: with a trained head, or behind a key-query matrix.

`experiments.theory.joint` shows where they lead.
"""

from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree, Scalar

from ..arguments import as_annotated
from ..model.corpus import Corpus
from ..model.frame import frame
from ..model.objective import negative_gradient
from ..model.parameters import Parameters
from ..precision import full_precision
from ._both_modes import in_both_modes
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
        path_log_times: the log-times asked for; ∞ behind the end of the flow.
        path_cls: p at these times; ∞ behind the end of the flow.
        path_head: v at these times, likewise.
    """

    cls: Float[Array, " dim"]
    head: Float[Array, " dim"]
    log_time: Float[Scalar, ""]
    status: Int[Scalar, ""]
    num_steps: Int[Scalar, ""]
    path_log_times: Float[Array, " times"]
    path_cls: Float[Array, "times dim"]
    path_head: Float[Array, "times dim"]


@as_annotated
def cls_head_flow(
    parameters: Parameters,
    corpus: Corpus,
    *,
    until_log_time: Float[Scalar, ""] | float,
    path_log_times: Float[Array, " times"] | None = None,
    settings: FlowSettings = FlowSettings(),
) -> HeadFlow:
    """Gradient flow of p and v together, with E fixed.

    dp/ds = e^s Eᵀ(−∂L/∂a), dv/ds = e^s Eᵀ(−∂L/∂b), s = log(1+t). Late v = v_mm s + …,
    where v_mm = argmin ‖v‖ with y vᵀE_{s*} ≥ 1 for every selected token s*. A sequence
    that v_mm needs keeps a residual of order 1/t, so p = p_mm τ + ρ in the time
    τ = log(½ s²), and ‖p‖ grows like log log t. If v_mm needs every sequence, p points
    where it does alone. One that v_mm fits with room to spare fades faster than 1/t: of
    p it only asks to go on selecting, D_kᵀp ≥ 0 in place of D_kᵀp ≥ 1.

    Source: mathematics, sections 3h and 4b.

    Args:
        parameters: (E, p_0, v_0).
        corpus: n bags with labels ±1.
        until_log_time: log(1+t) to stop at; in float64 up to 10⁹, where the exponent
            log t − y f of a sequence still has digits.
        path_log_times: increasing values of log(1+t) to save p and v at; none by
            default.
        settings: tolerances and bounds.

    Returns:
        The end of the flow, its status and the path.

    Example:
        >>> from jaxselect.model.corpus import from_sequences
        >>> bags = from_sequences([[0, 2], [1, 2]], [1, -1], vocabulary=3)
        >>> v = jnp.array([1.0, -1.0, 0.0])
        >>> start = Parameters(jnp.eye(3), jnp.zeros(3), v)
        >>> end = jax.jit(cls_head_flow)(start, bags, until_log_time=1e4)
        >>> (end.head / jnp.linalg.norm(end.head)).round(2)[:2].tolist()
        [0.71, -0.71]
    """
    real = lambda times: jnp.asarray(times, parameters.cls.dtype)  # noqa: E731
    times = jax.tree.map(real, (until_log_time, path_log_times))
    inside = frame(parameters)
    flow = _head_flow((inside.parameters, corpus, *times), settings)
    places = lambda flow: (flow.cls, flow.path_cls)  # noqa: E731
    flow = eqx.tree_at(places, flow, replace_fn=inside.places)
    heads = lambda flow: (flow.head, flow.path_head)  # noqa: E731
    return eqx.tree_at(heads, flow, replace_fn=inside.heads)


@in_both_modes
@full_precision
def _head_flow(inputs: PyTree, settings: FlowSettings, adjoint: Any) -> HeadFlow:
    parameters, corpus, until_log_time, path_log_times = inputs
    dim, dtype = len(parameters.cls), parameters.cls.dtype
    subs = [dfx.SubSaveAt(t1=True)]
    if path_log_times is not None:
        subs.append(dfx.SubSaveAt(ts=path_log_times))
    solution: Any = dfx.diffeqsolve(
        dfx.ODETerm(_joint_field),
        Rodas5P(from_autodiff(_joint_field)),
        t0=jnp.zeros((), dtype),
        t1=until_log_time,
        dt0=None,
        y0=jnp.concatenate([parameters.cls, parameters.head]),
        args=(parameters.embeddings, corpus),
        saveat=dfx.SaveAt(subs=subs),
        stepsize_controller=settings.step_control(),
        max_steps=settings.max_steps,
        adjoint=adjoint,
        throw=False,
    )
    end = solution.ys[0][0]
    path_times, path = jnp.zeros(0, dtype), jnp.zeros((0, 2 * dim), dtype)
    if path_log_times is not None:
        path_times, path = solution.ts[1], solution.ys[1]
    slow = solution.result == dfx.RESULTS.max_steps_reached
    status = jnp.where(slow, FlowStatus.OUT_OF_STEPS, FlowStatus.FAILED)
    reached = (solution.result == dfx.RESULTS.successful) & jnp.isfinite(end).all()
    # equinox's constructor has an argument `cls` of its own: p goes by its place.
    return HeadFlow(
        end[:dim],
        head=end[dim:],
        log_time=solution.ts[0][0],
        status=jnp.where(reached, FlowStatus.REACHED, status).astype(jnp.int32),
        num_steps=solution.stats["num_steps"],
        path_log_times=path_times,
        path_cls=path[:, :dim],
        path_head=path[:, dim:],
    )


@as_annotated
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
        corpus: n bags with labels ±1.
        until_norm: ‖W p‖ to stop at.
        until_log_time: log(1 + ‖p‖² t) to stop at.
        path_log_times: increasing values of it to save W p at; none by default.
        settings: tolerances and bounds.

    Returns:
        W at the end, and the flow of W p in the time ‖p‖² t.

    Example:
        >>> from jaxselect.model.corpus import from_sequences
        >>> bags = from_sequences([[0, 2], [1, 2]], [1, -1], vocabulary=3)
        >>> v = jnp.array([1.0, -1.0, 0.0])
        >>> start = Parameters(jnp.eye(3), jnp.ones(3), v)
        >>> run, nothing = jax.jit(key_query_flow), jnp.zeros((3, 3))
        >>> matrix, _ = run(start, nothing, bags, until_norm=100.0)
        >>> round(jnp.linalg.norm(matrix @ start.cls).item(), 6)
        100.0
    """
    query = key_query @ parameters.cls
    flow = cls_flow(
        Parameters(parameters.embeddings, query, parameters.head),
        corpus,
        until_norm=until_norm,
        until_log_time=until_log_time,
        path_log_times=path_log_times,
        settings=settings,
    )
    return key_query_of(key_query, parameters.cls, flow.cls), flow


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


def _joint_field(
    log_time: PyTree, state: PyTree, args: PyTree
) -> Float[Array, " state"]:
    embeddings, corpus = args
    cls, head = jnp.split(state, 2)
    descent = negative_gradient(embeddings @ cls, embeddings @ head, corpus, log_time)
    return jnp.concatenate([descent.scores @ embeddings, descent.values @ embeddings])
