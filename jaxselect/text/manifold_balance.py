"""Where pairs, p_mm and ties on a manifold balance, to second order.

A critical point of Φ where f = log(n₊/n₋) in every twin, with multipliers of these
equations (mathematics, section 7e).
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from .tie_manifold import Point, TieManifold, at_point

NEWTON_STEPS = 60
# In scores: longest step of Newton's method, and the last one.
LONGEST, LAST = 1.0, 1e-10


class Stationary(NamedTuple):
    """A point where p_mm, pairs and ties balance, and the second order there.

    Attributes:
        cls: p.
        point: weights and exponents there.
        force: λ of every active pair, zero for the others.
        multiplier: of the equations f = target, each over the length of its gradient.
        left: what the balance lacks, in the axes.
        hessian: of the Lagrangian, in the axes.
        tangent: orthonormal axes of the manifold and what is orthogonal to the ties.
        across: orthonormal axes of the equations' gradients.
        rate: least singular value of the equations' gradients, each of length one.
        scale: lengths of the gradients.
    """

    cls: Float[np.ndarray, " dim"]
    point: Point
    force: Float[np.ndarray, " pairs"]
    multiplier: Float[np.ndarray, " twins"]
    left: Float[np.ndarray, " axes"]
    hessian: Float[np.ndarray, "axes axes"]
    tangent: Float[np.ndarray, "axes free"]
    across: Float[np.ndarray, "axes twins"]
    rate: float
    scale: Float[np.ndarray, " twins"]


def second_order(
    ties: TieManifold, cls: Float[np.ndarray, " dim"], log_time: float
) -> Stationary:
    """The balance at p with the multipliers that fit it best.

    Args:
        ties: the late flow.
        cls: p.
        log_time: s.

    Returns:
        The first and the second order there.
    """
    found, axes = at_point(ties, cls), ties.axes
    with np.errstate(over="ignore"):
        force = ties.strength * np.exp(log_time - found.lead)
    force = np.where(ties.excess == 0, force, 0.0)
    normal = found.normal @ axes
    scale = np.linalg.norm(normal, axis=1)
    scale = np.where(scale > 0, scale, 1.0)
    towards = found.towards @ axes
    slope = axes.T @ ties.growth - force @ towards
    multiplier = np.linalg.lstsq((normal / scale[:, None]).T, -slope, rcond=None)[0]
    places = ties.embeddings[ties.words] @ axes
    values = ties.values[ties.words]
    hessian = (towards.T * force) @ towards
    # Minus the covariances of E under the weights of the contents.
    of_content = np.bincount(ties.content, force, len(ties.counts))
    weight = of_content[:, None] * found.share
    mean = found.share @ places
    hessian -= (places.T * weight.sum(axis=0)) @ places
    hessian += (mean.T * of_content) @ mean
    for twin, by in zip(ties.twins, multiplier / scale, strict=True):
        share = found.share[twin]
        apart = places - share @ places
        off = values - share @ values
        hessian += by * (apart.T * (share * off)) @ apart
    _, singular, frame = np.linalg.svd(normal / scale[:, None])
    number = len(scale)
    return Stationary(
        cls,
        found,
        force,
        multiplier,
        slope + (normal / scale[:, None]).T @ multiplier,
        (hessian + hessian.T) / 2,
        frame[number:].T,
        frame[:number].T,
        float(singular[-1]) if number <= len(frame) else 0.0,
        scale,
    )


def stationary(
    ties: TieManifold, cls: Float[np.ndarray, " dim"], log_time: float
) -> Stationary | None:
    """Newton's method for f = target and a balance along the manifold.

    Args:
        ties: the late flow.
        cls: p to begin with.
        log_time: s.

    Returns:
        The last point; none where the method does not settle.
    """
    for _ in range(NEWTON_STEPS):
        now = second_order(ties, cls, log_time)
        normal = now.point.normal @ ties.axes
        zero = np.zeros((len(normal), len(normal)))
        system = np.block([[now.hessian, normal.T], [normal, zero]])
        right = -np.concatenate([now.left, now.point.off])
        try:
            step = np.linalg.solve(system, right)[: len(now.left)]
        except np.linalg.LinAlgError:
            return None
        scores = ties.embeddings @ (ties.axes @ step)
        size = float(np.ptp(scores))
        if not np.isfinite(size):
            return None
        cls = cls + ties.axes @ step * min(1.0, LONGEST / max(size, 1e-300))
        if size <= LAST:
            return second_order(ties, cls, log_time)
    return None
