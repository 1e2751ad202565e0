"""One trial of the theory: a corpus, one step on E, the flow of p, and how it ends.

A trial is a pure function of a key and of numbers, so sweeps batch it over seeds, d and
η₀; whatever goes wrong in it becomes its status.

The flow of p is integrated in stages. A stage ends when opposing forces cancel to below
rounding. If the tied tokens are proved to rest, the next stage integrates the
contracted problem. If a token returns to a tie, or the selected token changes too
suddenly for log(1+t) to resolve the time, the next stage integrates the whole problem
on a clock that starts there (mathematics, section 3g).
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, Scalar

from .checks import BadInput
from .compilation import full_precision
from .data.corpus import Corpus
from .flow.cls import Flow, FlowStatus, Held, cls_flow, direction_error
from .flow.control import FlowSettings
from .margin.certificate import TOLERANCE, Certificate, TrialStatus, certify
from .model.attention import attend_bags
from .model.parameters import Parameters, gaussian_reduced
from .model.selection import coverage, important_tokens, mean_coverage, selected_output
from .model.step import Embed, alignment_error, embedding_step
from .problem import Problem, attention, check
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


@dataclass(frozen=True)
class TrialSettings:
    """Static settings of a trial.

    Attributes:
        flow: tolerances and bounds of the integration.
        path_points: points saved along the flow, geometric in log(1+t).
        late_flow_tolerance: a trial has converged if the margins differ from the
            predicted late flow by at most this much (besides rounding) and if p can
            move by at most this much from then on, both in units of attention scores.
    """

    flow: FlowSettings = field(default_factory=FlowSettings)
    path_points: int = 0
    late_flow_tolerance: float = TOLERANCE


class Trial(Point):
    """Results of one trial, and the `Point` from which its run can continue.

    Attributes:
        query: p at the end.
        origin_log_time: log(1+t) at which the clock of the last stage began.
        own_log_time: log(1+t′), t′ the time on that clock.
        opposed: whether that stage ended because opposing forces cancelled.
        finished: whether no further stage would help.
        status: a `TrialStatus`.
        alignment_error: relative error of Lemma 4.1 for the step on E; NaN if E was not
            made by `embedding_step`, the only step that the lemma describes.
        alignment: γ = mean |E_sᵀv| over the important tokens after the step; with
            several heads, the largest mean.
        important_selected: share of sequences whose important tokens are all selected;
            NaN where there is none to select.
        positive_selected: that share among sequences with y = +1; NaN where labels are
            classes.
        negative_selected: that share among sequences with y = −1, likewise.
        cls_norm: ‖p‖ at the end.
        log_time: log(1+t) at the end.
        direction_error: ‖p/‖p‖ − p_mm/‖p_mm‖‖ with the p_mm of the selection at p; NaN,
            like every number that depends on p_mm, if p_mm does not exist.
        error_constant: predicted limit of direction_error · cls_norm.
        late_flow_residual: max |D_kᵀ(p − p_mm log t − ρ)| over the active pairs.
        inactive_pair_bound: bound B on the change of a score by all inactive pairs,
            from this p on.
        history_change: last change of the part of ρ that only the path decides, in
            scores.
        tied_share: share of sequences in which several tokens are proved to keep finite
            odds.
        unselected_effect: max_X |f(X) − its limit for the selected tokens alone|.
        max_margin_norm: ‖p_mm‖.
        duality_gap: relative gap of the max-margin solution.
        history_dim: dimension of the part of ρ that only the path decides.
        num_steps: steps of the integration, rejected ones included.
        path_log_times: log(1+t) along the flow; ∞ after its end.
        path_norms: ‖p‖ there.
        path_errors: direction error there.
    """

    status: Int[Scalar, ""]
    alignment_error: Float[Scalar, ""]
    alignment: Float[Scalar, ""]
    important_selected: Float[Scalar, ""]
    positive_selected: Float[Scalar, ""]
    negative_selected: Float[Scalar, ""]
    cls_norm: Float[Scalar, ""]
    log_time: Float[Scalar, ""]
    direction_error: Float[Scalar, ""]
    error_constant: Float[Scalar, ""]
    late_flow_residual: Float[Scalar, ""]
    inactive_pair_bound: Float[Scalar, ""]
    history_change: Float[Scalar, ""]
    tied_share: Float[Scalar, ""]
    unselected_effect: Float[Scalar, ""]
    max_margin_norm: Float[Scalar, ""]
    duality_gap: Float[Scalar, ""]
    history_dim: Int[Scalar, ""]
    num_steps: Int[Scalar, ""]
    path_log_times: Float[Array, " times"]
    path_norms: Float[Array, " times"]
    path_errors: Float[Array, " times"]


@full_precision
def run_trial(
    key: Key[Array, ""],
    draw_corpus: Callable[[Key[Array, ""]], Corpus],
    dim: Float[Scalar, ""] | float,
    step_size: Float[Scalar, ""] | float,
    *,
    until_norm: Float[Scalar, ""] | float,
    embed: Embed = embedding_step,
    point: Point | None = None,
    stages: Int[Scalar, ""] | int = STAGES,
    settings: TrialSettings = TrialSettings(),
) -> Trial:
    """Draw a corpus and parameters, step on E, integrate p, and evaluate the end.

    Corpus and normal draws depend on the key alone, so trials that share it differ by d
    and η₀ only. For many trials use `run_grid`: under `vmap` every trial takes as many
    steps as the slowest one.

    Source: mathematics, sections 2, 3a, 3e and 4.

    Args:
        key: a `jax.random.key`.
        draw_corpus: function from a key to a corpus of fixed shape, such as
            `assumption_one` with its sizes.
        dim: d; traced.
        step_size: η₀; traced.
        until_norm: ‖p‖ to stop at; traced.
        embed: (E⁰, p_0, v), corpus, η₀ → (E¹, p_0, v). It must commute with rotations
            of R^d for the reduced coordinates to have the law of R^d.
        point: a former trial with the same key, d and η₀, to continue from; p_0 by
            default.
        stages: bound on the number of stages of the flow (`flow_to_end`); traced.
        settings: static.

    Returns:
        A `Trial`.

    Raises:
        BadInput: `draw_corpus` returns no corpus, or `embed` no parameters that fit it.

    Example:
        >>> from functools import partial
        >>> from jaxselect.data.synthetic import assumption_one
        >>> draw = partial(
        ...     assumption_one, sequences=8, length=4, relevant=2, irrelevant=4
        ... )
        >>> run = jax.jit(run_trial, static_argnames="draw_corpus")
        >>> trial = run(jax.random.key(0), draw, 1e6, 100.0, until_norm=1e4)
        >>> from jaxselect.margin.certificate import TrialStatus
        >>> TrialStatus(trial.status.item()).name
        'SELECTED_ALL'
        >>> measured = trial.direction_error * trial.cls_norm
        >>> bool(abs(measured / trial.error_constant - 1) < 1e-3)
        True
    """
    if not callable(draw_corpus):
        kind = type(draw_corpus).__name__
        raise BadInput(f"draw_corpus of type {kind}: wanted a function to a Corpus")
    before, after, corpus = initialise(key, draw_corpus, dim, step_size, embed=embed)
    path = None
    if settings.path_points:
        path = jnp.geomspace(1e-2, 1e2 * until_norm, settings.path_points)
    problem = attention(after, corpus)
    first = beginning(problem)
    if point is not None:
        begun = (point.origin_log_time > 0) | (point.own_log_time > 0)
        # Of a trial, too: it has the fields of a point, and more.
        given = (getattr(point, name) for name in Point.__dataclass_fields__)
        first = jax.tree.map(partial(jnp.where, begun), Point(*given), first)
    stage = flow_to_end(
        problem,
        first,
        until_norm=until_norm,
        path_log_times=path,
        stages=stages,
        settings=settings.flow,
    )
    tolerance = settings.late_flow_tolerance
    return _evaluate(before, after, problem, stage, step_size, embed, tolerance)


def initialise(
    key: Key[Array, ""],
    draw_corpus: Callable[[Key[Array, ""]], Corpus],
    dim: Float[Scalar, ""] | float,
    step_size: Float[Scalar, ""] | float,
    *,
    embed: Embed = embedding_step,
) -> tuple[Parameters, Parameters, Corpus]:
    """Draw the start of a trial: (E⁰, p_0, v), (E¹, p_0, v) and a corpus.

    The arguments are those of `run_trial`.

    Raises:
        BadInput: `draw_corpus` returns no corpus, or `embed` no parameters that fit it.
    """
    corpus_key, parameters_key = jax.random.split(key)
    corpus = draw_corpus(corpus_key)
    if not isinstance(corpus, Corpus):
        kind = type(corpus).__name__
        raise BadInput(f"draw_corpus gives a {kind}: wanted a function to a Corpus")
    sizes = {"vocabulary": corpus.vocabulary, "heads": corpus.classes or 1}
    before = gaussian_reduced(parameters_key, **sizes, dim=dim)
    after = embed(before, corpus, step_size)
    if not isinstance(after, Parameters):
        kind = type(after).__name__
        raise BadInput(f"embed gives a {kind}: wanted a function to Parameters")
    return before, after, corpus


def _evaluate(
    before: Parameters,
    after: Parameters,
    problem: Problem,
    stage: Stage,
    step_size: Float[Scalar, ""] | float,
    embed: Embed = embedding_step,
    tolerance: float = TOLERANCE,
) -> Trial:
    """Evaluate a trial at the end of the last stage of its flow."""
    corpus, flow, query = problem.corpus, stage.flow, stage.point.query
    values = after.embeddings @ after.head
    found = certify_stage(problem, stage, tolerance=tolerance)
    margin, late = found.ending.margin, found.ending.late
    important = important_tokens(corpus)
    number = jnp.maximum(important.sum(), 1).astype(values.dtype)
    # Without p_mm there is no direction to compare with; of an E whose squared norm
    # overflows nothing is known.
    known = (margin.norm > 0) & jnp.isfinite(margin.norm)
    known = jnp.where(known, 1.0, jnp.nan).astype(values.dtype)
    sound = jnp.isfinite(jnp.sum(after.embeddings**2))
    lemma_error = jnp.full((), jnp.nan, values.dtype)
    if embed is embedding_step:
        lemma_error = alignment_error(before, after, corpus, step_size)
    path_errors = jax.vmap(direction_error, (0, None))(
        flow.path_query, margin.direction
    )
    return Trial(
        status=jnp.where(sound, found.status, TrialStatus.FAILED).astype(jnp.int32),
        alignment_error=lemma_error,
        alignment=jnp.sum(jnp.where(important, _largest(values), 0.0)) / number,
        important_selected=mean_coverage(found.coverage, corpus),
        positive_selected=found.positive,
        negative_selected=found.negative,
        cls_norm=jnp.linalg.norm(query),
        log_time=flow.log_time,
        direction_error=direction_error(query, margin.direction) * known,
        error_constant=late.error_constant * known,
        late_flow_residual=found.late_flow_residual,
        inactive_pair_bound=found.inactive_pair_bound,
        history_change=late.history_change,
        tied_share=corpus.mean(stage.ties.tied.astype(values.dtype)),
        unselected_effect=_unselected_effect(stage, found.ending.selected),
        max_margin_norm=margin.norm,
        duality_gap=margin.gap,
        history_dim=late.history_dim,
        num_steps=flow.num_steps,
        path_log_times=flow.path_log_times,
        path_norms=jax.vmap(jnp.linalg.norm)(flow.path_query),
        path_errors=path_errors * known,
        **vars(stage.point),
    )


def _largest(values: Float[Array, " rows *classes"]) -> Float[Array, " rows"]:
    """The largest |value| of every row."""
    size = jnp.abs(values)
    return size if size.ndim == 1 else size.max(axis=1)


def _unselected_effect(
    stage: Stage, selected: Bool[Array, "sequences width"]
) -> Float[Scalar, ""]:
    """max_X |f(X) − its limit for the selected tokens alone|."""
    problem, corpus = stage.problem, stage.problem.corpus
    logits = problem.logits(problem.scores(stage.flow.query))
    # In the corpus of a contracted problem one entry stands for those that are tied.
    alone = selected_output(problem.values, problem.offsets, selected)
    effect = _largest(attend_bags(logits, problem.values, corpus).output - alone)
    return jnp.max(jnp.where(selected.any(axis=1), effect, 0.0))
