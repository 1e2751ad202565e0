"""A late flow that has come to its line, proved where some pairs pull the wrong way.

p = p_mm s + z moves z by Σ λ_k D_k − p_mm, λ_k = c_k e^{−D_kᵀz}, over the pairs that
p_mm holds at a margin of one. Where all c_k > 0 this is a flow of a convex function;
where pairs depend on each other some c_k < 0 may be among them, and z may rest still
(mathematics, section 7d).
"""

import numpy as np
from jaxtyping import Float

from .rest import Rest, certified, newton, span_axes

# Terms change by less than e^{1/8} within 1/8 of the longest difference.
BALL = 0.125


def steady(
    apart: Float[np.ndarray, "pairs dim"],
    force: Float[np.ndarray, " pairs"],
    growth: Float[np.ndarray, " dim"],
) -> Rest:
    """Where z rests, seen from where it is, and what proves it.

    Source: mathematics, sections 7b and 7d.

    Args:
        apart: D_k of the pairs with a margin of one.
        force: λ_k, negative where the bags pull towards the loser.
        growth: p_mm.

    Returns:
        The rest in axes of the span of the D_k, from where z is; its certificate.

    Example:
        >>> pair, growth = np.array([[2.0, 0.0]]), np.array([0.5, 0.0])
        >>> found = steady(pair, np.array([0.25]), growth)
        >>> found.proved, abs(found.cls.item())
        (True, 0.0)
    """
    axes = span_axes(apart)
    apart, wanted = apart @ axes, axes.T @ growth

    def faded(place: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore"):
            return force * np.exp(-apart @ place)

    def pull(place: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore", invalid="ignore"):
            return faded(place) @ apart - wanted

    def hessian(place: np.ndarray) -> np.ndarray:
        return (apart.T * faded(place)) @ apart

    place = newton(np.zeros(axes.shape[1]), pull, hessian)
    now, left = faded(place), pull(place)
    lengths = np.linalg.norm(apart, axis=1)
    longest = lengths.max(initial=0.0)
    roundings = (16 + np.abs(apart @ place).max(initial=0.0)) * np.finfo(float).eps
    error = roundings * np.abs(now)

    def decrement(root: np.ndarray) -> float:
        seen = np.linalg.norm(apart @ root, axis=1)
        return float(np.linalg.norm(left @ root) + error @ seen)

    change = np.exp(BALL) * longest * (apart.T * np.abs(now)) @ apart
    return certified(
        place,
        gradient=float(np.linalg.norm(left) + error @ lengths),
        decrement=decrement,
        hessian=hessian(place),
        change=(change, BALL / longest if longest else np.inf),
    )
