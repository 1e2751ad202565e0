"""One trial of the theory: a corpus, one step on E, the flow of p, and its verdict.

A trial is a pure function of a key and of numbers, so sweeps batch it over seeds, d and
η₀; whatever goes wrong in it becomes its status.
"""

import enum
from collections.abc import Callable
from dataclasses import dataclass, field

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, Scalar

from .attention import Attention, attend_corpus, token_scores
from .corpus import Corpus
from .embedding_step import alignment_error, embedding_step
from .gradient_flow import Flow, FlowSettings, FlowStatus, cls_flow
from .limit import Limit, LimitStatus, limit
from .max_margin import MaxMargin, MaxMarginStatus, max_margin
from .parameters import Parameters, gaussian_reduced
from .selection import (
    competing_pairs,
    important_selected,
    important_tokens,
    selected_tokens,
)


class TrialStatus(enum.IntEnum):
    """Where a trial ended; the first four are certified (see `verdict`)."""

    SELECTED_ALL = 0
    """At the max-margin direction of a selection with every important token."""
    CAPTURED_POSITIVE = 1
    """Likewise, but all positive tokens are selected and most negative ones are not."""
    CAPTURED_NEGATIVE = 2
    """Likewise, with the classes exchanged."""
    PARTIAL = 3
    """Likewise, of a selection that misses some important tokens."""
    NOT_YET = 4
    """At the norm asked for, but not on the predicted late flow of any selection."""
    NORM_NOT_REACHED = 5
    """‖p‖ did not reach the norm asked for in the time or the steps allowed."""
    FAILED = 6
    """The integration or the max-margin solver broke down."""


@dataclass(frozen=True)
class TrialSettings:
    """Static settings of a trial.

    Attributes:
        flow: tolerances and bounds of the integration.
        path_points: points saved along the flow, geometric in log(1+t).
        drift_tolerance: how closely the margins must follow the predicted late flow,
            in units of attention scores, for a trial to count as converged.
    """

    flow: FlowSettings = field(default_factory=FlowSettings)
    path_points: int = 0
    drift_tolerance: float = 1e-3


