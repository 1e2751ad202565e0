"""Ordered pairs of tokens as the edges of a graph on the vocabulary.

With one row D = E_s − E_r per pair (s over r), weights on the pairs enter only through
the Laplacian of the graph, DᵀWD = Eᵀ Lap(W) E, and duals only through the potentials of
the tokens, Dᵀλ = EᵀΛ with Λ_s = Σ_r λ[s, r] − λ[r, s]. The work depends on |S|, not on
the number of pairs. If several tokens of a sequence stay selected, (s, r) and (s', r)
are two edges into r.

`pair_strength` computes c_k, the coefficient of the force of a pair in the late flow.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Scalar

from ..data.loss import Loss
from ..model.attention import functional_margin
from ..problem import Problem


def laplacian(
    weights: Float[Array, "vocabulary vocabulary"],
) -> Float[Array, "vocabulary vocabulary"]:
    """Laplacian of a weighted graph of pairs: aᵀ Lap(W) a = Σ W[s, r] (a_s − a_r)².

    Source: mathematics, section 3c.

    Example:
        >>> laplacian(jnp.array([[0.0, 3.0], [0.0, 0.0]])).tolist()
        [[3.0, -3.0], [-3.0, 3.0]]
    """
    degree = weights.sum(axis=0) + weights.sum(axis=1)
    return jnp.diag(degree) - weights - weights.T


def potentials(
    duals: Float[Array, "vocabulary vocabulary"],
) -> Float[Array, " vocabulary"]:
    """Potentials of the tokens, Λ_s = Σ_r λ[s, r] − λ[r, s]: Dᵀλ = EᵀΛ.

    Source: mathematics, section 3c.

    Example:
        >>> potentials(jnp.array([[0.0, 3.0], [0.0, 0.0]])).tolist()
        [3.0, -3.0]
    """
    return duals.sum(axis=1) - duals.sum(axis=0)


def score_differences(
    scores: Float[Array, " vocabulary"],
) -> Float[Array, "vocabulary vocabulary"]:
    """Lead a_s − a_r of the score of s over that of r, for every pair.

    Example:
        >>> score_differences(jnp.array([3.0, 1.0])).tolist()
        [[0.0, 2.0], [-2.0, 0.0]]
    """
    return scores[:, None] - scores[None, :]


def difference_lengths(
    embeddings: Float[Array, "vocabulary dim"],
) -> Float[Array, "vocabulary vocabulary"]:
    """Bound the length ‖E_s − E_r‖ of every difference from above.

    Example:
        >>> tokens = jnp.array([[0.0, 3.0], [4.0, 0.0]])
        >>> round(difference_lengths(tokens)[0, 1].item(), 6)
        5.0
    """
    rows = embeddings - embeddings.mean(axis=0, keepdims=True)
    square = jnp.sum(rows**2, axis=1)
    both = square[:, None] + square[None, :]
    # The products of two rows cancel to this many roundings of their lengths.
    rounding = 8 * jnp.finfo(rows.dtype).eps * both
    return jnp.sqrt(jnp.maximum(both - 2 * rows @ rows.T, 0.0) + rounding)


def smallest_difference(
    scores: Float[Array, " vocabulary"], pairs: Bool[Array, "vocabulary vocabulary"]
) -> Float[Scalar, ""]:
    """Compute the smallest lead min a_s − a_r over the pairs; zero without pairs.

    Example:
        >>> pairs = jnp.array([[False, True], [False, False]])
        >>> smallest_difference(jnp.array([3.0, 1.0]), pairs).item()
        2.0
    """
    least = jnp.min(
        jnp.where(pairs, score_differences(scores), jnp.inf), initial=jnp.inf
    )
    return jnp.where(pairs.any(), least, 0.0)


def centred(
    embeddings: Float[Array, "vocabulary dim"],
    pairs: Bool[Array, "vocabulary vocabulary"],
) -> Float[Array, "vocabulary dim"]:
    """Subtract from each token the mean of its component of the graph of pairs.

    These rows span the same space as the differences E_s − E_r of the pairs, and have
    the same leads. There is one row per token, which is zero for a token in no pair.

    Source: mathematics, section 3b.

    Example:
        >>> pairs = jnp.zeros((3, 3), bool).at[0, 2].set(True)
        >>> centred(jnp.array([[1.0], [7.0], [3.0]]), pairs).tolist()
        [[-1.0], [0.0], [1.0]]
    """
    number = len(pairs)
    tied = pairs | pairs.T | jnp.eye(number, dtype=bool)

    def spread(state: tuple[Array, Array]) -> tuple[Array, Array]:
        name, _ = state
        least = jnp.min(jnp.where(tied, name[None, :], number), axis=1)
        return least, jnp.any(least != name)

    # The name of a component is its first token's; it wanders from pair to pair.
    start = jnp.arange(number, dtype=jnp.int32), jnp.asarray(True)
    name, _ = jax.lax.while_loop(lambda state: state[1], spread, start)
    together = (name[:, None] == name[None, :]).astype(embeddings.dtype)
    # Twice, since a mean is known up to rounding, which is the same for all it is of.
    for _ in range(2):
        mean = together @ embeddings / together.sum(axis=1)[:, None]
        embeddings = embeddings - mean
    return embeddings


# Rounding of λ_k, of D_kᵀp_mm and of a sum over pairs, in rounding units. Derived: each
# is a handful of operations and an exponential; measured below 4 on the default sweep.
ROUNDINGS = 16


class PairStrength(NamedTuple):
    """Strengths c = factor · e^{log_scale} of all pairs.

    After a large step on E, −ℓ′(y b) may be e^{−γ}, which underflows; its logarithm
    does not.

    Attributes:
        factor: zero for pairs that never meet, and where the bags of a pair cancel to
            rounding; positive where the winner deserves to win.
        log_scale: a natural logarithm, constant in derivatives.
        magnitude: sum of the terms of `factor` with |b_s| + |b_r| in the place of
            y (b_s − b_r); c has a rounding of it.
        blur: bound on what errors of the offsets may change of `factor`.
    """

    factor: Float[Array, "vocabulary vocabulary"]
    log_scale: Float[Array, "vocabulary vocabulary"]
    magnitude: Float[Array, "vocabulary vocabulary"]
    blur: Float[Array, "vocabulary vocabulary"]

    def times_exp(
        self, exponent: Float[Array, "vocabulary vocabulary"] | Float[Scalar, ""]
    ) -> Float[Array, "vocabulary vocabulary"]:
        """Compute c e^{exponent} with a single rounding."""
        meets = self.factor != 0
        return self.factor * jnp.exp(
            jnp.where(meets, self.log_scale + exponent, -jnp.inf)
        )


def pair_strength(
    problem: Problem, selected: Bool[Array, "sequences width"]
) -> PairStrength:
    """Compute the strength c_{s*r} of each pair, for one selected token per sequence.

    c_{s*r} = Σ_{X∋s*,r} w_X (−ℓ′(y b_{s*})) e^{α_r − α_{s*}} y (b_{s*} − b_r), where
    e^α is C_X[s] for tokens that are counted. With K heads y (b_{s*} − b_r) is the
    margin's derivative along that difference. The scale of a pair is its largest
    −ℓ′(y b_{s*}) e^{α_r − α_{s*}}.

    Source: mathematics, sections 1b, 1c and 3b.

    Example:
        >>> from jaxselect import Parameters, attention, from_sequences
        >>> bags = from_sequences([[0, 1]], [1], vocabulary=2)
        >>> chosen = jnp.array([[True, False]])
        >>> start = Parameters(jnp.eye(2), jnp.zeros(2), jnp.array([1.0, -1.0]))
        >>> strength = jax.jit(pair_strength)(attention(start, bags), chosen)
        >>> c = strength.times_exp(jnp.array(0.0))
        >>> round(c[0, 1].item(), 4), c[1, 0].item()
        (0.5379, 0.0)
    """
    corpus, entries, logits = problem.corpus, problem.values, problem.offsets
    slot = jnp.argmax(selected, axis=1)[:, None]
    loses = ~selected & corpus.present
    of_winner = jax.vmap(lambda bag, one: bag[one])
    winner = of_winner(corpus.tokens, slot)
    best = of_winner(entries, slot)
    log_ratio = jnp.where(loses, logits - of_winner(logits, slot), 0.0)
    margin = functional_margin(corpus.labels, best[:, 0])
    ahead = margin.along(best - entries)
    exponent = corpus.loss.log_slope(margin.value)[:, None] + log_ratio
    pair, shape = (winner, corpus.tokens), (corpus.vocabulary, corpus.vocabulary)
    largest = jnp.where(loses, jax.lax.stop_gradient(exponent), -jnp.inf)
    log_scale = jnp.full(shape, -jnp.inf, logits.dtype).at[pair].max(largest)
    log_scale = jnp.where(jnp.isfinite(log_scale), log_scale, 0.0)
    pull = jnp.exp(jnp.where(loses, exponent - log_scale[pair], -jnp.inf))
    strength = corpus.weighted(pull * ahead)
    zero = jnp.zeros_like(log_scale)
    factor = zero.at[pair].add(strength)
    # Rounding of a difference of values is that of the values.
    size = jnp.abs(best) + jnp.abs(entries)
    if entries.ndim > 2:
        size = 2 * size.max(axis=-1)
    gross = jax.lax.stop_gradient(corpus.weighted(pull * size))
    magnitude = zero.at[pair].add(gross)
    # A sum that cancels to rounding has no sign, whatever the processor makes of it.
    eps = jnp.finfo(factor.dtype).eps
    factor = jnp.where(jnp.abs(factor) > ROUNDINGS * eps * magnitude, factor, 0.0)
    blur = zero
    if entries.ndim == 2:
        spread = value_range(entries, corpus.present)[:, None]
        size = spread * response(spread, corpus.loss) * problem.offset_errors
        blur = blur.at[pair].add(corpus.weighted(pull * size))
    return PairStrength(
        factor=factor,
        log_scale=log_scale,
        magnitude=magnitude,
        blur=jax.lax.stop_gradient(blur),
    )


def response(spread: Any, loss: Loss) -> Any:
    """Bound the relative change of a force, 4 + 1.3 κ̄ w, by that of the weights.

    The force is in units of w_X (−ℓ′) q w, with w the range of b in the bag; κ̄ = max
    ℓ″/|ℓ′|. Arrays are of JAX or of NumPy.

    Source: mathematics, lemma 3g.5.
    """
    return 4 + 1.3 * max(loss.largest_ratio, 1.0) * spread


def value_range(
    entries: Float[Array, "sequences width *classes"],
    present: Bool[Array, "sequences width"],
) -> Float[Array, " sequences"]:
    """Compute w = max b − min b over the tokens of every bag, of the widest class."""
    here = present.reshape(*present.shape, *[1] * (entries.ndim - 2))
    highest = jnp.max(jnp.where(here, entries, -jnp.inf), axis=1)
    lowest = jnp.min(jnp.where(here, entries, jnp.inf), axis=1)
    spread = (highest - lowest).reshape(len(present), -1).max(axis=1)
    # A sequence of weight zero has nothing present.
    return jnp.where(present.any(axis=1), spread, 0.0)
