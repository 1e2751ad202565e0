"""Gradient flow dp/dt = −∇_p L of the CLS embedding, to any norm or time.

In plain time the flow dies in floating point: its gradient shrinks like 1/t while ‖p‖
grows like log t. In τ = log(1+t) the field is e^τ Eᵀ(−∂L/∂a), whose exponents are exact
(`objective.negative_gradient`), and late the solution is the straight line p_mm τ + ρ,
on which the solver's step grows without bound: ‖p‖ = 10⁶ costs a few steps more than
the last change of attention.
"""

from functools import partial
from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import optimistix as optx
from jaxtyping import Array, Bool, Float, Int, PyTree, Scalar

from ..checks import at_least, increasing
from ..corpora.checks import for_corpus
from ..corpora.corpus import Corpus
from ..model.attention import attend_corpus
from ..model.frame import frame
from ..model.objective import log_strongest_pull, negative_gradient
from ..model.parameters import Parameters
from ..precision import full_precision
from ._both_modes import in_both_modes
from ._event import event_shift
from ._field import MANY_AXES, Problem, aligned, field, linearise
from ._recorder import Recorder, record
from ._rosenbrock import Rodas5P
from ._switching import Switching
from .result import Flow as Flow
from .result import FlowStatus as FlowStatus
from .settings import FlowSettings as FlowSettings

# Latest checkpoint that counts as earlier than the end, as a fraction of its log-time.
EARLIER = 0.75
# Exponent: a term of the gradient above eps^(−this) leaves no digit of a sum that
# cancels. Tuned on the default sweep and in float32.
CANCELLATION_POWER = 0.7
# Share of a held sequence's weight at which a token that lost is back.
RETURNED = 1e-3


@for_corpus(by_head=True)
def cls_flow(
    parameters: Parameters,
    corpus: Corpus,
    *,
    until_norm: Float[Scalar, ""] | float = jnp.inf,
    until_log_time: Float[Scalar, ""] | float = 1e15,
    from_log_time: Float[Scalar, ""] | float = 0.0,
    path_log_times: Float[Array, " times"] | None = None,
    held: Bool[Array, " sequences"] | None = None,
    settings: FlowSettings = FlowSettings(),
) -> Flow:
    """Gradient flow of p from p_0 with E and v fixed.

    dp/dτ = e^τ Eᵀ(−∂L/∂a), τ = log(1+t), ended where ‖p‖ or τ first reaches its bound.

    Source: mathematics, sections 3, 3a, 3g and 4b.

    Args:
        parameters: (E, p_0, v); d costs one factorisation of E.
        corpus: n labelled bags.
        until_norm: ‖p‖ to stop at; infinite for none.
        until_log_time: log(1+t) to stop at.
        from_log_time: log(1+t) at which p is p_0, to go on from the end of a flow.
        path_log_times: increasing values of log(1+t) to save p at; none by default.
        held: sequences in which another token than the top one must not come back: the
            flow ends as SELECTION_CHANGED where it has a thousandth of the weight.
        settings: tolerances and bounds.

    Returns:
        The flow's end, its status and the path; differentiable once, in both modes.

    Raises:
        BadInput: another vocabulary, labels that do not suit the head, a bound that is
            NaN or a norm below 0, times that go back.

    Example:
        >>> from jaxselect.corpora.corpus import from_sequences
        >>> bags = from_sequences([[0, 1]], [1], vocabulary=2)
        >>> after = Parameters(jnp.eye(2), jnp.zeros(2), jnp.array([1.0, 0.0]))
        >>> flow = jax.jit(cls_flow)(after, bags, until_norm=1e6)
        >>> FlowStatus(flow.status.item()).name
        'REACHED'
        >>> round(jnp.linalg.norm(flow.query).item())
        1000000
    """
    at_least("until_norm", until_norm, 0.0)
    at_least("until_log_time", until_log_time, from_log_time, "from_log_time")
    if path_log_times is not None:
        increasing("path_log_times", path_log_times)
    bounds = from_log_time, until_norm, until_log_time, path_log_times
    real = partial(jnp.asarray, dtype=parameters.query.dtype)
    inside = frame(parameters)
    inputs = (inside.parameters, corpus, *jax.tree.map(real, bounds), held)
    found, events, _ = _integrate(jax.lax.stop_gradient(inputs), settings)
    return with_derivatives(inputs, settings, found, events).turned(inside.lift_points)


