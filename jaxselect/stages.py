"""The flow of a problem to its end, stage by stage, and what is certified of it.

A stage ends when opposing forces cancel to below rounding. If the tied tokens are
proved to rest, the next stage integrates the contracted problem. If a token returns to
a tie, or the selected token changes too suddenly for log(1+t) to resolve the time, the
next stage integrates the whole problem on a clock that starts there (mathematics,
section 3g).
"""

import dataclasses
import math
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Scalar
from numpy.typing import ArrayLike

from .checks import BadInput, between, names_of, of_kind, positive, reals, whole
from .compilation import compiled_alone, full_precision, is_traced
from .data.components import centred_in_components
from .flow.cls import Flow, FlowStatus, Held, cls_flow
from .flow.control import FlowSettings
from .flow.dissipation import dissipates
from .margin.certificate import (
    CERTIFIED,
    TOLERANCE,
    Certificate,
    Reason,
    TrialStatus,
    certificate_of,
    certify,
    classify_end,
    covered_by,
    predict_end,
    selection,
)
from .margin.derivatives import differentiable
from .margin.descent import arrived
from .margin.limit import Limit, LimitStatus
from .margin.max_margin import MaxMargin, MaxMarginStatus
from .margin.risk import BestEntries, RiskStatus, best_entries, risk_status
from .margin.span import span
from .model.attention import Attention, attend_bags, functional_margin
from .problem import Problem, check, stratified
from .status import Status
from .ties import Contracted, Ties, contract, find_ties, no_ties

# Largest log-time; the norm is reached before, but by a run at rest.
LATEST = 1e15

# Bound on the stages of a run: those that take more go from one return to the next.
STAGES = 12

# Share of trained − start outside the span of row differences that is reported. Chosen:
# descent in single precision stays below it.
OUTSIDE = 1e-4

# Entries from which a Hessian is worth keeping: measured.
_LARGE = 2**13

# Time that ties get to settle, in units of 1/μ.
_SETTLING = 1000.0


class Next(Status):
    """What the stage after another one integrates."""

    NOTHING = 0, "No further stage would help."
    WHOLE = 1, "The whole problem, on a clock that starts here."
    CONTRACTED = 2, "Forces cancel: the problem without its ties, if these rest."
    SETTLED = 3, "The same, after ties had time to settle."


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


class Stage(eqx.Module):
    """One stage of a flow.

    Attributes:
        problem: the integrated one, with p at the start of the stage.
        ties: the contracted ties; without tied sequences if nothing was contracted.
        flow: flow of that problem's p, in log(1+t) of the run.
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
        path_log_times: values of log(1+t) to save p of the first stage at.
        stages: bound on the number of stages, at least one; traced. The program of one
            stage from p_0, stages = 1, is half as long: it contracts nothing.
        settings: tolerances and bounds of the integration.

    Returns:
        The last stage, with the `num_steps` and the path of all stages.

    Raises:
        BadInput: what is no problem.

    Example:
        >>> from jaxselect import Parameters, attention, from_sequences
        >>> bags = from_sequences([[0, 1], [0, 1], [0, 2]], [1, -1, 1], vocabulary=3)
        >>> start = Parameters(jnp.eye(3), jnp.zeros(3), jnp.array([1.0, -1.0, 0.0]))
        >>> last = jax.jit(flow_to_end)(attention(start, bags), until_norm=1e6)
        >>> bool(last.contracted), FlowStatus(last.flow.status.item()).name
        (True, 'REACHED')
    """
    check(problem)
    positive("until_norm", until_norm)
    of_kind("settings", settings, FlowSettings)
    if not isinstance(stages, jax.core.Tracer):
        whole("stages", stages)
    if point is not None:
        of_kind("point", point, Point)
    norm = jnp.asarray(until_norm, problem.start.dtype)
    if point is None and isinstance(stages, int) and stages == 1:
        first = beginning(problem)
        outset = _from(first, Contracted(problem, None), no_ties(problem))
        return _stage(problem, outset, norm, path_log_times, first, settings)
    most = jnp.asarray(stages, jnp.int32)

    def stage_of(point: Point) -> Stage:
        outset = _contracted(problem.starting_at(point.query), point)
        return _stage(problem, outset, norm, path_log_times, point, settings)

    def more(state: tuple[Stage, Array]) -> Array:
        stage, number = state
        return (stage.point.next != Next.NOTHING) & (number < most)

    def following(state: tuple[Stage, Array]) -> tuple[Stage, Array]:
        before, number = state
        stage = stage_of(before.point)
        flow, former = stage.flow, before.flow
        # The path is that of the first stage; its log-times begin with the run.
        first, times, queries = number == 0, former.path_log_times, former.path_query
        flow = dataclasses.replace(
            flow,
            num_steps=flow.num_steps + former.num_steps,
            path_log_times=jnp.where(first, flow.path_log_times, times),
            path_query=jnp.where(first, flow.path_query, queries),
        )
        return dataclasses.replace(stage, flow=flow), number + 1

    start = beginning(problem) if point is None else point
    # Traced once, for its shapes and for the loop.
    stage_of = eqx.filter_closure_convert(stage_of, start)
    empty = jax.eval_shape(lambda: stage_of(start))
    nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), empty)
    begun = dataclasses.replace(nothing, point=start), jnp.asarray(0, jnp.int32)
    return jax.lax.while_loop(more, following, begun)[0]


