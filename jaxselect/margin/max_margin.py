"""The max-margin (support vector) problem whose solution the flow of p converges to.

p_mm = argmin ‖p‖ subject to pᵀ(E_s − E_r) ≥ 1 for every pair (s over r). Its geometric
dual always has a solution: x, the point nearest to the origin in the convex hull of the
differences D = E_s − E_r. If x ≠ 0 then p_mm = x / ‖x‖² and ‖p_mm‖ = 1 / ‖x‖; x = 0 is
Farkas' certificate that no p exists (mathematics, section 3c).

An interior point, whose answer is polished; a measurement on the tokens decides about
it (`qp`).
"""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Scalar

from ..checks import BadInput, is_array, reals, shown
from ..compilation import full_precision
from ..status import Reason
from .generation import generated_point, is_long
from .pairs import AbstractPairs, PairList, PairMask
from .qp import (
    ACTIVE,
    Candidate,
    measured,
    nearest_point,
    norm,
    normalise,
    polish,
    survives,
    unit_size,
)

# p lies in the span of the active differences. Where it is further than eps^0.375 of
# its length off the span that is found, 1e-6 or 2e-3, short ones are lost beside long
# ones, and there is no derivative. Tuned on the mixed problems up to 16 decades: the
# relative error of the derivative is a few times that distance.
SPANNED = 0.375


class MaxMargin(eqx.Module):
    """Solution of the max-margin problem with its certificate.

    Without a solution the direction is zero, and infeasibility and gap are one.

    Source: mathematics, section 3c.

    Attributes:
        direction: p_mm, not normalised.
        norm: ‖p_mm‖.
        pairs: the constraints.
        duals: λ_k ≥ 0 of every pair, p_mm = Σ λ_k D_k; for an infeasible problem
            Farkas' certificate, Σ λ = 1 and Σ λ_k D_k = 0.
        active: the pairs with p_mmᵀ(E_s − E_r) = 1.
        gap: relative duality gap |1 − (Σλ − ½‖Dᵀλ‖²) / ½‖p_mm‖²|.
        infeasibility: max(0, 1 − min over the pairs of p_mmᵀ(E_s − E_r)).
        iterations: of the interior point.
        status: the `Reason` why there is none; NONE if it is solved.
    """

    direction: Float[Array, " dim"]
    norm: Float[Scalar, ""]
    pairs: AbstractPairs
    duals: Float[Array, "*pairs"]
    active: Bool[Array, "*pairs"]
    gap: Float[Scalar, ""]
    infeasibility: Float[Scalar, ""]
    iterations: Int[Scalar, ""]
    status: Int[Scalar, ""]


@full_precision
def max_margin(
    embeddings: Float[Array, "vocabulary dim"],
    pairs: AbstractPairs | Bool[Array, "vocabulary vocabulary"],
) -> MaxMargin:
    """Solve min ‖p‖ subject to pᵀ(E_s − E_r) ≥ 1 for every pair, with certificate.

    The returned numbers prove the status. Solved (NONE): p is feasible, and the duals
    λ ≥ 0 bound the norm of every feasible p from below, Σλ − ½‖Dᵀλ‖² ≤ ½‖p‖². With the
    infeasibility δ, ‖p/(1 − δ) − p_mm‖² ≤ ‖p‖² (1/(1 − δ)² − 1 + gap). INFEASIBLE: a
    feasible p would give 1 ≤ pᵀΣ λ (E_s − E_r) = 0. Without pairs p = 0 solves it.

    Gap and infeasibility of a solution are below 4096 eps (9e-13 in double, 5e-4 in
    single precision); in double precision the gap may also be 12 eps Σ λ ‖E_s − E_r‖ /
    ‖p_mm‖, up to 4e-10. The combination that refutes a problem is shorter than 64 eps
    (1.4e-14 or 8e-6) of Σ λ ‖E_s − E_r‖. By constraint generation the numbers are below
    1e-10 and 1e-12.

    Tokens may have any common scale at which λ ~ ‖E‖⁻² does not overflow (1e±150 in
    double, 1e±18 in single precision). As measured in double precision, every problem
    is decided if lengths vary by at most five decades, and if no angle, and no
    difference within a cluster of tokens, is more than two decades below the others.
    Beyond, the status may be NOT_CONVERGED; it is never wrong.

    `direction` and `norm` carry derivatives in E, forward and reverse: those of the
    problem in which the active pairs stay active. They are NaN if the lengths of active
    differences vary by some twelve decades (five in single precision), since rounding
    then loses the directions of the short ones. Other fields have zero derivatives.

    Source: mathematics, section 3c.

    Args:
        embeddings: E.
        pairs: those for which pᵀ(E_s − E_r) ≥ 1 is demanded; True at [s, r], if they
            are a mask.

    Returns:
        p_mm, duals, gap and status; float64 gaps are of order 1e-14, float32 ones 1e-5
        (mathematics, section 3c).

    Raises:
        BadInput: `embeddings` is not a real matrix, or `pairs` no mask of pairs of its
            rows.

    Example:
        >>> tokens = jnp.array([[2.0, 0.0], [0.0, 0.0]])
        >>> pairs = jnp.array([[False, True], [False, False]])
        >>> solution = jax.jit(max_margin)(tokens, pairs)
        >>> [round(x, 4) for x in solution.direction.tolist()]
        [0.5, 0.0]
    """
    embeddings = reals("embeddings", embeddings, "vocabulary, dim")
    if not isinstance(pairs, AbstractPairs):
        square = (len(embeddings), len(embeddings))
        if not is_array(pairs, jnp.bool_) or pairs.shape != square:
            raise BadInput(f"pairs {shown(pairs)}: wanted a mask of shape {square}")
        pairs = PairMask(jnp.asarray(pairs))
    fixed = jax.lax.stop_gradient(embeddings)
    return with_derivatives(embeddings, _solve(fixed, pairs))


