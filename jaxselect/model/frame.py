"""The frame of a problem in R^d: axes of the span of E and p_0.

A flow of p, its limit and its rates meet E, p and v in inner products only. With
d > |S| + 2 they run in the |S| + 1 coordinates of a frame, and d enters through one
factorisation of E and products with its axes (mathematics, section 4b).
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

from ..precision import full_precision
from .parameters import Parameters

# A row of E depends on those before it where it is so many roundings, times √|S|, off
# their span: five times what copies, sums and centring leave of one.
DEPENDENT = 100
# Length of an axis of some rows, relative to the longest, that counts as zero.
RANK = 1e-9
_ONCE = "A frame can be differentiated once, and here it is differentiated twice."


class Frame(eqx.Module):
    """Parameters in few coordinates, and the way back to R^d.

    Where d ≤ |S| + 2 there is nothing to gain: the coordinates are those of R^d.

    Attributes:
        parameters: (E, p_0, v) in the frame; E has no part along the last axis.
        axes: F, orthonormal columns; the last one is zero where p_0 is in the span of
            E. None for R^d itself.
        residual: p_0 − F Fᵀp_0: zero, but not its derivative in p_0 and E.
        head_residual: v − F Fᵀv, which no score sees.
    """

    parameters: Parameters
    axes: Float[Array, "dim axes"] | None
    residual: Float[Array, " dim"] | None
    head_residual: Float[Array, " dim *classes"] | None

    def coordinates(
        self, vectors: Float[Array, "*rows dim"]
    ) -> Float[Array, "*rows axes"]:
        """Fᵀx of some vectors x; rows of infinities stay."""
        return vectors if self.axes is None else _times(vectors, self.axes)

    def lift_vectors(
        self, vectors: Float[Array, "*rows axes"]
    ) -> Float[Array, "*rows dim"]:
        """F x, for differences of two p and what is in the span of E."""
        return vectors if self.axes is None else _times(vectors, self.axes.T)

    def lift_points(
        self, vectors: Float[Array, "*rows axes"]
    ) -> Float[Array, "*rows dim"]:
        """F x + residual, for every p that started at p_0."""
        return _plus(self.lift_vectors(vectors), self.residual)

    def heads(self, vectors: Float[Array, "*rows axes"]) -> Float[Array, "*rows dim"]:
        """F x + head_residual, for every head that started at v."""
        return _plus(self.lift_vectors(vectors), self.head_residual)


@full_precision
def frame(parameters: Parameters) -> Frame:
    """The frame of (E, p_0).

    F holds orthonormal axes Q of the span of E, and p_0's direction off that span. All
    of E p, E v, ‖p‖ and E Eᵀ are the same in the frame, as are their derivatives, also
    along changes that leave the span.

    Source: mathematics, section 4b.

    Args:
        parameters: (E, p_0, v).

    Returns:
        The frame; differentiable once in E, p_0 and v, in both modes. Where rows of E
        depend on each other, a change of E may add to their span what no coordinate
        holds: derivatives in E are NaN there, those in p_0 and v are not.

    Example:
        >>> from jaxselect.model.parameters import gaussian
        >>> wide = gaussian(jax.random.key(0), vocabulary=3, dim=1000)
        >>> few = frame(wide)
        >>> few.parameters.query.shape
        (4,)
        >>> bool(jnp.allclose(few.lift_points(few.parameters.query), wide.query))
        True
    """
    embeddings = parameters.embeddings
    vocabulary, dim = embeddings.shape
    if dim <= vocabulary + 2:
        return Frame(parameters, axes=None, residual=None, head_residual=None)
    query = _once(parameters.query)
    axes = _axes(embeddings, jax.lax.stop_gradient(query))
    # The axes follow the rows, which get no part off their span.
    rows = embeddings @ jax.lax.stop_gradient(axes)
    head = parameters.head
    inside = head @ axes if head.ndim == 1 else axes.T @ head
    few = Parameters(rows.at[:, -1].set(0.0), query @ axes, inside)
    return Frame(
        parameters=few,
        axes=axes,
        residual=query - axes @ few.query,
        head_residual=head - axes @ inside,
    )


def span_axes(rows: Float[np.ndarray, "rows dim"]) -> Float[np.ndarray, "dim axes"]:
    """Orthonormal axes of the span of some rows.

    Args:
        rows: differences of embeddings.

    Returns:
        As many columns as the rows have ranks.

    Example:
        >>> span_axes(np.array([[2.0, 0.0], [1.0, 0.0]])).shape
        (2, 1)
    """
    _, size, axes = np.linalg.svd(rows, full_matrices=False)
    return axes[size > RANK * size.max(initial=0.0)].T


@jax.custom_jvp
def _once(query: Float[Array, " dim"]) -> Float[Array, " dim"]:
    """p, to be differentiated once: second derivatives of ‖p‖² would be wrong."""
    return query


@_once.defjvp
def _once_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    fixed = eqx.internal.nondifferentiable(primals[0], msg=_ONCE)
    return primals[0], tangents[0] * jnp.where(fixed == fixed, 1.0, jnp.nan)


@jax.custom_jvp
@full_precision
def _axes(
    embeddings: Float[Array, "vocabulary dim"], query: Float[Array, " dim"]
) -> Float[Array, "dim axes"]:
    """Axes of the span of E, E triangular in them, and one of p."""
    span = jnp.linalg.qr(embeddings.T)[0]
    off_span = query
    for _ in range(2):
        off_span = off_span - span @ (off_span @ span)
    size = jnp.linalg.norm(off_span)
    nonzero = size > DEPENDENT * jnp.finfo(query.dtype).eps * jnp.linalg.norm(query)
    unit = jnp.where(nonzero, off_span / jnp.where(nonzero, size, 1.0), 0.0)
    return jnp.concatenate([span, unit[:, None]], axis=1)


@_axes.defjvp
@full_precision
def _axes_jvp(
    primals: tuple[Array, Array], tangents: tuple[Array, Array]
) -> tuple[Array, Array]:
    """The axes' derivatives, dQ = (I − QQᵀ) dEᵀ (E Q)^{−T} and du = −Q dQᵀu."""
    axes = _axes(*primals)
    embeddings, fixed = eqx.internal.nondifferentiable((primals[0], axes), msg=_ONCE)
    change, _ = tangents
    span, off_span = fixed[:, :-1], fixed[:, -1]
    rows = embeddings @ span
    rounding = DEPENDENT * len(rows) ** 0.5 * jnp.finfo(rows.dtype).eps
    independent = jnp.abs(jnp.diag(rows)) > rounding * jnp.linalg.norm(
        embeddings, axis=1
    )
    leaving = change - (change @ span) @ span.T
    rotation = solve_triangular(rows, leaving, lower=True).T
    rotation = rotation * jnp.where(independent.all(), 1.0, jnp.nan)
    tilt = -span @ (off_span @ rotation)
    return axes, jnp.concatenate([rotation, tilt[:, None]], axis=1)


def _times(
    vectors: Float[Array, "*rows before"], matrix: Float[Array, "before after"]
) -> Float[Array, "*rows after"]:
    """Products with rows that may be infinite, as a path's after its end."""
    finite = ~jnp.isinf(vectors).any(axis=-1, keepdims=True)
    return jnp.where(finite, jnp.where(finite, vectors, 0.0) @ matrix, jnp.inf)


def _plus(
    vectors: Float[Array, "*rows dim"], residual: Float[Array, " dim"] | None
) -> Float[Array, "*rows dim"]:
    return (
        vectors
        if residual is None
        else vectors + jnp.broadcast_to(residual, vectors.shape)
    )
