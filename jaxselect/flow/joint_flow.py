"""Gradient flow of any of E, p and v together, at any rates, in log-time.

dE/dt = η (h_a pᵀ + h_b vᵀ), dp/dt = r_p Eᵀh_a, dv/dt = r_v Eᵀh_b, with h_a = −∂L/∂a and
h_b = −∂L/∂b. `experiments.theory.joint` shows where they lead.
"""

import math
from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import optimistix as optx
from jaxtyping import Array, Float, Int, PyTree, Scalar

from ..arguments import as_annotated
from ..errors import BadInput
from ..model.checks import (
    for_corpus,
    increasing,
    labels_among,
    numbers,
    same_vocabulary,
)
from ..model.corpus import Corpus
from ..model.objective import log_strongest_pull
from ..model.parameters import Parameters
from ..precision import full_precision
from ._both_modes import in_both_modes
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
from .cls_flow import CANCELLATION_POWER, SHORTEST_STEP, FlowSettings, FlowStatus


class LearningRates(eqx.Module):
    """Rate of each parameter in units of time; zero keeps it as it is.

    Attributes:
        embeddings: η of E.
        cls: r_p of p.
        head: r_v of v.
    """

    embeddings: Float[Scalar, ""] | float = 1.0
    cls: Float[Scalar, ""] | float = 1.0
    head: Float[Scalar, ""] | float = 1.0

    def array(self, dtype: Any) -> Float[Array, "3"]:
        """(η, r_p, r_v)."""
        both = (self.embeddings, self.cls, self.head)
        return jnp.stack([jnp.asarray(rate, dtype) for rate in both])

    def check(self) -> None:
        """Refuse concrete rates that are below zero, infinite, NaN or all zero.

        Raises:
            BadInput: what arrived and what was wanted.
        """
        given = (self.embeddings, self.cls, self.head)
        if any(isinstance(rate, jax.core.Tracer) for rate in given):
            return
        shown = [float(rate) for rate in given]
        if not all(0 <= rate < math.inf for rate in shown) or not any(shown):
            raise BadInput(f"rates {shown}: wanted numbers ≥ 0, one of them above 0")


class JointFlow(eqx.Module):
    """The end of a joint flow, and its path.

    Attributes:
        embeddings: E at the end.
        cls: p at the end.
        head: v at the end.
        log_time: log(1+t) at the end.
        status: a `FlowStatus`.
        num_steps: steps tried.
        num_rejected: of these, rejected.
        path_log_times: the log-times asked for; ∞ after the end of the flow.
        path_embeddings: E at these times; ∞ after the end of the flow.
        path_cls: p, likewise.
        path_head: v, likewise.
    """

    embeddings: Float[Array, "vocabulary dim"]
    cls: Float[Array, " dim"]
    head: Float[Array, " dim"]
    log_time: Float[Scalar, ""]
    status: Int[Scalar, ""]
    num_steps: Int[Scalar, ""]
    num_rejected: Int[Scalar, ""]
    path_log_times: Float[Array, " times"]
    path_embeddings: Float[Array, "times vocabulary dim"]
    path_cls: Float[Array, "times dim"]
    path_head: Float[Array, "times dim"]


