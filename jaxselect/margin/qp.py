"""The nearest point of a hull of token differences, and its certificate.

The problem is min ½‖Dᵀλ‖² over λ ≥ 0, Σλ = 1, where D has one row E_s − E_r per pair (s
over r). Its dual is max t − ½‖x‖² subject to Dx ≥ t, with x = Dᵀλ. Two steps
(mathematics, section 3c):

* An interior point finds out which pairs matter: Mehrotra's predictor and corrector on
  z = Dx − t ≥ 0. Both sides are strictly feasible for any tokens and pairs, so there is
  no phase one and no divergence. The equations on those pairs are solved to rounding.
* `polish` solves them once more, with scores as unknowns, where digits were lost
  because the Gram matrices of the tokens square their condition number. This happens
  after a large step on E, when tokens are longer along one axis than across: thirty
  times in single precision, 10⁸ times in double.

No method is trusted: `measured` decides from p and λ on the tokens themselves, with
twice the digits where rounding could change the decision.
"""

from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.linalg import cho_solve
from jaxtyping import Array, Bool, Float, Int, Scalar

from .pairs import AbstractPairs, ByPair, PairList, Rows, SomePairs
from .span import span

# Thresholds are multiples and powers of the rounding eps. "Derived" says that a number
# follows from the arithmetic; "tuned", on which problems it was chosen. The 250
# problems are those of `tests/margin/pair_problems`.

# The statuses of `max_margin`, decided by what is measured on the tokens.

# Largest gap and infeasibility of a solved problem: 9e-13 in double, 5e-4 in single
# precision. Tuned on the benchmark, where 512 tokens end at 300 roundings, and on
# single precision with tokens far longer along one axis, which ends at 2,000.
SOLVED = 4096
# Where duals cancel, ψ = Σ λ ‖D‖ / ‖p‖ ≫ 1, the gap may be ALLOWED eps ψ. Derived: p
# stays feasible under the rounding of its entries if it aims 4 eps ‖p‖ ‖D‖ too far,
# which costs a gap of 8 eps ψ; rounding of p and of the duals adds half of that.
ALLOWED = 12
# But no more than eps^0.6, 4e-10 in double precision, so that p is within the root of
# that, 2e-5, of p_mm. In single precision it is less than 4096 roundings, and allows
# nothing.
LARGEST_GAP = 0.6
# Largest ‖Σ λ D‖ / Σ λ ‖D‖ of duals that refute a problem. Derived: storing the duals
# loses half a rounding, solving for them some; and every p that keeps the pairs apart
# would have ‖p‖ Σ λ ‖D‖ > 1/(64 eps), a margin that rounding hides.
REFUTED = 64
# Bound on the rounding of a sum, in roundings of its longest term: where it might turn
# the decision, the sum is taken again with more digits. Tuned: sums over 600 tokens or
# axes stay below 4.
SUM = 16
# Distance from the margin of an active pair, in roundings of the longest score. Tuned
# on the 250 problems: turned and rescaled they keep their active pairs.
ACTIVE = 1000
# Tokens closer together than this many roundings of their mean are one token. Derived:
# centring rounds twice, over some ten axes.
EQUAL = 16

# Where a method ends; none of these is taken for a proof.

# Relative gap at which the interior point ends. Derived: its formula rounds four times.
CLOSED = 4
# It also ends at ‖x‖² = eps^1.5. Derived: x is then 1e-12 and less than rounding leaves
# of a sum of tokens of size one.
ZERO = 1.5
# At ‖x‖² < eps^0.5 the hull may hold the origin. Tuned on random contradictions.
SEEMS_ZERO = 0.5
# Below a gap of eps^0.5 an iterate that does not halve it is the last. Derived: from
# there Newton's method squares the gap, unless rounding forbids it.
SETTLED = 0.5
# Gap at which the equations on the strong pairs are solved. Tuned on the 250 problems,
# for 20 iterations at most.
CERTAIN = 64
# Up to how many times as large that gap is where scores are longer than their lead.
# Tuned likewise.
RANGE = 64.0
# Largest ‖x − Dᵀλ‖ there, with tokens of size one. Tuned on the 250 problems.
STATIONARY = 64
# Largest ‖Dᵀλ‖ of a combination that vanishes. Tuned on random contradictions.
VANISHING = 64
# Shift of the Gram matrix, eps^0.75 of its trace. Tuned: three refinements take it off
# again, and a singular matrix stays positive.
SHIFT = 0.75
# Gap from which a point is polished. Derived: a quarter of SOLVED.
ROUGH = 1024

