"""Gradient flow of any of E, p and v together, at any rates, in log-time.

dE/dt = η (h_a pᵀ + h_b vᵀ), dp/dt = η_p Eᵀh_a, dv/dt = η_v Eᵀh_b, with h_a = −∂L/∂a and
h_b = −∂L/∂b. `experiments.theory.joint` shows where they lead.
"""

from functools import partial
from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import optimistix as optx
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PyTree, Scalar

from ..checks import at_least, increasing
from ..corpora.checks import for_corpus
from ..corpora.corpus import Corpus
from ..model.objective import log_strongest_pull
from ..model.parameters import Parameters
from ..precision import full_precision
from ._both_modes import in_both_modes
from ._event import event_shift
from ._joint_field import (
    JointProblem,
    JointRodas5P,
    JointState,
    field,
    flat,
    linearise,
    unflat,
)
from ._propagator import corrected
from ._recorder import Recorder, record
from ._step_control import PredictiveController
from .cls_flow import CANCELLATION_POWER
from .learning_rates import LearningRates
from .result import FlowStatus
from .settings import SHORTEST_STEP, FlowSettings

# With v fixed E Eᵀ grows like s², and an error of it acts on the scores in full size:
# at 1e-6 flows to s = 10⁶ leave the solution unseen, at this none of 24 does.
HEAD_FIXED = 1e-9


class JointFlow(eqx.Module):
    """The end of a joint flow, and its path.

    Attributes:
        embeddings: E at the end.
        query: p at the end.
        head: v at the end.
        log_time: log(1+t) at the end.
        status: a `FlowStatus`.
        num_steps: steps tried.
        num_rejected: of these, rejected.
        path_log_times: the log-times asked for; ∞ after the end of the flow.
        path_embeddings: E at these times; ∞ after the end of the flow.
        path_query: p, likewise.
        path_head: v, likewise.
    """

    embeddings: Float[Array, "vocabulary dim"]
    query: Float[Array, " dim"]
    head: Float[Array, " dim"]
    log_time: Float[Scalar, ""]
    status: Int[Scalar, ""]
    num_steps: Int[Scalar, ""]
    num_rejected: Int[Scalar, ""]
    path_log_times: Float[Array, " times"]
    path_embeddings: Float[Array, "times vocabulary dim"]
    path_query: Float[Array, "times dim"]
    path_head: Float[Array, "times dim"]


@for_corpus(-1, 1)
def joint_flow(
    parameters: Parameters,
    corpus: Corpus,
    *,
    rates: LearningRates = LearningRates(),
    until_log_time: Float[Scalar, ""] | float,
    path_log_times: Float[Array, " times"] | None = None,
    settings: FlowSettings = FlowSettings(),
) -> JointFlow:
    """Gradient flow of E, p and v together, each at its rate.

    dE/dτ = e^τ η (h_a pᵀ + h_b vᵀ), dp/dτ = e^τ η_p Eᵀh_a, dv/dτ = e^τ η_v Eᵀh_b, with
    τ = log(1+t). A step costs a system of 2|S| unknowns; d costs one product E Eᵀ and
    one with E.

    Source: mathematics, section 3i.

    Args:
        parameters: (E, p, v) at the start.
        corpus: n bags with labels ±1.
        rates: η, η_p and η_v; a rate of zero keeps its parameter fixed.
        until_log_time: log(1+t) to stop at; in float64 up to 10⁹, where the exponent
            log t − y f of a sequence still has digits, and up to 10⁶ where E is
            trained and v fixed.
        path_log_times: increasing values of log(1+t) to save E, p and v at; none by
            default.
        settings: tolerances and bounds; tolerances of E, p and v each, and at most
            `HEAD_FIXED` where E is trained and v fixed.

    Returns:
        The flow's end, its status and the path; differentiable once, in both modes.

    Raises:
        BadInput: another vocabulary, labels other than ±1, rates below zero or all
            zero, a bound that is NaN, times that go back.

    Example:
        >>> from jaxselect.corpora.corpus import from_sequences
        >>> bags = from_sequences([[0, 2], [1, 2]], [1, -1], vocabulary=3)
        >>> v = jnp.array([1.0, -1.0, 0.0])
        >>> start = Parameters(jnp.eye(3), jnp.zeros(3), v)
        >>> end = jax.jit(joint_flow)(start, bags, until_log_time=1e4)
        >>> value = end.embeddings[0] @ end.head
        >>> FlowStatus(end.status.item()).name, round(value.item(), -3)
        ('REACHED', 10000.0)
    """
    rates.check()
    at_least("until_log_time", until_log_time, 0.0)
    if path_log_times is not None:
        increasing("path_log_times", path_log_times)
    dtype = parameters.query.dtype
    times = jax.tree.map(
        lambda time: jnp.asarray(time, dtype), (until_log_time, path_log_times)
    )
    inputs = parameters, corpus, rates.array(dtype), *times
    found, cancelled = _integrate(lax.stop_gradient(inputs), settings)
    return _arrival((*inputs, found.log_time, cancelled), settings, known=found)


