"""The max-margin solution on its active pairs, to rounding whatever the shape of E.

A large step size leaves embeddings hundreds of times longer along the head than across
it. The duals of the nearest point then cancel along that axis to a part in 10⁵, and
take the digits of p with them. In coordinates that shorten the axis every number is of
order one and only the norm to be minimised becomes lopsided, which costs nothing.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jax.scipy.linalg import cho_solve
from jaxtyping import Array, Bool, Float, PyTree, Scalar

from .pair_graph import laplacian, lead, potentials

_EXCHANGES = 3
_MULTIPLIER_STEPS = 8


class OnPairs(NamedTuple):
    """A candidate for p_mm and its duals.

    Attributes:
        direction: p.
        duals: λ ≥ 0, zero off the active pairs.
        gap: relative duality gap 1 − (Σλ − ½‖Dᵀλ‖²) / ½‖p‖².
        active: the pairs held at margin one.
    """

    direction: Float[Array, " rank"]
    duals: Float[Array, "vocabulary vocabulary"]
    gap: Float[Scalar, ""]
    active: Bool[Array, "vocabulary vocabulary"]


def solve_on_active(
    axes: Float[Array, "rank vocabulary"],
    pairs: Bool[Array, "vocabulary vocabulary"],
    guess: OnPairs,
) -> OnPairs:
    """The least p with margin one on the active pairs, by the method of multipliers.

    p ← p + (Q + ρ DᵀD)⁻¹ (Dᵀ(λ + ρ(1 − D p)) − Q p), λ ← λ + ρ (1 − D p), with D the
    active differences and Q the norm in the shortened coordinates. Both residuals are
    computed afresh, so their rounding, not that of the factor, is what remains. Then
    pairs that fall short join the active ones, pairs with negative duals leave.

    Args:
        axes: Eᵀ.
        pairs: the constraints.
        guess: p, duals and active pairs to start from.

    Returns:
        The improved candidate; the caller certifies it.

    Example:
        >>> axes = jnp.array([[100.0, 1.0], [0.0, 0.0]])
        >>> pairs = jnp.array([[False, True], [False, False]])
        >>> start = OnPairs(
        ...     jnp.zeros(2), jnp.zeros((2, 2)), jnp.array(jnp.inf), pairs
        ... )
        >>> (99 * solve_on_active(axes, pairs, start).direction).round(9).tolist()
        [1.0, 0.0]
    """
    dtype = axes.dtype
    eps = jnp.finfo(dtype).eps
    long, shrink = _long_axis(axes)
    # Short coordinates: tokens S⁻¹E, unknown q = S p, norm qᵀQq with Q = S⁻².
    short_axes = axes + (shrink - 1) * jnp.outer(long, long @ axes)
    identity = jnp.eye(len(long), dtype=dtype)
    norm = identity + (shrink**2 - 1) * jnp.outer(long, long)

    def lengthened(point: Array) -> Array:
        return point + (shrink - 1) * long * (long @ point)

    def exchange(
        _: PyTree, state: tuple[Array, Array, Array]
    ) -> tuple[Array, Array, Array]:
        point, duals, active = state
        gram = (short_axes @ laplacian(active.astype(dtype))) @ short_axes.T
        penalty = 1e3 * len(long) / jnp.maximum(jnp.trace(gram), eps)
        factor = jnp.linalg.cholesky(norm + penalty * gram), True
        duals = jnp.where(active, duals, 0.0)

        def shortfall(point: Array) -> Array:
            return jnp.where(active, 1 - lead(point @ short_axes), 0.0)

        def multiply(_: PyTree, state: tuple[Array, Array]) -> tuple[Array, Array]:
            point, duals = state
            wanted = duals + penalty * shortfall(point)
            residual = short_axes @ potentials(wanted) - norm @ point
            point = point + cho_solve(factor, residual)
            return point, duals + penalty * shortfall(point)

        point, duals = lax.fori_loop(0, _MULTIPLIER_STEPS, multiply, (point, duals))
        missed = pairs & (lead(point @ short_axes) < 1 - 1e4 * eps)
        # Where dropping the negative duals costs nothing the corner is degenerate.
        gap = _gap(lengthened(point), jnp.maximum(duals, 0.0), axes)
        done = ~missed.any() & (jnp.abs(gap) < 1e3 * eps)
        better = (active & (duals >= 0)) | missed
        return point, duals, jnp.where(done, active, better)

    point = guess.direction + (1 / shrink - 1) * long * (long @ guess.direction)
    point, duals, active = lax.fori_loop(
        0, _EXCHANGES, exchange, (point, guess.duals, guess.active)
    )
    direction, duals = lengthened(point), jnp.maximum(duals, 0.0)
    return OnPairs(direction, duals, _gap(direction, duals, axes), active)


def _gap(
    direction: Float[Array, " rank"],
    duals: Float[Array, "vocabulary vocabulary"],
    axes: Float[Array, "rank vocabulary"],
) -> Float[Scalar, ""]:
    """1 − (Σλ − ½‖Dᵀλ‖²) / ½‖p‖²."""
    hull = axes @ potentials(duals)
    size = jnp.maximum(direction @ direction, jnp.finfo(axes.dtype).tiny)
    return 1 - (2 * duals.sum() - hull @ hull) / size


def _long_axis(
    axes: Float[Array, "rank vocabulary"],
) -> tuple[Float[Array, " rank"], Float[Scalar, ""]]:
    """The direction in which tokens spread most, and how much to shorten it."""
    tiny = jnp.finfo(axes.dtype).tiny
    centred = axes - axes.mean(axis=1, keepdims=True)

    def power(_: PyTree, axis: Array) -> Array:
        axis = centred @ (axis @ centred)
        return axis / jnp.maximum(jnp.linalg.norm(axis), tiny)

    start = jnp.ones(len(axes), axes.dtype) / jnp.sqrt(1.0 * len(axes))
    axis = lax.fori_loop(0, 20, power, start)
    along = axis @ centred
    across = jnp.linalg.norm(centred - jnp.outer(axis, along))
    ratio = across / jnp.maximum(jnp.linalg.norm(along), tiny)
    return axis, jnp.where(across > 0, jnp.minimum(ratio, 1.0), 1.0)