# Centred tokens by coordinate, and points in these coordinates or in R^d.
Axes: TypeAlias = Float[Array, "rank vocabulary"]
Point: TypeAlias = Float[Array, " rank"]
Vector: TypeAlias = Float[Array, " dim"]


class Candidate(NamedTuple):
    """The unverified answer of a method.

    Attributes:
        direction: p, or zero for duals that refute the problem.
        duals: λ.
        near: how far from the margin a pair counts as active.
        edges: of a list of pairs, all those with a dual; None if that may be any.
    """

    direction: Vector
    duals: ByPair
    near: Float[Scalar, ""]
    edges: Int[Array, " few"] | None = None


class Answer(NamedTuple):
    """A candidate's p and λ, and the numbers measured on them.

    Attributes:
        direction: p, or zero for duals that refute the problem.
        duals: λ.
        active: the pairs at the margin.
        gap: as in `MaxMargin`.
        infeasibility: as in `MaxMargin`.
        balance: ‖Σ λ D‖ / Σ λ ‖D‖, infinite unless p is zero.
        allowed: the gap that rounding of p allows, for duals that cancel to
            ‖p‖ = Σ λ ‖D‖ / ψ; zero where it is not measured.
    """

    direction: Vector
    duals: ByPair
    active: SomePairs
    gap: Float[Scalar, ""]
    infeasibility: Float[Scalar, ""]
    balance: Float[Scalar, ""]
    allowed: Float[Scalar, ""]

    @property
    def solved(self) -> Bool[Scalar, ""]:
        """Whether p is proved to be the solution; a NaN proves nothing."""
        most = SOLVED * jnp.finfo(self.gap.dtype).eps
        solved = self.gap <= jnp.fmax(self.allowed, most)
        return solved & (self.infeasibility <= most)

    @property
    def refuted(self) -> Bool[Scalar, ""]:
        """Whether λ proves that the problem has no solution."""
        return self.balance <= REFUTED * jnp.finfo(self.gap.dtype).eps


def measured(tokens: Rows, pairs: AbstractPairs, candidate: Candidate) -> Answer:
    """Measure p and λ, with twice the digits where rounding could change a decision."""
    direction, duals, near, edges = candidate
    leads = pairs.leads(tokens @ direction)
    answer = _certificate(pairs, candidate, leads, pairs.divergence(duals) @ tokens)
    # Scores cancel to leads, and the gap contains what rounding leaves of Dᵀλ through
    # its product with p, which is made of scores, too.
    longest = jnp.max(jnp.abs(tokens) @ jnp.abs(direction))
    eps = jnp.finfo(tokens.dtype).eps
    error = jnp.maximum(answer.gap, answer.infeasibility) + SUM * eps * longest
    doubtful = pairs.held.any() & ~(error <= SOLVED * eps)

    def precise(state: tuple[Array, Answer]) -> tuple[Array, Answer]:
        stored = Candidate(state[1].direction, state[1].duals, near, edges)
        return jnp.zeros_like(doubtful), _precise(tokens, pairs, stored)

    # A loop of one turn: in a batch it runs only if some element needs it, and in it p
    # and λ are numbers stored. Within one program the two uses of a dual may be
    # computed twice, in two roundings that do not cancel.
    return lax.while_loop(lambda state: state[0], precise, (doubtful, answer))[1]


