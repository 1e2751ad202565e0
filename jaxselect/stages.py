"""The flow of a problem to its end, stage by stage, and what is certified of it.

A stage ends when opposing forces cancel to below rounding. If the tied tokens are
proved to rest, the next stage integrates the contracted problem. If a token returns to
a tie, the next stage integrates the whole problem on a clock that starts there. If the
selected token changes too suddenly for log(1+t) to resolve the time, the same problem
continues on such a clock (mathematics, section 3g).
"""

import dataclasses
import enum
import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Scalar
from numpy.typing import ArrayLike

from .checks import BadInput, between, increasing, of_kind, positive, reals, whole
from .compilation import compiled_alone, full_precision, is_traced, progress
from .data.components import centred_in_components
from .flow.cls import Flow, TieBounds, arrived, cls_flow
from .flow.control import STEPPERS, FlowSettings
from .flow.dissipation import dissipates
from .flow.integration import cancellation
from .margin.certificate import (
    CERTIFIED,
    FURTHER,
    TOLERANCE,
    Certificate,
    TrialStatus,
    certificate_of,
    certify,
    covered_by,
    outcome_of,
    predict_end,
    resolves,
    selection,
)
from .margin.derivatives import differentiable
from .margin.final import direction_is_final
from .margin.limit import Limit
from .margin.max_margin import MaxMargin
from .margin.pairs import AbstractPairs, concrete_pairs
from .margin.risk import BestEntries, best_entries
from .margin.span import span
from .problem import Problem, check, stratified
from .report import (
    Names,
    attended,
    dataset,
    error_constant,
    has_best,
    kept,
    scores_of,
    summary,
    table,
)
from .status import Reason, Status
from .ties import Ties, contract, find_ties, no_ties

if TYPE_CHECKING:
    import xarray

# Largest log-time. Every run reaches its norm before it, but one that is at rest.
LATEST = 1e15

# Bound on the stages of a run: those that take more go from one return to the next.
STAGES = 24

# Share of trained − start outside the span of row differences that is reported. Chosen:
# descent in single precision stays below it.
OUTSIDE = 1e-4

# From so many entries on a Hessian is worth keeping: measured.
_LARGE = 2**13
# From so many numbers in entries and rows on a program is worth optimising: measured.
_LONG = 2**20

# ‖p‖ at which an end is judged first where no norm is given. Chosen: beyond 10⁴ a
# decade takes few steps.
FIRST_NORM = 1e4

# Time that ties get to settle, in units of 1/μ.
_SETTLING = 1000.0
# Log-time that the whole problem is given beyond the cancellation of its forces: two
# digits of their sum are accurate then.
_MORE = 6.0


def _runs_long(problem: Problem, *_: Any, **__: Any) -> bool:
    """Whether the flow of a problem runs for longer than its program compiles."""
    return problem.offsets.size + problem.rows.size >= _LONG


class Next(enum.IntEnum):
    """What the stage after another one integrates.

    Attributes:
        NOTHING: no further stage would help.
        WHOLE: the whole problem, on a clock that starts here.
        CONTRACTED: forces cancel: the problem without its ties, if these rest.
        SETTLED: the same, after ties had more time to settle.
        CONTINUED: the contracted problem of the stage before.
    """

    NOTHING = 0
    WHOLE = 1
    CONTRACTED = 2
    SETTLED = 3
    CONTINUED = 4


class Point(eqx.Module):
    """State of a run between two stages.

    The field does not depend on time, so a stage may measure time from its own start,
    which resolves changes that log(1+t) cannot.

    Attributes:
        query: p.
        clock_start: log(1+t) at which the clock of the last stage began.
        clock_log_time: log(1+t′), t′ the time on that clock.
        next: the `Next` that is to follow.
    """

    query: Float[Array, " dim"]
    clock_start: Float[Scalar, ""]
    clock_log_time: Float[Scalar, ""]
    next: Int[Scalar, ""]


def log_time_of(
    origin: Float[Scalar, ""],
    own: Float[Scalar, ""],
    begun: Float[Scalar, ""] | float = 0.0,
) -> Float[Scalar, ""]:
    """Add times given by their logarithms: log(1 + t_origin + t′ − t′_begun)."""
    # log t′ = τ′ + log(1 − e^{−τ′}), and likewise from t′_begun on.
    some = jnp.where(own > begun, own - begun, 1.0)
    elapsed = jnp.where(own > begun, own + jnp.log(-jnp.expm1(-some)), -jnp.inf)
    return jnp.where(origin > 0, jnp.logaddexp(origin, elapsed), own)


def own_time_of(
    origin: Float[Scalar, ""],
    log_times: Float[Array, " times"],
    begun: Float[Scalar, ""] | float = 0.0,
) -> Float[Array, " times"]:
    """Invert `log_time_of`: log(1+t′) on a clock at log-times of the run, or −1."""
    exponents = begun - log_times, origin - log_times
    # t′ = t − t_origin + t′_begun, in units of 1 + t.
    share = jnp.exp(exponents[0]) - jnp.exp(exponents[1])
    later = share > -1
    own = log_times + jnp.log1p(jnp.where(later, share, 0.0))
    return jnp.where(later, jnp.maximum(own, -1.0), -1.0)