class _Outset(NamedTuple):
    """What a stage integrates, and when on its clock.

    Attributes:
        few: the problem, contracted where ties rest.
        ties: the contracted ones.
        begin: log(1+t′) at the start; off that of the point, the clock is another one.
        until: the last log(1+t′): `LATEST` for no bound, and `begin` where forces
            cancel of which nothing is proved.
    """

    few: Contracted
    ties: Ties
    begin: Float[Scalar, ""]
    until: Float[Scalar, ""]


def _from(point: Point, few: Contracted, ties: Ties) -> _Outset:
    """Go on from a point on its clock, without a bound."""
    now = point.clock_log_time
    return _Outset(few, ties, now, jnp.full_like(now, LATEST))


def _stage(
    problem: Problem,
    outset: _Outset,
    until_norm: Float[Scalar, ""],
    path_log_times: Float[Array, " times"] | None,
    point: Point,
    settings: FlowSettings,
) -> Stage:
    """Integrate one stage, from a point and its outset there, to its end.

    One that breaks what every gradient flow obeys has FAILED, and ends where it began.
    """
    few, ties, begin, until = outset
    contracted, stuck = ties.tied.any(), begin == until
    beyond = jnp.maximum(until_norm**2 - ties.point @ ties.point, 0.0)
    flow = cls_flow(
        few.problem,
        until_norm=jnp.where(contracted, jnp.sqrt(beyond), until_norm),
        until_log_time=until,
        from_log_time=begin,
        path_log_times=path_log_times,
        held=few.held,
        settings=settings,
    )
    start, query = (ties.point + x for x in (few.problem.start, flow.query))
    # With its ties at rest the contracted risk is that of the problem.
    whole = dataclasses.replace(
        problem, start=start, offset_errors=few.problem.offset_errors
    )
    spent = begin, flow.log_time
    lawful = dissipates(whole, query, spent, flow.num_steps, settings.atol)
    longest = jnp.maximum(until_norm, jnp.linalg.norm(start))
    longest = longest * (1 + jnp.sqrt(jnp.finfo(start.dtype).eps))
    lawful &= ~(jnp.linalg.norm(query) > longest)
    status = jnp.where(stuck, FlowStatus.FORCES_CANCEL, flow.status)
    status = jnp.where(lawful, status, FlowStatus.FAILED)
    following = _following(status, contracted, stuck, until < LATEST)
    if point.query.dtype != jnp.float64:
        # Ties are not proved to rest in single precision.
        following = jnp.full_like(following, Next.NOTHING)
    again, settled = following == Next.WHOLE, following == Next.SETTLED
    anew, now = begin != point.clock_log_time, point.clock_log_time
    before = log_time_of(point.clock_start, now)
    origin = jnp.where(anew, before, point.clock_start)
    log_time = log_time_of(origin, flow.log_time, jnp.where(anew, begin, 0.0))
    log_time = jnp.where(lawful, log_time, before)
    # Ties that have settled are found on the clock on which they formed.
    origin = jnp.where(settled, point.clock_start, origin)
    later = log_time_of(now, flow.log_time, begin)
    own = jnp.where(settled, later, flow.log_time)
    flow = dataclasses.replace(
        flow,
        query=jnp.where(lawful, flow.query, few.problem.start),
        log_time=log_time,
        status=status,
        path_log_times=jnp.where(lawful, flow.path_log_times, jnp.inf),
        path_query=jnp.where(lawful, flow.path_query, jnp.inf),
    )
    return Stage(
        problem=few.problem,
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
    """Choose the stage after one that ended with this `FlowStatus`."""
    cancel = (status == FlowStatus.FORCES_CANCEL) & ~stuck
    changed = status == FlowStatus.TIES_DISTURBED
    whole = (status == FlowStatus.TIME_UNRESOLVED) | changed | (cancel & contracted)
    following = jnp.where(whole, Next.WHOLE, Next.NOTHING)
    following = jnp.where(cancel & ~contracted, Next.CONTRACTED, following)
    settled = bounded & (status == FlowStatus.NORM_NOT_REACHED)
    return jnp.where(settled, Next.SETTLED, following).astype(jnp.int32)


def _contracted(problem: Problem, point: Point) -> _Outset:
    """Contract the problem if its ties rest; else let them settle, or go on their way.

    Long steps of log(1+t) keep p within their tolerance of ties at rest, not closer.
    Ties that are not to be contracted therefore get T = 1000/μ first, if the stage has
    lasted twice as long. Their clock goes from T to 2 T, so that steps are short.
    """
    corpus, none = problem.corpus, no_ties(problem)
    inside = problem.rows @ none.axes.T
    nothing = none.widths
    heads = problem.values.shape[2:]
    flat = jnp.zeros((len(nothing), inside.shape[1]), inside.dtype)
    free = Held(
        tied=none.tied,
        tokens=corpus.tokens,
        rows=inside,
        means=flat,
        bends=jnp.zeros((len(nothing), *heads, inside.shape[1]), inside.dtype),
        slopes=jnp.zeros((len(nothing), *heads), inside.dtype),
        reach=nothing,
        allowed=jnp.full_like(none.moved, jnp.inf),
    )
    whole, now = _from(point, Contracted(problem, free), none), point.clock_log_time
    if problem.start.dtype != jnp.float64:
        return whole

    def without() -> _Outset:
        ties = find_ties(problem, now)
        few = contract(problem, ties)
        assert few.held is not None
        after = few.problem
        logits = after.logits(after.scores(after.start))
        _, push = few.held.excess(logits, after.values, after.corpus)
        rests = ties.proved & (push <= 0)
        time = jnp.log(_SETTLING / ties.rest.stiffness)
        later = time + math.log(2)
        settles = ties.minimal & (later < now) & (point.next != Next.SETTLED)
        # Else they are on their way, or nothing is proved of them.
        begin = jnp.where(settles, time, jnp.where(ties.proved, 0.0, now))
        until = jnp.where(settles, later, jnp.where(ties.proved, LATEST, now))
        moving = whole._replace(begin=begin, until=until)
        resting = _from(point, few, ties)
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
    ties = stage.ties
    found = certify(stage.problem, stage.flow, tolerance=tolerance, ties=ties.resting)
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
        "By its late flow: all that is predicted of it holds, the error constant, too.",
    )
    RISK = (
        2,
        "By the risk alone: the selection and the direction; the error constant only "
        "where the limit is PREDICTED and its `history_dim` is zero.",
    )
    CONTINUED = (
        3,
        "By the gradient flow from what was trained, which was followed to its end.",
    )