def _precise(tokens: Rows, pairs: AbstractPairs, candidate: Candidate) -> Answer:
    """Measure p and λ with twice the digits, and with the lengths ‖D‖."""
    direction, duals, _, edges = candidate
    leads = precise_differences(pairs, tokens, direction)
    if isinstance(pairs, PairList) and edges is not None:
        point = combination(pairs.among(edges), tokens, duals[edges])
    else:
        point = combination(pairs, tokens, duals)
    answer = _certificate(pairs, candidate, leads, point)
    some, total = jnp.any(direction != 0), jnp.sum(duals)
    length = pairs.exact_lengths(tokens)
    # Where differences that vanish carry all of the duals, so does their sum.
    carried = jnp.sum(duals * length)
    balance = jnp.where(carried > 0, norm(point) / carried, 0.0)
    convex = jnp.abs(total - 1) <= SUM * jnp.finfo(total.dtype).eps
    convex = convex & jnp.all(duals >= 0) & jnp.all(pairs.held | (duals == 0))
    return answer._replace(
        balance=jnp.where(convex & ~some, balance, jnp.inf),
        allowed=jnp.where(some, allowed_gap(carried / norm(direction)), 0.0),
    )


def _certificate(
    pairs: AbstractPairs, candidate: Candidate, leads: ByPair, point: Vector
) -> Answer:
    """Compute gap, infeasibility and active pairs from D p and Dᵀλ."""
    (direction, duals, near, _), held = candidate, pairs.held
    least = jnp.min(jnp.where(held, leads, jnp.inf), initial=jnp.inf)
    some, none = jnp.any(direction != 0), held.any().astype(point.dtype)
    value = 2 * jnp.sum(duals) - point @ point
    gap = jnp.abs(1 - value / (direction @ direction))
    return Answer(
        direction=direction,
        duals=duals,
        active=held & some & (jnp.abs(leads - 1) <= near),
        gap=jnp.where(some, gap, none),
        infeasibility=jnp.where(some, jnp.maximum(0.0, 1 - least), none),
        balance=jnp.full_like(gap, jnp.inf),
        allowed=jnp.zeros_like(gap),
    )


def allowed_gap(cancellation: Float[Scalar, ""]) -> Float[Scalar, ""]:
    """Compute the gap that rounding of p allows, from ψ = Σ λ ‖D‖ / ‖p‖."""
    eps = jnp.finfo(cancellation.dtype).eps
    return jnp.minimum(ALLOWED * eps * cancellation, eps**LARGEST_GAP)


class HullPoint(NamedTuple):
    """The nearest point x = Dᵀλ with its duals.

    Attributes:
        nearest: x.
        duals: λ ≥ 0 with Σλ = 1, zero off the pairs.
        gap: relative duality gap 1 − t²/‖x‖⁴ at the best t; one or more if x = 0.
        vanishing: λ proves, to rounding, that the hull holds the origin.
        certain: vanishing, or gap and x − Dᵀλ are both rounding.
    """

    nearest: Point
    duals: ByPair
    gap: Float[Scalar, ""]
    vanishing: Bool[Scalar, ""]
    certain: Bool[Scalar, ""]


def normalise(
    embeddings: Rows, pairs: AbstractPairs
) -> tuple[Axes, Float[Array, "dim rank"], Float[Scalar, ""]]:
    """Write centred tokens as Eᵀ = scale · basis axes, with few coordinates."""
    wins, loses = pairs.any_by_token(pairs.held)
    involved = (wins | loses)[:, None]
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


class _Iterate(NamedTuple):
    """An interior point, with x = Dᵀλ and Σλ = 1 to rounding.

    Attributes:
        nearest: x.
        margin: t.
        slack: z = Dx − t > 0, one off the pairs.
        duals: λ > 0, zero off the pairs.
        gap: relative duality gap, see `relative_gap`.
        strong: the pairs that seem to be active: dual above slack.
        ready: whether to try `strong` as the active set.
        iterations: so far.
        going: neither converged nor stalled.
    """

    nearest: Point
    margin: Float[Scalar, ""]
    slack: ByPair
    duals: ByPair
    gap: Float[Scalar, ""]
    strong: SomePairs
    ready: Bool[Scalar, ""]
    iterations: Int[Scalar, ""]
    going: Bool[Scalar, ""]


# Exchanges of pairs at most, each with a solution of the equations on them.
_EXCHANGES = 8