class Stage(eqx.Module):
    """One stage of a flow.

    Attributes:
        problem: the integrated one, with p at the start of the stage.
        ties: the contracted ties; without tied sequences if nothing was contracted.
        flow: flow of that problem's p, in log(1+t) of the run; its path is one of the
            run's p.
        point: point of the run, at the end of the stage.
    """

    problem: Problem
    ties: Ties
    flow: Flow
    point: Point

    @property
    def contracted(self) -> Bool[Scalar, ""]:
        """Whether ties were contracted."""
        return self.ties.tied.any()


def beginning(problem: Problem) -> Point:
    """Start a run: p_0 at t = 0."""
    zero = jnp.zeros((), problem.start.dtype)
    return Point(problem.start, zero, zero, jnp.asarray(Next.WHOLE, jnp.int32))


@full_precision
def flow_to_end(
    problem: Problem,
    point: Point | None = None,
    *,
    until_norm: Float[Scalar, ""] | float,
    path_log_times: Float[Array, " times"] | None = None,
    ties: Ties | None = None,
    stages: Int[Scalar, ""] | int = STAGES,
    settings: FlowSettings = FlowSettings(),
) -> Stage:
    """Follow the flow of p to its end, stage by stage.

    A stage is the flow of p or, where tied tokens are proved to rest, that of the
    contracted problem; the next stage begins where it ends.

    Source: mathematics, section 3g.

    Args:
        problem: ties are contracted in double precision.
        point: where to continue, from a former call's last stage; p_0 at t = 0 by
            default.
        until_norm: ‖p‖ to stop at.
        path_log_times: increasing values of the run's log(1+t) to save p at.
        ties: those of a former call's last stage; without them the whole problem is
            taken where this stage would go on with contracted ties.
        stages: bound on the number of stages, at least one; traced. The program of one
            stage from p_0, stages = 1, is half as long: it contracts nothing.
        settings: tolerances and bounds of the integration.

    Returns:
        The last stage, with the `num_steps` and the path of all stages.

    Raises:
        BadInput: not a problem.

    Example:
        >>> from jaxselect import Parameters, attention, from_sequences
        >>> bags = from_sequences([[0, 1], [0, 1], [0, 2]], [1, -1, 1], vocabulary=3)
        >>> start = Parameters(jnp.eye(3), jnp.zeros(3), jnp.array([1.0, -1.0, 0.0]))
        >>> last = jax.jit(flow_to_end)(attention(start, bags), until_norm=1e6)
        >>> bool(last.contracted), bool(last.flow.status == Reason.NONE)
        (True, True)
    """
    check(problem)
    positive("until_norm", until_norm)
    of_kind("settings", settings, FlowSettings)
    if not isinstance(stages, jax.core.Tracer):
        whole("stages", stages)
    if point is not None:
        of_kind("point", point, Point)
    if path_log_times is not None:
        increasing("path_log_times", path_log_times)
        path_log_times = jnp.asarray(path_log_times, problem.start.dtype)
    norm = jnp.asarray(until_norm, problem.start.dtype)
    most = jnp.asarray(stages, jnp.int32)

    def stage_of(point: Point, ties: Ties | None) -> Stage:
        setup = _set_up(problem, point, ties)
        return _stage(problem, setup, norm, path_log_times, point, settings=settings)

    if point is None and isinstance(stages, int) and stages == 1:
        return stage_of(beginning(problem), None)

    def more(state: tuple[Stage, Array]) -> Array:
        stage, number = state
        return (stage.point.next != Next.NOTHING) & (number < most)

    def following(state: tuple[Stage, Array]) -> tuple[Stage, Array]:
        before, number = state
        stage = stage_of(before.point, before.ties)
        return _after(before, stage), number + 1

    start = beginning(problem) if point is None else point
    known = no_ties(problem) if ties is None else ties
    if ties is None:
        anew = jnp.where(start.next == Next.CONTINUED, Next.WHOLE, start.next)
        start = dataclasses.replace(start, next=anew.astype(jnp.int32))
    # Traced once, for its shapes and for the loop.
    stage_of = eqx.filter_closure_convert(stage_of, start, known)
    begun = _none_yet(_zeros_of(lambda: stage_of(start, known)))
    begun = dataclasses.replace(begun, point=start, ties=known)
    return jax.lax.while_loop(more, following, (begun, jnp.asarray(0, jnp.int32)))[0]


def _zeros_of(function: Callable[[], Any]) -> Any:
    """Fill what a function returns with zeros."""
    empty = jax.eval_shape(function)
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), empty)


def _none_yet(stage: Stage) -> Stage:
    """Mark a stage as one that passed no log-time, and from which nothing goes on."""
    flow = dataclasses.replace(
        stage.flow,
        path_log_times=jnp.full_like(stage.flow.path_log_times, jnp.inf),
        status=jnp.full_like(stage.flow.status, Reason.FAILED),
    )
    return dataclasses.replace(stage, flow=flow)


@compiled_alone
def _after(before: Stage, stage: Stage) -> Stage:
    """Add steps and path of the stages before to a stage.

    A stage that continues past a norm, on the same clock, is joined to the one before.
    """
    former, flow = before.flow, stage.flow
    passed = jnp.isfinite(former.path_log_times)
    times = jnp.where(passed, former.path_log_times, flow.path_log_times)
    flow = dataclasses.replace(
        flow,
        num_steps=flow.num_steps + former.num_steps,
        path_log_times=times,
        path_query=jnp.where(passed[:, None], former.path_query, flow.path_query),
    )
    same = before.point.clock_start == stage.point.clock_start
    same &= former.status == Reason.NONE
    same &= before.contracted == stage.contracted
    start = jnp.where(same, before.problem.start, stage.problem.start)
    problem = stage.problem.starting_at(start)
    return dataclasses.replace(stage, flow=flow, problem=problem)


