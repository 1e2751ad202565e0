"""The span of some vectors: its rank, its axes, and the projector onto it."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
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
        """Factorise UᵀMU, with ones on the diagonal beyond the rank."""
        return cho_factor(spanned + jnp.diag((self.size == 0).astype(spanned.dtype)))


def span(rows: Float[Array, "rows dim"]) -> Span:
    """Compute the span of some rows, whose rank must be well determined.

    Singular values below ten roundings of the largest, times the longer side of the
    matrix, are treated as zero. No derivatives.

    Source: mathematics, section 3b.
    """
    rows = jax.lax.stop_gradient(rows)
    left, size, axes = jnp.linalg.svd(rows, full_matrices=False)
    floor = RANK * max(rows.shape) * jnp.finfo(rows.dtype).eps * size.max(initial=0.0)
    kept = size > floor
    return Span(
        jnp.where(kept[None, :], left, 0.0),
        jnp.where(kept, size, 0.0),
        jnp.where(kept[:, None], axes, 0.0),
    )


@jax.custom_jvp
def projector(rows: Float[Array, "rows dim"], known: Span) -> Float[Array, "dim dim"]:
    """Compute the orthogonal projector N onto the span of the rows of A.

    The derivative is that at constant rank, dN = (I − N) dAᵀ (A⁺)ᵀ + its transpose,
    valid if the rows move at constant rank, as differences of the same pairs of tokens
    do. Second derivatives are not provided.

    Source: mathematics, section 3b.
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
