"""The max-margin (support vector) problem whose solution the flow of p converges to.

p_mm = argmin ‖p‖ subject to pᵀ(E_s − E_r) ≥ 1 for every pair (s over r). Its geometric
dual always has a solution: x, the point nearest to the origin in the convex hull of the
differences D = E_s − E_r. If x ≠ 0 then p_mm = x / ‖x‖² and ‖p_mm‖ = 1 / ‖x‖; x = 0 is
Farkas' certificate that no p exists (mathematics, section 3c).
"""

from collections.abc import Callable
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Scalar

from ..arguments import as_annotated
from ..precision import full_precision
from ..status import Status
from ._active_set import active_set
from ._measure import Answer, lengths, measured
from ._nearest_point import nearest_point, normalise
from ._polish import polish
from ._scale import norm, survives, times_two_to, unit_size
from ._thresholds import ACTIVE, REFUTED, SOLVED, SPANNED, SUM
from .pair_graph import centred, potentials, score_differences, smallest_difference


class MaxMarginStatus(Status):
    """The proof that a problem has, from numbers measured on the tokens themselves."""

    SOLVED = (
        0,
        "The relative gap and the infeasibility are below 4096 roundings (9e-13, "
        "5e-4); in double precision the gap may be 12 roundings of Σ λ ‖E_s − E_r‖ / "
        "‖p_mm‖, up to 4e-10. By constraint generation both are below 1e-10.",
    )
    INFEASIBLE = (
        1,
        "The duals are a convex combination of the differences that vanishes: "
        "its length is below 64 roundings (1.4e-14, 8e-6) of the mean length Σ "
        "λ ‖E_s − E_r‖; by constraint generation below 1e-12 of it.",
    )
    NO_PAIRS = 2, "There is no constraint, so p = 0."
    NOT_CONVERGED = (
        3,
        "Nothing is claimed: the margin may be below √rounding of the "
        "differences that decide it, or p and its duals be too large or too "
        "small for the format.",
    )


