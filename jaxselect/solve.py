"""The flow of a problem to its end, stage by stage, and what is certified of it.

A stage ends when opposing forces cancel to below rounding. If the tied tokens are
proved to rest, the next stage integrates the contracted problem. If a token returns to
a tie, or the selected token changes too suddenly for log(1+t) to resolve the time, the
next stage integrates the whole problem on a clock that starts there (mathematics,
section 3g).
"""

import dataclasses
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Scalar

from .compilation import full_precision
from .flow.cls import Flow, FlowStatus, Held, cls_flow
from .flow.control import FlowSettings
from .margin.certificate import TOLERANCE, Certificate, certify
from .model.selection import coverage
from .problem import Problem, check
from .ties import Contracted, Ties, contract, find_ties, no_ties

# Largest log-time; the norm is reached before, but by a run at rest.
LATEST = 1e15

# Bound on the stages of a run: those that take more go from one return to the next.
STAGES = 12


class Point(eqx.Module):
    """State of a run between two stages.

    The field does not depend on time, so a stage may measure time from its own start,
    which resolves changes that log(1+t) cannot.

    Attributes:
        query: p.
        origin_log_time: log(1+t) at which the clock of the last stage began.
        own_log_time: log(1+t′), t′ the time on that clock.
        opposed: whether that stage ended because opposing forces cancelled.
        finished: whether no further stage would help.
    """

    query: Float[Array, " dim"]
    origin_log_time: Float[Scalar, ""]
    own_log_time: Float[Scalar, ""]
    opposed: Bool[Scalar, ""]
    finished: Bool[Scalar, ""]