class Arrival(eqx.Module):
    """What was trained elsewhere, beside the end that the gradient flow has from there.

    Source: mathematics, section 3n.

    Attributes:
        other_bags: number of bags whose entry of the largest weight, as trained, is not
            selected at the end.
        outside: ‖(1 − N)(θ − θ_0)‖/‖θ − θ_0‖, N the projector onto the span of the row
            differences of bags; zero for gradient descent, with any step, from θ_0.
    """

    other_bags: Int[Scalar, ""]
    outside: Float[Scalar, ""]

    def __str__(self) -> str:
        """Say in a line or two how both compare."""
        there = "is" if self.other_bags == 0 else "is not"
        bags = f": {self.other_bags} bags differ" if self.other_bags else ""
        said = f"The selection of what was trained {there} that of the end{bags}."
        if self.outside > OUTSIDE:
            said += (
                f"\nOf trained − start {self.outside:.3g} is outside the span of row "
                "differences: no descent from this start leads there, and an error "
                "constant that refers to it is that of another flow."
            )
        return said


class Solved(eqx.Module):
    """A flow carried to its end, and what is certified of it.

    Attributes:
        problem: that was solved.
        stage: the last stage of the flow.
        certificate: of its end.
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
        """Say in a few lines how the flow ends; of a batch, its arrays."""
        status = self.status
        if not isinstance(status, TrialStatus):
            return repr(self)
        trained, chosen = self.trained, np.asarray(self.selected).sum(axis=1)
        alone, better = (chosen == 1).sum(), (~np.asarray(self.best())).sum()
        time = self.flow.log_time
        when = "" if jnp.isnan(time) else f" at log(1+t) = {time:.6g}"
        said = self.arrival is not None and status in CERTIFIED
        came = f"\n{self.arrival}" if said else ""
        return (
            f"{status.name}. {status.sentence}{self._because()}{came}\n"
            f"Norm {jnp.linalg.norm(trained):.6g}{when}; "
            f"max-margin norm {self.margin.norm:.6g}; {trained.dtype}.\n"
            f"{alone} of {len(chosen)} bags select one entry; in {better} another "
            "has a better value."
        )

    def _because(self) -> str:
        """Say by what it is certified, or which hypothesis does not hold."""
        found, end = self.certificate, self.certificate.ending
        reason = Reason(int(found.reason))
        if self.status in CERTIFIED and reason != Reason.NOTHING:
            return f"\n{Proof(int(self.proof)).sentence}"
        part = {
            Reason.FLOW: FlowStatus(int(self.flow.status)),
            Reason.MARGIN: MaxMarginStatus(int(end.margin.status)),
            Reason.LIMIT: LimitStatus(int(end.late.status)),
        }
        number = {
            Reason.LINE: found.late_flow_residual,
            Reason.COMING: found.perturbation_bound,
            Reason.HISTORY: end.late.history_change,
        }
        size = f" It is {number[reason]:.3g}." if reason in number else ""
        return f"\nWhy: {part.get(reason, reason).sentence}{size}"

    @property
    def status(self) -> TrialStatus | Int[Array, "*lanes"]:
        """How the flow ends; a number under `jit` and in a batch."""
        status = self.certificate.status
        if isinstance(status, jax.core.Tracer) or jnp.ndim(status):
            return status
        return TrialStatus(int(status))

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
        """The late flow p_mm log t + ρ, in coordinates."""
        return self.certificate.ending.late

    @property
    def selected(self) -> Bool[Array, "*lanes sequences width"]:
        """The entries that keep attention for ever; of equal rows the first."""
        return self.certificate.ending.selected

    @property
    def trained(self) -> Float[Array, "..."]:
        """What was trained, a query or a matrix, at the end of the flow."""
        return self.problem.lift(self.stage.point.query)

    @property
    def direction(self) -> Float[Array, "..."]:
        """Return p_mm or W_mm: what is trained tends to its direction."""
        return self.problem.lift_direction(self.margin.direction)

    def lift(self, points: Float[Array, "*points dim"]) -> Float[Array, "..."]:
        """Compute what is trained from coordinates, as `Problem.lift`."""
        return self.problem.lift(points)

    def weights(self) -> Float[Array, "sequences width"]:
        """Compute the attention weights at the end of the flow."""
        return jnp.exp(self._attention().log_weights)

    def best(self) -> Bool[Array, " sequences"]:
        """Whether no entry of a bag would give it a larger margin than the selected."""
        problem, corpus = self.problem, self.problem.corpus
        margin = functional_margin(corpus.labels, self._attention().output)
        gain = margin.along(problem.values)
        chosen = jnp.where(self.selected, gain, jnp.inf).min(axis=1)
        return chosen >= jnp.where(corpus.present, gain, -jnp.inf).max(axis=1)

    def _attention(self) -> Attention:
        problem = self.problem
        logits = problem.logits(problem.scores(self.stage.point.query))
        return attend_bags(logits, problem.values, problem.corpus)

    def table(self, names: Sequence[str] | None = None) -> str:
        """Say of every bag what it selects, with which weight, and its margin.

        Args:
            names: of the tokens; their rows by default.

        Returns:
            One line for each bag.

        Raises:
            BadInput: fewer names than tokens.
        """
        if names is not None:
            names_of("names", names, self.problem.corpus.vocabulary)
        corpus, weights = self.problem.corpus, np.asarray(self.weights())
        margins = functional_margin(corpus.labels, self._attention().output).value
        chosen, best = np.asarray(self.selected), np.asarray(self.best())
        lines = [f"{'bag':>5} {'label':>5} {'weight':>8} {'margin':>10}  selected"]
        for bag, (ids, label) in enumerate(
            zip(np.asarray(corpus.tokens), np.asarray(corpus.labels), strict=True)
        ):
            kept = ids[chosen[bag]]
            words = ", ".join(str(one) if names is None else names[one] for one in kept)
            short = "" if best[bag] else "  (another value is better)"
            lines.append(
                f"{bag:>5} {label:>5} {weights[bag][chosen[bag]].sum():>8.4f} "
                f"{margins[bag]:>10.4g}  {words}{short}"
            )
        return "\n".join(lines)


def solve(
    problem: Problem,
    start: "ArrayLike | None" = None,
    *,
    until_norm: Float[Scalar, ""] | float = 1e4,
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
        until_norm: norm of what is trained to stop at.
        stepper: `rodas`, which computes a Hessian for each step, or `bdf`, which keeps
            one for many steps; by default `bdf` for problems of many entries.
        settings: tolerances and bounds of the integration.

    Returns:
        The end of the flow, its selection and max-margin solution, and its certificate.

    Raises:
        BadInput: what is no problem, a start that does not fit it, or a norm that is no
            number above 0; outside of `jit`, an end that has no derivative at all, if
            one is asked for.

    Example:
        >>> from jaxselect import key_query
        >>> x = jnp.array([[[2.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, 2.0]]])
        >>> solved = solve(key_query(x, x[:, 1], x[..., 0], jnp.array([1, 1])))
        >>> solved.status.name, solved.direction.shape
        ('SELECTED', (2, 2))
    """
    check(problem)
    positive("until_norm", until_norm)
    of_kind("settings", settings, FlowSettings)
    if start is not None:
        problem = problem.starting_at(_inside(problem, "start", start))
    norm = jnp.asarray(until_norm, problem.start.dtype)
    if stepper is not None:
        settings = dataclasses.replace(settings, stepper=stepper)
    by_size = stepper is None
    fixed = jax.lax.stop_gradient((problem, norm))
    found = _to_the_end(*fixed, settings, by_size=by_size)
    if is_traced((problem, norm)):
        return _differentiable(problem, norm, found, settings)
    return found