class Trial(eqx.Module):
    """What one trial found; scalars first, then the path.

    Attributes:
        status: a `TrialStatus`.
        alignment_error: relative error of Lemma 4.1 for the step on E.
        alignment: γ = mean |E_sᵀv| over the important tokens after the step.
        important_selected: share of sequences whose important tokens are all selected.
        positive_selected: that share among sequences with y = +1.
        negative_selected: that share among sequences with y = −1.
        cls_norm: ‖p‖ at the end.
        log_time: log(1+t) at the end.
        direction_error: ‖p/‖p‖ − p_mm/‖p_mm‖‖, p_mm that of p's own selection.
        error_constant: predicted limit of direction_error · cls_norm.
        drift: largest distance of an active margin from the predicted late flow.
        unselected_effect: max_X |f(X) − mean of E_sᵀv over its selected tokens|.
        max_margin_norm: ‖p_mm‖.
        duality_gap: relative gap of the max-margin solution.
        history_dim: dimension of the part of p that only the path decides.
        num_steps: steps of the integration, rejected ones included.
        path_log_times: log(1+t) along the flow; ∞ behind its end.
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
    drift: Float[Scalar, ""]
    unselected_effect: Float[Scalar, ""]
    max_margin_norm: Float[Scalar, ""]
    duality_gap: Float[Scalar, ""]
    history_dim: Int[Scalar, ""]
    num_steps: Int[Scalar, ""]
    path_log_times: Float[Array, " times"]
    path_norms: Float[Array, " times"]
    path_errors: Float[Array, " times"]


def run_trial(
    key: Key[Array, ""],
    draw_corpus: Callable[[Key[Array, ""]], Corpus],
    dim: Float[Scalar, ""] | float,
    step_size: Float[Scalar, ""] | float,
    until_norm: Float[Scalar, ""] | float,
    settings: TrialSettings = TrialSettings(),
) -> Trial:
    """Draw a corpus and parameters, step on E, follow p, and judge the outcome.

    Corpus and normal draws depend on the key alone, so trials that share it differ by d
    and η₀ only.

    Args:
        key: a `jax.random.key`.
        draw_corpus: key → corpus, of fixed shape; one of `synthetic`'s, say.
        dim: d; traced.
        step_size: η₀; traced.
        until_norm: ‖p‖ to stop at; traced.
        settings: static.

    Returns:
        The trial.

    Example:
        >>> from functools import partial
        >>> from jaxselect.synthetic import assumption_one
        >>> draw = partial(
        ...     assumption_one, sequences=8, length=4, relevant=2, irrelevant=4
        ... )
        >>> trial = run_trial(jax.random.key(0), draw, 1e6, 100.0, until_norm=1e4)
        >>> TrialStatus(trial.status.item()).name
        'SELECTED_ALL'
        >>> measured = trial.direction_error * trial.cls_norm
        >>> bool(abs(measured / trial.error_constant - 1) < 1e-3)
        True
    """
    corpus_key, parameters_key = jax.random.split(key)
    corpus = draw_corpus(corpus_key)
    before = gaussian_reduced(parameters_key, corpus.vocabulary, dim)
    after = embedding_step(before, corpus, step_size)
    path = None
    if settings.path_points:
        path = jnp.geomspace(1e-2, 1e2 * until_norm, settings.path_points)
    flow = cls_flow(after, corpus, until_norm, 1e15, path, settings.flow)
    return judge(before, after, corpus, step_size, flow, settings.drift_tolerance)


def judge(
    before: Parameters,
    after: Parameters,
    corpus: Corpus,
    step_size: Float[Scalar, ""] | float,
    flow: Flow,
    drift_tolerance: float,
) -> Trial:
    """Hold a flow's end against the max-margin problem and the limit of its selection.

    Args:
        before: (E⁰, p_0, v).
        after: (E¹, p_0, v), which the flow started from.
        corpus: n bags with labels ±1.
        step_size: η₀ of the step between them.
        flow: of p, with E¹ and v fixed.
        drift_tolerance: see `TrialSettings`.

    Returns:
        The trial.

    Example:
        See `run_trial`.
    """
    _, values = token_scores(after)
    scores = after.embeddings @ flow.cls
    selected = selected_tokens(scores, corpus, flow.log_time)
    pairs = competing_pairs(selected, corpus)
    margin = max_margin(after.embeddings, pairs)
    late = limit(after, corpus, selected, margin, flow.cls)
    positive, negative = important_selected(selected, corpus)
    drift = _drift(after, flow, margin, late)

    important = important_tokens(corpus)
    number = jnp.maximum(important.sum(), 1).astype(values.dtype)
    attention = attend_corpus(scores, values, corpus)
    is_positive = (corpus.labels > 0).astype(values.dtype)
    share = jnp.mean(is_positive * positive + (1 - is_positive) * negative)
    norm = jnp.linalg.norm(flow.cls)
    return Trial(
        verdict(flow, margin, late, drift, positive, negative, drift_tolerance),
        alignment_error(before, after, corpus, step_size),
        jnp.sum(jnp.where(important, jnp.abs(values), 0.0)) / number,
        share,
        positive,
        negative,
        norm,
        flow.log_time,
        _direction_error(flow.cls, margin),
        late.error_constant,
        drift,
        _unselected_effect(attention, values, corpus, selected),
        margin.norm,
        margin.gap,
        late.history_dim,
        flow.num_steps,
        flow.path_log_times,
        jax.vmap(jnp.linalg.norm)(flow.path_cls),
        jax.vmap(lambda cls: _direction_error(cls, margin))(flow.path_cls),
    )


def verdict(
    flow: Flow,
    margin: MaxMargin,
    late: Limit,
    drift: Float[Scalar, ""],
    positive: Float[Scalar, ""],
    negative: Float[Scalar, ""],
    drift_tolerance: float,
) -> Int[Scalar, ""]:
    """The status of a trial, decided by certificates and not by how long it ran.

    A trial has converged if its selection has a max-margin solution, if the convex
    problem of the limit has a solution ρ, so that this selection sustains itself, and
    if every active margin lies on the predicted p_mm log t + ρ.

    Args:
        flow: the flow of p.
        margin: the max-margin solution of the selection that it ended in.
        late: the limit predicted from that selection.
        drift: largest distance of an active margin from the prediction.
        positive: share of positive sequences with all important tokens selected.
        negative: share of negative ones.
        drift_tolerance: largest drift that counts as converged.

    Returns:
        A `TrialStatus`.

    Example:
        See `run_trial`.
    """
    all_positive, all_negative = positive == 1, negative == 1
    status = jnp.where(
        all_positive & (negative < 0.5),
        TrialStatus.CAPTURED_POSITIVE,
        TrialStatus.PARTIAL,
    )
    captured = all_negative & (positive < 0.5)
    status = jnp.where(captured, TrialStatus.CAPTURED_NEGATIVE, status)
    status = jnp.where(all_positive & all_negative, TrialStatus.SELECTED_ALL, status)
    converged = (late.status == LimitStatus.PREDICTED) & (drift <= drift_tolerance)
    status = jnp.where(converged, status, TrialStatus.NOT_YET)
    broken = margin.status == MaxMarginStatus.NOT_CONVERGED
    status = jnp.where(broken, TrialStatus.FAILED, status)
    short = flow.status != FlowStatus.REACHED
    status = jnp.where(short, TrialStatus.NORM_NOT_REACHED, status)
    failed = flow.status == FlowStatus.FAILED
    return jnp.where(failed, TrialStatus.FAILED, status).astype(jnp.int32)


def _drift(
    after: Parameters, flow: Flow, margin: MaxMargin, late: Limit
) -> Float[Scalar, ""]:
    gap = after.embeddings @ (flow.cls - late.cls_at(flow.log_time))
    between = jnp.abs(gap[:, None] - gap[None, :])
    return jnp.max(jnp.where(margin.active, between, 0.0))


def _direction_error(cls: Float[Array, " dim"], margin: MaxMargin) -> Float[Scalar, ""]:
    tiny = jnp.finfo(cls.dtype).tiny
    along = margin.direction / jnp.maximum(margin.norm, tiny)
    return jnp.linalg.norm(cls / jnp.maximum(jnp.linalg.norm(cls), tiny) - along)


def _unselected_effect(
    attention: Attention,
    values: Float[Array, " vocabulary"],
    corpus: Corpus,
    selected: Bool[Array, "sequences width"],
) -> Float[Scalar, ""]:
    chosen = jnp.where(selected, corpus.counts.astype(values.dtype), 0.0)
    alone = jnp.sum(chosen * values[corpus.tokens], axis=1) / chosen.sum(axis=1)
    return jnp.max(jnp.abs(attention.output - alone))
