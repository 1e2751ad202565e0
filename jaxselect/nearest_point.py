"""The point nearest to the origin in the convex hull of token differences.

min ½‖Dᵀλ‖² over λ ≥ 0, Σλ = 1, with one row D = E_s − E_r of D per pair (s over r); its
dual is max t − ½‖x‖² subject to Dx ≥ t, and x = Dᵀλ. Both are strictly feasible for any
tokens and pairs, so an interior point needs no phase one and cannot diverge.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.linalg import cho_solve
from jaxtyping import Array, Bool, Float, Int, Scalar

from .pair_graph import laplacian, lead, potentials, smallest_lead

# 5 to 20 iterations are usual; more only where rounding has the say.
_ITERATIONS = 60
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


def nearest_point(
    axes: Float[Array, "rank vocabulary"], pairs: Bool[Array, "vocabulary vocabulary"]
) -> HullPoint:
    """The point of the hull of all E_s − E_r, (s, r) in pairs, nearest to the origin.

    Mehrotra's predictor and corrector find out which pairs matter; the first guess is
    all of them. On those the equations are solved exactly; a certificate decides
    whether that was the answer, else the interior point goes on.

    Args:
        axes: Eᵀ, tokens of size about one.
        pairs: True at [s, r] for the difference E_s − E_r.

    Returns:
        The point and its certificate.

    Example:
        >>> axes = jnp.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
        >>> pairs = jnp.zeros((3, 3), bool).at[:2, 2].set(True)
        >>> [round(x, 6) for x in nearest_point(axes, pairs).nearest.tolist()]
        [0.5, 0.5]
    """
    start = _start(axes, pairs)
    nothing = HullPoint(
        start.nearest,
        start.duals,
        start.gap,
        ~pairs.any(),
        ~pairs.any(),
        start.iterations,
    )

    def going(state: tuple[_Iterate, HullPoint, Array]) -> Array:
        iterate, found, _ = state
        return iterate.going & ~found.certain

    def attempt(
        state: tuple[_Iterate, HullPoint, Array],
    ) -> tuple[_Iterate, HullPoint, Array]:
        iterate, found, tried = state

        def undecided(iterate: _Iterate) -> Array:
            news = iterate.ready & jnp.any(iterate.strong != tried)
            return iterate.going & ~news

        iterate = lax.while_loop(
            undecided, lambda iterate: _newton(axes, pairs, iterate), iterate
        )
        exact = _on_strong(axes, pairs, iterate)
        better = exact.certain | (exact.gap < found.gap)
        found = jax.tree.map(lambda a, b: jnp.where(better, a, b), exact, found)
        return iterate, found, iterate.strong

    iterate, found, _ = lax.while_loop(going, attempt, (start, nothing, ~pairs))
    inside = ~found.certain & (iterate.gap < found.gap)
    return HullPoint(
        jnp.where(inside, iterate.nearest, found.nearest),
        jnp.where(inside, iterate.duals, found.duals),
        jnp.where(inside, iterate.gap, found.gap),
        found.vanishing,
        found.certain,
        iterate.iterations,
    )


class _Iterate(NamedTuple):
    """An interior point z = Dx − t > 0, λ > 0, with x = Dᵀλ and Σλ = 1 to rounding."""

    nearest: Array
    margin: Array
    slack: Array
    duals: Array
    gap: Array
    strong: Array  # pairs whose dual outweighs their slack
    ready: Array  # … may be the right ones
    iterations: Array
    going: Array


def _relative_gap(
    axes: Float[Array, "rank vocabulary"],
    pairs: Bool[Array, "vocabulary vocabulary"],
    nearest: Float[Array, " rank"],
    hull_point: Float[Array, " rank"],
) -> Float[Scalar, ""]:
    """Duality gap of x and Dᵀλ, each scaled at its best; above one if Dx > 0 fails.

    In the max-margin problem x / min Dx is feasible and worth ½‖x‖²/(min Dx)², λ is
    worth ½/‖Dᵀλ‖².
    """
    least = smallest_lead(nearest @ axes, pairs)
    size = (nearest @ nearest) * (hull_point @ hull_point)
    return 1 - least * jnp.abs(least) / jnp.maximum(size, jnp.finfo(size.dtype).tiny)


def _start(
    axes: Float[Array, "rank vocabulary"], pairs: Bool[Array, "vocabulary vocabulary"]
) -> _Iterate:
    """Equal duals, tilted once towards the pairs that come out narrow."""
    dtype = axes.dtype
    eps = jnp.finfo(dtype).eps

    def below(nearest: Array) -> tuple[Array, Array]:
        ahead = lead(nearest @ axes)
        least = smallest_lead(nearest @ axes, pairs)
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
    return _Iterate(
        nearest,
        margin,
        slack,
        duals,
        jnp.asarray(jnp.inf, dtype),
        pairs,
        jnp.asarray(True),
        jnp.asarray(0, jnp.int32),
        pairs.any(),
    )


def _newton(
    axes: Float[Array, "rank vocabulary"],
    pairs: Bool[Array, "vocabulary vocabulary"],
    state: _Iterate,
) -> _Iterate:
    """One iteration: predict, centre, correct; in relative changes of λ and z."""
    nearest, margin, slack, duals = state[:4]
    eps, tiny = jnp.finfo(axes.dtype).eps, jnp.finfo(axes.dtype).tiny
    primal_rest = jnp.where(pairs, slack - lead(nearest @ axes) + margin, 0.0)
    dual_rest = nearest - axes @ potentials(duals)
    products = duals * slack
    total = jnp.sum(products)
    size = nearest @ nearest
    inverse = 1 / slack
    weights = duals * inverse

    # Newton's unknowns are dx and dt. Near the solution dx follows dt along p = x/‖x‖²,
    # almost without changing the slack of an active pair. So take dx = y + p dt: the
    # enormous weights then cancel on paper, not in rounding. While the gap is large the
    # multiple of x fades out; any multiple is exact.
    along = nearest * (size / jnp.maximum(size**2 + total**2, tiny))
    follow = jnp.where(pairs, lead(along @ axes) - 1, 0.0)
    hessian = (axes @ laplacian(weights)) @ axes.T
    # Rounding may not make it singular in the directions that the weights leave soft.
    ridge = 1 + eps * len(nearest) * jnp.diag(hessian)
    hessian = hessian + jnp.diag(ridge)
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
        d_slack = lead(step @ axes) + follow * d_margin - primal_rest
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
    solved, solved_border = cho_solve(factor, jnp.stack([rest, border], axis=1)).T
    _, _, widening = direction(solved, scalar)
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
    size = nearest @ nearest
    gap = _relative_gap(axes, pairs, nearest, axes @ potentials(duals))
    # Where x vanishes, only duals of the vanishing combinations stay of order one.
    vanishing = _vanishes(nearest, gap)
    lasting = number * duals > size**0.25
    strong = pairs & jnp.where(vanishing, lasting, duals > slack)
    ready = vanishing | (gap < 0.03)
    count = state.iterations + 1
    finished = (gap <= 4 * eps) | (size <= eps**1.5) | (count >= _ITERATIONS)
    margin = margin + length * d_margin
    new = _Iterate(nearest, margin, slack, duals, gap, strong, ready, count, ~finished)
    # At the end rounding may make an iterate worse than the one before.
    worse = (state.gap < eps**0.5) & ~(gap < state.gap / 2)
    broken = worse | ~jnp.isfinite(gap) | ~(length > 0)
    stopped = state._replace(iterations=count, going=jnp.asarray(False))
    return jax.tree.map(lambda a, b: jnp.where(broken, a, b), stopped, new)


def _vanishes(
    nearest: Float[Array, " rank"], gap: Float[Scalar, ""]
) -> Bool[Scalar, ""]:
    """Whether x looks like zero: small, and separating nothing."""
    small = nearest @ nearest < jnp.finfo(nearest.dtype).eps ** 0.5
    return small & (gap > 0.9)


def _rounding(
    axes: Float[Array, "rank vocabulary"], nearest: Float[Array, " rank"]
) -> Float[Scalar, ""]:
    """The rounding of a score relative to the margin ‖x‖², some times over."""
    eps, tiny = jnp.finfo(axes.dtype).eps, jnp.finfo(axes.dtype).tiny
    score = jnp.max(jnp.abs(nearest) @ jnp.abs(axes))
    return 64 * eps * jnp.clip(score / jnp.maximum(nearest @ nearest, tiny), 1.0, 64.0)


def _on_strong(
    axes: Float[Array, "rank vocabulary"],
    pairs: Bool[Array, "vocabulary vocabulary"],
    iterate: _Iterate,
) -> HullPoint:
    """`_exact` on the strong pairs, exchanging some as long as that is promising."""
    vanishing = _vanishes(iterate.nearest, iterate.gap)
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
        iterate.nearest, iterate.duals, iterate.gap, no, no, iterate.iterations
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
    """The least p with D p = 1 on the strong pairs and its duals; or vanishing duals.

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
    shift = eps**0.75 * across + len(point) * eps * extent.sum() + tiny
    gram = gram + shift * jnp.eye(len(point), dtype=axes.dtype)
    factor = lax.linalg.cholesky(gram, symmetrize_input=False), True
    for _ in range(3):
        short = jnp.where(strong, 1 - lead(point @ axes), 0.0)
        excess = point - axes @ potentials(duals)
        # shift · H⁻¹ keeps what lies outside the span of the strong pairs, so the sum
        # mends both D p = 1 and p = Dᵀλ. Never p := Dᵀλ: where tokens are much longer
        # along one axis than across, the duals cancel there and take digits with them.
        change = cho_solve(factor, axes @ potentials(short) - shift * excess)
        point = jnp.where(vanishing, 0.0, point + change)
        excess = point - axes @ potentials(duals)
        change = cho_solve(factor, excess)
        duals = duals + jnp.where(strong, lead(change @ axes), 0.0)
    # A pair that misses the margin by rounding only would come and go for ever.
    rounding = 16 * eps * (1 + jnp.max(jnp.abs(point) @ jnp.abs(axes)))
    missed = pairs & (lead(point @ axes) < 1 - rounding) & ~vanishing
    exchanged = jnp.where(strong, duals > 0, missed)

    duals, hull_point = hull(duals)
    nearest = jnp.where(vanishing, hull_point, point / jnp.maximum(point @ point, tiny))
    gap = _relative_gap(axes, pairs, nearest, hull_point)
    gap = jnp.where(jnp.isfinite(gap), gap, jnp.inf)
    vanishing = vanishing & (hull_point @ hull_point <= (64 * eps) ** 2)
    vanishing = vanishing & strong.any()
    rest = nearest - hull_point
    length = jnp.sqrt(nearest @ nearest)
    # The duals are of size ‖p‖² = 1/‖x‖² and cancel to p of size 1/‖x‖.
    stationary = jnp.sqrt(rest @ rest) <= 64 * eps * (1 + length)
    certain = vanishing | (stationary & (gap <= _rounding(axes, nearest)))
    found = HullPoint(
        nearest, duals, gap, vanishing, certain, jnp.asarray(0, jnp.int32)
    )
    return found, exchanged
