"""One trial of the theory: a corpus, one step on E, the flow of p, and its verdict.

A trial is a pure function of a key and of numbers, so sweeps batch it over seeds, d and
η₀; whatever goes wrong in it becomes its status.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, Scalar

from ..arguments import as_annotated
from ..corpora.checks import for_corpus
from ..corpora.corpus import Corpus
from ..errors import BadInput
from ..flow.progress import direction_error
from ..flow.settings import FlowSettings
from ..model.attention import attend_corpus, token_scores
from ..model.embedding_step import Embed, alignment_error, embedding_step
from ..model.parameters import Parameters, gaussian_reduced
from ..model.selection import important_tokens, mean_coverage, selected_output
from ..precision import full_precision
from .stages import STAGES, Point, Stage, beginning, certify_stage, flow_to_end
from .trial_certificate import TOLERANCE
from .trial_status import TrialStatus


@dataclass(frozen=True)
class TrialSettings:
    """Static settings of a trial.

    Attributes:
        flow: tolerances and bounds of the integration.
        path_points: points saved along the flow, geometric in log(1+t).
        late_flow_tolerance: how closely the margins must follow the predicted late
            flow, in units of attention scores and up to their rounding, and how far p
            may still be moved, in units of scores too, for a trial to count as
            converged.
    """

    flow: FlowSettings = field(default_factory=FlowSettings)
    path_points: int = 0
    late_flow_tolerance: float = TOLERANCE


class Trial(eqx.Module):
    """The results of one trial; scalars first, then the path.

    Attributes:
        status: a `trial_status.TrialStatus`.
        alignment_error: relative error of Lemma 4.1 for the step on E; NaN where E was
            made otherwise than by `embedding_step`, which alone the lemma is of.
        alignment: γ = mean |E_sᵀv| over the important tokens after the step; with
            several heads the greatest of them counts.
        important_selected: share of sequences whose important tokens are all selected;
            NaN where there is none to select.
        positive_selected: that share among sequences with y = +1; NaN where labels are
            classes.
        negative_selected: that share among sequences with y = −1, likewise.
        cls_norm: ‖p‖ at the end.
        log_time: log(1+t) at the end.
        direction_error: ‖p/‖p‖ − p_mm/‖p_mm‖‖, p_mm that of p's own selection; NaN
            where there is no p_mm, as is what follows from it.
        error_constant: predicted limit of direction_error · cls_norm.
        late_flow_residual: largest distance of an active margin from its late flow.
        inactive_pair_bound: bound on what inactive pairs may still move a score by.
        history_change: change of the part of p that only the path decides, in scores.
        tied_share: share of sequences that keep several tokens at proved, finite odds.
        unselected_effect: max_X |f(X) − its limit for the selected tokens alone|.
        max_margin_norm: ‖p_mm‖.
        duality_gap: relative gap of the max-margin solution.
        history_dim: dimension of the part of p that only the path decides.
        num_steps: steps of the integration, rejected ones included.
        path_log_times: log(1+t) along the flow; ∞ after its end.
        path_norms: ‖p‖ there.
        path_errors: direction error there.
        query_end: p at the end; with the next four, what a further stage begins with.
        origin_log_time: log(1+t) at which the clock of the last stage began.
        own_log_time: log(1+t′) on that clock.
        opposed: whether opposing pulls ended it.
        finished: whether no further stage would help.
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
    query_end: Float[Array, " dim"]
    origin_log_time: Float[Scalar, ""]
    own_log_time: Float[Scalar, ""]
    opposed: Bool[Scalar, ""]
    finished: Bool[Scalar, ""]

    @property
    def point(self) -> Point:
        """Where the run has come to, to go on from."""
        clock = self.origin_log_time, self.own_log_time
        return Point(self.query_end, *clock, self.opposed, self.finished)


