"""The span of some vectors: its rank, its axes, and the projector onto it.

On a TPU singular vectors are computed by Jacobi rotations, since XLA's SVD is a program
of 17 MB that compiles for most of a minute. Pairs of columns, in the order of a
round-robin tournament, are rotated until they are orthogonal (Hestenes).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.linalg import cho_factor
from jaxtyping import Array, Float, Int, Scalar

from ..compilation import full_precision

# Singular values below this many roundings of the largest, times the longer side, are
# zero. Derived: NumPy's rule for ranks, and ten for tokens that are rounded themselves.
RANK = 10


class Span(NamedTuple):
    """Rows A = U diag(σ) Wᵀ without singular values at rounding level.

    The eigenvalues σ² of a Gram matrix AᵀA would lose half of the digits, and in single
    precision small directions with them.

    Attributes:
        left: U, orthonormal columns, zero beyond the rank.
        size: σ, falling, zero beyond the rank.
        axes: Wᵀ, orthonormal rows, zero beyond the rank.
    """

    left: Float[Array, "rows axes"]
    size: Float[Array, " axes"]
    axes: Float[Array, "axes dim"]

    @property
    def rank(self) -> Int[Scalar, ""]:
        """Dimension of the span."""
        return jnp.sum(self.size > 0)

    @property
    def inverse(self) -> Float[Array, " axes"]:
        """1/σ, zero beyond the rank."""
        return jnp.where(self.size > 0, 1 / jnp.where(self.size > 0, self.size, 1.0), 0)

    def factor(
        self, spanned: Float[Array, "axes axes"]
    ) -> tuple[Float[Array, "axes axes"], bool]:
        """Factorise UᵀMU, with ones on the diagonal beyond the rank.

        Example:
            >>> known = span(jnp.array([[3.0, 0.0], [0.0, 2.0]]))
            >>> jnp.abs(known.factor(4 * jnp.eye(2))[0]).round(6).tolist()
            [[2.0, 0.0], [0.0, 2.0]]
        """
        return cho_factor(spanned + jnp.diag((self.size == 0).astype(spanned.dtype)))


def span(rows: Float[Array, "rows dim"]) -> Span:
    """Compute the span of some rows, whose rank must be well determined.

    Singular values below ten roundings of the largest, times the longer side of the
    matrix, are treated as zero. No derivatives.

    Source: mathematics, section 3b.

    Example:
        >>> span(jnp.array([[3.0, 0.0], [4.0, 0.0]])).rank.item()
        1
    """
    rows = jax.lax.stop_gradient(rows)
    left, size, axes = jax.lax.platform_dependent(rows, tpu=_jacobi, default=_svd)
    floor = RANK * max(rows.shape) * jnp.finfo(rows.dtype).eps * size.max(initial=0.0)
    kept = size > floor
    return Span(
        jnp.where(kept[None, :], left, 0.0),
        jnp.where(kept, size, 0.0),
        jnp.where(kept[:, None], axes, 0.0),
    )


def _svd(rows: Float[Array, "rows dim"]) -> tuple[Array, Array, Array]:
    left, size, axes = jnp.linalg.svd(rows, full_matrices=False)
    return left, size, axes


@jax.custom_jvp
def projector(rows: Float[Array, "rows dim"], known: Span) -> Float[Array, "dim dim"]:
    """Compute the orthogonal projector N onto the span of the rows of A.

    The derivative is that at constant rank, dN = (I − N) dAᵀ (A⁺)ᵀ + its transpose,
    valid if the rows move at constant rank, as differences of the same pairs of tokens
    do. Second derivatives are not provided.

    Source: mathematics, section 3b.

    Example:
        >>> rows = jnp.array([[3.0, 0.0], [4.0, 0.0]])
        >>> jnp.round(projector(rows, span(rows)), 6).tolist()
        [[1.0, 0.0], [0.0, 0.0]]
    """
    return known.axes.T @ known.axes


@projector.defjvp
@full_precision
def _projector_jvp(
    primals: tuple[Array, Span], tangents: tuple[Array, Span]
) -> tuple[Array, Array]:
    (_, known), (change, _) = primals, tangents
    turn = change.T @ (known.left * known.inverse[None, :]) @ known.axes
    turn = turn - known.axes.T @ (known.axes @ turn)
    return known.axes.T @ known.axes, turn + turn.T


# Cosines between columns, in roundings: what is left of them, and below what they turn.
_LEFT, _STILL = 8.0, 1.0
# Six to eight sweeps are enough for a hundred columns.
_SWEEPS = 20


def _jacobi(
    rows: Float[Array, "rows dim"],
) -> tuple[Float[Array, "rows axes"], Float[Array, " axes"], Float[Array, "axes dim"]]:
    """Compute `svd(rows, full_matrices=False)`, with zero columns of U where σ = 0."""
    if rows.shape[0] < rows.shape[1]:
        right, size, left = _jacobi(rows.T)
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
