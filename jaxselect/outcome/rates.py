"""Convergence rates of the flow of p, differentiable in η₀, d, E, p_0 and the counts.

Late in the flow p = p_mm τ + ρ with τ = log t, so every late rate is a closed form in
(p_mm, ρ), whose derivatives are implicit. Early rates are times at which the flow
passes an event (`crossing.last_crossings`). Where the selection or the set of active
pairs changes, a rate has a kink: its derivative there is that of one side, and it is
flagged. Derivatives in d are those of `parameters.gaussian_reduced`.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Scalar

from ..checks import between
from ..corpora.checks import for_corpus
from ..corpora.corpus import Corpus
from ..flow.crossing import Crossing, CrossingStatus, EventFunction
from ..flow.progress import direction_error
from ..margin.limit import log_time_to_error, norm_to_error
from ..margin.max_margin import MaxMargin
from ..margin.pair_graph import score_differences, smallest_difference
from ..model.embedding_step import Embed, alignment_error, embedding_step
from ..model.frame import frame
from ..model.functional_margin import functional_margin
from ..model.parameters import Parameters
from ..model.selection import competing_pairs, selected_output
from ..precision import full_precision
from .resolved_limit import (
    RateSettings,
    ResolvedLimit,
    nan_where,
    one_or_nan,
    resolve_limit,
)

# The rates that are real numbers; the rest of `Rates` says where they hold.
REAL_RATES = (
    "lemma_error",
    "margin",
    "error_constant",
    "norm_to_error",
    "log_time_to_error",
    "early_log_time",
    "selection_log_time",
    "final_loss",
    "loss_constant",
)


class Rates(eqx.Module):
    """How fast one problem converges.

    Attributes:
        lemma_error: relative error of Lemma 4.1 for the step on E; NaN, with its
            derivatives, where E was made otherwise than by `embedding_step`.
        margin: 1/‖p_mm‖ = lim log t / ‖p‖.
        error_constant: lim ‖p‖ · direction error.
        norm_to_error: ‖p‖ at which the late flow has the direction error asked for.
        log_time_to_error: log t at which it has.
        early_log_time: log(1+t) from which the direction error stays below the early
            error asked for.
        selection_log_time: log(1+t) from which the final selection leads in every
            sequence.
        final_loss: L at infinite time.
        loss_constant: lim t (L(t) − final_loss) = ‖p_mm‖².
        kink: the selection's active pairs, or the pair that is last to be decided,
            change under a small move: derivatives are those of one side.
        history_dim: dimension of the part of ρ that only the path decides; derivatives
            go through the path for it.
        status: a `limit.LimitStatus`; the late rates hold where it is PREDICTED. Where
            it is NOT_SETTLED all but `lemma_error` are NaN, and their derivatives; in
            reverse mode those of `lemma_error`, too.
        selected: the final selection, in bag layout.
        active: its active pairs. Where one of these two differs between two problems, a
            kink or a jump lies between them.
    """

    lemma_error: Float[Scalar, ""]
    margin: Float[Scalar, ""]
    error_constant: Float[Scalar, ""]
    norm_to_error: Float[Scalar, ""]
    log_time_to_error: Float[Scalar, ""]
    early_log_time: Float[Scalar, ""]
    selection_log_time: Float[Scalar, ""]
    final_loss: Float[Scalar, ""]
    loss_constant: Float[Scalar, ""]
    kink: Bool[Scalar, ""]
    history_dim: Int[Scalar, ""]
    status: Int[Scalar, ""]
    selected: Bool[Array, "sequences width"]
    active: Bool[Array, "vocabulary vocabulary"]


@for_corpus(by_head=True)
@full_precision
def rates(
    before: Parameters,
    corpus: Corpus,
    step_size: Float[Scalar, ""] | float,
    *,
    error: Float[Scalar, ""] | float = 1e-4,
    early_error: Float[Scalar, ""] | float = 0.1,
    embed: Embed = embedding_step,
    settings: RateSettings = RateSettings(),
) -> Rates:
    """All rates of one problem: a step on E, then the flow of p.

    Source: mathematics, sections 3f and 4b.

    Args:
        before: (E⁰, p_0, v); of `gaussian_reduced` for derivatives in d.
        corpus: n labelled bags.
        step_size: η₀.
        error: direction error that `norm_to_error` and `log_time_to_error` are for, in
            (0, √2).
        early_error: direction error that `early_log_time` is for, likewise.
        embed: how E¹ is made; differentiated through.
        settings: static.

    Returns:
        The rates, differentiable once in every argument but the settings, in both
        modes.

    Raises:
        BadInput: a step size that is NaN, an error that no direction has late.

    Example:
        >>> from jaxselect.model.parameters import gaussian_reduced
        >>> from jaxselect.corpora.synthetic import assumption_one
        >>> sizes = dict(sequences=6, length=3, relevant=1, irrelevant=2)
        >>> bags = assumption_one(jax.random.key(0), **sizes)
        >>> start = gaussian_reduced(jax.random.key(1), vocabulary=4, dim=1e4)
        >>> found = jax.jit(rates)(start, bags, 50.0)
        >>> bool(found.log_time_to_error > found.selection_log_time)
        True
    """
    for name, value in (("error", error), ("early_error", early_error)):
        between(name, value, 0.0, 2**0.5)
    stepped = embed(before, corpus, step_size)
    after = frame(stepped).parameters

    def events(
        after: Parameters, selected: Bool[Array, "sequences width"], margin: MaxMargin
    ) -> tuple[EventFunction, EventFunction]:
        return (
            direction_event(margin.direction, early_error),
            selection_event(after, corpus, selected),
        )

    resolved = resolve_limit(after, corpus, events=events, settings=settings)
    late, margin = resolved.late, resolved.margin
    early, selection = resolved.crossings
    known = one_or_nan(resolved.path)
    kink = selection_has_kink(after, corpus, resolved, selection, move=settings.move)
    lemma_error = alignment_error(before, stepped, corpus, step_size)
    if embed is not embedding_step:
        lemma_error = nan_where(jnp.array(True), lemma_error)
    return Rates(
        lemma_error=lemma_error,
        margin=1 / margin.norm,
        error_constant=late.error_constant,
        norm_to_error=norm_to_error(late, error),
        log_time_to_error=log_time_to_error(late, error),
        early_log_time=_known_or_nan(early) * known,
        selection_log_time=_known_or_nan(selection) * known,
        final_loss=final_loss(after, corpus, resolved.selected) * known,
        loss_constant=margin.norm**2,
        kink=resolved.kink | kink,
        history_dim=late.history_dim,
        status=late.status,
        selected=resolved.selected,
        active=margin.active,
    )


def direction_event(
    direction: Float[Array, " dim"], error: Float[Scalar, ""] | float
) -> EventFunction:
    """The event from which p is within a given error of a given direction.

    Args:
        direction: of any length, such as p_mm.
        error: ‖p/‖p‖ − direction/‖direction‖‖.

    Returns:
        h(p) for `crossing.last_crossings`.
    """
    return lambda query: error - direction_error(query, direction)


@for_corpus()
def selection_event(
    after: Parameters, corpus: Corpus, selected: Bool[Array, "sequences width"]
) -> EventFunction:
    """The event from which every finally selected token leads.

    Args:
        after: (E¹, ·, v).
        corpus: n labelled bags.
        selected: those tokens, in bag layout.

    Returns:
        h(p) for `crossing.last_crossings`.
    """
    pairs = competing_pairs(selected, corpus)
    return lambda query: smallest_difference(after.embeddings @ query, pairs)


@for_corpus(by_head=True)
@full_precision
def selection_has_kink(
    after: Parameters,
    corpus: Corpus,
    resolved: ResolvedLimit,
    selection: Crossing,
    *,
    move: float = 1e-6,
) -> Bool[Scalar, ""]:
    """Whether two pairs are decided last at once: a kink in time.

    Args:
        after: (E¹, ·, v).
        corpus: n labelled bags.
        resolved: of `resolve_limit`.
        selection: the crossing of `selection_event`.
        move: size of a lead, relative to the scores passed on the way, that counts as
            none.

    Returns:
        True at a kink.
    """
    pairs = competing_pairs(resolved.selected, corpus)
    scores, start = (
        jax.lax.stop_gradient(after.embeddings @ query)
        for query in (selection.query, after.query)
    )
    leads = jnp.where(pairs, score_differences(scores), jnp.inf).ravel()
    # The smallest lead is zero here; a second one must not be.
    least = -jax.lax.top_k(-leads, 2)[0]
    size = jnp.maximum(jnp.max(jnp.abs(scores)), jnp.max(jnp.abs(start)))
    close = least[1] - least[0] <= move * size
    return (selection.status == CrossingStatus.CROSSED) & close


@for_corpus(by_head=True)
@full_precision
def final_loss(
    after: Parameters, corpus: Corpus, selected: Bool[Array, "sequences width"]
) -> Float[Scalar, ""]:
    """The risk at infinite time: every sequence speaks through its selected tokens.

    Source: mathematics, section 3f.

    Args:
        after: (E¹, ·, v).
        corpus: n labelled bags.
        selected: the final selection; of several tokens in a sequence the mean counts,
            weighted by their occurrences.

    Returns:
        The risk.
    """
    values = after.embeddings @ after.head
    output = selected_output(values, selected, corpus)
    margin = functional_margin(corpus.labels, output).value
    return corpus.mean(corpus.loss.value(margin))


def _known_or_nan(crossing: Crossing) -> Float[Scalar, ""]:
    """Its log-time; NaN, with its derivative, where that is unresolved."""
    sudden = crossing.status == CrossingStatus.TIME_UNRESOLVED
    return nan_where(sudden, crossing.log_time)