@in_both_modes
@full_precision
def _arrival(inputs: PyTree, settings: FlowSettings, adjoint: Any) -> JointFlow:
    """The flow to a known log-time: no event, whose search could raise."""
    *inputs, log_time, cancelled = inputs
    return _integrate(inputs, settings, adjoint, known_end=(log_time, cancelled))[0]


@full_precision
def _integrate(
    inputs: PyTree,
    settings: FlowSettings,
    adjoint: Any = None,
    *,
    known_end: tuple[Float[Scalar, ""], Bool[Scalar, ""]] | None = None,
) -> tuple[JointFlow, Bool[Scalar, ""]]:
    """The flow, and whether it ended where gradients cancel."""
    parameters, corpus, rates, until_log_time, path_log_times = inputs
    dtype = parameters.query.dtype
    pair = jnp.stack([parameters.query, parameters.head])
    vectors = jnp.concatenate([parameters.embeddings, pair])
    gram, identity = vectors @ vectors.T, jnp.eye(len(vectors), dtype=dtype)
    start = JointState(gram[:-2, :-2], gram[:-2, -2:], gram[-2:, -2:], identity)
    problem = JointProblem(corpus, rates)
    solver: Any = JointRodas5P(linearise)
    recorded = path_log_times is not None or known_end is not None
    if recorded:
        times = jnp.zeros(0, dtype) if path_log_times is None else path_log_times
        solver = Recorder(solver, times)
    if known_end is not None:
        end_time = jnp.minimum(known_end[0], until_log_time)
    solution: Any = dfx.diffeqsolve(
        dfx.ODETerm(field),
        solver,
        t0=jnp.zeros((), dtype),
        t1=until_log_time if known_end is None else end_time,
        dt0=None,
        y0=flat(start),
        args=problem,
        saveat=dfx.SaveAt(t1=True, solver_state=recorded),
        stepsize_controller=_step_control(settings, corpus.vocabulary, rates),
        event=dfx.Event(_excess_pull, optx.Newton(rtol=1e-9, atol=1e-9), direction=True)
        if known_end is None
        else None,
        max_steps=settings.max_steps,
        adjoint=adjoint or dfx.RecursiveCheckpointAdjoint(),
        throw=False,
    )
    if known_end is None:
        log_time, state = solution.ts[0], solution.ys[0]
        cancelled = solution.event_mask
    else:
        log_time, state = _shifted(solution, known_end[1], problem)
        cancelled = jnp.zeros((), bool)

    def parameters_of(vector: Array) -> Array:
        """(E, p, v) as rows; ∞ after the end of the flow."""
        there = jnp.isfinite(vector).all()
        state = unflat(jnp.where(there, vector, flat(start)), corpus.vocabulary)
        propagator = corrected(state.rows, state.both, gram, rates)
        return jnp.where(there, propagator @ vectors, jnp.inf)

    end = parameters_of(state)
    path_times, path = jnp.zeros(0, dtype), end[None][:0]
    if path_log_times is not None:
        path_times, path = record(
            solution.solver_state, path_log_times, 0.0, solution.ts[0]
        )
        path = jax.vmap(parameters_of)(path)
    flow = JointFlow(
        embeddings=end[:-2],
        query=end[-2],
        head=end[-1],
        log_time=log_time,
        status=_status(solution, cancelled, problem),
        num_steps=solution.stats["num_steps"],
        num_rejected=solution.stats["num_rejected_steps"],
        path_log_times=path_times,
        path_embeddings=path[:, :-2],
        path_query=path[:, -2],
        path_head=path[:, -1],
    )
    return flow, cancelled


