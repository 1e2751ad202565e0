"""Ordered pairs of tokens as the edges of a graph on the vocabulary.

With one row D = E_s − E_r per pair (s over r), weights on the pairs enter through the
Laplacian of the graph only, DᵀWD = Eᵀ Lap(W) E, and duals through the potentials they
leave on the tokens, Dᵀλ = Eᵀμ with μ_s = Σ_r λ[s, r] − λ[r, s]. So the work depends on
|S|, not on the number of pairs; and where several tokens of a sequence stay selected,
(s, r) and (s', r) are simply two edges into r.
"""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Scalar


def laplacian(
    weights: Float[Array, "vocabulary vocabulary"],
) -> Float[Array, "vocabulary vocabulary"]:
    """Laplacian of a weighted graph of pairs: aᵀ Lap(W) a = Σ W[s, r] (a_s − a_r)².

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
    """What the duals leave on each token, μ_s = Σ_r λ[s, r] − λ[r, s]: Dᵀλ = Eᵀμ.

    Args:
        duals: λ, on ordered pairs.

    Returns:
        μ; its entries sum to zero.

    Example:
        >>> potentials(jnp.array([[0.0, 3.0], [0.0, 0.0]])).tolist()
        [3.0, -3.0]
    """
    return duals.sum(axis=1) - duals.sum(axis=0)


def lead(
    scores: Float[Array, " vocabulary"],
) -> Float[Array, "vocabulary vocabulary"]:
    """Lead a_s − a_r of the score of s over that of r, for every pair.

    Args:
        scores: a, one per token.

    Returns:
        An antisymmetric matrix.

    Example:
        >>> lead(jnp.array([3.0, 1.0])).tolist()
        [[0.0, 2.0], [-2.0, 0.0]]
    """
    return scores[:, None] - scores[None, :]


def smallest_lead(
    scores: Float[Array, " vocabulary"], pairs: Bool[Array, "vocabulary vocabulary"]
) -> Float[Scalar, ""]:
    """Smallest lead over the pairs: the margin at which the scores keep them apart.

    Args:
        scores: a, one per token.
        pairs: True at [s, r] where s should score above r.

    Returns:
        min a_s − a_r, zero if there is no pair.

    Example:
        >>> pairs = jnp.array([[False, True], [False, False]])
        >>> smallest_lead(jnp.array([3.0, 1.0]), pairs).item()
        2.0
    """
    least = jnp.min(jnp.where(pairs, lead(scores), jnp.inf), initial=jnp.inf)
    return jnp.where(pairs.any(), least, 0.0)