class _Setup(NamedTuple):
    """What a stage integrates, and when on its clock.

    Attributes:
        problem: with ties contracted where they rest.
        tie_bounds: end it where ties would no longer rest; None where nothing is tied.
        ties: the contracted ones.
        begin: log(1+t′) at the start; if the point has another one, a new clock starts.
        until: the last log(1+t′): `LATEST` for no bound, and `begin` where forces
            cancel and more time is of no use.
    """

    problem: Problem
    tie_bounds: TieBounds | None
    ties: Ties
    begin: Float[Scalar, ""]
    until: Float[Scalar, ""]


def _from(
    point: Point, problem: Problem, tie_bounds: TieBounds | None, ties: Ties
) -> _Setup:
    """Go on from a point on its clock, without a bound."""
    now = point.clock_log_time
    return _Setup(problem, tie_bounds, ties, now, jnp.full_like(now, LATEST))


@partial(compiled_alone, static=("settings",), silent=True, long=_runs_long)
@full_precision
def _stage(
    problem: Problem,
    setup: _Setup,
    until_norm: Float[Scalar, ""],
    path_log_times: Float[Array, " times"] | None,
    point: Point,
    *,
    settings: FlowSettings,
) -> Stage:
    """Integrate one stage from a point, as it is set up, to its end.

    One that breaks what every gradient flow obeys has FAILED, and ends where it began.
    """
    reduced, tie_bounds, ties, begin, until = setup
    contracted, stuck = ties.tied.any(), begin == until
    beyond = jnp.maximum(until_norm**2 - ties.point @ ties.point, 0.0)
    anew, now = begin != point.clock_log_time, point.clock_log_time
    before = log_time_of(point.clock_start, now)
    origin = jnp.where(anew, before, point.clock_start)
    begun, times = jnp.where(anew, begin, 0.0), path_log_times
    flow = cls_flow(
        reduced,
        until_norm=jnp.where(contracted, jnp.sqrt(beyond), until_norm),
        until_log_time=until,
        from_log_time=begin,
        path_log_times=None if times is None else own_time_of(origin, times, begun),
        tie_bounds=tie_bounds,
        settings=settings,
    )
    start, query = (ties.point + x for x in (reduced.start, flow.query))
    # With its ties at rest the contracted risk is that of the problem.
    whole = dataclasses.replace(
        problem, start=start, offset_errors=reduced.offset_errors
    )
    spent = begin, flow.log_time
    lawful = dissipates(whole, query, spent, flow.num_steps, settings.atol)
    longest = jnp.maximum(until_norm, jnp.linalg.norm(start))
    longest = longest * (1 + jnp.sqrt(jnp.finfo(start.dtype).eps))
    lawful &= ~(jnp.linalg.norm(query) > longest)
    status = jnp.where(stuck, Reason.FORCES_CANCEL, flow.status)
    status = jnp.where(lawful, status, Reason.FAILED)
    following = _following(status, contracted, stuck, until < LATEST)
    if point.query.dtype != jnp.float64:
        # Ties are not proved to rest in single precision.
        following = jnp.full_like(following, Next.NOTHING)
    settled = following == Next.SETTLED
    again = (following == Next.WHOLE) | (following == Next.CONTINUED)
    status = jnp.where(settled, Reason.FORCES_CANCEL, status)
    log_time = log_time_of(origin, flow.log_time, begun)
    log_time = jnp.where(lawful, log_time, before)
    # Ties that have settled are found on the clock on which they formed.
    origin = jnp.where(settled, point.clock_start, origin)
    later = log_time_of(now, flow.log_time, begin)
    own = jnp.where(settled, later, flow.log_time)
    passed = lawful & jnp.isfinite(flow.path_log_times)
    times = flow.path_log_times if times is None else times
    path = jnp.where(passed[:, None], ties.point[None] + flow.path_query, jnp.inf)
    flow = dataclasses.replace(
        flow,
        query=jnp.where(lawful, flow.query, reduced.start),
        log_time=log_time,
        status=status,
        path_log_times=jnp.where(passed, times, jnp.inf),
        path_query=path,
    )
    return Stage(
        problem=reduced,
        ties=ties,
        flow=flow,
        point=Point(
            query=jnp.where(lawful, query, point.query),
            clock_start=jnp.where(again, log_time, origin),
            clock_log_time=jnp.where(again, 0.0, own),
            next=following,
        ),
    )


def _following(
    status: Int[Scalar, ""],
    contracted: Bool[Scalar, ""],
    stuck: Bool[Scalar, ""],
    bounded: Bool[Scalar, ""],
) -> Int[Scalar, ""]:
    """Choose the stage after one that ended for this `Reason`."""
    cancel = (status == Reason.FORCES_CANCEL) & ~stuck
    changed = status == Reason.TIES_DISTURBED
    unresolved = status == Reason.TIME_UNRESOLVED
    whole = unresolved | changed | (cancel & contracted)
    following = jnp.where(whole, Next.WHOLE, Next.NOTHING)
    following = jnp.where(unresolved & contracted, Next.CONTINUED, following)
    following = jnp.where(cancel & ~contracted, Next.CONTRACTED, following)
    settled = bounded & (status == Reason.NORM_NOT_REACHED)
    return jnp.where(settled, Next.SETTLED, following).astype(jnp.int32)