def with_derivatives(
    embeddings: Float[Array, "vocabulary dim"], solution: MaxMargin
) -> MaxMargin:
    """Make a solution found without derivatives differentiable in E.

    Source: mathematics, section 3c.
    """
    direction = _implicit(embeddings, solution)
    return dataclasses.replace(solution, direction=direction, norm=norm(direction))


def _solve(
    embeddings: Float[Array, "vocabulary dim"], pairs: AbstractPairs
) -> MaxMargin:
    """Solve the problem without derivatives."""
    wins, loses = pairs.any_by_token(pairs.held)
    involved = (wins | loses)[:, None]
    tokens, exponent, lost = unit_size(jnp.where(involved, embeddings, 0.0))
    candidate, iterations = _by_interior_point(tokens, pairs)
    answer = measured(tokens, pairs, candidate)
    some = pairs.held.any()

    direction = jnp.ldexp(answer.direction, -exponent)
    duals = jnp.ldexp(answer.duals, -2 * exponent)
    duals = jnp.where(answer.refuted & ~answer.solved, answer.duals, duals)
    # Numbers that a processor takes for zero are given as zero.
    duals = jnp.where(duals >= jnp.finfo(duals.dtype).tiny, duals, 0.0)
    # Numbers that scaling back takes to zero or to infinity prove nothing.
    back = survives(answer.direction, direction) & survives(answer.duals, duals)
    known = back & jnp.isfinite(answer.gap) & jnp.isfinite(answer.infeasibility)
    refuted = answer.refuted & ~lost
    status = jnp.where(refuted, Reason.INFEASIBLE, Reason.NOT_CONVERGED)
    status = jnp.where(answer.solved, Reason.NONE, status)
    status = jnp.where(known, status, Reason.NOT_CONVERGED)
    status = jnp.where(some, status, Reason.NONE)
    none = some.astype(embeddings.dtype)
    direction = jnp.where(known, direction, 0.0)
    return MaxMargin(
        direction=direction,
        norm=norm(direction),
        pairs=pairs,
        duals=jnp.where(known, duals, 0.0),
        active=answer.active & known,
        gap=jnp.where(known, answer.gap, none),
        infeasibility=jnp.where(known, answer.infeasibility, none),
        iterations=iterations,
        status=status.astype(jnp.int32),
    )


def _by_interior_point(
    tokens: Float[Array, "vocabulary dim"], pairs: AbstractPairs
) -> tuple[Candidate, Int[Scalar, ""]]:
    """Compute the nearest point of the hull, polish it, and scale it to p."""
    axes, basis, scale = normalise(tokens, pairs)
    if isinstance(pairs, PairList) and is_long(axes, pairs):
        found, iterations, edges = generated_point(axes, pairs)
    else:
        edges = None
        found, iterations = nearest_point(axes, pairs)
        found = polish(axes, pairs, found)
    # The scalings that make p feasible and the value of the duals largest.
    least = pairs.least(found.nearest @ axes)
    separated = (least > 0) & ~found.vanishing
    direction = basis @ found.nearest / (jnp.where(separated, least, 1.0) * scale)
    direction = jnp.where(separated, direction, 0.0)
    hull_point = axes @ pairs.divergence(found.duals)
    value = jnp.where(separated, hull_point @ hull_point * scale**2, 1.0)
    # Size of a score: below ‖p‖ ‖E_s‖ where p avoids long axes.
    size = jnp.max(jnp.abs(direction @ basis) @ jnp.abs(axes)) * scale
    near = ACTIVE * jnp.finfo(tokens.dtype).eps * jnp.maximum(1.0, size)
    duals = jnp.nan_to_num(found.duals / value)
    return Candidate(direction, duals, near, edges), iterations


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
    """Derivative at fixed active pairs: dp = (I − N) dEᵀΛ − D⁺ dE p, Λ = (D⁺)ᵀ p.

    D has the rows of E minus the means over the components of the graph of active
    pairs. These rows span the differences of active pairs, and D p depends on the leads
    of these pairs alone. N projects on that span, and Λ are potentials with p = EᵀΛ.
    """
    (embeddings, solution), (change, _) = primals, tangents
    direction = _implicit(embeddings, solution)
    differences = solution.pairs.centred(embeddings, solution.active)
    inverse = jnp.linalg.pinv(differences)
    off = norm(direction - inverse @ (differences @ direction))
    known = off <= jnp.finfo(off.dtype).eps ** SPANNED * norm(direction)
    pull = change.T @ (inverse.T @ direction)
    kept = differences @ pull + change @ direction
    return direction, (pull - inverse @ kept) * jnp.where(known, 1.0, jnp.nan)
