"""Scores E p and combinations Dᵀλ with twice the digits.

A certificate is a sum of long terms that nearly cancel: the scores of tokens far longer
than their lead, the duals of pairs that pull against each other. With each factor cut
into two halves all products are exact, and their sum keeps what every addition rounds
off (T. Ogita, S. Rump and S. Oishi, Accurate sum and dot product, 2005; mathematics,
section 3c).
"""

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from .pair_graph import score_differences


def precise_differences(
    tokens: Float[Array, "vocabulary dim"], point: Float[Array, " dim"]
) -> Float[Array, "vocabulary vocabulary"]:
    """(E_s − E_r)ᵀp of every pair, with twice the digits."""
    high, low = _product(tokens, point)
    return score_differences(high) + score_differences(low)


def combination(
    tokens: Float[Array, "vocabulary dim"],
    duals: Float[Array, "vocabulary vocabulary"],
) -> Float[Array, " dim"]:
    """Dᵀλ = EᵀΛ, the potentials Λ of the duals being sums that cancel."""
    high, low = _sum(jnp.concatenate([duals, -duals.T], axis=1))
    whole, rest = _product(tokens.T, high)
    return whole + (rest + tokens.T @ low)


def _product(
    matrix: Float[Array, "rows columns"], vector: Float[Array, " columns"]
) -> tuple[Float[Array, " rows"], Float[Array, " rows"]]:
    """A x as an unevaluated sum of two."""
    parts = [a * b[None, :] for a in _halves(matrix) for b in _halves(vector)]
    return _sum(jnp.concatenate(parts, axis=1))


def _halves(values: Array) -> tuple[Array, Array]:
    """Upper and lower digits, of which products are exact."""
    info = jnp.finfo(values.dtype)
    upper = lax.reduce_precision(values, info.nexp, info.nmant // 2 - 1)
    return upper, values - upper


def _sum(
    terms: Float[Array, "rows columns"],
) -> tuple[Float[Array, " rows"], Float[Array, " rows"]]:
    """Sums of the rows, and what the additions rounded off."""

    def add(one: tuple[Array, Array], other: tuple[Array, Array]) -> tuple:
        (left, rest), (right, more) = one, other
        total = left + right
        taken = total - left
        lost = (left - (total - taken)) + (right - taken)
        return total, rest + more + lost

    zero = jnp.zeros((), terms.dtype)
    return lax.reduce((terms, jnp.zeros_like(terms)), (zero, zero), add, (1,))