@partial(compiled_alone, silent=True)
@full_precision
def _set_up(problem: Problem, point: Point, known: Ties | None) -> _Setup:
    """Contract the problem if its ties rest; else give them time.

    Known ties that still rest are contracted again; without any the whole problem is
    taken.

    With long steps of log(1+t), p follows ties at rest only to the step's tolerance.
    Ties that are not to be contracted therefore get T = 1000/μ first, if the stage has
    lasted twice as long. Their clock goes from T to 2 T, so that steps are short. What
    is not at rest then goes on for e times its time, on the same clock, and is judged
    again, for as long as rounding leaves some digits of the sum of its forces.
    """
    problem = problem.starting_at(point.query)
    corpus, none = problem.corpus, no_ties(problem)
    if known is None:
        return _from(point, problem, None, none)
    nothing = _zeros_of(lambda: contract(problem, none)[1])
    free = nothing._replace(allowed=jnp.full_like(nothing.allowed, jnp.inf))
    whole, now = _from(point, problem, free, none), point.clock_log_time
    if problem.start.dtype != jnp.float64:
        return whole

    def without() -> _Setup:
        continued = point.next == Next.CONTINUED
        ties = jax.lax.cond(continued, lambda: known, lambda: find_ties(problem, now))
        reduced, tie_bounds = contract(problem, ties)
        parts = reduced.parts(reduced.scores(reduced.start))
        _, *bounds = tie_bounds.excess(now, reduced.rows, parts, reduced.groups)
        rests = ties.proved & (jnp.stack(bounds) <= 0).all()
        time = jnp.log(_SETTLING / ties.rest.stiffness)
        later = time + math.log(2)
        settles = ties.minimal & (later < now) & (point.next == Next.CONTRACTED)
        bags = problem.logits(problem.scores(problem.start)), problem.values, corpus
        more = ties.minimal & ~settles & (cancellation(now, *bags) <= _MORE)
        begin = jnp.where(settles, time, now)
        until = jnp.where(settles, later, jnp.where(more, now + 1.0, now))
        until = jnp.where(continued, LATEST, until)
        moving = whole._replace(begin=begin, until=until)
        resting = _from(point, reduced, tie_bounds, ties)
        return jax.tree.map(partial(jnp.where, rests), resting, moving)

    return jax.lax.cond(point.next >= Next.CONTRACTED, without, lambda: whole)


def certify_stage(
    problem: Problem,
    stage: Stage,
    *,
    tolerance: float = TOLERANCE,
) -> Certificate:
    """Certify the end of a run by the end of its last stage.

    The certificate of a contracted problem is one of the run if the ties rest, and have
    done so since they were contracted. Selection and coverage refer to the original
    corpus, the late flow to p.

    Source: mathematics, sections 3e and 3g.
    """
    ties = stage.ties.resting
    found = certify(stage.problem, stage.flow, tolerance=tolerance, ties=ties)
    return _with_ties(problem, stage.ties, found)


def _with_ties(problem: Problem, ties: Ties, found: Certificate) -> Certificate:
    """Make a certificate of the contracted problem one of the problem."""
    end, late = found.ending, found.ending.late
    still = jnp.take_along_axis(end.selected, ties.slot[:, None], axis=1)
    selected = end.selected | (ties.selected & still)
    covered = covered_by(problem, selected)
    constant = jnp.hypot(late.error_constant, jnp.linalg.norm(ties.point))
    late = dataclasses.replace(
        late, offset=late.offset + ties.point, error_constant=constant
    )
    return dataclasses.replace(
        found,
        ending=dataclasses.replace(end, selected=selected, late=late),
        coverage=covered,
    )


class Proof(Status):
    """By what an end is certified."""

    NONE = 0, "By nothing."
    LATE_FLOW = (
        1,
        "By its late flow: all that is predicted of it holds.",
    )
    RISK = (
        2,
        "By the risk alone: the selection and the direction, and the error constant "
        "where it is printed.",
    )
    CONTINUED = (
        3,
        "By the gradient flow from what was trained, which was followed to its end.",
    )
    FORCES = (
        4,
        "By bounds on all later forces: the selection and the direction, and the error "
        "constant where it is printed.",
    )


class Arrival(eqx.Module):
    """What was trained elsewhere, beside the end that the gradient flow has from there.

    Source: mathematics, section 3n.

    Attributes:
        others: the sequences whose entry of the largest weight, as trained, is not
            selected at the end, (n,).
        outside: ‖(1 − N)(θ − θ_0)‖/‖θ − θ_0‖, N the projector onto the span of the row
            differences of sequences; zero for descent, with any step, from θ_0.
        outside_turned: the same of the transpose; NaN where θ is no square matrix.
    """

    others: Bool[Array, " sequences"]
    outside: Float[Scalar, ""]
    outside_turned: Float[Scalar, ""]

    def __str__(self) -> str:
        """Say in a line or two how both compare."""
        which = np.flatnonzero(self.others).tolist()
        but = f" but {_listed(which)}" if which else ""
        said = (
            f"As trained, every sequence{but} has its largest weight on what it keeps"
        )
        said += " in the end."
        if self.outside > OUTSIDE:
            said += (
                f"\nOf trained − start {self.outside:.3g} is outside the span of row "
                "differences: no descent from this start leads there, and an error "
                "constant that refers to it is that of another flow."
            )
        if self.outside_turned < OUTSIDE < self.outside:
            said += "\nIts transpose is inside: W may be transposed; scores are xᵀ W z."
        return said