def nearest_point(
    axes: Axes, pairs: AbstractPairs
) -> tuple[HullPoint, Int[Scalar, ""]]:
    """Find the point nearest to the origin in the hull of E_s − E_r."""
    start = _begin(axes, pairs)
    nothing = HullPoint(
        nearest=start.nearest,
        duals=start.duals,
        gap=start.gap,
        vanishing=~pairs.held.any(),
        certain=~pairs.held.any(),
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
            undecided, lambda iterate: _advance(axes, pairs, iterate), iterate
        )
        exact = _on_strong(axes, pairs, iterate)
        better = exact.certain | (exact.gap < found.gap)
        found = jax.tree.map(lambda a, b: jnp.where(better, a, b), exact, found)
        return iterate, found, iterate.strong

    iterate, found, _ = lax.while_loop(going, attempt, (start, nothing, ~pairs.held))
    inside = ~found.certain & (iterate.gap < found.gap)
    found = found._replace(
        nearest=jnp.where(inside, iterate.nearest, found.nearest),
        duals=jnp.where(inside, iterate.duals, found.duals),
        gap=jnp.where(inside, iterate.gap, found.gap),
    )
    return found, iterate.iterations


def _rounding(axes: Axes, nearest: Point) -> Float[Scalar, ""]:
    """Estimate the rounding of a score relative to the margin ‖x‖²."""
    eps, tiny = jnp.finfo(axes.dtype).eps, jnp.finfo(axes.dtype).tiny
    score = jnp.max(jnp.abs(nearest) @ jnp.abs(axes))
    ratio = score / jnp.maximum(nearest @ nearest, tiny)
    return CERTAIN * eps * jnp.clip(ratio, 1.0, RANGE)


def _on_strong(axes: Axes, pairs: AbstractPairs, iterate: _Iterate) -> HullPoint:
    """Call `_exact` on the strong pairs, exchanging some while that helps."""
    vanishing = _vanishes(iterate.nearest, iterate.gap)
    guessed = iterate.iterations == 0
    # A considered set gets a second chance; further ones are for those that beat the
    # interior point, which has not begun where the set is a guess.
    bar = jnp.where(guessed, 0.1, iterate.gap)

    def promising(state: tuple[HullPoint, Array, Array, Array]) -> Array:
        found, _, going, passes = state
        chance = (passes == 0) | (~guessed & (passes == 1)) | (found.gap < bar)
        return ~found.certain & going & chance & (passes < _EXCHANGES)

    def exchange(
        state: tuple[HullPoint, Array, Array, Array],
    ) -> tuple[HullPoint, Array, Array, Array]:
        before, strong, _, passes = state
        found, exchanged = _exact(axes, pairs, strong, before.duals, vanishing)
        going = jnp.any(strong != exchanged) | (found.gap < before.gap / 10)
        return found, exchanged, going, passes + 1

    no = jnp.asarray(False)
    start = HullPoint(
        nearest=iterate.nearest,
        duals=iterate.duals,
        gap=iterate.gap,
        vanishing=no,
        certain=no,
    )
    return lax.while_loop(
        promising, exchange, (start, iterate.strong, ~no, jnp.asarray(0, jnp.int32))
    )[0]


