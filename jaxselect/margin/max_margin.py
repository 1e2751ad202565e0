"""The max-margin (support vector) problem whose solution the flow of p converges to.

p_mm = argmin ‖p‖ subject to pᵀ(E_s − E_r) ≥ 1 for every pair (s over r). Its geometric
dual always has a solution: x, the point nearest to the origin in the convex hull of the
differences D = E_s − E_r. If x ≠ 0 then p_mm = x / ‖x‖² and ‖p_mm‖ = 1 / ‖x‖; x = 0 is
Farkas' certificate that no p exists (mathematics, section 3c).
"""

import enum

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Scalar

from ..precision import full_precision
from ._nearest_point import nearest_point
from ._polish import polish
from .pair_graph import laplacian, lead, potentials, smallest_lead


class MaxMarginStatus(enum.IntEnum):
    """What is known of the problem."""

    SOLVED = 0
    """The relative gap and the infeasibility are below 4096 roundings (9e-13, 5e-4)."""
    INFEASIBLE = 1
    """The duals are a convex combination of the differences that vanishes."""
    NO_PAIRS = 2
    """There is no constraint, so p = 0."""
    NOT_CONVERGED = 3
    """Neither certificate was reached: the margin may be below √rounding."""


class MaxMargin(eqx.Module):
    """Solution of the max-margin problem with its certificate.

    Without a solution the direction is zero, its infeasibility one and its gap one.

    Attributes:
        direction: p_mm, not normalised.
        norm: ‖p_mm‖.
        duals: λ[s, r] ≥ 0 of the pair (s over r), p_mm = Σ λ[s, r] (E_s − E_r); for an
            infeasible problem Farkas' certificate, Σ λ = 1 and Σ λ (E_s − E_r) = 0.
        active: the pairs with p_mmᵀ(E_s − E_r) = 1.
        gap: relative duality gap 1 − (Σλ − ½‖Dᵀλ‖²) / ½‖p_mm‖².
        infeasibility: max(0, 1 − min over the pairs of p_mmᵀ(E_s − E_r)).
        iterations: of the interior point.
        status: a `MaxMarginStatus`.
    """

    direction: Float[Array, " dim"]
    norm: Float[Scalar, ""]
    duals: Float[Array, "vocabulary vocabulary"]
    active: Bool[Array, "vocabulary vocabulary"]
    gap: Float[Scalar, ""]
    infeasibility: Float[Scalar, ""]
    iterations: Int[Scalar, ""]
    status: Int[Scalar, ""]


@full_precision
def max_margin(
    embeddings: Float[Array, "vocabulary dim"],
    pairs: Bool[Array, "vocabulary vocabulary"],
) -> MaxMargin:
    """Solve min ‖p‖ subject to pᵀ(E_s − E_r) ≥ 1 for every pair, with certificate.

    `direction` and `norm` carry derivatives in E, forward and reverse: those of the
    problem in which the active pairs stay active. The rest is constant.

    Source: mathematics, section 3c.

    Args:
        embeddings: E.
        pairs: True at [s, r] where s must score above r by the margin.

    Returns:
        p_mm, duals, gap and status; float64 gaps are of order 1e-14, float32 ones 1e-5.

    Example:
        >>> tokens = jnp.array([[2.0, 0.0], [0.0, 0.0]])
        >>> solution = max_margin(tokens, jnp.array([[False, True], [False, False]]))
        >>> [round(x, 4) for x in solution.direction.tolist()]
        [0.5, 0.0]
    """
    return with_derivatives(
        embeddings, _solve(jax.lax.stop_gradient(embeddings), pairs)
    )


@full_precision
def with_derivatives(
    embeddings: Float[Array, "vocabulary dim"], solution: MaxMargin
) -> MaxMargin:
    """A solution found without derivatives, as the function of E that it is.

    Source: mathematics, section 3c.

    Args:
        embeddings: E.
        solution: of `max_margin` at E.

    Returns:
        The same numbers, with the derivatives of `max_margin`.

    Example:
        >>> tokens = jnp.array([[2.0, 0.0], [0.0, 0.0]])
        >>> solution = max_margin(tokens, jnp.array([[False, True], [False, False]]))
        >>> norm = lambda tokens: with_derivatives(tokens, solution).norm
        >>> [round(x, 4) for x in jax.grad(norm)(tokens)[0].tolist()]
        [-0.25, 0.0]
    """
    direction = _implicit(embeddings, solution)
    # The inner `where` keeps the derivative of the norm finite at p = 0.
    square = direction @ direction
    norm = jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1.0)), 0.0)
    return eqx.tree_at(lambda s: (s.direction, s.norm), solution, (direction, norm))


