"""Betweenness: which token can hold off which, from values and counts alone.

For labels ±1 and one selected token s per sequence the strength of a pair (s over r) is

    c_sr = (b_s − b_r) (W₊ (−ℓ′(b_s)) − W₋ (−ℓ′(−b_s))),   W_± = Σ_{y=±} w_X C_r/C_s

over the sequences X in which s is selected and r loses. Its second factor has the sign
of b* − b_s, where b* is the value that minimises the risk of these sequences: c_sr > 0
if and only if b_s lies strictly between b_r and b* (mathematics, section 3l).
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Scalar

from jaxselect.data.corpus import Corpus
from jaxselect.data.loss import LOGISTIC, Loss
from jaxselect.margin.pairs import laplacian
from jaxselect.model.step import start_slope

_Pairs = Float[Array, "vocabulary vocabulary"]
# Newton's method for b*: doubled from what the polynomial loss takes at odds of e^60.
_NEWTON = 60


def log_odds(corpus: Corpus, selected: Bool[Array, "sequences width"]) -> _Pairs:
    """Log-odds log(W₊/W₋) of the labels where s is selected and r loses.

    Source: mathematics, section 3l.

    Args:
        corpus: n bags with labels ±1.
        selected: one token of every sequence, in bag layout.

    Returns:
        The log-odds at [s, r]; ±∞ where one label only is there, NaN where none is.

    Example:
        >>> from jaxselect.data.corpus import from_sequences
        >>> bags = from_sequences([[0, 1]] * 4, [1, 1, 1, -1], vocabulary=2)
        >>> first = jnp.array([[True, False]] * 4)
        >>> round(log_odds(bags, first)[0, 1].item(), 4)  # log 3
        1.0986
    """
    slots = jnp.argmax(selected, axis=1)
    logits = corpus.logits(jnp.zeros(corpus.vocabulary))
    loses = corpus.present & ~selected
    ratio = jnp.exp(jnp.where(loses, logits - corpus.at(logits, slots)[:, None], 0.0))
    each = corpus.weighted(jnp.where(loses, ratio, 0.0))
    pair = corpus.at(corpus.tokens, slots)[:, None], corpus.tokens
    nothing = jnp.zeros((corpus.vocabulary, corpus.vocabulary))
    above, below = (
        nothing.at[pair].add(jnp.where((corpus.labels == y)[:, None], each, 0.0))
        for y in (1, -1)
    )
    return jnp.log(above) - jnp.log(below)


def asked_value(
    log_odds: Float[Array, "*shape"], loss: Loss = LOGISTIC
) -> Float[Array, "*shape"]:
    """The value b* at which sequences of given log-odds balance.

    log(−ℓ′(−b*)) − log(−ℓ′(b*)) = log(W₊/W₋): the log-odds themselves for the logistic
    loss, half of them for the exponential one.

    Source: mathematics, section 3l.

    Args:
        log_odds: result of `log_odds`.
        loss: ℓ, strictly convex.

    Example:
        >>> from jaxselect.data.loss import EXPONENTIAL
        >>> asked_value(jnp.array([3.0, -jnp.inf]), EXPONENTIAL).tolist()
        [1.5, -inf]
    """
    finite = jnp.isfinite(log_odds)
    wanted = jnp.where(finite, log_odds, 0.0)

    def newton(_: Any, value: Array) -> Array:
        off = wanted - loss.log_slope(-value) + loss.log_slope(value)
        return value + off / (loss.ratio(value) + loss.ratio(-value))

    found = jax.lax.fori_loop(0, _NEWTON, newton, jnp.zeros_like(wanted))
    return jnp.where(finite, found, log_odds)


def between(
    values: Float[Array, " vocabulary"], log_odds: _Pairs, loss: Loss = LOGISTIC
) -> Bool[Array, "vocabulary vocabulary"]:
    """Whether b_s lies strictly between b_r and b*: whether c_sr > 0.

    Source: mathematics, section 3l.

    Args:
        values: b.
        log_odds: result of `log_odds`.
        loss: ℓ.

    Returns:
        The sign of the strength at [s, r]; False where the pair never meets.

    Example:
        >>> odds = jnp.full((2, 2), jnp.log(9.0))  # nine of ten sequences are positive
        >>> [between(jnp.array([b, 0.0]), odds)[0, 1].item() for b in (2.0, 2.3, -1.0)]
        [True, False, False]
    """
    beyond = asked_value(log_odds, loss) - values[:, None]
    return (values[:, None] - values[None, :]) * beyond > 0


class StepWindow(NamedTuple):
    """Step sizes with which a winner keeps a loser away.

    Attributes:
        least: η₀ has to be greater.
        most: and smaller: the ceiling.
    """

    least: _Pairs
    most: _Pairs


def step_window(
    importance: Float[Array, " vocabulary"], log_odds: _Pairs, loss: Loss = LOGISTIC
) -> StepWindow:
    """The η₀ of one step on E for which c_sr > 0, from counts alone.

    At d → ∞ the values are b = −ℓ′(0) η₀ α. If the winner leads in the direction of its
    own α_s, η₀ has the upper bound b*/(−ℓ′(0) α_s); if it leads against it, η₀ has a
    lower bound.

    Source: mathematics, section 3l.

    Args:
        importance: α.
        log_odds: result of `log_odds`.
        loss: ℓ.

    Returns:
        The window of each pair; it is empty, with `most` zero, where no η₀ will do.

    Example:
        >>> odds = jnp.full((2, 2), jnp.log(9.0))
        >>> window = step_window(jnp.array([0.1, 0.0]), odds)
        >>> round(window.most[0, 1].item(), 3)  # 2 log(9)/0.1
        43.944
    """
    lead = jnp.sign(importance[:, None] - importance[None, :])
    ahead = lead * importance[:, None]
    asked = lead * asked_value(log_odds, loss) / start_slope(loss)
    edge = asked / jnp.where(ahead == 0, 1.0, ahead)
    least = jnp.where(ahead < 0, jnp.maximum(edge, 0.0), 0.0)
    # Where the winner has no value, what is asked for has to lie ahead.
    most = jnp.where(
        ahead > 0, edge, jnp.where((ahead == 0) & ~(asked > 0), 0.0, jnp.inf)
    )
    none = (lead == 0) | jnp.isnan(log_odds)
    least, most = (jnp.where(none, 0.0, jnp.maximum(x, 0.0)) for x in (least, most))
    return StepWindow(least, most)


class Foreseen(NamedTuple):
    """What counts alone say of the end of a flow.

    Attributes:
        selected: the token of largest |α| of every sequence, in bag layout.
        window: the step sizes of each pair.
        inside: whether a slot loses for good; False for winners and padding.
        loses: slots that are neither.
    """

    selected: Bool[Array, "sequences width"]
    window: StepWindow
    inside: Bool[Array, "sequences width"]
    loses: Bool[Array, "sequences width"]

    @property
    def share(self) -> Float[Scalar, ""]:
        """Compute the share of losing slots that their winner holds off."""
        return self.inside.sum() / jnp.maximum(self.loses.sum(), 1)


def foreseen(
    corpus: Corpus,
    importance: Float[Array, " vocabulary"],
    step_size: Float[Scalar, ""] | float,
) -> Foreseen:
    """Predict the winner of each sequence by |α|, and the losers that it holds off.

    Source: mathematics, section 3l.

    Args:
        corpus: n bags with labels ±1.
        importance: α.
        step_size: η₀.

    Example:
        >>> from jaxselect.data.corpus import from_sequences
        >>> bags = from_sequences([[0, 1]] * 10, [1] * 9 + [-1], vocabulary=2)
        >>> alpha = jnp.array([0.1, 0.0])
        >>> [foreseen(bags, alpha, size).share.item() for size in (43.0, 45.0)]
        [1.0, 0.0]
    """
    size = jnp.where(corpus.present, jnp.abs(importance)[corpus.tokens], -1.0)
    slots = jnp.argmax(size, axis=1)
    selected = corpus.marks(slots) & corpus.present
    window = step_window(importance, log_odds(corpus, selected), corpus.loss)
    # With the larger |α| the winner leads in its own direction: there is no floor.
    held = step_size < window.most
    loses = corpus.present & ~selected
    pair = corpus.at(corpus.tokens, slots)[:, None], corpus.tokens
    return Foreseen(selected, window, held[pair] & loses, loses)


def negative_load(
    embeddings: Float[Array, "vocabulary dim"], duals: _Pairs
) -> Float[Scalar, ""]:
    """Compute the load of the negative pairs on the positive ones.

    The load is the largest eigenvalue of H₋ relative to H₊, with H_± = Σ_{±λ>0} |λ_k|
    D_k D_kᵀ. H = H₊ − H₋ > 0 on the span of all D_k if and only if it is below one. For
    a single negative pair it is |λ_k| R_k, with R_k = D_kᵀ H₊⁺ D_k the effective
    resistance between its tokens.

    Source: mathematics, section 3l.

    Args:
        embeddings: E.
        duals: signed λ_k = c_k e^{−D_kᵀρ} of the active pairs, else zero.

    Returns:
        The load; ∞ where a negative D_k leaves the span of the positive ones.

    Example:
        >>> duals = jnp.zeros((3, 3)).at[0, 2].set(1.0).at[1, 2].set(1.0)
        >>> round(negative_load(jnp.eye(3), duals.at[0, 1].set(-0.25)).item(), 6)
        0.5
    """
    positive, negative = (
        embeddings.T @ laplacian(jnp.maximum(sign * duals, 0.0)) @ embeddings
        for sign in (1.0, -1.0)
    )
    size, axes = jnp.linalg.eigh(positive)
    held = size > len(size) * jnp.finfo(size.dtype).eps * size[-1]
    inside = axes / jnp.sqrt(jnp.where(held, size, jnp.inf))[None]
    load = jnp.linalg.eigvalsh(inside.T @ negative @ inside)[-1]
    off = jnp.where(held[None], 0.0, axes)
    outside = jnp.trace(off.T @ negative @ off)
    lost = outside > jnp.sqrt(jnp.finfo(size.dtype).eps) * jnp.trace(negative)
    return jnp.where(lost, jnp.inf, load)