def _exact(
    axes: Axes,
    pairs: AbstractPairs,
    strong: SomePairs,
    duals: ByPair,
    vanishing: Bool[Scalar, ""],
) -> tuple[HullPoint, SomePairs]:
    """Find the shortest p with D p = 1 on the strong pairs, or vanishing duals.

    There are usually many more strong pairs than their rank, so D_A G⁺ with G =
    D_AᵀD_A, from a slightly shifted and refined Cholesky factor, replaces an inverse.
    The duals change as little as possible. The pairs to try next are returned, too.
    """
    eps, tiny = jnp.finfo(axes.dtype).eps, jnp.finfo(axes.dtype).tiny
    duals = _convex(strong, duals)
    hull_point = axes @ pairs.divergence(duals)
    # From here to the end of the refinement the duals are those of p, not of x.
    size = jnp.where(vanishing, 1.0, jnp.maximum(hull_point @ hull_point, tiny))
    duals, point = duals / size, hull_point / size
    gram = pairs.gram(axes.T, strong.astype(axes.dtype))
    # Small beside every axis, also where tokens are far longer along one of them.
    extent = jnp.diag(gram)
    across = extent.sum() - extent.max()
    shift = eps**SHIFT * across + len(point) * eps * extent.sum() + tiny
    gram = gram + shift * jnp.eye(len(point), dtype=axes.dtype)
    factor = lax.linalg.cholesky(gram, symmetrize_input=False), True

    def refine(_: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
        point, duals = state
        short = jnp.where(strong, 1 - pairs.leads(point @ axes), 0.0)
        excess = point - axes @ pairs.divergence(duals)
        # shift · H⁻¹ keeps what lies outside the span of the strong pairs, so the sum
        # mends both D p = 1 and p = Dᵀλ. Never p := Dᵀλ: where tokens are much longer
        # along one axis than across, the duals cancel there and take digits with them.
        change = cho_solve(factor, axes @ pairs.divergence(short) - shift * excess)
        point = jnp.where(vanishing, 0.0, point + change)
        excess = point - axes @ pairs.divergence(duals)
        change = cho_solve(factor, excess)
        return point, duals + jnp.where(strong, pairs.leads(change @ axes), 0.0)

    point, duals = lax.fori_loop(0, 3, refine, (point, duals))
    missed = pairs.held & ~vanishing & misses(axes, pairs, point)
    exchanged = jnp.where(strong, duals > 0, missed)

    duals = _convex(strong, duals)
    hull_point = axes @ pairs.divergence(duals)
    nearest = jnp.where(vanishing, hull_point, point / jnp.maximum(point @ point, tiny))
    gap = relative_gap(axes, pairs, nearest, hull_point)
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
    )
    return found, exchanged


def _convex(pairs: SomePairs, duals: ByPair) -> ByPair:
    """Duals as the weights of a convex combination of some pairs."""
    duals = jnp.where(pairs, jnp.maximum(duals, 0.0), 0.0)
    return duals / jnp.maximum(duals.sum(), jnp.finfo(duals.dtype).tiny)


def misses(axes: Axes, pairs: AbstractPairs, point: Point) -> SomePairs:
    """Whether D p < 1, by pair."""
    # A pair that misses the margin by the rounding of a sum would come and go forever.
    rounding = jnp.finfo(axes.dtype).eps * (1 + jnp.max(jnp.abs(point) @ jnp.abs(axes)))
    return pairs.leads(point @ axes) < 1 - SUM * rounding


# 5 to 20 iterations are usual; more only where rounding has the say.
_ITERATIONS = 60


def _begin(axes: Axes, pairs: AbstractPairs) -> _Iterate:
    """Start from equal duals, tilted once towards the pairs of smallest margin."""
    dtype = axes.dtype
    eps = jnp.finfo(dtype).eps

    def below(nearest: Array) -> tuple[Array, Array]:
        ahead = pairs.leads(nearest @ axes)
        least = pairs.least(nearest @ axes)
        spread = jnp.max(jnp.where(pairs.held, ahead - least, 0.0), initial=0.0)
        room = jnp.maximum(spread, nearest @ nearest)
        margin = least - jnp.maximum(0.1 * room, eps)
        return margin, jnp.where(pairs.held, ahead - margin, 1.0)

    duals = _convex(pairs.held, jnp.ones_like(pairs.held, dtype))
    _, slack = below(axes @ pairs.divergence(duals))
    duals = _convex(pairs.held, 1 / slack)
    nearest = axes @ pairs.divergence(duals)
    margin, slack = below(nearest)
    # All pairs at once are a guess worth its price where no token wins and loses.
    wins, loses = pairs.any_by_token(pairs.held)
    chained = jnp.any(wins & loses)
    return _Iterate(
        nearest=nearest,
        margin=margin,
        slack=slack,
        duals=duals,
        gap=jnp.asarray(jnp.inf, dtype),
        strong=pairs.held,
        ready=~chained,
        iterations=jnp.asarray(0, jnp.int32),
        going=pairs.held.any(),
    )


