"""Gradient flow dp/dt = −∇_p L of the CLS embedding, to any norm or time.

In plain time the flow dies in floating point: its gradient shrinks like 1/t while ‖p‖
grows like log t. In s = log(1+t) the field is e^s Eᵀ(−∂L/∂a), whose exponents are exact
(`objective.negative_gradient`), and late the solution is the straight line p_mm s + ρ,
on which the solver's step grows without bound: ‖p‖ = 10⁶ costs a few steps more than
the last change of attention.
"""

import enum
from dataclasses import dataclass, field

import diffrax as dfx
import equinox as eqx
import jax.numpy as jnp
import optimistix as optx
from jaxtyping import Array, Float, Int, PyTree, Scalar

from .corpus import Corpus
from .objective import negative_gradient, score_curvature
from .parameters import Parameters
from .rosenbrock import Rodas5P


class FlowStatus(enum.IntEnum):
    """How a flow ended."""

    REACHED = 0
    """At the norm or the time that was asked for."""
    NORM_NOT_REACHED = 1
    """At `until_log_time`, with ‖p‖ still below `until_norm`."""
    OUT_OF_STEPS = 2
    """After `max_steps` steps."""
    FAILED = 3
    """At a number that is not finite; p and log_time are the last good ones."""


@dataclass(frozen=True)
class FlowSettings:
    """Static settings of the integration.

    Attributes:
        rtol: relative tolerance of a step, per coordinate of p.
        atol: absolute tolerance of a step, in units of p, that is of attention scores.
        max_steps: bound on the number of steps, rejected ones included.
        adjoint: how diffrax differentiates; `diffrax.ForwardMode()` for few inputs.
    """

    rtol: float = 1e-6
    atol: float = 1e-6
    max_steps: int = 8192
    adjoint: dfx.AbstractAdjoint = field(default_factory=dfx.RecursiveCheckpointAdjoint)


class Flow(eqx.Module):
    """Where a flow ended, and what was saved on the way.

    Attributes:
        cls: p at the end.
        log_time: log(1+t) at the end.
        status: a `FlowStatus`.
        num_steps: steps tried.
        num_rejected: of these, rejected.
        path_log_times: the log-times asked for; ∞ behind the end of the flow.
        path_cls: p at these times; ∞ behind the end of the flow.
    """

    cls: Float[Array, " dim"]
    log_time: Float[Scalar, ""]
    status: Int[Scalar, ""]
    num_steps: Int[Scalar, ""]
    num_rejected: Int[Scalar, ""]
    path_log_times: Float[Array, " times"]
    path_cls: Float[Array, "times dim"]


def cls_flow(
    parameters: Parameters,
    corpus: Corpus,
    until_norm: Float[Scalar, ""] | float = jnp.inf,
    until_log_time: Float[Scalar, ""] | float = 1e15,
    path_log_times: Float[Array, " times"] | None = None,
    settings: FlowSettings = FlowSettings(),
) -> Flow:
    """Gradient flow of p from p_0 with E and v fixed (paper, section 4).

    dp/ds = e^s Eᵀ(−∂L/∂a), s = log(1+t), ended where ‖p‖ or s first reaches its bound.

    Args:
        parameters: (E, p_0, v); in reduced coordinates the cost is free of d.
        corpus: n bags with labels ±1.
        until_norm: ‖p‖ to stop at; infinite for none.
        until_log_time: log(1+t) to stop at.
        path_log_times: increasing values of log(1+t) to save p at; none by default.
        settings: tolerances and bounds.

    Returns:
        The flow's end, its status and the path.

    Example:
        >>> import jax
        >>> from jaxselect import corpus, embedding_step, parameters
        >>> bags = corpus.from_sequences([[0, 2], [1, 2]], [1, -1], vocabulary=3)
        >>> start = parameters.gaussian_reduced(jax.random.key(0), 3, 1e4)
        >>> after = embedding_step.embedding_step(start, bags, 10.0)
        >>> flow = cls_flow(after, bags, until_norm=1e6)
        >>> FlowStatus(flow.status.item()).name, round(jnp.linalg.norm(flow.cls).item())
        ('REACHED', 1000000)
    """
    embeddings, cls = parameters.embeddings, parameters.cls
    args = (embeddings, embeddings @ parameters.head, corpus)
    subs = [dfx.SubSaveAt(t1=True)]
    if path_log_times is not None:
        subs.append(dfx.SubSaveAt(ts=path_log_times))
    # An event fires on crossing: a flow that starts beyond it ends where it starts.
    over = jnp.linalg.norm(cls) >= until_norm
    end = jnp.where(over, 0.0, jnp.asarray(until_log_time, cls.dtype))
    solution = dfx.diffeqsolve(
        dfx.ODETerm(_field),
        Rodas5P(_linearise),
        t0=jnp.zeros((), cls.dtype),
        t1=end,
        dt0=None,
        y0=cls,
        args=(args, jnp.asarray(until_norm, cls.dtype)),
        saveat=dfx.SaveAt(subs=subs),
        stepsize_controller=dfx.PIDController(settings.rtol, settings.atol),
        event=dfx.Event(_excess_norm, optx.Newton(rtol=1e-9, atol=1e-9), True),
        max_steps=settings.max_steps,
        adjoint=settings.adjoint,
        throw=False,
    )
    last_time, last_cls = solution.ts[0][0], solution.ys[0][0]
    in_time = solution.result == dfx.RESULTS.successful
    at_norm = (solution.result == dfx.RESULTS.event_occurred) | over
    slow = solution.result == dfx.RESULTS.max_steps_reached
    status = jnp.where(slow, FlowStatus.OUT_OF_STEPS, FlowStatus.FAILED)
    missed = jnp.where(
        jnp.isfinite(until_norm), FlowStatus.NORM_NOT_REACHED, FlowStatus.REACHED
    )
    status = jnp.where(in_time, missed, status)
    status = jnp.where(at_norm, FlowStatus.REACHED, status)
    finite = jnp.all(jnp.isfinite(last_cls))
    return Flow(
        last_cls,
        last_time,
        jnp.where(finite, status, FlowStatus.FAILED),
        solution.stats["num_steps"],
        solution.stats["num_rejected_steps"],
        jnp.zeros(0, cls.dtype) if path_log_times is None else solution.ts[1],
        jnp.zeros((0, len(cls)), cls.dtype)
        if path_log_times is None
        else solution.ys[1],
    )


def _field(log_time: PyTree, cls: PyTree, args: PyTree) -> Float[Array, " dim"]:
    (embeddings, values, corpus), _ = args
    scores = embeddings @ cls
    return negative_gradient(scores, values, corpus, log_time).scores @ embeddings


def _linearise(
    log_time: PyTree, cls: PyTree, args: PyTree
) -> tuple[PyTree, PyTree, PyTree]:
    (embeddings, values, corpus), _ = args
    gradient, jacobian = score_curvature(embeddings @ cls, values, corpus, log_time)
    pull = gradient @ embeddings
    # The field depends on s through the factor e^s alone: it is its own derivative.
    return pull, pull, embeddings.T @ jacobian @ embeddings


def _excess_norm(t: PyTree, y: PyTree, args: PyTree, **_: PyTree) -> Float[Scalar, ""]:
    return jnp.linalg.norm(y) - args[1]
