"""The nearest point once its active pairs are nearly known, to the last digits.

An interior point works on Gram matrices of the tokens, which square their condition:
where tokens are far longer along one axis than across, as after a large step on E,
single precision leaves it some digits short of a certificate. Here the tokens enter by
their singular vectors, and scores, not the point, are the unknowns
(mathematics, section 3c).
"""

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.linalg import cho_solve
from jaxtyping import Array, Bool, Float

from ._interior_point import relative_gap
from ._nearest_point import HullPoint
from ._thresholds import CERTAIN, MISSED, ROUGH
from .pair_graph import (
    centred,
    laplacian,
    potentials,
    score_differences,
    smallest_difference,
)
from .span import span

_PASSES = 8


def polish(
    axes: Float[Array, "rank vocabulary"],
    pairs: Bool[Array, "vocabulary vocabulary"],
    found: HullPoint,
) -> HullPoint:
    """Exchange pairs from those that `found` all but puts at the margin."""
    eps, tiny = jnp.finfo(axes.dtype).eps, jnp.finfo(axes.dtype).tiny
    least = smallest_difference(found.nearest @ axes, pairs)
    ahead = score_differences(found.nearest @ axes) / jnp.maximum(least, tiny)
    # The gap is of second order in the distance from the solution.
    near = pairs & (ahead <= 1 + jnp.sqrt(jnp.maximum(found.gap, 0.0)))
    rough = ~found.certain | (~found.vanishing & (found.gap > ROUGH * eps))

    def promising(state: tuple[HullPoint, Array, Array, Array, Array]) -> Array:
        _, _, _, going, passes = state
        return going & (passes < _PASSES)

    def exchange(
        state: tuple[HullPoint, Array, Array, Array, Array],
    ) -> tuple[HullPoint, Array, Array, Array, Array]:
        best, duals, strong, _, passes = state
        tried, duals, exchanged = _on_strong(axes, pairs, strong, duals)
        better = tried.gap < best.gap
        tried = tried._replace(iterations=found.iterations)
        best = jax.tree.map(lambda a, b: jnp.where(better, a, b), tried, best)
        going = jnp.any(exchanged != strong) & ~best.certain
        return best, duals, exchanged, going, passes + 1

    size = jnp.maximum(found.nearest @ found.nearest, tiny)
    start = (found, found.duals / size, near, rough & (found.gap < 1), jnp.asarray(0))
    return lax.while_loop(promising, exchange, start)[0]


def _on_strong(
    axes: Float[Array, "rank vocabulary"],
    pairs: Bool[Array, "vocabulary vocabulary"],
    strong: Bool[Array, "vocabulary vocabulary"],
    duals: Float[Array, "vocabulary vocabulary"],
) -> tuple[
    HullPoint,
    Float[Array, "vocabulary vocabulary"],
    Bool[Array, "vocabulary vocabulary"],
]:
    """The least p with D p = 1 on strong pairs; duals; pairs to try next.

    With centred tokens U σ Wᵀ and scores a = U z, D p = 1 reads
    Uᵀ Lap U z = Uᵀ potentials(1), whatever σ is, and p = Dᵀλ reads
    Uᵀ potentials(λ) = W p/σ.
    """
    eps, tiny = jnp.finfo(axes.dtype).eps, jnp.finfo(axes.dtype).tiny
    known = span(centred(axes.T, strong))
    mask = strong.astype(axes.dtype)
    factor = known.factor(laplacian(mask))
    scores = cho_solve(factor, potentials(mask) @ known.left)
    duals = jnp.where(strong, jnp.maximum(duals, 0.0), 0.0)
    point = (known.inverse * scores) @ known.axes
    for _ in range(2):
        # Residuals are computed on the tokens: their singular vectors round each of
        # them to the longest.
        short = jnp.where(strong, 1 - score_differences(point @ axes), 0.0)
        change = cho_solve(factor, potentials(short) @ known.left)
        point = point + (known.inverse * change) @ known.axes
        excess = known.axes @ (point - axes @ potentials(duals))
        change = cho_solve(factor, known.inverse * excess)
        duals = duals + jnp.where(strong, score_differences(known.left @ change), 0.0)
    rounding = MISSED * eps * (1 + jnp.max(jnp.abs(point) @ jnp.abs(axes)))
    missed = pairs & (score_differences(point @ axes) < 1 - rounding)
    exchanged = jnp.where(strong, duals > 0, missed)

    weights = jnp.where(strong, jnp.maximum(duals, 0.0), 0.0)
    weights = weights / jnp.maximum(weights.sum(), tiny)
    nearest = point / jnp.maximum(point @ point, tiny)
    gap = relative_gap(axes, pairs, nearest, axes @ potentials(weights))
    gap = jnp.where(jnp.isfinite(gap), gap, jnp.inf)
    found = HullPoint(
        nearest=nearest,
        duals=weights,
        gap=gap,
        vanishing=jnp.asarray(False),
        certain=gap <= CERTAIN * eps,
        iterations=jnp.asarray(0, jnp.int32),
    )
    return found, duals, exchanged