def log_time_of(origin: Float[Scalar, ""], own: Float[Scalar, ""]) -> Float[Scalar, ""]:
    """Add two times given by their logarithms: log(1 + t_origin + t′)."""
    # log t′ = τ′ + log(1 − e^{−τ′}).
    some = jnp.where(own > 0, own, 1.0)
    elapsed = jnp.where(own > 0, own + jnp.log(-jnp.expm1(-some)), -jnp.inf)
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
    zero, no = jnp.zeros((), problem.start.dtype), jnp.asarray(False)
    return Point(problem.start, zero, zero, no, no)


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
        problem: ties are contracted for labels ±1 in double precision.
        point: where to continue, from a former call's last stage; p_0 at t = 0 by
            default.
        until_norm: ‖p‖ to stop at.
        path_log_times: values of log(1+t) to save p of the first stage at.
        stages: bound on the number of stages, at least one; traced.
        settings: tolerances and bounds of the integration.

    Returns:
        The last stage, with the `num_steps` and the path of all stages.

    Raises:
        BadInput: what is no problem.

    Example:
        >>> from jaxselect import from_sequences
        >>> bags = from_sequences([[0, 1], [0, 1], [0, 2]], [1, -1, 1], vocabulary=3)
        >>> start = Parameters(jnp.eye(3), jnp.zeros(3), jnp.array([1.0, -1.0, 0.0]))
        >>> last = jax.jit(flow_to_end)(attention(start, bags), until_norm=1e6)
        >>> bool(last.contracted), FlowStatus(last.flow.status.item()).name
        (True, 'REACHED')
    """
    check(problem)
    norm = jnp.asarray(until_norm, problem.start.dtype)
    most = jnp.asarray(stages, jnp.int32)

    def stage_of(point: Point) -> Stage:
        return _stage(problem, norm, path_log_times, point, settings)

    def more(state: tuple[Stage, Array]) -> Array:
        stage, number = state
        return ~stage.point.finished & (number < most)

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


def _stage(
    problem: Problem,
    until_norm: Float[Scalar, ""],
    path_log_times: Float[Array, " times"] | None,
    point: Point,
    settings: FlowSettings,
) -> Stage:
    """Integrate one stage of the flow, from a point to the end of the stage."""
    few, ties, on_their_way = _contracted(problem.starting_at(point.query), point)
    contracted = ties.tied.any()
    # Ties on their way to rest get there on a clock of their own. Of others whose
    # forces cancel nothing is proved, and nothing is integrated further.
    stuck = point.opposed & ~contracted & ~on_their_way
    begin = jnp.where(on_their_way, 0.0, point.own_log_time)
    beyond = jnp.maximum(until_norm**2 - ties.point @ ties.point, 0.0)
    flow = cls_flow(
        few.problem,
        until_norm=jnp.where(contracted, jnp.sqrt(beyond), until_norm),
        until_log_time=jnp.where(stuck, begin, LATEST),
        from_log_time=begin,
        path_log_times=path_log_times,
        held=few.held,
        settings=settings,
    )
    status = jnp.where(stuck, FlowStatus.TIES_UNPROVED, flow.status)
    balanced = (status == FlowStatus.TIES_UNPROVED) & ~stuck
    opposed = balanced & ~contracted
    again = (
        (status == FlowStatus.TIME_UNRESOLVED)
        | (status == FlowStatus.SELECTION_CHANGED)
        | (balanced & contracted)
    )
    if problem.start.dtype != jnp.float64:
        # Ties are not proved to rest in single precision.
        opposed, again = jnp.zeros_like(opposed), jnp.zeros_like(again)
    now = log_time_of(point.origin_log_time, point.own_log_time)
    origin = jnp.where(on_their_way, now, point.origin_log_time)
    log_time = log_time_of(origin, flow.log_time)
    return Stage(
        problem=few.problem,
        ties=ties,
        flow=dataclasses.replace(flow, log_time=log_time, status=status),
        point=Point(
            query=ties.point + flow.query,
            origin_log_time=jnp.where(again, log_time, origin),
            own_log_time=jnp.where(again, 0.0, flow.log_time),
            opposed=opposed,
            finished=~(opposed | again),
        ),
    )


def _contracted(
    problem: Problem, point: Point
) -> tuple[Contracted, Ties, Bool[Scalar, ""]]:
    """Contract the problem if its ties rest; say whether they are on their way there.

    Returns:
        The problem, its ties, and whether these are proved to come to rest, but are too
        far from it to be contracted.
    """
    corpus, none, no = problem.corpus, no_ties(problem), jnp.asarray(False)
    inside = problem.rows @ none.axes.T
    nothing = none.widths
    flat = jnp.zeros((len(nothing), inside.shape[1]), inside.dtype)
    free = Held(
        tied=none.tied,
        tokens=corpus.tokens,
        rows=inside,
        means=flat,
        bends=flat,
        slopes=nothing,
        reach=nothing,
        allowed=jnp.full_like(none.moved, jnp.inf),
    )
    whole = Contracted(problem, free), none, no
    if corpus.classes is not None or problem.start.dtype != jnp.float64:
        return whole

    def without() -> tuple[Contracted, Ties, Bool[Scalar, ""]]:
        ties = find_ties(problem, point.own_log_time)
        few = contract(problem, ties)
        after = few.problem
        logits = after.logits(after.scores(after.start))
        _, push = few.held.excess(logits, after.values, after.corpus)
        rests = ties.proved & (push <= 0)
        found = jax.tree.map(partial(jnp.where, rests), (few, ties), whole[:2])
        return *found, ties.proved & ~rests

    return jax.lax.cond(point.opposed, without, lambda: whole)


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
    corpus, ties = problem.corpus, stage.ties
    if corpus.classes is not None:
        return certify(stage.problem, stage.flow, tolerance=tolerance)
    found = certify(stage.problem, stage.flow, tolerance=tolerance, ties=ties.resting)
    end, late = found.ending, found.ending.late
    still = jnp.take_along_axis(end.selected, ties.slot[:, None], axis=1)
    selected = end.selected | (ties.selected & still)
    covered = coverage(selected, corpus)
    constant = jnp.hypot(late.error_constant, jnp.linalg.norm(ties.point))
    late = dataclasses.replace(
        late, offset=late.offset + ties.point, error_constant=constant
    )
    return dataclasses.replace(
        found,
        ending=dataclasses.replace(end, selected=selected, late=late),
        positive=covered[0],
        negative=covered[1],
        coverage=covered,
    )