def _to_the_end(
    problem: Problem, norm: Array, settings: FlowSettings, *, by_size: bool
) -> Solved:
    """Solve a problem, without derivatives, by a stepper that suits its size."""
    traced = is_traced((problem, norm))
    if not traced and problem.offsets.size >= _LARGE:
        problem = stratified(problem)
        if by_size:
            settings = dataclasses.replace(settings, stepper="bdf")
    solve_from = partial(_solve, problem, norm, settings=settings)
    if traced:
        return solve_from(None, stages=STAGES)
    # Most flows end in their first stage, whose program compiles in half the time.
    found = solve_from(None, stages=1)
    if int(found.stage.point.next) == Next.NOTHING:
        return found
    last = solve_from(found.stage.point, stages=STAGES - 1)
    steps = found.flow.num_steps + last.flow.num_steps
    return eqx.tree_at(lambda solved: solved.stage.flow.num_steps, last, steps)


def _differentiable(
    problem: Problem, norm: Array, found: Solved, settings: FlowSettings
) -> Solved:
    """Attach derivatives in a problem and a norm to what was found of them."""
    stage, certificate = found.stage, found.certificate
    alone = ~stage.contracted
    begun = (stage.problem.start == jax.lax.stop_gradient(problem.start)).all()
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


@partial(compiled_alone, static=("stages", "settings"))
def _solve(
    problem: Problem,
    until_norm: Array,
    point: Point | None,
    *,
    stages: int,
    settings: FlowSettings,
) -> Solved:
    stage = flow_to_end(
        problem, point, until_norm=until_norm, stages=stages, settings=settings
    )
    best = best_entries(*jax.lax.stop_gradient((problem, stage.point.query)))
    return _judged(problem, stage, certify_stage(problem, stage), best)


