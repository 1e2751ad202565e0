"""An interior point for the nearest point of a hull of token differences.

Mehrotra's predictor and corrector on min ½‖x‖² − t subject to z = Dx − t ≥ 0, whose
dual is x = Dᵀλ, λ ≥ 0, Σλ = 1. Both are strictly feasible for any tokens and pairs, so
there is no phase one and no divergence. One Cholesky factorisation an iteration
(mathematics, section 3c).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.linalg import cho_solve
from jaxtyping import Array, Bool, Float, Int, Scalar

from ._thresholds import CLOSED, SEEMS_ZERO, SETTLED, ZERO
from .pair_graph import laplacian, potentials, score_differences, smallest_difference

# 5 to 20 iterations are usual; more only where rounding has the say.
_ITERATIONS = 60


class Iterate(NamedTuple):
    """An interior point, with x = Dᵀλ and Σλ = 1 to rounding.

    Attributes:
        nearest: x.
        margin: t.
        slack: z = Dx − t > 0, one off the pairs.
        duals: λ > 0, zero off the pairs.
        gap: relative duality gap, see `relative_gap`.
        strong: the pairs that seem to be active: dual above slack.
        ready: they may be the right ones.
        iterations: so far.
        going: more of them would help.
    """

    nearest: Float[Array, " rank"]
    margin: Float[Scalar, ""]
    slack: Float[Array, "vocabulary vocabulary"]
    duals: Float[Array, "vocabulary vocabulary"]
    gap: Float[Scalar, ""]
    strong: Bool[Array, "vocabulary vocabulary"]
    ready: Bool[Scalar, ""]
    iterations: Int[Scalar, ""]
    going: Bool[Scalar, ""]


def begin(
    axes: Float[Array, "rank vocabulary"], pairs: Bool[Array, "vocabulary vocabulary"]
) -> Iterate:
    """Equal duals, tilted once towards the pairs that come out narrow."""
    dtype = axes.dtype
    eps = jnp.finfo(dtype).eps

    def below(nearest: Array) -> tuple[Array, Array]:
        ahead = score_differences(nearest @ axes)
        least = smallest_difference(nearest @ axes, pairs)
        spread = jnp.max(jnp.where(pairs, ahead - least, 0.0), initial=0.0)
        room = jnp.maximum(spread, nearest @ nearest)
        margin = least - jnp.maximum(0.1 * room, eps)
        return margin, jnp.where(pairs, ahead - margin, 1.0)

    def normalised(duals: Array) -> Array:
        duals = jnp.where(pairs, duals, 0.0)
        return duals / jnp.maximum(duals.sum(), eps)

    duals = normalised(jnp.ones_like(pairs, dtype))
    _, slack = below(axes @ potentials(duals))
    duals = normalised(1 / slack)
    nearest = axes @ potentials(duals)
    margin, slack = below(nearest)
    # All pairs at once are a guess worth its price where no token wins and loses.
    chained = jnp.any(pairs.any(axis=0) & pairs.any(axis=1))
    return Iterate(
        nearest=nearest,
        margin=margin,
        slack=slack,
        duals=duals,
        gap=jnp.asarray(jnp.inf, dtype),
        strong=pairs,
        ready=~chained,
        iterations=jnp.asarray(0, jnp.int32),
        going=pairs.any(),
    )


def advance(
    axes: Float[Array, "rank vocabulary"],
    pairs: Bool[Array, "vocabulary vocabulary"],
    state: Iterate,
) -> Iterate:
    """One iteration: predict, centre, correct; in relative changes of λ and z."""
    nearest, margin, slack, duals = state[:4]
    tiny = jnp.finfo(axes.dtype).tiny
    primal_rest = jnp.where(
        pairs, slack - score_differences(nearest @ axes) + margin, 0.0
    )
    dual_rest = nearest - axes @ potentials(duals)
    products = duals * slack
    total = jnp.sum(products)
    size = nearest @ nearest
    inverse = 1 / slack
    weights = duals * inverse

    # Newton's unknowns are dx and dt. Near the solution dx follows dt along p = x/‖x‖²,
    # almost without changing the slack of an active pair. With dx = y + p dt the
    # enormous weights cancel on paper, not in rounding. While the gap is large the
    # multiple of x fades out; any multiple is exact.
    along = nearest * (size / jnp.maximum(size**2 + total**2, tiny))
    follow = jnp.where(pairs, score_differences(along @ axes) - 1, 0.0)
    hessian = (axes @ laplacian(weights)) @ axes.T
    hessian = hessian + jnp.eye(len(nearest), dtype=axes.dtype)
    factor = lax.linalg.cholesky(hessian, symmetrize_input=False), True
    border = along + axes @ potentials(weights * follow)
    corner = along @ along + jnp.sum(weights * follow**2)

    def right_side(wanted: Array) -> tuple[Array, Array]:
        pull = weights * primal_rest - duals * wanted
        rest = axes @ potentials(pull) - dual_rest
        return rest, jnp.sum(pull * follow) - along @ dual_rest

    def direction(solved: Array, scalar: Array) -> tuple[Array, Array, Array]:
        d_margin = (scalar - border @ solved) / (corner - border @ solved_border)
        step = solved - solved_border * d_margin
        d_slack = score_differences(step @ axes) + follow * d_margin - primal_rest
        widening = jnp.where(pairs, d_slack * inverse, 0.0)
        return step + along * d_margin, d_margin, widening

    def longest(wanted: Array, widening: Array) -> Array:
        """The step at which the first dual or slack reaches zero."""
        fall = jnp.maximum(wanted + widening, -widening)
        return 1 / jnp.maximum(jnp.max(jnp.where(pairs, fall, 0.0)), tiny)

    # With dz = z · widening the change of the duals is dλ = −λ · (wanted + widening),
    # where λz · wanted is what the product λz should lose to first order.
    wanted = jnp.ones_like(slack)
    rest, scalar = right_side(wanted)
    solved_border = cho_solve(factor, border)
    _, _, widening = direction(cho_solve(factor, rest), scalar)
    length = jnp.minimum(1.0, longest(wanted, widening))
    left = (1 - length * (1 + widening)) * (1 + length * widening)
    number = pairs.sum().astype(axes.dtype)
    centred = (jnp.sum(products * left) / total) ** 3 * total / number
    centred = centred / jnp.where(pairs, products, 1.0)
    wanted = 1 - (1 + widening) * widening - centred
    rest, scalar = right_side(wanted)
    d_nearest, d_margin, widening = direction(cho_solve(factor, rest), scalar)
    length = jnp.minimum(1.0, 0.995 * longest(wanted, widening))

    duals = duals * (1 - length * (wanted + widening))
    duals = duals / duals.sum()
    slack = slack * (1 + length * widening)
    nearest = nearest + length * d_nearest
    moved = nearest, margin + length * d_margin, slack, duals
    return _accepted(axes, pairs, state, moved, length)


def _accepted(
    axes: Float[Array, "rank vocabulary"],
    pairs: Bool[Array, "vocabulary vocabulary"],
    state: Iterate,
    moved: tuple[Array, Array, Array, Array],
    length: Float[Scalar, ""],
) -> Iterate:
    """The iterate after a step to x, t, z and λ, or the state, stopped."""
    nearest, margin, slack, duals = moved
    eps, number = jnp.finfo(axes.dtype).eps, pairs.sum().astype(axes.dtype)
    size = nearest @ nearest
    gap = relative_gap(axes, pairs, nearest, axes @ potentials(duals))
    # Where x vanishes, only duals of the vanishing combinations stay of order one.
    vanishing = vanishes(nearest, gap)
    lasting = number * duals > size**0.25
    strong = pairs & jnp.where(vanishing, lasting, duals > slack)
    ready = vanishing | (gap < 0.03)
    count = state.iterations + 1
    finished = (gap <= CLOSED * eps) | (size <= eps**ZERO) | (count >= _ITERATIONS)
    new = Iterate(
        nearest=nearest,
        margin=margin,
        slack=slack,
        duals=duals,
        gap=gap,
        strong=strong,
        ready=ready,
        iterations=count,
        going=~finished,
    )
    # At the end rounding may make an iterate worse than the one before.
    worse = (state.gap < eps**SETTLED) & ~(gap < state.gap / 2)
    broken = worse | ~jnp.isfinite(gap) | ~(length > 0)
    stopped = state._replace(iterations=count, going=jnp.asarray(False))
    return jax.tree.map(lambda a, b: jnp.where(broken, a, b), stopped, new)


def relative_gap(
    axes: Float[Array, "rank vocabulary"],
    pairs: Bool[Array, "vocabulary vocabulary"],
    nearest: Float[Array, " rank"],
    hull_point: Float[Array, " rank"],
) -> Float[Scalar, ""]:
    """Gap 1 − (min Dx)²/(‖x‖²‖Dᵀλ‖²) of x and λ, each scaled at its best."""
    least = smallest_difference(nearest @ axes, pairs)
    size = (nearest @ nearest) * (hull_point @ hull_point)
    return 1 - least * jnp.abs(least) / jnp.maximum(size, jnp.finfo(size.dtype).tiny)


def vanishes(
    nearest: Float[Array, " rank"], gap: Float[Scalar, ""]
) -> Bool[Scalar, ""]:
    """Whether x looks like zero: small, and separating nothing."""
    small = nearest @ nearest < jnp.finfo(nearest.dtype).eps ** SEEMS_ZERO
    return small & (gap > 0.9)