def _listed(sequences: list[int], first: int = 3) -> str:
    """Name some sequences, and count the others."""
    names, more = [str(one) for one in sequences[:first]], sequences[first:]
    names += [f"{len(more)} more"] if more else []
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


class FlowPath(NamedTuple):
    """What a flow has passed at T log-times.

    Attributes:
        log_times: log(1+t), (T,).
        trained: p, (T, d), or W, (T, d, d′).
        weights: attention weights q, (T, n, w); their sums over w are 1.
        scores: A_e·p + α_e without the count of an entry, (T, n, w); NaN where there is
            no entry.
    """

    log_times: Float[Array, " times"]
    trained: Float[Array, "times ..."]
    weights: Float[Array, "times sequences width"]
    scores: Float[Array, "times sequences width"]


class Solved(eqx.Module):
    """The end of a flow, and what is certified of it; `print` says what to do next.

    Attributes:
        problem: that was solved, n sequences of w entries; trained is p or W (d, d′).
        stage: the last stage of the flow.
        certificate: of its end: status, reason, and the numbers they rest on.
        risk: the best entries, and the risk at the end beside its barrier.
        proof: the `Proof` behind a status that is certified.
        arrival: of `certify_at`: what was trained, beside the end.
    """

    problem: Problem
    stage: Stage
    certificate: Certificate
    risk: BestEntries
    proof: Int[Scalar, ""]
    arrival: Arrival | None = None

    def __str__(self) -> str:
        """Say how the flow ends, why that is not certified, and what to do."""
        if not isinstance(self.status, TrialStatus):
            return repr(self)
        how = []
        if self.status in CERTIFIED:
            # Of a rest nothing is late.
            moves = self.status != TrialStatus.AT_REST
            how = [Proof(int(self.proof)).sentence] if moves else []
            how += [] if self.arrival is None else [str(self.arrival)]
        query, rows = self.stage.point.query, self.stage.problem.rows
        return summary(self.problem, self.certificate, self.flow, query, rows, how)

    @property
    def status(self) -> TrialStatus | Int[Array, "*lanes"]:
        """How the flow ends, a `TrialStatus`; its number under `jit` and in a batch."""
        status = self.certificate.status
        if isinstance(status, jax.core.Tracer) or jnp.ndim(status):
            return status
        return TrialStatus(int(status))

    @property
    def error_constant(self) -> Float[Array, "*lanes"]:
        """Limit of ‖p‖ · ‖p/‖p‖ − p_mm/‖p_mm‖‖, in units of ‖p‖; NaN if it is open."""
        return error_constant(self.certificate)

    @property
    def flow(self) -> Flow:
        """The flow of the last stage, in coordinates of its problem."""
        return self.stage.flow

    @property
    def margin(self) -> MaxMargin:
        """The max-margin solution of the selection, in coordinates."""
        return self.certificate.ending.margin

    @property
    def limit(self) -> Limit:
        """The late flow p_mm log t + ρ, in coordinates; an open constant is NaN."""
        late = self.certificate.ending.late
        return eqx.tree_at(lambda late: late.error_constant, late, self.error_constant)

    @property
    def selected(self) -> list[list[Any]]:
        """Selected positions by sequence, from 0 (equal rows: the first), or ids."""
        return kept(self.problem, self.selected_mask)

    @property
    def selected_mask(self) -> Bool[Array, "*lanes sequences width"]:
        """Where the selected entries are, (n, w)."""
        return self.certificate.ending.selected

    @property
    def trained(self) -> Float[Array, "..."]:
        """What was trained, p (d,) or W (d, d′), at the end of the flow."""
        return self.problem.lift(self.stage.point.query)

    @property
    def direction(self) -> Float[Array, "..."]:
        """p_mm (d,) or W_mm (d, d′) = argmin ‖p‖ with D_kᵀp ≥ 1 for all pairs k.

        Its length is 1/margin: min_k D_kᵀp_mm/‖p_mm‖ = 1/‖p_mm‖.
        """
        return self.problem.lift_direction(self.margin.direction)

    @property
    def path(self) -> FlowPath:
        """What it passed of the log-times `at`: trained, weights and scores there."""
        passed = np.isfinite(self.flow.path_log_times)
        queries = self.flow.path_query[passed]
        logs = jax.vmap(lambda query: attended(self.problem, query).log_weights)
        return FlowPath(
            self.flow.path_log_times[passed],
            self.problem.lift(queries),
            jnp.exp(logs(queries)),
            jax.vmap(partial(scores_of, self.problem))(queries),
        )

    def weights(self) -> Float[Array, "sequences width"]:
        """Compute the attention weights q at the end, (n, w); their sums are 1."""
        return jnp.exp(attended(self.problem, self.stage.point.query).log_weights)

    def best(self) -> Bool[Array, " sequences"]:
        """Whether no other entry has a larger margin y b than the selected, (n,)."""
        return has_best(self.problem, self.selected_mask, self.stage.point.query)

    def table(self, first: int = 20, names: "Names | None" = None) -> str:
        """Say what sequences select; `names` of ids, of positions, or by sequence."""
        point = self.stage.point.query
        mask = self.selected_mask
        return table(self.problem, mask, point, first=first, names=names)

    def to_xarray(self) -> "xarray.Dataset":
        """Gather arrays with names on their axes, to save by `to_netcdf`."""
        matrices = {"end": self.trained, "direction": self.direction}
        point, path = self.stage.point.query, self.path._asdict()
        return dataset(
            self.problem, self.certificate, self.flow, point, matrices | path
        )