class MaxMargin(eqx.Module):
    """Solution of the max-margin problem with its certificate.

    Without a solution the direction is zero, its infeasibility one and its gap one.

    Attributes:
        direction: p_mm, not normalised.
        norm: ‖p_mm‖.
        duals: λ[s, r] ≥ 0 of the pair (s over r), p_mm = Σ λ[s, r] (E_s − E_r); for an
            infeasible problem Farkas' certificate, Σ λ = 1 and Σ λ (E_s − E_r) = 0.
        active: the pairs with p_mmᵀ(E_s − E_r) = 1.
        gap: relative duality gap |1 − (Σλ − ½‖Dᵀλ‖²) / ½‖p_mm‖²|.
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


@as_annotated
@full_precision
def max_margin(
    embeddings: Float[Array, "vocabulary dim"],
    pairs: Bool[Array, "vocabulary vocabulary"],
) -> MaxMargin:
    """Solve min ‖p‖ subject to pᵀ(E_s − E_r) ≥ 1 for every pair, with certificate.

    A status can be checked from the numbers beside it. SOLVED: p is feasible, and any
    other feasible p is at least as long as λ ≥ 0 says, Σλ − ½‖Dᵀλ‖² ≤ ½‖p‖²; with δ the
    infeasibility ‖p/(1 − δ) − p_mm‖² ≤ ‖p‖² (1/(1 − δ)² − 1 + gap).
    INFEASIBLE: p with pᵀ(E_s − E_r) ≥ 1 would give 1 ≤ pᵀΣ λ (E_s − E_r) = 0.

    Tokens may have any common scale at which λ ~ ‖E‖⁻² is a number (1e±150 in double,
    1e±18 in single precision), and differences may differ in length by 1e8 and more;
    it is the angle between them that limits: where duals cancel to less than 1e-5 (in
    single precision a thousandth) of Σ λ ‖E_s − E_r‖, rounding p itself may leave
    NOT_CONVERGED.

    `direction` and `norm` carry derivatives in E, forward and reverse: those of the
    problem in which the active pairs stay active. They are NaN where lengths differ so
    much that the span of the active differences is lost to rounding, by some twelve
    decades (five in single precision). The rest is constant.

    Source: mathematics, section 3c.

    Args:
        embeddings: E.
        pairs: True at [s, r] where s must score above r by the margin.

    Returns:
        p_mm, duals, gap and status; float64 gaps are of order 1e-14, float32 ones 1e-5
        (mathematics, section 3c).

    Example:
        >>> tokens = jnp.array([[2.0, 0.0], [0.0, 0.0]])
        >>> pairs = jnp.array([[False, True], [False, False]])
        >>> solution = jax.jit(max_margin)(tokens, pairs)
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
        >>> pairs = jnp.array([[False, True], [False, False]])
        >>> solution = jax.jit(max_margin)(tokens, pairs)
        >>> norm = lambda tokens: with_derivatives(tokens, solution).norm
        >>> [round(x, 4) for x in jax.grad(norm)(tokens)[0].tolist()]
        [-0.25, 0.0]
    """
    direction = _implicit(embeddings, solution)
    return eqx.tree_at(
        lambda s: (s.direction, s.norm), solution, (direction, norm(direction))
    )


def _solve(
    embeddings: Float[Array, "vocabulary dim"],
    pairs: Bool[Array, "vocabulary vocabulary"],
) -> MaxMargin:
    """`max_margin` without its derivative."""
    involved = (pairs.any(axis=0) | pairs.any(axis=1))[:, None]
    tokens, exponent, blur = unit_size(jnp.where(involved, embeddings, 0.0))
    answer, iterations, doubtful = _by_interior_point(tokens, pairs)
    some = pairs.any()
    doubtful = some & (doubtful | (blur > 0))
    answer = _where(doubtful, partial(_again, tokens, pairs, blur), answer)

    status = _status(answer, some)
    refuted = status == MaxMarginStatus.INFEASIBLE
    direction = times_two_to(answer.direction, -exponent)
    duals = times_two_to(times_two_to(answer.duals, -exponent), -exponent)
    duals = jnp.where(refuted, answer.duals, duals)
    # Numbers that a processor takes for zero are given as zero.
    duals = jnp.where(duals >= jnp.finfo(duals.dtype).tiny, duals, 0.0)
    # Numbers that scaling back takes to zero or to infinity prove nothing.
    back = survives(answer.direction, direction) & survives(answer.duals, duals)
    known = back & jnp.isfinite(answer.gap) & jnp.isfinite(answer.infeasibility)
    none = some.astype(embeddings.dtype)
    status = jnp.where(known | ~some, status, MaxMarginStatus.NOT_CONVERGED)
    direction = jnp.where(known, direction, 0.0)
    return MaxMargin(
        direction=direction,
        norm=norm(direction),
        duals=jnp.where(known, duals, 0.0),
        active=answer.active & known,
        gap=jnp.where(known, answer.gap, none),
        infeasibility=jnp.where(known, answer.infeasibility, none),
        iterations=iterations,
        status=status.astype(jnp.int32),
    )


def _status(answer: Answer, some: Bool[Scalar, ""]) -> Int[Scalar, ""]:
    """The status that the numbers prove; a NaN proves nothing."""
    eps = jnp.finfo(answer.gap.dtype).eps
    solved = answer.gap <= jnp.fmax(answer.allowed, SOLVED * eps)
    solved = solved & (answer.infeasibility <= SOLVED * eps)
    refuted = answer.balance <= REFUTED * eps
    status = jnp.where(
        refuted, MaxMarginStatus.INFEASIBLE, MaxMarginStatus.NOT_CONVERGED
    )
    status = jnp.where(solved, MaxMarginStatus.SOLVED, status)
    return jnp.where(some, status, MaxMarginStatus.NO_PAIRS)


def _by_interior_point(
    tokens: Float[Array, "vocabulary dim"],
    pairs: Bool[Array, "vocabulary vocabulary"],
) -> tuple[Answer, Int[Scalar, ""], Bool[Scalar, ""]]:
    """The answer, its iterations, and whether its numbers must be measured again."""
    eps = jnp.finfo(tokens.dtype).eps
    axes, basis, scale = normalise(tokens, pairs)
    found = polish(axes, pairs, nearest_point(axes, pairs))
    # The scalings that make p feasible and the value of the duals largest.
    least = smallest_difference(found.nearest @ axes, pairs)
    separated = (least > 0) & ~found.vanishing
    direction = basis @ found.nearest / (jnp.where(separated, least, 1.0) * scale)
    direction = jnp.where(separated, direction, 0.0)
    hull_point = axes @ potentials(found.duals)
    value = jnp.where(separated, hull_point @ hull_point * scale**2, 1.0)

    # Recompute the certificate on the tokens, independently of the solver.
    duals = jnp.nan_to_num(found.duals / value)
    square, total = direction @ direction, jnp.sum(duals)
    point = potentials(duals) @ tokens
    none = pairs.any().astype(tokens.dtype)
    gap = jnp.where(separated, jnp.abs(1 - (2 * total - point @ point) / square), none)
    ahead = score_differences(tokens @ direction)
    least = smallest_difference(tokens @ direction, pairs)
    infeasibility = jnp.where(separated, jnp.maximum(0.0, 1 - least), none)
    # Size of a score: below ‖p‖ ‖E_s‖ where p avoids long axes.
    size = jnp.max(jnp.abs(direction @ basis) @ jnp.abs(axes)) * scale
    near = ACTIVE * eps * jnp.maximum(1.0, size)
    answer = Answer(
        direction=direction,
        duals=duals,
        active=pairs & separated & (jnp.abs(ahead - 1) <= near),
        near=jnp.full_like(duals, near),
        gap=gap,
        infeasibility=infeasibility,
        balance=jnp.full_like(gap, jnp.inf),
        allowed=jnp.zeros_like(gap),
    )
    # Scores cancel to leads; the gap feels what rounding leaves of Dᵀλ through its
    # product with p, which is made of scores, too.
    longest = jnp.max(jnp.abs(tokens) @ jnp.abs(direction))
    sure = jnp.maximum(gap, infeasibility) + SUM * eps * longest <= SOLVED * eps
    return answer, found.iterations, ~sure


def _again(
    tokens: Float[Array, "vocabulary dim"],
    pairs: Bool[Array, "vocabulary vocabulary"],
    blur: Float[Scalar, ""],
    answer: Answer,
) -> Answer:
    """The answer measured with more digits and, where they refuse it, another one."""
    apart = lengths(tokens, pairs)
    eps = jnp.finfo(apart.dtype).eps
    clear = jnp.min(jnp.where(pairs, apart, jnp.inf)) >= blur

    def proved(answer: Answer) -> Bool[Scalar, ""]:
        return _status(answer, pairs.any()) != MaxMarginStatus.NOT_CONVERGED

    def to_rounding(answer: Answer) -> Bool[Scalar, ""]:
        return proved(answer._replace(allowed=jnp.zeros_like(answer.gap)))

    answer = measured(tokens, pairs, apart, answer)
    needed = clear & ~to_rounding(answer)
    direction, duals = active_set(tokens, pairs, apart, needed)
    size = jnp.maximum(1.0, apart * jnp.linalg.norm(direction))
    other = answer._replace(direction=direction, duals=duals, near=ACTIVE * eps * size)
    # In a loop of their own p and λ are numbers stored. Within one program the two uses
    # of a dual may be computed twice, in two roundings that do not cancel.
    other = _where(needed, partial(measured, tokens, pairs, apart), other)
    better = needed & (to_rounding(other) | (proved(other) & ~proved(answer)))
    answer = jax.tree.map(lambda a, b: jnp.where(better, a, b), other, answer)
    return answer._replace(
        gap=jnp.where(clear, answer.gap, jnp.nan),
        balance=jnp.where(clear, answer.balance, jnp.nan),
    )


def _where(
    condition: Bool[Scalar, ""], function: Callable[[Answer], Answer], start: Answer
) -> Answer:
    """The function of the start where the condition holds; not run if no lane asks."""
    return jax.lax.while_loop(
        lambda state: state[0],
        lambda state: (jnp.zeros_like(state[0]), function(state[1])),
        (condition, start),
    )[1]


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
    """The active pairs stay active: dp = (I − N) dEᵀΛ − D⁺ dE p, Λ = (D⁺)ᵀ p.

    D is E less the mean of each component of the active pairs: it spans what their
    differences span, and D p hangs on their leads alone. N projects on that span, and Λ
    are potentials, p = EᵀΛ.
    """
    (embeddings, solution), (change, _) = primals, tangents
    direction = _implicit(embeddings, solution)
    differences = centred(embeddings, solution.active)
    inverse = jnp.linalg.pinv(differences)
    off = norm(direction - inverse @ (differences @ direction))
    known = off <= jnp.finfo(off.dtype).eps ** SPANNED * norm(direction)
    pull = change.T @ (inverse.T @ direction)
    kept = differences @ pull + change @ direction
    return direction, (pull - inverse @ kept) * jnp.where(known, 1.0, jnp.nan)
