"""The span of some vectors: its rank, its axes, and the projector on it."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_factor
from jaxtyping import Array, Float, Int, Scalar

from ..precision import full_precision
from ._jacobi import jacobi
from ._thresholds import RANK


class Span(NamedTuple):
    """Rows A = U diag(σ) Wᵀ, without what rounding alone holds up; no derivatives.

    A Gram matrix AᵀA would have the squares σ², half of whose digits are gone before
    its eigenvalues are asked for; in single precision that is where small directions
    get lost.

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
        self, matrix: Float[Array, "rows rows"]
    ) -> tuple[Float[Array, "axes axes"], bool]:
        """Cholesky factor of Uᵀ M U, with ones on the diagonal beyond the rank.

        Args:
            matrix: M, symmetric and positive definite on the columns of U.

        Returns:
            A factor for `cho_solve`.

        Example:
            >>> known = span(jnp.array([[3.0, 0.0], [0.0, 2.0]]))
            >>> jnp.abs(known.factor(4 * jnp.eye(2))[0]).round(6).tolist()
            [[2.0, 0.0], [0.0, 2.0]]
        """
        spanned = self.left.T @ matrix @ self.left
        return cho_factor(spanned + jnp.diag((self.size == 0).astype(spanned.dtype)))


def span(rows: Float[Array, "rows dim"]) -> Span:
    """The span of some rows, whose rank must be well determined.

    Source: mathematics, section 3b.

    Args:
        rows: A; singular values below ten roundings of the largest, times the longer
            side of A, count as zero.

    Returns:
        Its singular vectors and values, as constants.

    Example:
        >>> span(jnp.array([[3.0, 0.0], [4.0, 0.0]])).rank.item()
        1
    """
    rows = jax.lax.stop_gradient(rows)
    left, size, axes = jax.lax.platform_dependent(rows, tpu=jacobi, default=_svd)
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
@full_precision
def projector(rows: Float[Array, "rows dim"], known: Span) -> Float[Array, "dim dim"]:
    """Orthogonal projector N on the span of the rows of A, differentiable in them.

    The derivative is that at constant rank, dN = (I − N) dAᵀ (A⁺)ᵀ + its transpose,
    which is right where the rows move without leaving or entering a common hyperplane,
    as differences of the same pairs of tokens do. Derivatives of it are not provided.

    Source: mathematics, section 3b.

    Args:
        rows: A.
        known: their span.

    Returns:
        N, with N² = N = Nᵀ and A N = A; differentiable in A, in both modes.

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
