"""One trial of the theory: a corpus, one step on E, the flow of p, and how it ends.

A trial is a pure function of a key and of numbers, so sweeps batch it over seeds, d and
η₀; whatever goes wrong in it becomes its status.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, Scalar

from . import checks
from .checks import BadInput
from .compilation import full_precision
from .data.corpus import Corpus
from .flow.cls import direction_error
from .flow.control import FlowSettings
from .model.attention import attend_bags
from .model.parameters import Parameters, gaussian_reduced
from .model.selection import important_tokens, mean_coverage, selected_output
from .model.step import Embed, alignment_error, embedding_step
from .problem import Problem, attention
from .stages import STAGES, Point, Stage, beginning, certify_stage, flow_to_end


@dataclass(frozen=True)
class TrialSettings:
    """Static settings of a trial.

    Attributes:
        flow: tolerances and bounds of the integration.
        path_points: points saved along the flow, geometric in log(1+t).
    """

    flow: FlowSettings = field(default_factory=FlowSettings)
    path_points: int = 0

    def __post_init__(self) -> None:
        """Refuse what no trial can use."""
        checks.of_kind("flow", self.flow, FlowSettings)
        checks.whole("path_points", self.path_points, least=0)


class Trial(Point):
    """Results of one trial, and the `Point` from which its run can continue.

    Attributes:
        status: a `TrialStatus`.
        reason: the `Reason` why no convergence is certified.
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
        perturbation_bound: bound B on the later change of a score by inactive pairs,
            omitted terms and ties.
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
    reason: Int[Scalar, ""]
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
    perturbation_bound: Float[Scalar, ""]
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
    draw_corpus: Callable[[Key[Array, ""]], Corpus | Problem],
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
            `assumption_one` with its sizes; or to a `Problem`, for which nothing else
            is drawn, and no step on E is taken.
        dim: d; traced.
        step_size: η₀; traced.
        until_norm: ‖p‖ to stop at; traced.
        embed: (E⁰, p_0, v), corpus, η₀ → (E¹, p_0, v). It must commute with rotations
            of R^d for the reduced coordinates to have the law of R^d.
        point: a former trial with the same key, d and η₀, to continue from; p_0 by
            default.
        stages: bound on the number of stages of the flow, see `flow_to_end`; traced.
        settings: static.

    Returns:
        A `Trial`.

    Raises:
        BadInput: `draw_corpus` returns neither a corpus nor a problem, or `embed` no
            parameters that fit it.

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
    checks.key(key)
    checks.of_kind("draw_corpus", draw_corpus, Callable, ", a function to a Corpus")
    checks.of_kind("embed", embed, Callable, ", a function to Parameters")
    checks.of_kind("settings", settings, TrialSettings)
    checks.positive("until_norm", until_norm)
    draw_key, model_key = jax.random.split(key)
    drawn, model = draw_corpus(draw_key), None
    if isinstance(drawn, Problem):
        problem = drawn
    else:
        model = *draw_model(model_key, drawn, dim, step_size, embed), drawn
        problem = attention(*model[1:])
    path = None
    if settings.path_points:
        path = jnp.geomspace(1e-2, 1e2 * until_norm, settings.path_points)
    first = None
    if point is not None:
        begun = (point.clock_start > 0) | (point.clock_log_time > 0)
        # Of a trial, too: it has the fields of a point, and more.
        given = (getattr(point, name) for name in Point.__dataclass_fields__)
        first = jax.tree.map(
            partial(jnp.where, begun), Point(*given), beginning(problem)
        )
    stage = flow_to_end(
        problem,
        first,
        until_norm=until_norm,
        path_log_times=path,
        stages=stages,
        settings=settings.flow,
    )
    found = _evaluate(problem, stage)
    if model is None:
        return found
    return _with_alignment(found, *model, step_size, embed)


def draw_model(
    key: Key[Array, ""],
    corpus: Any,
    dim: Float[Scalar, ""] | float,
    step_size: Float[Scalar, ""] | float,
    embed: Embed,
) -> tuple[Parameters, Parameters]:
    """Draw the parameters before the step on E, and take it."""
    if not isinstance(corpus, Corpus):
        kind = type(corpus).__name__
        raise BadInput(f"draw_corpus gives a {kind}: wanted a function to a Corpus")
    sizes = {"vocabulary": corpus.vocabulary, "heads": corpus.classes or 1}
    before = gaussian_reduced(key, **sizes, dim=dim)
    after = embed(before, corpus, step_size)
    if not isinstance(after, Parameters):
        kind = type(after).__name__
        raise BadInput(f"embed gives a {kind}: wanted a function to Parameters")
    return before, after


def _with_alignment(
    trial: Trial,
    before: Parameters,
    after: Parameters,
    corpus: Corpus,
    step_size: Float[Scalar, ""] | float,
    embed: Embed,
) -> Trial:
    """Add what the step on E wrote along v."""
    values, important = after.embeddings @ after.head, important_tokens(corpus)
    number = jnp.maximum(important.sum(), 1).astype(values.dtype)
    mean = jnp.sum(jnp.where(important, _largest(values), 0.0)) / number
    found = dataclasses.replace(trial, alignment=mean)
    if embed is not embedding_step:
        return found
    error = alignment_error(before, after, corpus, step_size)
    return dataclasses.replace(found, alignment_error=error)


def _evaluate(problem: Problem, stage: Stage) -> Trial:
    """Evaluate a trial at the end of the last stage of its flow."""
    corpus, flow, query = problem.corpus, stage.flow, stage.point.query
    found = certify_stage(problem, stage)
    margin, late = found.ending.margin, found.ending.late
    dtype, unknown = query.dtype, jnp.full((), jnp.nan, query.dtype)
    # Without p_mm there is no direction to compare with; of an E whose squared norm
    # overflows nothing is known.
    known = (margin.norm > 0) & jnp.isfinite(margin.norm)
    known = jnp.where(known, 1.0, jnp.nan).astype(dtype)
    of_signs = found.coverage if corpus.classes is None else (unknown, unknown)
    path_errors = jax.vmap(direction_error, (0, None))(
        flow.path_query, margin.direction
    )
    return Trial(
        status=found.status,
        reason=found.reason,
        alignment_error=unknown,
        alignment=unknown,
        important_selected=mean_coverage(found.coverage, corpus),
        positive_selected=of_signs[0],
        negative_selected=of_signs[1],
        cls_norm=jnp.linalg.norm(query),
        log_time=flow.log_time,
        direction_error=direction_error(query, margin.direction) * known,
        error_constant=late.error_constant * known,
        late_flow_residual=found.late_flow_residual,
        perturbation_bound=found.perturbation_bound,
        history_change=late.history_change,
        tied_share=corpus.mean(stage.ties.tied.astype(dtype)),
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
    # In the corpus of a contracted problem one entry replaces those that are tied.
    alone = selected_output(problem.values, problem.offsets, selected)
    effect = _largest(attend_bags(logits, problem.values, corpus).output - alone)
    return jnp.max(jnp.where(selected.any(axis=1), effect, 0.0))
