"""The flow of p to its end, in stages: of the problem, and of what its ties leave.

A flow stops where opposing pulls hide what is left of them. Where the ties that pull so
are proved to rest, the next stage is the contracted problem's; where a token comes back
to them, or tokens change places too suddenly for a log-time to tell when, it is the
problem's own, in a time that begins there (mathematics, section 3g).
"""

import dataclasses
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Scalar

from ..corpora.checks import for_corpus
from ..corpora.corpus import Corpus, Shift
from ..flow.cls_flow import cls_flow
from ..flow.result import Flow, FlowStatus
from ..flow.settings import FlowSettings
from ..margin.max_margin import MaxMarginStatus
from ..model.parameters import Parameters
from ..model.selection import coverage
from ..precision import full_precision
from ..program import one_program
from ..ties import Contracted, Ties, contract, displacement, find_ties, no_ties
from .trial_certificate import TOLERANCE, Certificate, certify
from .trial_status import TrialStatus

# Largest log-time; the norm is reached before, but by a run at rest.
LATEST = 1e15

# Bound on the stages of a run: those that take more go from one return to the next.
STAGES = 12


class Point(eqx.Module):
    """Where a run has come to: all that its next stage begins with.

    The flow does not depend on when it begins: a stage may have a clock of its own,
    which resolves what log(1+t) cannot.

    Attributes:
        query: p.
        origin_log_time: log(1+t) at which the clock of the last stage began.
        own_log_time: log(1+t′), t′ the time on that clock.
        opposed: whether opposing pulls ended that stage.
        finished: whether no further stage helps.
    """

    query: Float[Array, " dim"]
    origin_log_time: Float[Scalar, ""]
    own_log_time: Float[Scalar, ""]
    opposed: Bool[Scalar, ""]
    finished: Bool[Scalar, ""]

    @property
    def log_time(self) -> Float[Scalar, ""]:
        """The log(1+t), t = t_origin + t′."""
        own, origin = self.own_log_time, self.origin_log_time
        # log t′ = τ′ + log(1 − e^{−τ′}).
        some = jnp.where(own > 0, own, 1.0)
        elapsed = jnp.where(own > 0, own + jnp.log(-jnp.expm1(-some)), -jnp.inf)
        return jnp.where(origin > 0, jnp.logaddexp(origin, elapsed), own)


class Stage(eqx.Module):
    """One stage of a flow.

    Attributes:
        parameters: of the problem that was integrated, with p from before the stage.
        corpus: of that problem.
        ties: what was contracted; without tied sequences where nothing was.
        flow: of that problem's p, in log(1+t) of the run.
        point: where the run has come to.
    """

    parameters: Parameters
    corpus: Corpus
    ties: Ties
    flow: Flow
    point: Point

    @property
    def contracted(self) -> Bool[Scalar, ""]:
        """Whether ties were contracted."""
        return self.ties.tied.any()


def beginning(parameters: Parameters) -> Point:
    """The point before the first stage.

    Args:
        parameters: (E, p_0, v).

    Returns:
        p_0, at t = 0.

    Example:
        >>> start = Parameters(jnp.eye(2), jnp.ones(2), jnp.ones(2))
        >>> beginning(start).log_time.item()
        0.0
    """
    zero, no = jnp.zeros((), parameters.query.dtype), jnp.asarray(False)
    return Point(parameters.query, zero, zero, no, no)