def _shifted(
    solution: Any, ended: Bool[Scalar, ""], problem: JointProblem
) -> tuple[Float[Scalar, ""], Array]:
    """Time and state of the end, moving with its event."""
    log_time, state = solution.ts[0], solution.ys[0]
    slope = lax.stop_gradient(solution.solver_state[2])
    # Without an event any point will do at which h has a derivative.
    here = jnp.where(ended, state, lax.stop_gradient(state))
    excess = partial(_excess_pull, args=problem)
    step = event_shift(excess, log_time, here, slope, ended)
    return log_time + step, state + step * slope


def _step_control(
    settings: FlowSettings, vocabulary: int, rates: Float[Array, "3"]
) -> PredictiveController:
    """Errors of scores, values, E, p and v each against the tolerance."""
    fixed = lax.stop_gradient((rates[0] > 0) & (rates[2] == 0))

    def tolerance(asked: float) -> Float[Scalar, ""]:
        most = jnp.where(fixed, HEAD_FIXED, jnp.inf)
        return jnp.minimum(asked, most).astype(rates.dtype)

    def largest(errors: PyTree) -> Float[Scalar, ""]:
        parts = unflat(errors, vocabulary)
        each = [parts.tokens, parts.pair, *parts.both.T]
        each += [parts.rows[:-2], *parts.rows[-2:]]
        return jnp.stack([optx.rms_norm(part) for part in each]).max()

    return PredictiveController(
        tolerance(settings.rtol),
        tolerance(settings.atol),
        norm=largest,
        dtmin=SHORTEST_STEP,
        force_dtmin=False,
    )


@full_precision
def _excess_pull(t: PyTree, y: PyTree, args: PyTree, **_: PyTree) -> Float[Scalar, ""]:
    """Positive where pulls are so strong that their sum is rounding."""
    scores, values = unflat(y, args.corpus.vocabulary).both.T
    strongest = t + log_strongest_pull(scores, values, args.corpus)
    return (strongest + CANCELLATION_POWER * jnp.log(jnp.finfo(y.dtype).eps)).astype(
        float
    )


def _status(
    solution: Any, cancelled: Bool[Scalar, ""], problem: JointProblem
) -> Int[Scalar, ""]:
    slow = solution.result == dfx.RESULTS.max_steps_reached
    status = jnp.where(slow, FlowStatus.OUT_OF_STEPS, FlowStatus.FAILED)
    reached = solution.result == dfx.RESULTS.successful
    status = jnp.where(reached, FlowStatus.REACHED, status)
    spent = solution.result == dfx.RESULTS.dt_min_reached
    status = jnp.where(spent, FlowStatus.TIME_UNRESOLVED, status)
    held = _opposes(solution.ts[0], solution.ys[0], problem)
    held = jnp.where(held, FlowStatus.TIES_UNPROVED, FlowStatus.TIME_UNRESOLVED)
    status = jnp.where(cancelled, held, status)
    finite = jnp.isfinite(solution.ys[0]).all()
    return jnp.where(finite, status, FlowStatus.FAILED).astype(jnp.int32)


def _opposes(log_time: PyTree, state: Array, problem: JointProblem) -> Array:
    """Whether pulls oppose moving scores along the values, as in a tie."""
    _, _, jacobian = linearise(log_time, state, problem)
    size = problem.corpus.vocabulary
    values = jacobian.state.both[:, 1]
    return values @ jacobian.curvature[:size, :size] @ values < 0