def solve(
    problem: Problem,
    start: "ArrayLike | None" = None,
    *,
    until_norm: Float[Scalar, ""] | float | None = None,
    at: "ArrayLike | None" = None,
    stepper: str | None = None,
    settings: FlowSettings = FlowSettings(),
) -> Solved:
    """Follow the gradient flow of a problem to its end, and certify where it leads.

    Alone it compiles itself, and keeps its programs in `~/.cache/jaxselect` for the
    next process (the environment variable `JAXSELECT_CACHE` names another folder, or is
    `off`), and sets `OPENBLAS_NUM_THREADS` to one if it is not set; under `jit` and
    `vmap` it is a function as any other.

    It is differentiable once, in both modes: `trained`, `weights`, `direction`,
    `margin` (direction, norm) and `limit` (growth, offset, error constant, history).
    Other numbers, which bound errors, have derivatives of zero. NaN are derivatives of
    p_mm and ρ where the end is not certified or ties are contracted, those of what is
    trained where the flow took several stages or broke off, and of the part of ρ that
    the path decides where it is not known to 1e-3.

    Source: mathematics, sections 3, 3f and 8.

    Args:
        problem: for example of `attention`, `cross_attention`, `key_query` or
            `next_token`.
        start: a query or a matrix to start from; that of the problem by default.
        until_norm: norm of what is trained to stop at. By default a flow goes on, to
            tenfold norms from 10⁴ and ten times that of the start on, until its end is
            certified or it is known why it will not be: it stops before it reaches the
            norm, as forces cancel or steps end, or scores ten times as large would not
            be resolved to the tolerance of a certificate.
        at: increasing values of log(1+t) to keep what is passed at, in `Solved.path`.
        stepper: `rodas`, which computes a Hessian for each step, or `bdf`, which keeps
            one for many steps; by default that of the settings, or `bdf` for problems
            of many entries outside of `jit`.
        settings: tolerances and bounds of the integration.

    Returns:
        The end of the flow, its selection and max-margin solution, and its certificate.

    Raises:
        BadInput: not a problem, a start that does not fit it, a norm that is no
            number above 0, or log-times that do not increase; outside of `jit`, an end
            that has no derivative at all, if one is asked for.

    Example:
        >>> from jaxselect import key_query
        >>> x = jnp.array([[[2.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, 2.0]]])
        >>> solved = solve(key_query(x, x[:, 1], x[..., 0], jnp.array([1, 1])))
        >>> solved.status.name, solved.direction.shape
        ('SELECTED', (2, 2))
    """
    check(problem)
    if until_norm is not None:
        positive("until_norm", until_norm)
    of_kind("settings", settings, FlowSettings)
    if start is not None:
        problem = problem.starting_at(_inside(problem, "start", start))
    times = None if at is None else reals("at", at, "times", beside=problem.start)
    if times is not None:
        increasing("at", times)
    norm = None
    if until_norm is not None:
        norm = jnp.asarray(until_norm, problem.start.dtype)
    if stepper is not None:
        settings = dataclasses.replace(settings, stepper=stepper)
    fixed = jax.lax.stop_gradient((problem, norm, times))
    found = _to_the_end(*fixed, settings)
    if is_traced((problem, norm)):
        if norm is None:
            norm = jax.lax.stop_gradient(jnp.linalg.norm(found.stage.point.query))
        return _differentiable(problem, norm, found, settings)
    return found


def _to_the_end(
    problem: Problem,
    norm: Array | None,
    times: Array | None,
    settings: FlowSettings,
) -> Solved:
    """Solve a problem, without derivatives, by a stepper that suits its size."""
    first, point = norm, beginning(problem)
    if first is None:
        first = jnp.maximum(FIRST_NORM, FURTHER * jnp.linalg.norm(problem.start))
    if is_traced((problem, norm, times)):
        follow = partial(flow_to_end, path_log_times=times, settings=settings)
        return _in_one_loop(problem, follow, first, further=norm is None)
    if problem.offsets.size >= _LARGE:
        problem = stratified(problem, 4 if _runs_long(problem) else 2)
        if settings.stepper is None:
            settings = dataclasses.replace(settings, stepper="bdf")
    stage, number = None, 0
    with progress() as say:
        while True:
            known = None if stage is None or point.next == Next.WHOLE else stage.ties
            setup = _set_up(problem, point, known)
            after = _stage(problem, setup, first, times, point, settings=settings)
            stage = after if stage is None else _after(stage, after)
            point, number = stage.point, number + 1
            say(_so_far(stage, settings))
            if point.next != Next.NOTHING and number < STAGES:
                continue
            selected = _selected(stage)
            pairs = concrete_pairs(selected, stage.problem.corpus)
            found = _judged(problem, stage, selected, pairs)
            point, first, number = _onward(found), FURTHER * first, 0
            if norm is not None or point.next == Next.NOTHING:
                # The last program may be running yet.
                return jax.block_until_ready(found)