@for_corpus(by_head=True)
@full_precision
def flow_to_end(
    parameters: Parameters,
    corpus: Corpus,
    point: Point,
    *,
    until_norm: Float[Scalar, ""] | float,
    path_log_times: Float[Array, " times"] | None = None,
    stages: Int[Scalar, ""] | int = STAGES,
    settings: FlowSettings = FlowSettings(),
) -> Stage:
    """The flow of p from a point of it, stage by stage.

    Source: mathematics, section 3g.

    Args:
        parameters: (E, ·, v), in a `frame` where d is large.
        corpus: n labelled bags; ties are contracted for labels ±1 in double precision.
        point: of `beginning`, or of a former call's last stage.
        until_norm: ‖p‖ to stop at.
        path_log_times: values of log(1+t) to save p of the first stage at.
        stages: bound on their number, at least one; traced.
        settings: of the integration.

    Returns:
        The last stage; its `num_steps` and path are those of all.

    Example:
        >>> from jaxselect.corpora.corpus import from_sequences
        >>> bags = from_sequences([[0, 1], [0, 1], [0, 2]], [1, -1, 1], vocabulary=3)
        >>> start = Parameters(jnp.eye(3), jnp.zeros(3), jnp.array([1.0, -1.0, 0.0]))
        >>> run = jax.jit(lambda: flow_to_end(
        ...     start, bags, beginning(start), until_norm=1e6))
        >>> last = run()
        >>> bool(last.contracted), FlowStatus(last.flow.status.item()).name
        (True, 'REACHED')
    """
    if corpus.shift is None:
        nothing = jnp.zeros(corpus.tokens.shape, parameters.query.dtype)
        corpus = dataclasses.replace(corpus, shift=Shift(nothing, nothing, nothing))
    real = partial(jnp.asarray, dtype=parameters.query.dtype)
    fixed = parameters, corpus, real(until_norm), path_log_times
    most = jnp.asarray(stages, jnp.int32)
    stage_of = partial(_stage, *fixed, settings=settings)
    empty = jax.eval_shape(stage_of, point)
    nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), empty)

    def more(state: tuple[Stage, Array]) -> Array:
        stage, number = state
        return ~stage.point.finished & (number < most)

    def following(state: tuple[Stage, Array]) -> tuple[Stage, Array]:
        before, number = state
        stage = stage_of(before.point)
        flow, former = stage.flow, before.flow
        # The path is that of the first stage; its log-times begin with the run.
        path = partial(jnp.where, number == 0)
        flow = eqx.tree_at(
            lambda flow: (flow.num_steps, flow.path_log_times, flow.path_query),
            flow,
            (
                flow.num_steps + former.num_steps,
                path(flow.path_log_times, former.path_log_times),
                path(flow.path_query, former.path_query),
            ),
        )
        return dataclasses.replace(stage, flow=flow), number + 1

    begun = dataclasses.replace(nothing, point=point), jnp.asarray(0, jnp.int32)
    return jax.lax.while_loop(more, following, begun)[0]


@one_program("settings")
def _stage(
    parameters: Parameters,
    corpus: Corpus,
    until_norm: Float[Scalar, ""],
    path_log_times: Float[Array, " times"] | None,
    point: Point,
    *,
    settings: FlowSettings,
) -> Stage:
    """One stage, from a point."""
    parameters = Parameters(parameters.embeddings, point.query, parameters.head)
    problem, ties = _contracted(parameters, corpus, point)
    held = ties.tied
    left = held.any()
    # Without a proof that the ties rest nothing is integrated further.
    stuck = point.opposed & ~left
    begin = point.own_log_time
    beyond = jnp.maximum(until_norm**2 - ties.point @ ties.point, 0.0)
    flow = cls_flow(
        *problem,
        until_norm=jnp.where(left, jnp.sqrt(beyond), until_norm),
        until_log_time=jnp.where(stuck, begin, LATEST),
        from_log_time=begin,
        path_log_times=path_log_times,
        held=held,
        settings=settings,
    )
    status = jnp.where(stuck, FlowStatus.TIES_UNPROVED, flow.status)
    balanced = (status == FlowStatus.TIES_UNPROVED) & ~stuck
    opposed = balanced & ~left
    again = (status == FlowStatus.TIME_UNRESOLVED) | (balanced & left)
    again = again | (status == FlowStatus.SELECTION_CHANGED)
    if parameters.query.dtype != jnp.float64:
        # Ties are not proved to rest in single precision.
        opposed, again = jnp.zeros_like(opposed), jnp.zeros_like(again)
    end = Point(
        query=ties.point + flow.query,
        origin_log_time=point.origin_log_time,
        own_log_time=flow.log_time,
        opposed=opposed,
        finished=~(opposed | again),
    )
    log_time = end.log_time
    clock = lambda end: (end.origin_log_time, end.own_log_time)  # noqa: E731
    begun = jnp.where(again, log_time, end.origin_log_time)
    end = eqx.tree_at(clock, end, (begun, jnp.where(again, 0.0, end.own_log_time)))
    return Stage(
        parameters=problem.parameters,
        corpus=problem.corpus,
        ties=ties,
        flow=eqx.tree_at(
            lambda flow: (flow.log_time, flow.status), flow, (log_time, status)
        ),
        point=end,
    )