def _judged(
    problem: Problem, stage: Stage, found: Certificate, best: BestEntries
) -> Solved:
    """Certify by the risk what the late flow does not, and say by which of them."""
    late, end = found.status <= TrialStatus.AT_REST, found.ending
    by_risk = risk_status(best, end.selected, end.margin) == RiskStatus.CERTIFIED
    named = found.coverage
    if problem.corpus.classes is not None:
        named = jnp.nanmin(named, keepdims=True)
    status = classify_end(
        reason=jnp.asarray(Reason.NONE, jnp.int32),
        flow_status=jnp.asarray(FlowStatus.REACHED, jnp.int32),
        margin_status=end.margin.status,
        coverage=named,
    )
    proof = jnp.where(by_risk, Proof.RISK, Proof.NONE)
    return Solved(
        problem=problem,
        stage=stage,
        certificate=dataclasses.replace(
            found, status=jnp.where(late | ~by_risk, found.status, status)
        ),
        risk=best,
        proof=jnp.where(late, Proof.LATE_FLOW, proof).astype(jnp.int32),
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
    log-time, the theorem of the late flow is tried. Where neither certifies, the flow
    is followed from there (`solve`), but not under `jit` and `vmap`. `print` says which
    of the three it was, and whether the selection is that of the end already.

    What the risk alone certifies of a flow holds of gradient descent with a constant
    step below `risk.largest_step`, too; for longer steps `certify_descent` bounds what
    they add to a late flow.

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
        BadInput: what is no problem, something trained that does not fit it, or a time
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
        The selection of what was trained is that of the end.
    """
    check(problem)
    if log_time is not None:
        between("log_time", log_time, 0.0, math.inf)
    query = _inside(problem, "trained", trained)
    before = None if earlier is None else _inside(problem, "earlier", earlier)
    time = None if log_time is None else jnp.asarray(log_time, query.dtype)
    found = _certify_at(problem, query, before, time)
    if not is_traced((found, query)) and found.status not in CERTIFIED:
        found = solve(problem, trained)
        if found.status in CERTIFIED:
            continued = jnp.full_like(found.proof, Proof.CONTINUED)
            found = dataclasses.replace(found, proof=continued)
    given = jnp.asarray(trained, problem.start.dtype).ravel()
    return dataclasses.replace(found, arrival=_arrival(problem, given, found.selected))


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
    return _judged(problem, stage, certificate_of(problem, flow, end), best)


@compiled_alone
@full_precision
def _arrival(problem: Problem, given: Array, selected: Array) -> Arrival:
    """Compare what was trained, in the model's coordinates, with start and end."""
    query = problem.coordinates(given)
    top = jnp.argmax(problem.logits(problem.scores(query)), axis=1)
    stays = jnp.take_along_axis(selected, top[:, None], axis=1)[:, 0]
    axes = span(centred_in_components(problem.rows, problem.corpus)).axes
    moved = query - problem.start
    off = moved - axes.T @ (axes @ moved)
    beyond = given - problem.lift(query).ravel()
    length = jnp.linalg.norm(given - problem.lift(problem.start).ravel())
    outside = jnp.hypot(jnp.linalg.norm(off), jnp.linalg.norm(beyond))
    return Arrival(
        other_bags=jnp.sum(~stays & problem.present.any(axis=1)),
        outside=jnp.where(
            length > 0, outside / jnp.where(length > 0, length, 1.0), 0.0
        ),
    )


def _inside(problem: Problem, name: str, point: "ArrayLike") -> Float[Array, " dim"]:
    """Compute the coordinates of a query or a matrix."""
    shape = jax.eval_shape(problem.lift, problem.start).shape
    axes = "dim" if len(shape) == 1 else "dim, other"
    given = reals(name, point, axes, beside=problem.start)
    if given.shape != shape:
        raise BadInput(f"{name} of shape {given.shape}: wanted {shape}")
    return problem.coordinates(given.ravel())
