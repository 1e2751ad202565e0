"""The offset ρ of a late flow p = p_mm τ + z: where z rests, and what proves it.

Pairs of margin one move z by Σ λ_k D_k − p_mm, λ_k = c_k e^{−D_kᵀz}. Where all c_k > 0
this is a flow of a convex function Φ; with some c_k < 0 critical points of Φ may be
minima still (mathematics, section 7c).
"""

import numpy as np
from jaxtyping import Float

from .certified_minimum import Minimum, certified

# Terms change by less than e^{1/8} within 1/8 of the longest difference.
BALL = 0.125
NEWTON_STEPS = 80
# Exponents, with room for a square of what they are of.
LARGEST = 300.0
# Change of an exponent from which Newton's steps must lessen the gradient.
NEAR = 0.1


def offset_equilibrium(
    differences: Float[np.ndarray, "pairs axes"],
    force: Float[np.ndarray, " pairs"],
    error: Float[np.ndarray, " pairs"],
    duals: Float[np.ndarray, " pairs"],
) -> Minimum:
    """A critical point x of Φ near zero, with proof of a minimum.

    Φ(x) = Σ λ_k e^{−D_kᵀx} + p_mmᵀx with |D³Φ[u, u, δ]| ≤ Σ |λ_k| (D_kᵀu)² |D_kᵀδ|.

    Source: mathematics, section 7c.

    Args:
        differences: D_k of the pairs of margin one, in axes of their span.
        force: λ_k at x = 0, negative where the bags pull towards the loser.
        error: bound on what the forces may be wrong by.
        duals: λ ≥ 0 with Σ λ_k D_k = p_mm, some of which may be zero.

    Returns:
        The point and its numbers, whether or not they prove anything.

    Example:
        >>> pair, dual = np.array([[2.0]]), np.array([0.25])
        >>> found = offset_equilibrium(pair, np.array([0.5]), np.zeros(1), dual)
        >>> found.proved, round(found.cls.item(), 6)
        (True, 0.346574)
    """
    begin = np.zeros(differences.shape[1])
    near = _certified_from(begin, differences, force, error, duals)
    if near.proved:
        return near
    # Where forces come nearest to duals, c_k e^{−D_kᵀx} = λ_k.
    known = (duals > 0) & (force > 0)
    if known.any():
        weight = np.sqrt(duals[known])
        wanted = np.log(force[known]) - np.log(duals[known])
        rows = differences[known] * weight[:, None]
        begin = np.linalg.lstsq(rows, wanted * weight, rcond=None)[0]
    return _certified_from(begin, differences, force, error, duals)


def _certified_from(
    begin: Float[np.ndarray, " axes"],
    differences: Float[np.ndarray, "pairs axes"],
    force: Float[np.ndarray, " pairs"],
    error: Float[np.ndarray, " pairs"],
    duals: Float[np.ndarray, " pairs"],
) -> Minimum:
    """Where Newton's method leads from a point, and its certificate."""
    growth = duals @ differences
    place = _critical_point(begin, differences, force, growth)
    if not (-differences @ place).max(initial=0.0) < LARGEST:
        # Forces beyond all numbers: nothing is proved.
        size, nothing = len(growth), np.zeros((len(growth), len(growth)))
        return certified(
            place,
            gradient=np.inf,
            decrement=lambda root: np.inf,
            hessian=-np.eye(size),
            change=(nothing, 0.0),
        )
    spread = np.exp(-differences @ place)
    now, size = force * spread, (np.abs(force) + error) * spread
    left = now @ differences - growth
    lengths = np.linalg.norm(differences, axis=1)
    longest = lengths.max(initial=0.0)
    exponents = np.abs(differences @ place).max(initial=0.0)
    missing = (16 + exponents) * np.finfo(float).eps * size + error * spread

    def decrement(root: np.ndarray) -> float:
        seen = np.linalg.norm(differences @ root, axis=1)
        return float(np.linalg.norm(left @ root) + missing @ seen)

    # The error bound of the forces is taken off the curvature.
    surest = (differences.T * (now - missing)) @ differences
    change = np.exp(BALL) * longest * (differences.T * size) @ differences
    return certified(
        place,
        gradient=float(np.linalg.norm(left) + missing @ lengths),
        decrement=decrement,
        hessian=surest,
        change=(change, BALL / longest if longest else np.inf),
    )


def _critical_point(
    place: Float[np.ndarray, " axes"],
    differences: Float[np.ndarray, "pairs axes"],
    force: Float[np.ndarray, " pairs"],
    growth: Float[np.ndarray, " axes"],
) -> Float[np.ndarray, " axes"]:
    """Newton's method, shortened where exponents change by much."""
    smallest = np.inf
    for _ in range(NEWTON_STEPS):
        if not (-differences @ place).max(initial=0.0) < LARGEST:
            break
        now = force * np.exp(-differences @ place)
        left = now @ differences - growth
        try:
            root = np.linalg.cholesky((differences.T * now) @ differences)
        except np.linalg.LinAlgError:
            break
        step = np.linalg.solve(root.T, np.linalg.solve(root, left))
        change = np.abs(differences @ step).max(initial=0.0)
        if change <= NEAR:
            if not np.linalg.norm(left) < smallest:
                break
            smallest = float(np.linalg.norm(left))
        if change:
            # Descends from anywhere where all forces are positive.
            place = place + step * (np.log1p(change) / change)
    return place
