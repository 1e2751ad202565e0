"""The point nearest to the origin in the convex hull of token differences.

min ½‖Dᵀλ‖² over λ ≥ 0, Σλ = 1, with one row D = E_s − E_r of D per pair (s over r); its
dual is max t − ½‖x‖² subject to Dx ≥ t, and x = Dᵀλ. An interior point finds out which
pairs matter, the equations on those are solved to rounding, a certificate decides
(mathematics, section 3c).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.linalg import cho_solve
from jaxtyping import Array, Bool, Float, Int, Scalar

from ._interior_point import Iterate, advance, begin, relative_gap, vanishes
from ._thresholds import (
    CERTAIN,
    EQUAL,
    MISSED,
    RANGE,
    SHIFT,
    STATIONARY,
    VANISHING,
)
from .pair_graph import laplacian, potentials, score_differences

# Exchanges of pairs before the interior point is asked again.
_PASSES = 8


class HullPoint(NamedTuple):
    """The nearest point x = Dᵀλ and what is known of it.

    Attributes:
        nearest: x.
        duals: λ ≥ 0 with Σλ = 1, zero off the pairs.
        gap: relative duality gap 1 − t²/‖x‖⁴ at the best t; one or more if x = 0.
        vanishing: λ proves, to rounding, that the hull holds the origin.
        certain: vanishing, or gap and x − Dᵀλ are both rounding.
        iterations: of the interior point.
    """

    nearest: Float[Array, " rank"]
    duals: Float[Array, "vocabulary vocabulary"]
    gap: Float[Scalar, ""]
    vanishing: Bool[Scalar, ""]
    certain: Bool[Scalar, ""]
    iterations: Int[Scalar, ""]


def normalise(
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
    rounding = EQUAL * jnp.finfo(embeddings.dtype).eps * jnp.linalg.norm(centre)
    centred = jnp.where(scale <= rounding, 0.0, centred)
    scale = jnp.where(scale <= rounding, 1.0, scale)
    vocabulary, dim = embeddings.shape
    if 4 * dim <= 5 * vocabulary:
        return centred.T / scale, jnp.eye(dim, dtype=embeddings.dtype), scale
    basis, axes = jnp.linalg.qr(centred.T / scale)
    return axes, basis, scale


def nearest_point(
    axes: Float[Array, "rank vocabulary"], pairs: Bool[Array, "vocabulary vocabulary"]
) -> HullPoint:
    """The point nearest to the origin in the hull of E_s − E_r, (s, r) in pairs."""
    start = begin(axes, pairs)
    nothing = HullPoint(
        nearest=start.nearest,
        duals=start.duals,
        gap=start.gap,
        vanishing=~pairs.any(),
        certain=~pairs.any(),
        iterations=start.iterations,
    )

    def going(state: tuple[Iterate, HullPoint, Array]) -> Array:
        iterate, found, _ = state
        return iterate.going & ~found.certain

    def attempt(
        state: tuple[Iterate, HullPoint, Array],
    ) -> tuple[Iterate, HullPoint, Array]:
        iterate, found, tried = state

        def undecided(iterate: Iterate) -> Array:
            news = iterate.ready & jnp.any(iterate.strong != tried)
            return iterate.going & ~news

        iterate = lax.while_loop(
            undecided, lambda iterate: advance(axes, pairs, iterate), iterate
        )
        exact = _on_strong(axes, pairs, iterate)
        better = exact.certain | (exact.gap < found.gap)
        found = jax.tree.map(lambda a, b: jnp.where(better, a, b), exact, found)
        return iterate, found, iterate.strong

    iterate, found, _ = lax.while_loop(going, attempt, (start, nothing, ~pairs))
    inside = ~found.certain & (iterate.gap < found.gap)
    return HullPoint(
        nearest=jnp.where(inside, iterate.nearest, found.nearest),
        duals=jnp.where(inside, iterate.duals, found.duals),
        gap=jnp.where(inside, iterate.gap, found.gap),
        vanishing=found.vanishing,
        certain=found.certain,
        iterations=iterate.iterations,
    )


def _rounding(
    axes: Float[Array, "rank vocabulary"], nearest: Float[Array, " rank"]
) -> Float[Scalar, ""]:
    """The rounding of a score relative to the margin ‖x‖², some times over."""
    eps, tiny = jnp.finfo(axes.dtype).eps, jnp.finfo(axes.dtype).tiny
    score = jnp.max(jnp.abs(nearest) @ jnp.abs(axes))
    ratio = score / jnp.maximum(nearest @ nearest, tiny)
    return CERTAIN * eps * jnp.clip(ratio, 1.0, RANGE)


def _on_strong(
    axes: Float[Array, "rank vocabulary"],
    pairs: Bool[Array, "vocabulary vocabulary"],
    iterate: Iterate,
) -> HullPoint:
    """`_exact` on the strong pairs, exchanging some as long as that is promising."""
    vanishing = vanishes(iterate.nearest, iterate.gap)
    guessed = iterate.iterations == 0
    # A considered set gets a second chance; further ones are for those that beat the
    # interior point, which has not begun where the set is a guess.
    bar = jnp.where(guessed, 0.1, iterate.gap)

    def promising(state: tuple[HullPoint, Array, Array, Array]) -> Array:
        found, _, going, passes = state
        chance = (passes == 0) | (~guessed & (passes == 1)) | (found.gap < bar)
        return ~found.certain & going & chance & (passes < _PASSES)

    def exchange(
        state: tuple[HullPoint, Array, Array, Array],
    ) -> tuple[HullPoint, Array, Array, Array]:
        before, strong, _, passes = state
        found, exchanged = _exact(axes, pairs, strong, before.duals, vanishing)
        found = found._replace(iterations=iterate.iterations)
        going = jnp.any(strong != exchanged) | (found.gap < before.gap / 10)
        return found, exchanged, going, passes + 1

    no = jnp.asarray(False)
    start = HullPoint(
        nearest=iterate.nearest,
        duals=iterate.duals,
        gap=iterate.gap,
        vanishing=no,
        certain=no,
        iterations=iterate.iterations,
    )
    return lax.while_loop(
        promising, exchange, (start, iterate.strong, ~no, jnp.asarray(0, jnp.int32))
    )[0]


def _exact(
    axes: Float[Array, "rank vocabulary"],
    pairs: Bool[Array, "vocabulary vocabulary"],
    strong: Bool[Array, "vocabulary vocabulary"],
    duals: Float[Array, "vocabulary vocabulary"],
    vanishing: Bool[Scalar, ""],
) -> tuple[HullPoint, Bool[Array, "vocabulary vocabulary"]]:
    """The least p with D p = 1 on strong pairs; or vanishing duals.

    Strong pairs are usually many more than their rank, so D_A G⁺ with G = D_AᵀD_A takes
    the place of an inverse: a slightly shifted Cholesky factor, refined. The duals move
    as little as possible. Returned beside it: the pairs to try next.
    """
    eps, tiny = jnp.finfo(axes.dtype).eps, jnp.finfo(axes.dtype).tiny

    def hull(duals: Array) -> tuple[Array, Array]:
        duals = jnp.where(strong, jnp.maximum(duals, 0.0), 0.0)
        duals = duals / jnp.maximum(duals.sum(), tiny)
        return duals, axes @ potentials(duals)

    duals, hull_point = hull(duals)
    # From here to the end of the refinement the duals are those of p, not of x.
    size = jnp.where(vanishing, 1.0, jnp.maximum(hull_point @ hull_point, tiny))
    duals, point = duals / size, hull_point / size
    gram = (axes @ laplacian(strong.astype(axes.dtype))) @ axes.T
    # Small beside every axis, also where tokens are far longer along one of them.
    extent = jnp.diag(gram)
    across = extent.sum() - extent.max()
    shift = eps**SHIFT * across + len(point) * eps * extent.sum() + tiny
    gram = gram + shift * jnp.eye(len(point), dtype=axes.dtype)
    factor = lax.linalg.cholesky(gram, symmetrize_input=False), True
    for _ in range(3):
        short = jnp.where(strong, 1 - score_differences(point @ axes), 0.0)
        excess = point - axes @ potentials(duals)
        # shift · H⁻¹ keeps what lies outside the span of the strong pairs, so the sum
        # mends both D p = 1 and p = Dᵀλ. Never p := Dᵀλ: where tokens are much longer
        # along one axis than across, the duals cancel there and take digits with them.
        change = cho_solve(factor, axes @ potentials(short) - shift * excess)
        point = jnp.where(vanishing, 0.0, point + change)
        excess = point - axes @ potentials(duals)
        change = cho_solve(factor, excess)
        duals = duals + jnp.where(strong, score_differences(change @ axes), 0.0)
    # A pair that misses the margin by rounding only would come and go for ever.
    rounding = MISSED * eps * (1 + jnp.max(jnp.abs(point) @ jnp.abs(axes)))
    missed = pairs & (score_differences(point @ axes) < 1 - rounding) & ~vanishing
    exchanged = jnp.where(strong, duals > 0, missed)

    duals, hull_point = hull(duals)
    nearest = jnp.where(vanishing, hull_point, point / jnp.maximum(point @ point, tiny))
    gap = relative_gap(axes, pairs, nearest, hull_point)
    gap = jnp.where(jnp.isfinite(gap), gap, jnp.inf)
    vanishing = vanishing & (hull_point @ hull_point <= (VANISHING * eps) ** 2)
    vanishing = vanishing & strong.any()
    rest = nearest - hull_point
    length = jnp.sqrt(nearest @ nearest)
    # The duals are of size ‖p‖² = 1/‖x‖² and cancel to p of size 1/‖x‖.
    stationary = jnp.sqrt(rest @ rest) <= STATIONARY * eps * (1 + length)
    certain = vanishing | (stationary & (gap <= _rounding(axes, nearest)))
    found = HullPoint(
        nearest=nearest,
        duals=duals,
        gap=gap,
        vanishing=vanishing,
        certain=certain,
        iterations=jnp.asarray(0, jnp.int32),
    )
    return found, exchanged