@for_corpus(-1, 1)
@as_annotated
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

    dE/ds = e^s η (h_a pᵀ + h_b vᵀ), dp/ds = e^s r_p Eᵀh_a, dv/ds = e^s r_v Eᵀh_b, with
    s = log(1+t). A step costs a system of 2|S| unknowns; d costs one product E Eᵀ and
    one with E.

    Source: mathematics, section 3i.

    Args:
        parameters: (E, p, v) at the start.
        corpus: n bags with labels ±1.
        rates: η, r_p and r_v; a rate of zero keeps its parameter fixed.
        until_log_time: log(1+t) to stop at; in float64 up to 10⁹, where the exponent
            log t − y f of a sequence still has digits. With E trained and v fixed E Eᵀ
            grows like s², and small scores keep an error of s² roundings.
        path_log_times: increasing values of log(1+t) to save E, p and v at; none by
            default.
        settings: tolerances and bounds; tolerances of E, p and v each.

    Returns:
        The flow's end, its status and the path; differentiable once, in both modes.

    Raises:
        BadInput: another vocabulary, labels other than ±1, rates below zero or all
            zero, a bound that is NaN, times that go back.

    Example:
        >>> from jaxselect.model.corpus import from_sequences
        >>> bags = from_sequences([[0, 2], [1, 2]], [1, -1], vocabulary=3)
        >>> v = jnp.array([1.0, -1.0, 0.0])
        >>> start = Parameters(jnp.eye(3), jnp.zeros(3), v)
        >>> end = jax.jit(joint_flow)(start, bags, until_log_time=1e4)
        >>> value = end.embeddings[0] @ end.head
        >>> FlowStatus(end.status.item()).name, round(value.item(), -3)
        ('REACHED', 10000.0)
    """
    same_vocabulary(parameters.embeddings, corpus.vocabulary)
    labels_among(corpus.labels, (-1, 1))
    rates.check()
    numbers(until_log_time=until_log_time)
    increasing("0, until_log_time", [0.0, until_log_time])
    if path_log_times is not None:
        increasing("path_log_times", path_log_times)
    dtype = parameters.cls.dtype
    times = jax.tree.map(
        lambda time: jnp.asarray(time, dtype), (until_log_time, path_log_times)
    )
    return _joint_flow((parameters, corpus, rates.array(dtype), *times), settings)


@for_corpus(-1, 1)
@as_annotated
def cls_head_flow(
    parameters: Parameters,
    corpus: Corpus,
    *,
    until_log_time: Float[Scalar, ""] | float,
    path_log_times: Float[Array, " times"] | None = None,
    settings: FlowSettings = FlowSettings(),
) -> JointFlow:
    """Gradient flow of p and v together, with E fixed: `joint_flow` at η = 0.

    Late v = v_mm s + …, where v_mm = argmin ‖v‖ with y vᵀE_{s*} ≥ 1 for every selected
    token s*. A sequence that v_mm needs keeps a residual of order 1/t, so
    p = p_mm τ + ρ in the time τ = log(½ s²), and ‖p‖ grows like log log t. If v_mm
    needs every sequence, p points where it does alone. One that v_mm fits with room to
    spare fades faster than 1/t: of p it only asks to go on selecting, D_kᵀp ≥ 0 in
    place of D_kᵀp ≥ 1.

    Source: mathematics, sections 3h and 4b.

    Args:
        parameters: (E, p_0, v_0).
        corpus: n bags with labels ±1.
        until_log_time: log(1+t) to stop at, as in `joint_flow`.
        path_log_times: increasing values of log(1+t) to save p and v at; none by
            default.
        settings: tolerances and bounds.

    Returns:
        The end of the flow, its status and the path.

    Raises:
        BadInput: as `joint_flow`.

    Example:
        >>> from jaxselect.model.corpus import from_sequences
        >>> bags = from_sequences([[0, 2], [1, 2]], [1, -1], vocabulary=3)
        >>> v = jnp.array([1.0, -1.0, 0.0])
        >>> start = Parameters(jnp.eye(3), jnp.zeros(3), v)
        >>> end = jax.jit(cls_head_flow)(start, bags, until_log_time=1e4)
        >>> (end.head / jnp.linalg.norm(end.head)).round(2)[:2].tolist()
        [0.71, -0.71]
    """
    return joint_flow(
        parameters,
        corpus,
        rates=LearningRates(embeddings=0.0),
        until_log_time=until_log_time,
        path_log_times=path_log_times,
        settings=settings,
    )


@in_both_modes
@full_precision
def _joint_flow(inputs: PyTree, settings: FlowSettings, adjoint: Any) -> JointFlow:
    parameters, corpus, rates, until_log_time, path_log_times = inputs
    dtype = parameters.cls.dtype
    pair = jnp.stack([parameters.cls, parameters.head])
    vectors = jnp.concatenate([parameters.embeddings, pair])
    gram, identity = vectors @ vectors.T, jnp.eye(len(vectors), dtype=dtype)
    start = JointState(gram[:-2, :-2], gram[:-2, -2:], gram[-2:, -2:], identity)
    problem = JointProblem(corpus, rates)
    solver: Any = JointRodas5P(linearise)
    if path_log_times is not None:
        solver = Recorder(solver, path_log_times)
    solution: Any = dfx.diffeqsolve(
        dfx.ODETerm(field),
        solver,
        t0=jnp.zeros((), dtype),
        t1=until_log_time,
        dt0=None,
        y0=flat(start),
        args=problem,
        saveat=dfx.SaveAt(t1=True, solver_state=path_log_times is not None),
        stepsize_controller=_step_control(settings, corpus.vocabulary),
        event=dfx.Event(
            _excess_pull, optx.Newton(rtol=1e-9, atol=1e-9), direction=True
        ),
        max_steps=settings.max_steps,
        adjoint=adjoint,
        throw=False,
    )

    def parameters_of(vector: Array) -> Array:
        """(E, p, v) as rows; ∞ after the end of the flow."""
        there = jnp.isfinite(vector).all()
        state = unflat(jnp.where(there, vector, flat(start)), corpus.vocabulary)
        propagator = corrected(state.rows, state.both, gram, rates)
        return jnp.where(there, propagator @ vectors, jnp.inf)

    end = parameters_of(solution.ys[0])
    path_times, path = jnp.zeros(0, dtype), end[None][:0]
    if path_log_times is not None:
        path_times, path = record(
            solution.solver_state, path_log_times, 0.0, solution.ts[0]
        )
        path = jax.vmap(parameters_of)(path)
    return JointFlow(
        # Equinox has a `cls` of its own: no keyword.
        end[:-2],
        end[-2],
        head=end[-1],
        log_time=solution.ts[0],
        status=_status(solution, problem),
        num_steps=solution.stats["num_steps"],
        num_rejected=solution.stats["num_rejected_steps"],
        path_log_times=path_times,
        path_embeddings=path[:, :-2],
        path_cls=path[:, -2],
        path_head=path[:, -1],
    )


def _step_control(settings: FlowSettings, vocabulary: int) -> PredictiveController:
    """Errors of scores, values, E, p and v each against the tolerance."""

    def largest(errors: PyTree) -> Float[Scalar, ""]:
        parts = unflat(errors, vocabulary)
        each = [parts.tokens, parts.pair, *parts.both.T]
        each += [parts.rows[:-2], *parts.rows[-2:]]
        return jnp.stack([optx.rms_norm(part) for part in each]).max()

    return PredictiveController(
        settings.rtol,
        settings.atol,
        norm=largest,
        dtmin=SHORTEST_STEP,
        force_dtmin=False,
    )


@full_precision
def _excess_pull(t: PyTree, y: PyTree, args: PyTree, **_: PyTree) -> Float[Scalar, ""]:
    """Positive where single pulls are so strong that their sum is mostly rounding."""
    scores, values = unflat(y, args.corpus.vocabulary).both.T
    strongest = t + log_strongest_pull(scores, values, args.corpus)
    return (strongest + CANCELLATION_POWER * jnp.log(jnp.finfo(y.dtype).eps)).astype(
        float
    )


def _status(solution: Any, problem: JointProblem) -> Int[Scalar, ""]:
    slow = solution.result == dfx.RESULTS.max_steps_reached
    status = jnp.where(slow, FlowStatus.OUT_OF_STEPS, FlowStatus.FAILED)
    reached = solution.result == dfx.RESULTS.successful
    status = jnp.where(reached, FlowStatus.REACHED, status)
    spent = solution.result == dfx.RESULTS.dt_min_reached
    status = jnp.where(spent, FlowStatus.TIME_UNRESOLVED, status)
    held = _opposes(solution.ts[0], solution.ys[0], problem)
    held = jnp.where(held, FlowStatus.TIES_UNPROVED, FlowStatus.TIME_UNRESOLVED)
    status = jnp.where(solution.event_mask, held, status)
    finite = jnp.isfinite(solution.ys[0]).all()
    return jnp.where(finite, status, FlowStatus.FAILED).astype(jnp.int32)


def _opposes(log_time: PyTree, state: Array, problem: JointProblem) -> Array:
    """Whether pulls oppose a move of the scores along the values, as in a tie."""
    _, _, jacobian = linearise(log_time, state, problem)
    size = problem.corpus.vocabulary
    values = jacobian.state.both[:, 1]
    return values @ jacobian.curvature[:size, :size] @ values < 0