@as_annotated
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
    and η₀ only.

    Args:
        key: a `jax.random.key`.
        draw_corpus: key → corpus, of fixed shape; one of `synthetic`'s, say.
        dim: d; traced.
        step_size: η₀; traced.
        until_norm: ‖p‖ to stop at; traced.
        embed: (E⁰, p_0, v), corpus, η₀ → (E¹, p_0, v). In reduced coordinates it has
            the law of R^d where it commutes with rotations of R^d.
        point: of a former trial with the same key, d and η₀, to go on from; by
            default, and for t = 0, p_0.
        stages: bound on the stages of the flow (`stages.flow_to_end`); traced.
        settings: static.

    Returns:
        The trial.

    Raises:
        BadInput: what is drawn is no corpus, or what is embedded no parameters.

    Example:
        >>> from functools import partial
        >>> from jaxselect.corpora.synthetic import assumption_one
        >>> draw = partial(
        ...     assumption_one, sequences=8, length=4, relevant=2, irrelevant=4
        ... )
        >>> run = jax.jit(run_trial, static_argnames="draw_corpus")
        >>> trial = run(jax.random.key(0), draw, 1e6, 100.0, until_norm=1e4)
        >>> from jaxselect.outcome.trial_status import TrialStatus
        >>> TrialStatus(trial.status.item()).name
        'SELECTED_ALL'
        >>> measured = trial.direction_error * trial.cls_norm
        >>> bool(abs(measured / trial.error_constant - 1) < 1e-3)
        True
    """
    before, after, corpus = initialise(key, draw_corpus, dim, step_size, embed=embed)
    path = None
    if settings.path_points:
        path = jnp.geomspace(1e-2, 1e2 * until_norm, settings.path_points)
    first = beginning(after)
    if point is not None:
        begun = partial(
            jnp.where, (point.origin_log_time > 0) | (point.own_log_time > 0)
        )
        first = jax.tree.map(begun, point, first)
    stage = flow_to_end(
        after,
        corpus,
        first,
        until_norm=until_norm,
        path_log_times=path,
        stages=stages,
        settings=settings.flow,
    )
    return evaluate(
        before,
        after,
        corpus,
        stage,
        step_size=step_size,
        embed=embed,
        late_flow_tolerance=settings.late_flow_tolerance,
    )


@as_annotated
@full_precision
def initialise(
    key: Key[Array, ""],
    draw_corpus: Callable[[Key[Array, ""]], Corpus],
    dim: Float[Scalar, ""] | float,
    step_size: Float[Scalar, ""] | float,
    *,
    embed: Embed = embedding_step,
) -> tuple[Parameters, Parameters, Corpus]:
    """A corpus, and parameters before and after the step on E.

    Args:
        key: see `run_trial`, also for what follows.
        draw_corpus: key → corpus.
        dim: d.
        step_size: η₀.
        embed: how E¹ is made.

    Returns:
        (E⁰, p_0, v), (E¹, p_0, v) and the corpus.

    Raises:
        BadInput: what is drawn is no corpus, or what is embedded no parameters.

    Example:
        See `run_trial`.
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


@for_corpus(by_head=True)
@full_precision
def evaluate(
    before: Parameters,
    after: Parameters,
    corpus: Corpus,
    stage: Stage,
    *,
    step_size: Float[Scalar, ""] | float,
    embed: Embed = embedding_step,
    late_flow_tolerance: float = TOLERANCE,
) -> Trial:
    """The results of a trial: error of the step on E, certificate.

    Args:
        before: (E⁰, p_0, v).
        after: (E¹, p_0, v), which the flow started from.
        corpus: n labelled bags.
        stage: the last one of the flow of p, with E¹ and v fixed.
        step_size: η₀ of the step from E⁰ to E¹.
        embed: how E¹ was made, which decides whether Lemma 4.1 is of it.
        late_flow_tolerance: see `TrialSettings`.

    Returns:
        The trial.

    Example:
        See `run_trial`.
    """
    flow, query = stage.flow, stage.point.query
    values = after.embeddings @ after.head
    found = certify_stage(after, corpus, stage, tolerance=late_flow_tolerance)
    margin, late = found.ending.margin, found.ending.late
    important = important_tokens(corpus)
    number = jnp.maximum(important.sum(), 1).astype(values.dtype)
    # Without p_mm there is no direction to compare with; of an E whose squared norm
    # overflows nothing is known.
    known = (margin.norm > 0) & jnp.isfinite(margin.norm)
    known = jnp.where(known, 1.0, jnp.nan).astype(values.dtype)
    sound = jnp.isfinite(jnp.sum(after.embeddings**2))
    return Trial(
        status=jnp.where(sound, found.status, TrialStatus.FAILED).astype(jnp.int32),
        alignment_error=alignment_error(before, after, corpus, step_size)
        if embed is embedding_step
        else jnp.full((), jnp.nan, values.dtype),
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
        path_errors=jax.vmap(direction_error, (0, None))(
            flow.path_query, margin.direction
        )
        * known,
        query_end=query,
        origin_log_time=stage.point.origin_log_time,
        own_log_time=stage.point.own_log_time,
        opposed=stage.point.opposed,
        finished=stage.point.finished,
    )


def _largest(values: Float[Array, " rows *classes"]) -> Float[Array, " rows"]:
    """The largest |value| of every row."""
    size = jnp.abs(values)
    return size if size.ndim == 1 else size.max(axis=1)


def _unselected_effect(
    stage: Stage, selected: Bool[Array, "sequences width"]
) -> Float[Scalar, ""]:
    scores, values = token_scores(
        Parameters(stage.parameters.embeddings, stage.flow.query, stage.parameters.head)
    )
    # In the corpus of a contracted problem one entry stands for those that are tied.
    alone = selected_output(values, selected, stage.corpus)
    effect = _largest(attend_corpus(scores, values, stage.corpus).output - alone)
    return jnp.max(jnp.where(selected.any(axis=1), effect, 0.0))
