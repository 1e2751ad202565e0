"""Convergence rates of the flow of p, differentiable in η₀, d, E, p_0 and the counts.

Late in the flow p = p_mm s + ρ with s = log t, so every late rate is a closed form in
(p_mm, ρ), whose derivatives are implicit. Early rates are times at which the flow
passes a mark (`progress.last_crossing`). Where the selection or the set of active pairs
changes, a rate has a kink: its derivative there is that of one side, and it is flagged.
"""

from dataclasses import dataclass, field

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Scalar

from .corpus import Corpus
from .embedding_step import alignment_error, embedding_step
from .gradient_flow import FlowSettings, cls_flow
from .limit import Limit, limit
from .max_margin import MaxMargin, max_margin
from .objective import logistic_loss
from .parameters import Parameters
from .progress import direction_error, last_crossing
from .selection import competing_pairs, selected_tokens


@dataclass(frozen=True)
class RateSettings:
    """Static settings of the rates.

    Attributes:
        flow: tolerances of the integration, and its adjoint: `diffrax.ForwardMode()` to
            differentiate early rates in forward mode.
        until_norm: ‖p‖ at which the selection is read.
        search_log_time: end of the search for early rates.
        search_points: points of the path searched.
        move: relative size of the move of E that tells a kink.
        through_history: differentiate the flow for the part of ρ that only the path
            decides; without it that part counts as constant (`Rates.history_dim`).
    """

    flow: FlowSettings = field(default_factory=FlowSettings)
    until_norm: float = 1e4
    search_log_time: float = 1e3
    search_points: int = 1024
    move: float = 1e-6
    through_history: bool = False


class Settled(eqx.Module):
    """What a flow settles on.

    Attributes:
        selected: the final selection, in bag layout.
        margin: its max-margin solution.
        late: the late flow p_mm log t + ρ.
        kink: a small move of E changes the active pairs.
    """

    selected: Bool[Array, "sequences width"]
    margin: MaxMargin
    late: Limit
    kink: Bool[Scalar, ""]


class Rates(eqx.Module):
    """How fast one problem converges.

    Attributes:
        lemma_error: relative error of Lemma 4.1 for the step on E.
        growth_rate: lim log t / ‖p‖ = 1/‖p_mm‖, the margin.
        error_constant: lim ‖p‖ · direction error.
        norm_to_error: ‖p‖ at which the late flow has the direction error asked for.
        log_time_to_error: log t at which it has.
        early_log_time: log(1+t) from which the direction error stays below the early
            error asked for.
        selection_log_time: log(1+t) from which the final selection leads in every
            sequence.
        final_loss: L at infinite time, in nats.
        loss_constant: lim t (L(t) − final_loss) = ‖p_mm‖².
        kink: the selection's active pairs, or the pair that is last to be decided,
            change under a small move: derivatives are those of one side.
        history_dim: dimension of the part of ρ that only the path decides.
        status: a `limit.LimitStatus`; the late rates hold where it is PREDICTED.
        selected: the final selection, in bag layout.
        active: its active pairs. Where one of these two differs between two problems, a
            kink or a jump lies between them.
    """

    lemma_error: Float[Scalar, ""]
    growth_rate: Float[Scalar, ""]
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


def rates(
    before: Parameters,
    corpus: Corpus,
    step_size: Float[Scalar, ""] | float,
    error: Float[Scalar, ""] | float = 1e-4,
    early_error: Float[Scalar, ""] | float = 0.1,
    settings: RateSettings = RateSettings(),
) -> Rates:
    """All rates of one problem: a step on E, then the flow of p.

    Args:
        before: (E⁰, p_0, v); of `gaussian_reduced` for derivatives in d.
        corpus: n bags with labels ±1.
        step_size: η₀.
        error: direction error that `norm_to_error` and `log_time_to_error` are for.
        early_error: direction error that `early_log_time` is for.
        settings: static.

    Returns:
        The rates, differentiable in every argument but the settings, in both modes.

    Example:
        >>> from jaxselect.parameters import gaussian_reduced
        >>> from jaxselect.synthetic import assumption_one
        >>> bags = assumption_one(jax.random.key(0), 6, 3, relevant=1, irrelevant=2)
        >>> start = gaussian_reduced(jax.random.key(1), bags.vocabulary, 1e4)
        >>> found = jax.jit(rates)(start, bags, 50.0)
        >>> bool(found.log_time_to_error > found.selection_log_time)
        True
    """
    after = embedding_step(before, corpus, step_size)
    settled = settle(after, corpus, settings)
    late, margin = settled.late, settled.margin
    selection, undecided = selection_log_time(after, corpus, settled.selected, settings)
    return Rates(
        alignment_error(before, after, corpus, step_size),
        1 / margin.norm,
        late.error_constant,
        norm_to_error(late, error),
        log_time_to_error(late, error),
        log_time_to_direction(after, corpus, margin.direction, early_error, settings),
        selection,
        final_loss(after, corpus, settled.selected),
        margin.norm**2,
        settled.kink | undecided,
        late.history_dim,
        late.status,
        settled.selected,
        margin.active,
    )