def with_derivatives(
    inputs: PyTree,
    settings: FlowSettings,
    found: Flow,
    events: tuple[Bool[Scalar, ""], ...],
) -> Flow:
    """A flow found without derivatives, differentiable in its inputs."""
    return _arrival((*inputs, found.log_time, events), settings, known=found)


@in_both_modes
@full_precision
def _arrival(inputs: PyTree, settings: FlowSettings, adjoint: Any) -> Flow:
    """The flow to a known log-time, corrected to where it ends.

    No event is searched for. Where one ended the flow, h(s, p) = 0, the end moves by
    dτ = −dh/h′ and p by dp/dτ dτ. The slope dp/dτ is that of the interpolant: the field
    itself multiplies the error of p by e^τ where gradients oppose each other.
    """
    *inputs, end, events = inputs
    parameters, corpus, begin, until_norm, until_log_time, times, held = inputs
    log_time = jnp.where(end < until_log_time, end, until_log_time)
    log_time = jnp.where(end > begin, log_time, begin)
    bounds = begin, jnp.full_like(until_norm, jnp.inf), log_time
    flow, _, slope = _integrate(
        (parameters, corpus, *bounds, times, held), settings, adjoint, events=False
    )
    ended = jnp.stack(events).any()
    # Without an event any point will do at which h has a derivative.
    query, slope = jnp.where(ended, flow.query, 1.0), jax.lax.stop_gradient(slope)

    def excess(log_time: PyTree, query: PyTree) -> Float[Scalar, ""]:
        scores, values = (
            parameters.embeddings @ query,
            parameters.embeddings @ parameters.head,
        )
        strongest = log_time + log_strongest_pull(scores, values, corpus)
        found = jnp.where(events[0], jnp.linalg.norm(query) - until_norm, strongest)
        if held is None:
            return found
        return jnp.where(events[2], _log_returned(scores, values, corpus, held), found)

    step = event_shift(excess, end, query, slope, ended)
    moved = flow.query + step * jnp.where(ended, slope, 0.0), log_time + step
    return eqx.tree_at(lambda flow: (flow.query, flow.log_time), flow, moved)