def _solve(
    embeddings: Float[Array, "vocabulary dim"],
    pairs: Bool[Array, "vocabulary vocabulary"],
) -> MaxMargin:
    """`max_margin` without its derivative."""
    eps = jnp.finfo(embeddings.dtype).eps
    axes, basis, scale = _normalise(embeddings, pairs)
    found = polish(axes, pairs, nearest_point(axes, pairs))
    # The scalings that make p feasible and the value of the duals largest.
    least = smallest_lead(found.nearest @ axes, pairs)
    separated = (least > 0) & ~found.vanishing
    direction = basis @ found.nearest / (jnp.where(separated, least, 1.0) * scale)
    direction = jnp.where(separated, direction, 0.0)
    hull_point = axes @ potentials(found.duals)
    value = jnp.where(separated, hull_point @ hull_point * scale**2, 1.0)

    some = pairs.any()
    nothing = some.astype(embeddings.dtype)
    ahead = lead(embeddings @ direction)
    least = smallest_lead(embeddings @ direction, pairs)
    infeasibility = jnp.where(separated, jnp.maximum(0.0, 1 - least), nothing)
    gap = jnp.where(separated, jnp.abs(found.gap), nothing)
    solved = (gap <= 4096 * eps) & (infeasibility <= 4096 * eps)
    status = jnp.where(solved, MaxMarginStatus.SOLVED, MaxMarginStatus.NOT_CONVERGED)
    status = jnp.where(found.vanishing, MaxMarginStatus.INFEASIBLE, status)
    status = jnp.where(some, status, MaxMarginStatus.NO_PAIRS)
    # Of a score: less than its length by that of the tokens, where p avoids long axes.
    size = jnp.max(jnp.abs(direction @ basis) @ jnp.abs(axes)) * scale
    rounding = 1e3 * eps * jnp.maximum(1.0, size)
    return MaxMargin(
        direction=direction,
        norm=jnp.linalg.norm(direction),
        duals=jnp.nan_to_num(found.duals / value),
        active=pairs & separated & (jnp.abs(ahead - 1) <= rounding),
        gap=gap,
        infeasibility=infeasibility,
        iterations=found.iterations,
        status=status.astype(jnp.int32),
    )


def _normalise(
    embeddings: Float[Array, "vocabulary dim"],
    pairs: Bool[Array, "vocabulary vocabulary"],
) -> tuple[
    Float[Array, "rank vocabulary"], Float[Array, "dim rank"], Float[Scalar, ""]
]:
    """Eᵀ = scale · basis axes, centred, of unit size, with few coordinates."""
    involved = (pairs.any(axis=0) | pairs.any(axis=1))[:, None]
    number = jnp.maximum(involved.sum(), 1).astype(embeddings.dtype)
    centre = jnp.where(involved, embeddings, 0.0).sum(axis=0, keepdims=True) / number
    centred = jnp.where(involved, embeddings - centre, 0.0)
    scale = jnp.max(jnp.linalg.norm(centred, axis=1), initial=0.0)
    # Tokens that differ by rounding alone are equal.
    rounding = 16 * jnp.finfo(embeddings.dtype).eps * jnp.linalg.norm(centre)
    centred = jnp.where(scale <= rounding, 0.0, centred)
    scale = jnp.where(scale <= rounding, 1.0, scale)
    vocabulary, dim = embeddings.shape
    if 4 * dim <= 5 * vocabulary:
        return centred.T / scale, jnp.eye(dim, dtype=embeddings.dtype), scale
    basis, axes = jnp.linalg.qr(centred.T / scale)
    return axes, basis, scale


@jax.custom_jvp
def _implicit(
    embeddings: Float[Array, "vocabulary dim"], solution: MaxMargin
) -> Float[Array, " dim"]:
    """p_mm as a function of E."""
    return solution.direction


@_implicit.defjvp
@full_precision
def _implicit_jvp(
    primals: tuple[Array, MaxMargin], tangents: tuple[Array, MaxMargin]
) -> tuple[Array, Array]:
    """The active pairs stay active: dp = (I − N) dEᵀμ − D⁺ R dE p.

    R = Lap(A)^½ stands for the active pairs, so that D = R E holds their differences, N
    projects on the span of D, and p = Eᵀμ gives the potentials μ = R (D⁺)ᵀ p.
    """
    (embeddings, solution), (change, _) = primals, tangents
    direction = _implicit(embeddings, solution)
    eps = jnp.finfo(embeddings.dtype).eps
    level, mode = jnp.linalg.eigh(laplacian(solution.active.astype(embeddings.dtype)))
    level = jnp.where(level > len(level) ** 2 * eps, level, 0.0)
    root = (mode * jnp.sqrt(level)[None, :]) @ mode.T
    differences = root @ embeddings
    inverse = jnp.linalg.pinv(differences)
    pull = change.T @ (root @ (inverse.T @ direction))
    kept = differences @ pull + root @ (change @ direction)
    return direction, pull - inverse @ kept
