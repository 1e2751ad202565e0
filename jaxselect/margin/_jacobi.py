"""Singular vectors by Jacobi's rotations: a small loop, where a TPU's SVD is 17 MB.

XLA builds an SVD for a TPU of polar decompositions, which its compiler spends most of a
minute on. Here columns meet in pairs and are turned until they are orthogonal
(Hestenes; the order of the meetings is that of a round-robin tournament).
"""

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

# Cosines between columns, in roundings: what is left of them, and below what they turn.
_LEFT, _STILL = 8.0, 1.0
# Six to eight sweeps are enough for a hundred columns.
_SWEEPS = 20


def jacobi(
    rows: Float[Array, "rows dim"],
) -> tuple[Float[Array, "rows axes"], Float[Array, " axes"], Float[Array, "axes dim"]]:
    """`svd(rows, full_matrices=False)`; columns of U are zero where σ is."""
    if rows.shape[0] < rows.shape[1]:
        right, size, left = jacobi(rows.T)
        return left.T, size, right.T
    eps = jnp.finfo(rows.dtype).eps
    length, number = rows.shape
    teams = number + number % 2
    largest = jnp.max(jnp.abs(rows), initial=0.0)
    largest = jnp.where(largest > 0, largest, 1.0)
    columns = jnp.pad(rows.T / largest, ((0, teams - number), (0, 0)))
    # Shorter ones are made of rounding.
    least = (eps**2) * jnp.sum(columns**2)

    def meet(_: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
        turned, worst = state
        one, two = turned[: teams // 2], turned[teams // 2 :][::-1]
        first, second = one[:, :length], two[:, :length]
        here, there = jnp.sum(first**2, axis=1), jnp.sum(second**2, axis=1)
        both = jnp.sum(first * second, axis=1)
        real = jnp.minimum(here, there) > least
        lengths = jnp.sqrt(here) * jnp.sqrt(there)
        cosine = jnp.where(real, jnp.abs(both) / jnp.where(real, lengths, 1.0), 0.0)
        apart = cosine > _STILL * eps
        ratio = 0.5 * (there - here) / jnp.where(apart, both, 1.0)
        sign = jnp.where(ratio < 0, -1.0, 1.0).astype(rows.dtype)
        tangent = jnp.where(apart, sign / (jnp.abs(ratio) + jnp.hypot(1.0, ratio)), 0.0)
        along = 1 / jnp.sqrt(1 + tangent**2)[:, None]
        across = along * tangent[:, None]
        one, two = along * one - across * two, across * one + along * two
        # The first keeps its seat, the others move on by one.
        seats = jnp.concatenate([one[:1], two[:1], one[1:], two[1:][::-1]])
        return seats, jnp.maximum(worst, jnp.max(cosine, initial=0.0))

    def going(state: tuple[Array, Array, Array]) -> Array:
        _, worst, sweeps = state
        return (worst > _LEFT * eps) & (sweeps < _SWEEPS)

    def sweep(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        turned, worst, sweeps = state
        turned, worst = lax.fori_loop(0, teams - 1, meet, (turned, 0.0 * worst))
        return turned, worst, sweeps + 1

    turned = jnp.concatenate([columns, jnp.eye(teams, dtype=rows.dtype)], axis=1)
    turned = lax.while_loop(
        going, sweep, (turned, jnp.ones_like(largest), jnp.asarray(0))
    )[0]
    size = jnp.sqrt(jnp.sum(turned[:, :length] ** 2, axis=1))
    falling = jnp.argsort(-size)[:number]
    size = size[falling]
    inverse = jnp.where(size > 0, 1 / jnp.where(size > 0, size, 1.0), 0.0)
    left = turned[falling, :length].T * inverse[None, :]
    return left, size * largest, turned[falling, length : length + number]