@full_precision
def _integrate(
    inputs: PyTree,
    settings: FlowSettings,
    adjoint: Any = None,
    *,
    events: bool = True,
) -> tuple[Flow, tuple[Bool[Scalar, ""], ...], Float[Array, " dim"]]:
    """The flow; whether it ended at the norm or in cancellation; dp/dτ.

    The slope is known where no event is searched for, and zero otherwise.
    """
    parameters, corpus, begin, until_norm, until_log_time, *rest = inputs
    path_log_times, held = rest
    rotation, problem = aligned(parameters, corpus, until_norm, held)
    start = jnp.zeros_like(problem.start)
    large = min(problem.rows.shape) >= MANY_AXES
    implicit = Rodas5P(linearise, moving_frame=adjoint is None)
    solver: Any = Switching(implicit) if large else implicit
    recorded = path_log_times is not None or not events
    if recorded:
        times = start[:0] if path_log_times is None else path_log_times
        solver = Recorder(solver, times)
    stops: tuple = (_excess_norm, _excess_pull)
    if held is not None:
        stops += (_excess_return,)
    # An event fires on crossing: a flow that starts beyond it ends where it starts.
    over = jnp.linalg.norm(problem.start) >= until_norm
    solution: Any = dfx.diffeqsolve(
        dfx.ODETerm(field),
        solver,
        t0=begin,
        t1=jnp.where(over, begin, until_log_time),
        dt0=None,
        y0=start,
        args=problem,
        saveat=dfx.SaveAt(t1=True, solver_state=recorded, controller_state=True),
        stepsize_controller=settings.score_control(start.dtype),
        event=dfx.Event(
            stops,
            optx.Newton(rtol=1e-9, atol=1e-9),
            direction=(True,) * len(stops),
        )
        if events
        else None,
        max_steps=settings.max_steps,
        adjoint=adjoint or dfx.RecursiveCheckpointAdjoint(),
        throw=False,
    )
    earlier_time, earlier = _earlier(solution)
    path_times, path = start[:0], start[None][:0]
    if path_log_times is not None:
        path_times, path = record(
            solution.solver_state, path_log_times, begin, solution.ts[0]
        )
        reached = jnp.isfinite(path_times)[:, None]
        path = jnp.where(reached, path, 0.0) @ rotation.T
        path = jnp.where(reached, parameters.query[None] + path, jnp.inf)
    growth = _growth(problem, solution.ts[0], solution.ys[0])
    mask = solution.event_mask if events else (jnp.zeros((), bool),) * len(stops)
    # Check ‖p‖ itself: event location can fail where ‖p‖ changes within rounding of s.
    off = jnp.abs(jnp.linalg.norm(problem.start + solution.ys[0]) - until_norm)
    there = off <= jnp.sqrt(jnp.finfo(start.dtype).eps) * until_norm
    flow = Flow(
        query=parameters.query + solution.ys[0] @ rotation.T,
        log_time=solution.ts[0],
        status=_status(solution, mask, over, until_norm != jnp.inf, there, growth),
        num_steps=solution.stats["num_steps"],
        num_rejected=solution.stats["num_rejected_steps"],
        path_log_times=path_times,
        path_query=path,
        earlier_log_time=earlier_time,
        earlier_query=parameters.query + earlier @ rotation.T,
    )
    slope = start if events else solution.solver_state[2] @ rotation.T
    return flow, mask, slope


@for_corpus(by_head=True)
@full_precision
def velocity(
    parameters: Parameters,
    corpus: Corpus,
    log_time: Float[Scalar, ""] | float,
    query: Float[Array, " dim"],
) -> Float[Array, " dim"]:
    """The field dp/dτ = e^τ Eᵀ(−∂L/∂a) of the flow in τ = log(1+t).

    Source: mathematics, section 3a.

    Args:
        parameters: (E, ·, v).
        corpus: n labelled bags.
        log_time: s.
        query: p.

    Returns:
        dp/dτ; late it is p_mm.

    Example:
        >>> from jaxselect.corpora.corpus import from_sequences
        >>> bags = from_sequences([[0, 1]], [1], vocabulary=2)
        >>> start = Parameters(jnp.eye(2), jnp.zeros(2), jnp.array([1.0, 0.0]))
        >>> late = velocity(start, bags, 1000.0, jnp.array([500.0, -500.0]))
        >>> [round(x, 4) for x in late.tolist()]
        [0.2689, -0.2689]
    """
    embeddings = parameters.embeddings
    scores, values = embeddings @ query, embeddings @ parameters.head
    return negative_gradient(scores, values, corpus, log_time).scores @ embeddings


def _earlier(solution: Any) -> tuple[Float[Scalar, ""], Float[Array, " dim"]]:
    """Time and displacement of the last checkpoint before `EARLIER` of the end."""
    _, (times, states) = jax.lax.stop_gradient(solution.controller_state)
    end = jax.lax.stop_gradient(solution.ts[0])
    last = jnp.maximum(jnp.sum(times <= EARLIER * end) - 1, 0)
    return times[last], states[last]


def _excess_norm(t: PyTree, y: PyTree, args: PyTree, **_: PyTree) -> Float[Scalar, ""]:
    # diffrax wants the value of an event in the default precision.
    return (jnp.linalg.norm(args.start + y) - args.until_norm).astype(float)