def _advance(axes: Axes, pairs: AbstractPairs, state: _Iterate) -> _Iterate:
    """Take one predictor–corrector step, in relative changes of λ and z."""
    nearest, margin, slack, duals = state[:4]
    tiny = jnp.finfo(axes.dtype).tiny
    primal_rest = jnp.where(
        pairs.held, slack - pairs.leads(nearest @ axes) + margin, 0.0
    )
    dual_rest = nearest - axes @ pairs.divergence(duals)
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
    follow = jnp.where(pairs.held, pairs.leads(along @ axes) - 1, 0.0)
    hessian = pairs.gram(axes.T, weights)
    hessian = hessian + jnp.eye(len(nearest), dtype=axes.dtype)
    factor = lax.linalg.cholesky(hessian, symmetrize_input=False), True
    border = along + axes @ pairs.divergence(weights * follow)
    corner = along @ along + jnp.sum(weights * follow**2)

    def right_side(wanted: Array) -> tuple[Array, Array]:
        pull = weights * primal_rest - duals * wanted
        rest = axes @ pairs.divergence(pull) - dual_rest
        return rest, jnp.sum(pull * follow) - along @ dual_rest

    def direction(solved: Array, scalar: Array) -> tuple[Array, Array, Array]:
        d_margin = (scalar - border @ solved) / (corner - border @ solved_border)
        step = solved - solved_border * d_margin
        d_slack = pairs.leads(step @ axes) + follow * d_margin - primal_rest
        widening = jnp.where(pairs.held, d_slack * inverse, 0.0)
        return step + along * d_margin, d_margin, widening

    def longest(wanted: Array, widening: Array) -> Array:
        """The step at which the first dual or slack reaches zero."""
        fall = jnp.maximum(wanted + widening, -widening)
        return 1 / jnp.maximum(jnp.max(jnp.where(pairs.held, fall, 0.0)), tiny)

    # With dz = z · widening the change of the duals is dλ = −λ · (wanted + widening),
    # where λz · wanted is what the product λz should lose to first order.
    def newton(wanted: Array, _: None) -> tuple[Array, tuple[Array, ...]]:
        """Solve for a step; return what the products should lose in the next one."""
        rest, scalar = right_side(wanted)
        *step, widening = direction(cho_solve(factor, rest), scalar)
        length = longest(wanted, widening)
        part = jnp.minimum(1.0, length)
        left = (1 - part * (1 + widening)) * (1 + part * widening)
        centred = (jnp.sum(products * left) / total) ** 3 * total / number
        centred = centred / jnp.where(pairs.held, products, 1.0)
        corrected = 1 - (1 + widening) * widening - centred
        return corrected, (*step, widening, wanted, length)

    # The predictor reduces products to zero, the corrector by what that shows.
    number = pairs.held.sum().astype(axes.dtype)
    solved_border = cho_solve(factor, border)
    _, steps = lax.scan(newton, jnp.ones_like(slack), None, length=2)
    d_nearest, d_margin, widening, wanted, length = (both[-1] for both in steps)
    length = jnp.minimum(1.0, 0.995 * length)

    duals = duals * (1 - length * (wanted + widening))
    duals = duals / duals.sum()
    slack = slack * (1 + length * widening)
    nearest = nearest + length * d_nearest
    moved = nearest, margin + length * d_margin, slack, duals
    return _accepted(axes, pairs, state, moved, length)


def _accepted(
    axes: Axes,
    pairs: AbstractPairs,
    state: _Iterate,
    moved: tuple[Array, Array, Array, Array],
    length: Float[Scalar, ""],
) -> _Iterate:
    """Accept a step to x, t, z and λ, or stop at the present iterate."""
    nearest, margin, slack, duals = moved
    eps, number = jnp.finfo(axes.dtype).eps, pairs.held.sum().astype(axes.dtype)
    size = nearest @ nearest
    gap = relative_gap(axes, pairs, nearest, axes @ pairs.divergence(duals))
    # Where x vanishes, only duals of the vanishing combinations stay of order one.
    vanishing = _vanishes(nearest, gap)
    lasting = number * duals > size**0.25
    strong = pairs.held & jnp.where(vanishing, lasting, duals > slack)
    ready = vanishing | (gap < 0.03)
    count = state.iterations + 1
    finished = (gap <= CLOSED * eps) | (size <= eps**ZERO) | (count >= _ITERATIONS)
    new = _Iterate(
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
    axes: Axes, pairs: AbstractPairs, nearest: Point, hull_point: Point
) -> Float[Scalar, ""]:
    """Compute the gap 1 − (min Dx)²/(‖x‖²‖Dᵀλ‖²) of optimally scaled x and λ."""
    least = pairs.least(nearest @ axes)
    size = (nearest @ nearest) * (hull_point @ hull_point)
    size = jnp.maximum(size, jnp.finfo(size.dtype).tiny)
    gap = 1 - least * jnp.abs(least) / size
    return jnp.where(jnp.isfinite(gap), gap, jnp.inf)