def _contracted(
    parameters: Parameters, corpus: Corpus, point: Point
) -> tuple[Contracted, Ties]:
    """The problem of a stage, and its ties; none but where they are proved to rest."""
    whole = Contracted(parameters, corpus)
    if corpus.classes is not None or parameters.query.dtype != jnp.float64:
        return whole, no_ties(parameters, corpus)

    def without() -> tuple[Contracted, Ties]:
        ties = find_ties(parameters, corpus, point.own_log_time)
        found = contract(parameters, corpus, ties), ties
        rest = whole, no_ties(parameters, corpus)
        return jax.tree.map(partial(jnp.where, ties.proved), found, rest)

    return jax.lax.cond(
        point.opposed, without, lambda: (whole, no_ties(parameters, corpus))
    )


@for_corpus(by_head=True)
@full_precision
def certify_stage(
    parameters: Parameters,
    corpus: Corpus,
    stage: Stage,
    *,
    tolerance: float = TOLERANCE,
) -> Certificate:
    """The certificate of a run's last stage, its ties included.

    The certificate of a contracted problem is that of the run where its ties are proved
    to rest, and where what is left of their displacement is below the tolerance.

    Source: mathematics, sections 3e and 3g.

    Args:
        parameters: (E, ·, v).
        corpus: n labelled bags.
        stage: of `stages.flow_to_end`, for these.
        tolerance: see `classify_end`.

    Returns:
        The certificate; selection and coverage are of the corpus itself, the late flow
        that of p.
    """
    found = certify(stage.parameters, stage.corpus, stage.flow, tolerance=tolerance)
    if corpus.classes is not None:
        return found
    ties, end = stage.ties, found.ending
    still = jnp.take_along_axis(end.selected, ties.slot[:, None], axis=1)
    selected = end.selected | (ties.selected & still)
    covered = coverage(selected, corpus)
    moves = displacement(parameters, stage.corpus, stage.flow, ties)
    converged = (found.status <= TrialStatus.NOTHING_TO_SELECT) & (moves <= tolerance)
    nothing_moves = (end.margin.status == MaxMarginStatus.NO_PAIRS) & (
        stage.flow.status == FlowStatus.NORM_NOT_REACHED
    )
    status = jnp.where(converged, TrialStatus.TIED, TrialStatus.TIES_UNPROVED)
    status = jnp.where(nothing_moves, TrialStatus.AT_REST, status)
    failed = found.status >= TrialStatus.OUT_OF_STEPS
    status = jnp.where(stage.contracted & ~failed, status, found.status)
    late = end.late
    late = eqx.tree_at(
        lambda late: (late.offset, late.error_constant),
        late,
        (
            late.offset + ties.point,
            jnp.hypot(late.error_constant, jnp.linalg.norm(ties.point)),
        ),
    )
    return eqx.tree_at(
        lambda found: (
            found.ending.selected,
            found.ending.late,
            found.positive,
            found.negative,
            found.coverage,
            found.status,
        ),
        found,
        (selected, late, covered[0], covered[1], covered, status.astype(jnp.int32)),
    )