@full_precision
def _excess_pull(t: PyTree, y: PyTree, args: PyTree, **_: PyTree) -> Float[Scalar, ""]:
    """Positive where pulls are so strong that their sum is rounding."""
    scores = args.scores + args.rows @ y
    strongest = t + log_strongest_pull(scores, args.values, args.corpus)
    most = -CANCELLATION_POWER * jnp.log(jnp.finfo(y.dtype).eps)
    return (strongest - most).astype(float)


@full_precision
def _excess_return(t: PyTree, y: PyTree, args: PyTree, **_: PyTree) -> PyTree:
    """Positive where a token that lost is back in a held sequence."""
    scores = args.scores + args.rows @ y
    return _log_returned(scores, args.values, args.corpus, args.held).astype(float)


def _log_returned(
    scores: Float[Array, " vocabulary"],
    values: Float[Array, " vocabulary *classes"],
    corpus: Corpus,
    held: Bool[Array, " sequences"],
) -> Float[Scalar, ""]:
    """Log of the largest share off the top in a held sequence, over `RETURNED`."""
    attention = attend_corpus(scores, values, corpus)
    watched = corpus.present & held[:, None] & ~corpus.marks(attention.top)
    log_share = jnp.max(jnp.where(watched, attention.log_weights, -jnp.inf))
    # Newton's method, which finds the time of an event, wants a number.
    return jnp.where(watched.any(), log_share - jnp.log(RETURNED), -1.0)


def _growth(
    problem: Problem, log_time: Float[Scalar, ""], moved: Float[Array, " dim"]
) -> Float[Scalar, ""]:
    """−e^τ vᵀ(∂²L/∂p²)v: below zero where the pulls oppose a move of p along v.

    Along v each f moves by the variance of b under its weights, so that every pair of
    tokens takes part: in a balance against the move, in a change of places with it.
    With several heads all of them must not grow: the sum, or the largest above zero.
    """
    values, scores = problem.values, problem.scores + problem.rows @ moved

    def pull(scores: Float[Array, " vocabulary"]) -> Float[Array, " vocabulary"]:
        return negative_gradient(scores, values, problem.corpus, log_time).scores

    def along(value: Float[Array, " vocabulary"]) -> Float[Scalar, ""]:
        return jax.jvp(lambda scores: value @ pull(scores), (scores,), (value,))[1]

    if values.ndim == 1:
        return along(values)
    each = jax.vmap(along)(values.T)
    return jnp.where(jnp.any(each > 0), each.max(), each.sum())


def _status(
    solution: Any,
    events: tuple[Bool[Scalar, ""], ...],
    over: Bool[Scalar, ""],
    bounded: Bool[Scalar, ""],
    there: Bool[Scalar, ""],
    growth: Float[Scalar, ""],
) -> Int[Scalar, ""]:
    at_norm, too_strong, *returned = events
    at_time = solution.result == dfx.RESULTS.successful
    slow = solution.result == dfx.RESULTS.max_steps_reached
    status = jnp.where(slow, FlowStatus.OUT_OF_STEPS, FlowStatus.FAILED)
    missed = jnp.where(bounded, FlowStatus.NORM_NOT_REACHED, FlowStatus.REACHED)
    status = jnp.where(at_time, missed, status)
    spent = (solution.result == dfx.RESULTS.dt_min_reached) & jnp.isfinite(growth)
    status = jnp.where(spent, FlowStatus.TIME_UNRESOLVED, status)
    held = jnp.where(growth < 0, FlowStatus.TIES_UNPROVED, FlowStatus.TIME_UNRESOLVED)
    status = jnp.where(too_strong, held, status)
    passed = jnp.where(there, FlowStatus.REACHED, FlowStatus.TIME_UNRESOLVED)
    status = jnp.where(at_norm, passed, status)
    for back in returned:
        status = jnp.where(back, FlowStatus.SELECTION_CHANGED, status)
    status = jnp.where(over, FlowStatus.REACHED, status)
    finite = jnp.all(jnp.isfinite(solution.ys[0]))
    return jnp.where(finite, status, FlowStatus.FAILED).astype(jnp.int32)