def settle(
    after: Parameters, corpus: Corpus, settings: RateSettings = RateSettings()
) -> Settled:
    """Follow the flow until its selection is final, then predict the rest.

    The selection is piecewise constant, so no derivative runs through this flow unless
    `settings.through_history` asks for it.

    Args:
        after: (E¹, p_0, v).
        corpus: n bags with labels ±1.
        settings: static.

    Returns:
        Selection, max-margin solution and late flow, differentiable in both modes.
    """
    arguments = (after, corpus)
    if not settings.through_history:
        arguments = jax.lax.stop_gradient(arguments)
    flow = cls_flow(*arguments, settings.until_norm, settings=settings.flow)
    scores = after.embeddings @ flow.cls
    selected = selected_tokens(scores, corpus, flow.log_time)
    pairs = competing_pairs(selected, corpus)
    margin = max_margin(after.embeddings, pairs)
    late = limit(after, corpus, selected, margin, flow.cls)

    fixed = jax.lax.stop_gradient(after.embeddings)
    size = settings.move * jnp.linalg.norm(fixed) / jnp.sqrt(fixed.size)
    towards = size * jax.random.normal(jax.random.key(0), fixed.shape, fixed.dtype)
    moved = jax.vmap(lambda sign: max_margin(fixed + sign * towards, pairs).active)(
        jnp.array([-1.0, 1.0], fixed.dtype)
    )
    return Settled(selected, margin, late, jnp.any(moved != margin.active[None]))


def norm_to_error(late: Limit, error: Float[Scalar, ""] | float) -> Float[Scalar, ""]:
    """‖p‖ at which the late flow has a given direction error.

    The error is 2 sin(θ/2) with θ the angle to p_mm, and ‖p‖ sin θ = ‖(I − p̂p̂ᵀ)ρ‖.

    Args:
        late: of `limit.limit`.
        error: ‖p/‖p‖ − p_mm/‖p_mm‖‖, in (0, √2).

    Returns:
        ‖p‖; the error constant over the error, where that is small.
    """
    sine, _ = _angle(error, late.offset.dtype)
    return late.error_constant / sine


def log_time_to_error(
    late: Limit, error: Float[Scalar, ""] | float
) -> Float[Scalar, ""]:
    """Log t at which the late flow has a given direction error.

    p̂_mmᵀp = ‖p_mm‖ log t + p̂_mmᵀρ = ‖p‖ cos θ, with θ as in `norm_to_error`.

    Args:
        late: of `limit.limit`.
        error: ‖p/‖p‖ − p_mm/‖p_mm‖‖, in (0, √2).

    Returns:
        log t.
    """
    sine, cosine = _angle(error, late.offset.dtype)
    along = late.error_constant * cosine / sine
    square = late.growth @ late.growth
    return (along * jnp.sqrt(square) - late.growth @ late.offset) / square


def log_time_to_direction(
    after: Parameters,
    corpus: Corpus,
    direction: Float[Array, " dim"],
    error: Float[Scalar, ""] | float,
    settings: RateSettings = RateSettings(),
) -> Float[Scalar, ""]:
    """Log(1+t) from which p stays within a given error of a given direction.

    Args:
        after: (E¹, p_0, v).
        corpus: n bags with labels ±1.
        direction: of any length, such as p_mm.
        error: ‖p/‖p‖ − direction/‖direction‖‖.
        settings: static.

    Returns:
        The log-time; zero if it is there from the start, ∞ if never in the search.
    """

    def closer(cls: Float[Array, " dim"]) -> Float[Scalar, ""]:
        return error - direction_error(cls, direction)

    return last_crossing(
        after,
        corpus,
        closer,
        settings.search_log_time,
        settings.search_points,
        settings.flow,
    ).log_time


def selection_log_time(
    after: Parameters,
    corpus: Corpus,
    selected: Bool[Array, "sequences width"],
    settings: RateSettings = RateSettings(),
) -> tuple[Float[Scalar, ""], Bool[Scalar, ""]]:
    """Log(1+t) from which the selection is final: every selected token leads.

    Args:
        after: (E¹, p_0, v).
        corpus: n bags with labels ±1.
        selected: the final selection.
        settings: static.

    Returns:
        The log-time, zero if the selection leads from the start; and whether two pairs
        are decided last at once, where it has a kink.
    """
    pairs = competing_pairs(selected, corpus)

    def leads(cls: Float[Array, " dim"]) -> Float[Array, " pairs"]:
        scores = after.embeddings @ cls
        return jnp.where(pairs, scores[:, None] - scores[None, :], jnp.inf).ravel()

    crossing = last_crossing(
        after,
        corpus,
        lambda cls: jnp.min(leads(cls)),
        settings.search_log_time,
        settings.search_points,
        settings.flow,
    )
    # The smallest lead is zero here; a second one must not be.
    closest = -jax.lax.top_k(-leads(jax.lax.stop_gradient(crossing.cls)), 2)[0]
    scale = jnp.max(jnp.abs(after.embeddings @ crossing.cls))
    undecided = closest[1] - closest[0] <= settings.move * scale
    return crossing.log_time, jnp.isfinite(crossing.log_time) & undecided


def final_loss(
    after: Parameters, corpus: Corpus, selected: Bool[Array, "sequences width"]
) -> Float[Scalar, ""]:
    """The risk at infinite time: every sequence speaks through its selected tokens.

    Args:
        after: (E¹, ·, v).
        corpus: n bags with labels ±1.
        selected: the final selection; of several tokens in a sequence the mean counts,
            weighted by their occurrences.

    Returns:
        The loss in nats.
    """
    values = after.embeddings @ after.head
    chosen = jnp.where(selected, corpus.counts.astype(values.dtype), 0.0)
    output = jnp.sum(chosen * values[corpus.tokens], axis=1) / chosen.sum(axis=1)
    return jnp.mean(logistic_loss(corpus.labels, output))


def _angle(
    error: Float[Scalar, ""] | float, dtype: jnp.dtype
) -> tuple[Float[Scalar, ""], Float[Scalar, ""]]:
    """Sine and cosine of the angle θ with 2 sin(θ/2) = error."""
    half = jnp.asarray(error, dtype) / 2
    return 2 * half * jnp.sqrt(1 - half**2), 1 - 2 * half**2
