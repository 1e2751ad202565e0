"""Ordered pairs of tokens as the edges of a graph on the vocabulary.

With one row D = E_s − E_r per pair (s over r), weights on the pairs enter through the
Laplacian of the graph only, DᵀWD = Eᵀ Lap(W) E, and duals through the potentials they
leave on the tokens, Dᵀλ = EᵀΛ with Λ_s = Σ_r λ[s, r] − λ[r, s]. The work depends on
|S|, not on the number of pairs; and where several tokens of a sequence stay selected,
(s, r) and (s', r) are simply two edges into r.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Scalar


def laplacian(
    weights: Float[Array, "vocabulary vocabulary"],
) -> Float[Array, "vocabulary vocabulary"]:
    """Laplacian of a weighted graph of pairs: aᵀ Lap(W) a = Σ W[s, r] (a_s − a_r)².

    Source: mathematics, section 3c.

    Args:
        weights: W, on ordered pairs.

    Returns:
        A symmetric matrix whose rows sum to zero.

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

    Args:
        duals: λ, on ordered pairs.

    Returns:
        Λ; its entries sum to zero.

    Example:
        >>> potentials(jnp.array([[0.0, 3.0], [0.0, 0.0]])).tolist()
        [3.0, -3.0]
    """
    return duals.sum(axis=1) - duals.sum(axis=0)


def score_differences(
    scores: Float[Array, " vocabulary"],
) -> Float[Array, "vocabulary vocabulary"]:
    """Lead a_s − a_r of the score of s over that of r, for every pair.

    Args:
        scores: a, one per token.

    Returns:
        An antisymmetric matrix.

    Example:
        >>> score_differences(jnp.array([3.0, 1.0])).tolist()
        [[0.0, 2.0], [-2.0, 0.0]]
    """
    return scores[:, None] - scores[None, :]


def difference_lengths(
    embeddings: Float[Array, "vocabulary dim"],
) -> Float[Array, "vocabulary vocabulary"]:
    """Length ‖E_s − E_r‖ of every difference, rounded up.

    Args:
        embeddings: E.

    Returns:
        A symmetric matrix; never below the true lengths.

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
    """Smallest lead of the scores over the pairs: their margin.

    Args:
        scores: a, one per token.
        pairs: True at [s, r] where s should score above r.

    Returns:
        min a_s − a_r, zero if there is no pair.

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
    """Each token less the mean of its component of the pairs' graph.

    These rows span what the differences E_s − E_r of the pairs span, and the leads of
    their scores over the pairs are the same; but there is one per token.

    Source: mathematics, section 3b.

    Args:
        embeddings: E.
        pairs: an edge at [s, r].

    Returns:
        The centred tokens; zero for a token in no pair.

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