def _vanishes(nearest: Point, gap: Float[Scalar, ""]) -> Bool[Scalar, ""]:
    """Whether x is small and separates no pair, as x = 0 would."""
    small = nearest @ nearest < jnp.finfo(nearest.dtype).eps ** SEEMS_ZERO
    return small & (gap > 0.9)


def polish(axes: Axes, pairs: AbstractPairs, found: HullPoint) -> HullPoint:
    """Polish an answer, exchanging pairs whose margin is close to one."""
    eps, tiny = jnp.finfo(axes.dtype).eps, jnp.finfo(axes.dtype).tiny
    least = pairs.least(found.nearest @ axes)
    ahead = pairs.leads(found.nearest @ axes) / jnp.maximum(least, tiny)
    # The gap is of second order in the distance from the solution.
    near = pairs.held & (ahead <= 1 + jnp.sqrt(jnp.maximum(found.gap, 0.0)))
    rough = ~found.certain | (~found.vanishing & (found.gap > ROUGH * eps))

    def promising(state: tuple[HullPoint, Array, Array, Array, Array]) -> Array:
        _, _, _, going, passes = state
        return going & (passes < _EXCHANGES)

    def exchange(
        state: tuple[HullPoint, Array, Array, Array, Array],
    ) -> tuple[HullPoint, Array, Array, Array, Array]:
        best, duals, strong, _, passes = state
        tried, duals, exchanged = _solve_on_strong(axes, pairs, strong, duals)
        better = tried.gap < best.gap
        best = jax.tree.map(lambda a, b: jnp.where(better, a, b), tried, best)
        going = jnp.any(exchanged != strong) & ~best.certain
        return best, duals, exchanged, going, passes + 1

    size = jnp.maximum(found.nearest @ found.nearest, tiny)
    start = (found, found.duals / size, near, rough & (found.gap < 1), jnp.asarray(0))
    return lax.while_loop(promising, exchange, start)[0]