def _in_one_loop(
    problem: Problem, follow: Callable[..., Stage], norm: Array, *, further: bool
) -> Solved:
    """Follow a flow to a norm, or until it is certified or known why not, traced."""
    point, ties = beginning(problem), no_ties(problem)

    def reach(norm: Array, point: Point, before: Stage | None) -> Solved:
        known = ties if before is None else before.ties
        stage = follow(problem, point, ties=known, until_norm=norm)
        stage = stage if before is None else _after(before, stage)
        return _judged(problem, stage, _selected(stage))

    if not further:
        return reach(norm, point, None)

    def go_on(state: tuple[Solved, Point, Array]) -> tuple[Solved, Point, Array]:
        before, point, norm = state
        found = reach(norm, point, before.stage)
        return found, _onward(found), FURTHER * norm

    def open_yet(state: tuple[Solved, Point, Array]) -> Array:
        return state[1].next != Next.NOTHING

    nothing = _zeros_of(lambda: reach(norm, point, None))
    stage = dataclasses.replace(_none_yet(nothing.stage), ties=ties)
    nothing = dataclasses.replace(nothing, stage=stage)
    return jax.lax.while_loop(open_yet, go_on, (nothing, point, norm))[0]


@compiled_alone
def _onward(found: Solved) -> Point:
    """Find where a flow goes on, if its end is not certified, but may be later."""
    stage, status = found.stage, found.certificate.status
    largest = FURTHER * jnp.max(jnp.abs(found.problem.scores(stage.point.query)))
    later = (stage.flow.status == Reason.NONE) & resolves(largest)
    later &= ~jnp.isin(status, jnp.array(CERTIFIED, status.dtype))
    later &= found.certificate.reason != Reason.NUMBERS
    same = jnp.where(stage.contracted, Next.CONTINUED, Next.WHOLE)
    following = jnp.where(later, same, Next.NOTHING).astype(jnp.int32)
    return dataclasses.replace(stage.point, next=following)


def _so_far(stage: Stage, settings: FlowSettings) -> str:
    """Say where a flow is: its log-time, its steps, by what, and what is contracted."""
    flow = stage.flow
    # In NumPy, which compiles nothing.
    tied = np.asarray(stage.ties.selected).sum(axis=1) > 1
    return (
        f"log t = {float(flow.log_time):.4g}, {int(flow.num_steps)} steps by "
        f"{settings.stepper or STEPPERS[0]}, "
        f"{int(tied.sum())} of {len(tied)} sequences tied"
    )


def _differentiable(
    problem: Problem, norm: Array, found: Solved, settings: FlowSettings
) -> Solved:
    """Attach derivatives in a problem and a norm to what was found of them."""
    stage, certificate = found.stage, found.certificate
    alone = ~stage.contracted
    # A program may compute p_0 twice, and round it otherwise.
    start = jax.lax.stop_gradient(problem.start)
    rounding = 64 * jnp.finfo(start.dtype).eps * jnp.abs(start).max()
    begun = jnp.abs(stage.problem.start - start).max() <= rounding
    certified = jnp.array(CERTIFIED, certificate.status.dtype)
    flow, end = differentiable(
        (problem, norm),
        (stage.flow, certificate.ending),
        whole=alone & begun,
        final=alone & jnp.isin(certificate.status, certified),
        settings=settings,
    )
    change = flow.query - jax.lax.stop_gradient(flow.query)
    point = dataclasses.replace(stage.point, query=stage.point.query + change)
    return dataclasses.replace(
        found,
        problem=problem,
        stage=dataclasses.replace(stage, flow=flow, point=point),
        certificate=dataclasses.replace(certificate, ending=end),
    )


@compiled_alone
@full_precision
def _selected(stage: Stage) -> Bool[Array, "sequences width"]:
    """The selection at the end of a stage, of its own problem."""
    return selection(stage.problem, stage.flow.query, stage.flow.log_time)


@partial(compiled_alone, silent=True)
@full_precision
def _judged(
    problem: Problem,
    stage: Stage,
    selected: Bool[Array, "sequences width"],
    pairs: AbstractPairs | None = None,
) -> Solved:
    """Certify the end of a flow, of which a selection is known."""
    here, flow, query = stage.problem, stage.flow, stage.point.query
    best = best_entries(*jax.lax.stop_gradient((problem, query)))
    late = flow.query, flow.log_time, flow.earlier_query
    end = predict_end(here, *late, selected=selected, pairs=pairs)
    found = certificate_of(here, flow, end, ties=stage.ties.resting)
    return _proved(problem, stage, found, best)


def _proved(
    problem: Problem, stage: Stage, found: Certificate, best: BestEntries
) -> Solved:
    """Certify an end by its late flow, by the risk or by all later forces, in turn.

    `found` is the certificate of the stage's own problem, without its ties.
    """
    by_forces = direction_is_final(stage.problem, stage.flow, found, stage.ties.resting)
    found = _with_ties(problem, stage.ties, found)
    end, late = found.ending, found.status <= TrialStatus.AT_REST
    by_risk = best.certifies(end.selected, end.margin)
    by_risk &= found.reason != Reason.NUMBERS
    outcome = outcome_of(problem.corpus, found.coverage)
    tied = jnp.where(stage.contracted, TrialStatus.TIED, outcome)
    tried = [late, by_risk, by_forces]
    status = jnp.select(tried, [found.status, outcome, tied], found.status)
    proof = jnp.select(tried, [Proof.LATE_FLOW, Proof.RISK, Proof.FORCES], Proof.NONE)
    return Solved(
        problem=problem,
        stage=stage,
        certificate=dataclasses.replace(found, status=status),
        risk=best,
        proof=proof.astype(jnp.int32),
    )


