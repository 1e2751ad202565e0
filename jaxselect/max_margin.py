"""The max-margin (support vector) problem whose solution the flow of p converges to.

p_mm = argmin ‖p‖ subject to pᵀ(E_s − E_r) ≥ 1 for every pair (s over r). Its geometric
dual always has a solution: x, the point nearest to the origin in the convex hull of the
differences D = E_s − E_r. If x ≠ 0 then p_mm = x / ‖x‖² and ‖p_mm‖ = 1 / ‖x‖; x = 0 is
Farkas' certificate that no p exists (MODEL section 3c).

The graph view: tokens are nodes, pairs are edges. Weights on the pairs enter through
the Laplacian of that graph only, DᵀWD = Eᵀ Lap(W) E, and duals through the potentials
they leave on the nodes, Dᵀλ = Eᵀμ with μ_s = Σ_r λ[s, r] − λ[r, s]. So the work of an
iteration depends on |S|, not on how many pairs there are; and where several tokens of a
sequence stay selected, (s, r) and (s', r) are simply two edges into r.
"""

import enum
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve
from jaxtyping import Array, Bool, Float, Int, Scalar

# An interior point takes 8 to 20 iterations; more only where rounding has the say.
_ITERATIONS = 60


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


def max_margin(
    embeddings: Float[Array, "vocabulary dim"],
    pairs: Bool[Array, "vocabulary vocabulary"],
) -> MaxMargin:
    """Solve min ‖p‖ subject to pᵀ(E_s − E_r) ≥ 1 for every pair, with certificate.

    A primal-dual interior point (Mehrotra) on the nearest point of the hull, then one
    exact step on the active pairs. `direction` and `norm` carry the first derivative in
    E, forward and reverse; everything else is a constant to differentiation.

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
    fixed = jax.lax.stop_gradient(embeddings)
    solution = _solve(fixed, pairs)
    direction = _implicit(embeddings, solution)
    # The inner `where` keeps the derivative of the norm finite at p = 0.
    square = direction @ direction
    norm = jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1.0)), 0.0)
    return eqx.tree_at(lambda s: (s.direction, s.norm), solution, (direction, norm))


def laplacian(
    weights: Float[Array, "vocabulary vocabulary"],
) -> Float[Array, "vocabulary vocabulary"]:
    """Laplacian of a weighted graph of pairs: aᵀ Lap(W) a = Σ W[s, r] (a_s − a_r)².

    Args:
        weights: W, on ordered pairs.

    Returns:
        A symmetric matrix whose rows sum to zero.

    Example:
        >>> laplacian(jnp.array([[0.0, 3.0], [0.0, 0.0]])).tolist()
        [[3.0, -3.0], [-3.0, 3.0]]
    """
    degree = weights.sum(axis=0) + weights.sum(axis=1)
    return jnp.diag(degree) - weights - weights.T


def potentials(
    duals: Float[Array, "vocabulary vocabulary"],
) -> Float[Array, " vocabulary"]:
    """What the duals leave on each token, μ_s = Σ_r λ[s, r] − λ[r, s]: Dᵀλ = Eᵀμ.

    Args:
        duals: λ, on ordered pairs.

    Returns:
        μ; its entries sum to zero.

    Example:
        >>> potentials(jnp.array([[0.0, 3.0], [0.0, 0.0]])).tolist()
        [3.0, -3.0]
    """
    return duals.sum(axis=1) - duals.sum(axis=0)


def _ahead(
    scores: Float[Array, " vocabulary"],
) -> Float[Array, "vocabulary vocabulary"]:
    """The score of s over that of r, for every pair."""
    return scores[:, None] - scores[None, :]


class _Iterate(NamedTuple):
    """An interior point of the nearest-point problem and how good it is.

    min ½‖x‖² − t subject to z = Dx − t ≥ 0, whose dual is x = Dᵀλ, λ ≥ 0, Σλ = 1.
    """

    nearest: Array
    margin: Array
    slack: Array
    duals: Array
    gap: Array
    iteration: Array
    going: Array


def _solve(
    embeddings: Float[Array, "vocabulary dim"],
    pairs: Bool[Array, "vocabulary vocabulary"],
) -> MaxMargin:
    """`max_margin` without its derivative."""
    dtype = embeddings.dtype
    eps = jnp.finfo(dtype).eps
    tokens, basis, scale = _normalise(embeddings, pairs)
    state = _interior_point(tokens, pairs)
    nearest, duals = state.nearest, state.duals
    vanishing = nearest @ nearest <= eps

    # Strongly active pairs have λ ≫ z. Where x vanishes, pairs outside every vanishing
    # combination have both of the order of x: only a much larger λ tells.
    ratio = jnp.where(vanishing, eps**-0.5, 1.0)
    strong = pairs & (duals > ratio * state.slack)
    exact, exact_duals = _on_active(tokens, strong, nearest, duals, vanishing)
    gap, exact_gap = (
        _relative_gap(tokens, pairs, *candidate)
        for candidate in ((nearest, duals), (exact, exact_duals))
    )
    better = exact_gap <= jnp.maximum(gap, 16 * eps)
    nearest = jnp.where(better, exact, nearest)
    gap = jnp.where(better, exact_gap, gap)
    duals = jnp.where(better | vanishing, exact_duals, duals)

    hull_point = tokens.T @ potentials(duals)
    farkas = vanishing & (hull_point @ hull_point <= (64 * eps) ** 2)
    # The scalings that make p feasible and the dual value largest.
    lead = _ahead(tokens @ nearest)
    smallest = jnp.min(jnp.where(pairs, lead, jnp.inf))
    separated = (smallest > 0) & (smallest < jnp.inf) & ~vanishing
    smallest = jnp.where(separated, smallest, 1.0)
    dual_scale = jnp.where(separated, hull_point @ hull_point * scale**2, 1.0)
    direction = basis @ nearest / (smallest * scale)
    direction = jnp.where(separated, direction, 0.0)
    ahead = _ahead(embeddings @ direction)
    empty = ~jnp.any(pairs)
    infeasibility = jnp.where(
        empty, 0.0, jnp.maximum(0.0, 1 - jnp.min(jnp.where(pairs, ahead, jnp.inf)))
    )
    gap = jnp.where(empty, 0.0, jnp.where(separated, jnp.abs(gap), 1.0))
    solved = (gap <= 4096 * eps) & (infeasibility <= 4096 * eps)
    status = jnp.where(solved, MaxMarginStatus.SOLVED, MaxMarginStatus.NOT_CONVERGED)
    status = jnp.where(farkas, MaxMarginStatus.INFEASIBLE, status)
    return MaxMargin(
        direction=direction,
        norm=jnp.linalg.norm(direction),
        duals=jnp.where(pairs, duals / dual_scale, 0.0),
        active=pairs & separated & (jnp.abs(ahead - 1) <= eps**0.6),
        gap=gap,
        infeasibility=infeasibility,
        iterations=state.iteration,
        status=jnp.where(empty, MaxMarginStatus.NO_PAIRS, status).astype(jnp.int32),
    )


def _normalise(
    embeddings: Float[Array, "vocabulary dim"],
    pairs: Bool[Array, "vocabulary vocabulary"],
) -> tuple[
    Float[Array, "vocabulary rank"], Float[Array, "dim rank"], Float[Scalar, ""]
]:
    """E = scale · tokens basisᵀ, centred, of unit size, in at most |S| coordinates."""
    involved = (pairs.any(axis=0) | pairs.any(axis=1))[:, None]
    number = jnp.maximum(involved.sum(), 1).astype(embeddings.dtype)
    centre = jnp.where(involved, embeddings, 0.0).sum(axis=0, keepdims=True) / number
    centred = jnp.where(involved, embeddings - centre, 0.0)
    scale = jnp.max(jnp.linalg.norm(centred, axis=1), initial=0.0)
    scale = jnp.where(scale > 0, scale, 1.0)
    vocabulary, dim = embeddings.shape
    if dim <= vocabulary:
        return centred / scale, jnp.eye(dim, dtype=embeddings.dtype), scale
    basis, lower = jnp.linalg.qr(centred.T / scale)
    return lower.T, basis, scale


def _relative_gap(
    tokens: Float[Array, "vocabulary rank"],
    pairs: Bool[Array, "vocabulary vocabulary"],
    nearest: Float[Array, " rank"],
    duals: Float[Array, "vocabulary vocabulary"],
) -> Float[Scalar, ""]:
    """Duality gap of x and λ, both scaled at their best; above one if x separates none.

    With m = min Dx the point x/m is feasible and worth ½‖x‖²/m²; λ with Σλ = 1 is worth
    ½/‖Dᵀλ‖² at its best.
    """
    smallest = jnp.min(jnp.where(pairs, _ahead(tokens @ nearest), jnp.inf))
    smallest = jnp.where(pairs.any(), smallest, 0.0)
    hull_point = tokens.T @ potentials(duals)
    size = (nearest @ nearest) * (hull_point @ hull_point)
    size = jnp.maximum(size, jnp.finfo(size.dtype).tiny)
    return 1 - smallest * jnp.abs(smallest) / size


def _interior_point(
    tokens: Float[Array, "vocabulary rank"],
    pairs: Bool[Array, "vocabulary vocabulary"],
) -> _Iterate:
    """Mehrotra's predictor and corrector for the nearest point of the hull.

    Both problems are strictly feasible for any tokens and pairs, so the iteration needs
    no phase one and cannot diverge.
    """
    dtype = tokens.dtype
    eps = jnp.finfo(dtype).eps
    number = jnp.maximum(pairs.sum(), 1).astype(dtype)
    identity = jnp.eye(tokens.shape[1], dtype=dtype)

    duals = jnp.where(pairs, 1 / number, 0.0)
    nearest = tokens.T @ potentials(duals)
    lead = _ahead(tokens @ nearest)
    low = jnp.min(jnp.where(pairs, lead, jnp.inf), initial=jnp.inf)
    low = jnp.where(pairs.any(), low, 0.0)
    spread = jnp.max(jnp.where(pairs, lead - low, 0.0), initial=0.0)
    margin = low - jnp.maximum(jnp.maximum(spread, nearest @ nearest), eps)
    slack = jnp.where(pairs, lead - margin, 1.0)

    def body(state: _Iterate) -> _Iterate:
        nearest, margin, slack, duals = state[:4]
        lead = _ahead(tokens @ nearest)
        primal_rest = jnp.where(pairs, slack - lead + margin, 0.0)
        dual_rest = nearest - tokens.T @ potentials(duals)
        total = jnp.sum(duals * slack)
        size = nearest @ nearest
        weights = duals / slack

        # Newton's unknowns are dx and dt. Near the solution dx follows dt along
        # p = x/‖x‖², almost without changing the slack of an active pair; so take
        # dx = y + p dt, and the enormous weights cancel on paper, not in rounding.
        # While the gap is large the multiple of x fades out: any multiple is exact.
        tiny = jnp.finfo(dtype).tiny
        along = nearest * (size / jnp.maximum(size**2 + total**2, tiny))
        follow = jnp.where(pairs, _ahead(tokens @ along) - 1, 0.0)
        hessian = identity + tokens.T @ laplacian(weights) @ tokens
        # Rounding may not make it singular in the directions the weights leave soft.
        hessian = hessian + eps * jnp.trace(hessian) * identity
        factor = jnp.linalg.cholesky(hessian), True
        border = along + tokens.T @ potentials(weights * follow)
        corner = along @ along + jnp.sum(weights * follow**2)

        def newton(complement: Array, solve_border: Array) -> tuple[Array, ...]:
            pull = weights * primal_rest - complement / slack
            rest = tokens.T @ potentials(pull) - dual_rest
            solved = cho_solve(factor, rest)
            d_margin = jnp.sum(pull * follow) - along @ dual_rest - border @ solved
            d_margin = d_margin / (corner - border @ solve_border)
            step = solved - solve_border * d_margin
            d_slack = _ahead(tokens @ step) + follow * d_margin - primal_rest
            d_slack = jnp.where(pairs, d_slack, 0.0)
            d_duals = -(complement + duals * d_slack) / slack
            return step + along * d_margin, d_margin, d_slack, d_duals

        solve_border = cho_solve(factor, border)
        *_, d_slack, d_duals = newton(duals * slack, solve_border)
        length = jnp.minimum(1.0, _longest(duals, slack, d_duals, d_slack))
        predicted = jnp.sum((duals + length * d_duals) * (slack + length * d_slack))
        centring = (predicted / total) ** 3 * total / number
        complement = duals * slack + d_duals * d_slack - centring
        complement = jnp.where(pairs, complement, 0.0)
        d_nearest, d_margin, d_slack, d_duals = newton(complement, solve_border)
        length = jnp.minimum(1.0, 0.995 * _longest(duals, slack, d_duals, d_slack))

        duals = duals + length * d_duals
        duals = duals / duals.sum()
        nearest = nearest + length * d_nearest
        gap = _relative_gap(tokens, pairs, nearest, duals)
        size = nearest @ nearest
        # At the end rounding may make an iterate worse than the one before.
        worse = ~(gap < state.gap / 2) & (state.gap < eps**0.5)
        broken = worse | ~jnp.isfinite(gap) | ~(length > 0)
        iteration = state.iteration + 1
        finished = (gap <= 64 * eps) | (size <= eps) | (iteration >= _ITERATIONS)
        new = _Iterate(
            nearest,
            margin + length * d_margin,
            slack + length * d_slack,
            duals,
            gap,
            iteration,
            ~finished,
        )
        stopped = state._replace(iteration=iteration, going=jnp.asarray(False))
        return jax.tree.map(lambda a, b: jnp.where(broken, a, b), stopped, new)

    start = _Iterate(
        nearest,
        margin,
        slack,
        duals,
        jnp.asarray(jnp.inf, dtype),
        jnp.asarray(0, jnp.int32),
        pairs.any() & (nearest @ nearest > eps),
    )
    return jax.lax.while_loop(lambda state: state.going, body, start)


def _longest(duals: Array, slack: Array, d_duals: Array, d_slack: Array) -> Array:
    """The step at which the first dual or slack reaches zero."""
    fall = jnp.maximum(-d_duals / jnp.where(duals > 0, duals, 1.0), -d_slack / slack)
    return 1 / jnp.maximum(jnp.max(fall), jnp.finfo(slack.dtype).tiny)


def _on_active(
    tokens: Float[Array, "vocabulary rank"],
    active: Bool[Array, "vocabulary vocabulary"],
    nearest: Float[Array, " rank"],
    duals: Float[Array, "vocabulary vocabulary"],
    vanishing: Bool[Scalar, ""],
) -> tuple[Float[Array, " rank"], Float[Array, "vocabulary vocabulary"]]:
    """The least p with D p = 1 on the active pairs and its duals; or Farkas' duals.

    Active pairs are usually many more than their rank, so D_A G_A⁺ with G_A = D_AᵀD_A
    takes the place of an inverse: a slightly shifted Cholesky factor, refined.
    """
    dtype = tokens.dtype
    mask = active.astype(dtype)
    duals = jnp.where(active, duals, 0.0)
    total = jnp.sum(duals)
    duals = duals / jnp.where(total > 0, total, 1.0)
    hull_point = tokens.T @ potentials(duals)
    size = jnp.where(vanishing, 1.0, jnp.maximum(hull_point @ hull_point, 1e-30))
    duals = duals / size
    gram = tokens.T @ laplacian(mask) @ tokens
    shift = 1e3 * jnp.finfo(dtype).eps * jnp.trace(gram) + jnp.finfo(dtype).tiny
    factor = (
        jnp.linalg.cholesky(gram + shift * jnp.eye(len(gram), dtype=dtype)),
        True,
    )
    wanted = jnp.where(vanishing, 0.0, mask)
    direction = jnp.where(vanishing, 0.0, hull_point / size)
    for _ in range(3):
        rest = jnp.where(active, wanted - _ahead(tokens @ direction), 0.0)
        rest = jnp.where(vanishing, 0.0, rest)
        direction = direction + cho_solve(factor, tokens.T @ potentials(rest))
    for _ in range(3):
        rest = direction - tokens.T @ potentials(duals)
        change = _ahead(tokens @ cho_solve(factor, rest))
        duals = duals + jnp.where(active, change, 0.0)
    duals = jnp.maximum(duals, 0.0)
    total = jnp.sum(duals)
    return direction, duals / jnp.where(total > 0, total, 1.0)


@jax.custom_jvp
def _implicit(
    embeddings: Float[Array, "vocabulary dim"], solution: MaxMargin
) -> Float[Array, " dim"]:
    """p_mm as a function of E."""
    return solution.direction


@_implicit.defjvp
def _implicit_jvp(
    primals: tuple[Array, MaxMargin], tangents: tuple[Array, MaxMargin]
) -> tuple[Array, Array]:
    """Derivative dp = (I − N) dEᵀμ − G⁺ Eᵀ Lap(A) dE p: the active pairs stay active.

    N projects on the span of the active D and G = Eᵀ Lap(A) E.
    """
    (embeddings, solution), (change, _) = primals, tangents
    direction = solution.direction
    charge = potentials(solution.duals)
    edges = laplacian(solution.active.astype(embeddings.dtype))
    gram = embeddings.T @ edges @ embeddings
    inverse = jnp.linalg.pinv(gram, rtol=1e-12, hermitian=True)
    pull = change.T @ charge
    turned = pull - inverse @ (gram @ pull)
    return direction, turned - inverse @ (embeddings.T @ (edges @ (change @ direction)))