def _solve_on_strong(
    axes: Axes, pairs: AbstractPairs, strong: SomePairs, duals: ByPair
) -> tuple[HullPoint, ByPair, SomePairs]:
    """Find the shortest p with D p = 1 on strong pairs, its duals, and pairs to try.

    With centred tokens U σ Wᵀ and scores a = U z, the equation D p = 1 becomes Uᵀ Lap U
    z = Uᵀ divergence(1), which does not contain σ, and p = Dᵀλ becomes Uᵀ divergence(λ)
    = W p/σ.
    """
    eps, tiny = jnp.finfo(axes.dtype).eps, jnp.finfo(axes.dtype).tiny
    known = span(pairs.centred(axes.T, strong))
    mask = strong.astype(axes.dtype)
    factor = known.factor(pairs.gram(known.left, mask))
    scores = cho_solve(factor, pairs.divergence(mask) @ known.left)
    duals = jnp.where(strong, jnp.maximum(duals, 0.0), 0.0)
    point = (known.inverse * scores) @ known.axes

    def refine(_: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
        point, duals = state
        # Residuals are computed on the tokens: their singular vectors round each of
        # them to the longest.
        short = jnp.where(strong, 1 - pairs.leads(point @ axes), 0.0)
        change = cho_solve(factor, pairs.divergence(short) @ known.left)
        point = point + (known.inverse * change) @ known.axes
        excess = known.axes @ (point - axes @ pairs.divergence(duals))
        change = cho_solve(factor, known.inverse * excess)
        lead = pairs.leads(known.left @ change)
        return point, duals + jnp.where(strong, lead, 0.0)

    point, duals = lax.fori_loop(0, 2, refine, (point, duals))
    exchanged = jnp.where(strong, duals > 0, pairs.held & misses(axes, pairs, point))

    weights = _convex(strong, duals)
    nearest = point / jnp.maximum(point @ point, tiny)
    gap = relative_gap(axes, pairs, nearest, axes @ pairs.divergence(weights))
    found = HullPoint(
        nearest=nearest,
        duals=weights,
        gap=gap,
        vanishing=jnp.asarray(False),
        certain=gap <= CERTAIN * eps,
    )
    return found, duals, exchanged


def precise_differences(pairs: AbstractPairs, tokens: Rows, point: Vector) -> ByPair:
    """Compute (E_s − E_r)ᵀp of every pair with twice the digits."""
    high, low = _product(tokens, point)
    return pairs.leads(high) + pairs.leads(low)


def combination(pairs: AbstractPairs, tokens: Rows, duals: ByPair) -> Vector:
    """Compute Dᵀλ = EᵀΛ, where the sums in Λ cancel, with twice the digits."""
    matrix, terms = pairs.terms(tokens, duals)
    high, low = _sum(terms)
    whole, rest = _product(matrix, high)
    return whole + (rest + matrix @ low)


def _product(
    matrix: Float[Array, "rows columns"], vector: Float[Array, " columns"]
) -> tuple[Float[Array, " rows"], Float[Array, " rows"]]:
    """Compute A x as an unevaluated sum of two arrays."""
    parts = [a * b[None, :] for a in _halves(matrix) for b in _halves(vector)]
    return _sum(jnp.concatenate(parts, axis=1))


def _halves(values: Array) -> tuple[Array, Array]:
    """Split numbers into upper and lower digits, whose products are exact."""
    info = jnp.finfo(values.dtype)
    upper = lax.reduce_precision(values, info.nexp, info.nmant // 2 - 1)
    return upper, values - upper


def _sum(
    terms: Float[Array, "rows columns"],
) -> tuple[Float[Array, " rows"], Float[Array, " rows"]]:
    """Sum the rows; return the sums and their rounding errors."""

    def add(one: tuple[Array, Array], other: tuple[Array, Array]) -> tuple:
        (left, rest), (right, more) = one, other
        total = left + right
        taken = total - left
        lost = (left - (total - taken)) + (right - taken)
        return total, rest + more + lost

    zero = jnp.zeros((), terms.dtype)
    return lax.reduce((terms, jnp.zeros_like(terms)), (zero, zero), add, (1,))


def unit_size(
    values: Float[Array, "rows columns"],
) -> tuple[Float[Array, "rows columns"], Int[Scalar, ""], Bool[Scalar, ""]]:
    """Scale values by 2^−k to size one; return k, and whether some are lost.

    Processors may treat subnormal numbers, and differences that are, as zero.
    """
    info = jnp.finfo(values.dtype)
    _, exponent = jnp.frexp(jnp.max(jnp.abs(values), initial=0.0))
    # Neither 2^k nor 2^−k may be subnormal or infinite.
    exponent = jnp.clip(exponent, info.minexp + 1, info.maxexp - 2)
    scaled = values * jnp.ldexp(jnp.ones((), values.dtype), -exponent)
    # As integers: a comparison of numbers would itself take them for zero.
    digits = lax.bitcast_convert_type(values, f"uint{info.bits}") << 1
    subnormal = (digits != 0) & (digits < 2 << info.nmant)
    small = (values != 0) & (jnp.abs(scaled) < info.tiny / info.eps)
    return scaled, exponent.astype(jnp.int32), jnp.any(subnormal | small)


def survives(
    before: Float[Array, "..."], after: Float[Array, "..."]
) -> Bool[Scalar, ""]:
    """Whether scaling left the entries that matter normal numbers."""
    info = jnp.finfo(before.dtype)
    size = jnp.abs(before)
    matters = size > info.eps**2 * jnp.max(size, initial=0.0)
    normal = (jnp.abs(after) >= info.tiny) & jnp.isfinite(after)
    return jnp.all(jnp.isfinite(after) & (~matters | normal))


def norm(vector: Vector) -> Float[Scalar, ""]:
    """Compute ‖p‖ without overflow of its square; the derivative at zero is zero."""
    largest = jnp.max(jnp.abs(lax.stop_gradient(vector)), initial=0.0)
    some = largest > 0
    unit = vector / jnp.where(some, largest, 1.0)
    return jnp.where(some, largest * jnp.sqrt(jnp.where(some, unit @ unit, 1.0)), 0.0)