def certify_at(
    problem: Problem,
    trained: "ArrayLike",
    log_time: Float[Scalar, ""] | float | None = None,
    *,
    earlier: "ArrayLike | None" = None,
) -> Solved:
    """Certify where the gradient flow leads from what was trained elsewhere.

    By any rule. Where the risk is below its barrier it alone decides; else, given a
    log-time, the theorems of the late flow and of its direction are tried. Where none
    certifies, the flow is followed from there (`solve`), but not under `jit` and
    `vmap`. `print` says which it was, and whether the selection is that of the end
    already.

    Of gradient descent with a constant step `experiments.theory.descent` says what
    holds, too.

    Source: mathematics, sections 3e and 3n.

    Args:
        problem: with the start that was trained from, if it is known: selection and
            direction do not depend on it.
        trained: the query or the matrix that was reached.
        log_time: log(1+t) of the flow there, with t the learning rate times the steps
            of descent. It is needed for the error constant alone.
        earlier: what was trained at an eighth to three quarters of `log_time`; needed
            where inactive pairs reach further than active ones (`Limit.history_dim`).

    Returns:
        The selection of the end, its max-margin solution and its certificate; by which
        `Proof`; and, as `arrival`, how what was trained compares with the end.

    Raises:
        BadInput: not a problem, something trained that does not fit it, or a time
            that is no number above 0.

    Example:
        >>> import numpy as np
        >>> from jaxselect import key_query
        >>> x = np.array([[[2.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, 2.0]]])
        >>> problem = key_query(x, x[:, 1], x[..., 0], [1, 1])
        >>> found = certify_at(problem, np.array([[0.0, 0.5], [0.0, -0.5]]))
        >>> found.status.name, Proof(int(found.proof)).name
        ('SELECTED', 'RISK')
        >>> print(found.arrival)
        As trained, every sequence has its largest weight on what it keeps in the end.
    """
    check(problem)
    if log_time is not None:
        between("log_time", log_time, 0.0, math.inf)
    query = _inside(problem, "trained", trained)
    before = None if earlier is None else _inside(problem, "earlier", earlier)
    given = jnp.asarray(trained, query.dtype)
    time = None if log_time is None else jnp.asarray(log_time, query.dtype)
    found = _certify_at(problem, query, before, time)
    if not is_traced((found, query)) and found.status not in CERTIFIED:
        found = solve(problem, given)
        if found.status in CERTIFIED:
            continued = jnp.full_like(found.proof, Proof.CONTINUED)
            found = dataclasses.replace(found, proof=continued)
    arrival = _arrival(problem, given.ravel(), found.selected_mask)
    return dataclasses.replace(found, arrival=arrival)


@compiled_alone
def _certify_at(
    problem: Problem, query: Array, earlier: Array | None, log_time: Array | None
) -> Solved:
    best = best_entries(problem, query)
    selected = best.selected
    if log_time is not None:
        within = selection(problem, query, log_time)
        selected = jnp.where(best.below, selected, within)
    time = jnp.asarray(jnp.nan if log_time is None else log_time, query.dtype)
    flow = arrived(query, time)
    end = predict_end(problem, query, time, earlier, selected=selected)
    nothing = jnp.asarray(Next.NOTHING, jnp.int32)
    point = Point(query, jnp.zeros_like(time), time, nothing)
    stage = Stage(problem, no_ties(problem), flow, point)
    return _proved(problem, stage, certificate_of(problem, flow, end), best)


@compiled_alone
@full_precision
def _arrival(problem: Problem, given: Array, selected: Array) -> Arrival:
    """Compare what was trained, in the model's coordinates, with start and end."""
    query = problem.coordinates(given)
    top = jnp.argmax(problem.logits(problem.scores(query)), axis=1)
    stays = jnp.take_along_axis(selected, top[:, None], axis=1)[:, 0]
    axes = span(centred_in_components(problem.rows, problem.corpus)).axes
    start = problem.lift(problem.start)

    def outside(given: Array) -> Array:
        query = problem.coordinates(given)
        moved = query - problem.start
        off = moved - axes.T @ (axes @ moved)
        beyond = given - problem.lift(query).ravel()
        length = jnp.linalg.norm(given - start.ravel())
        share = jnp.hypot(jnp.linalg.norm(off), jnp.linalg.norm(beyond))
        return jnp.where(length > 0, share / jnp.where(length > 0, length, 1.0), 0.0)

    share, turned = outside(given), jnp.full_like(given[0], jnp.nan)
    if start.ndim == 2 and start.shape[0] == start.shape[1]:
        turned = outside(given.reshape(start.shape).T.ravel())
    return Arrival(~stays & problem.present.any(axis=1), share, turned)


def _inside(problem: Problem, name: str, point: "ArrayLike") -> Float[Array, " dim"]:
    """Compute the coordinates of a query or a matrix."""
    shape = jax.eval_shape(problem.lift, problem.start).shape
    axes = "dim" if len(shape) == 1 else "dim, other"
    given = reals(name, point, axes, beside=problem.start)
    if given.shape != shape:
        raise BadInput(f"{name} of shape {given.shape}: wanted {shape}")
    return problem.coordinates(given.ravel())
