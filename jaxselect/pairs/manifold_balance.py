"""Points where pairs, p_mm and ties on a manifold balance, to second order.

A critical point of Φ where f = log(n₊/n₋) in every twin, with multipliers of these
equations (mathematics, section 7e).
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from .tie_manifold import Point, TieManifold, at_point, forces


class Stationary(NamedTuple):
    """A point of balance of p_mm, pairs and ties, to second order.

    Attributes:
        cls: p.
        point: weights and exponents there.
        force: λ of every active pair, zero for the others.
        multiplier: of the equations of the ties, each over the length of its gradient.
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
    multiplier: Float[np.ndarray, " equations"]
    left: Float[np.ndarray, " axes"]
    hessian: Float[np.ndarray, "axes axes"]
    tangent: Float[np.ndarray, "axes free"]
    across: Float[np.ndarray, "axes equations"]
    rate: float
    scale: Float[np.ndarray, " equations"]


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
    force = np.where(ties.excess == 0, forces(ties, found, log_time), 0.0)
    normal = found.normal @ axes
    scale = np.linalg.norm(normal, axis=1)
    scale = np.where(scale > 0, scale, 1.0)
    towards = found.towards @ axes
    slope = axes.T @ ties.growth - force @ towards
    multiplier = np.linalg.lstsq((normal / scale[:, None]).T, -slope, rcond=None)[0]
    embeddings = ties.embeddings[ties.words] @ axes
    values = ties.values[ties.words]
    hessian = (towards.T * force) @ towards
    # Minus the covariances of E under the weights of the contents.
    competing = len(ties.content)
    of_content = np.bincount(ties.content, force[:competing], len(ties.counts))
    weight = of_content[:, None] * found.share
    mean = found.share @ embeddings
    hessian -= (embeddings.T * weight.sum(axis=0)) @ embeddings
    hessian += (mean.T * of_content) @ mean
    # The equations of strict ties are linear; λ of rising contents multiplies −y f.
    factor = np.append(
        (multiplier / scale)[: len(ties.twins)], -force[competing:] * ties.label
    )
    for content, by in zip([*ties.twins, *ties.rising], factor, strict=True):
        share = found.share[content]
        centred = embeddings - share @ embeddings
        centred_values = values - share @ values
        hessian += by * (centred.T * (share * centred_values)) @ centred
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
        float(singular.min(initial=1.0)) if number <= len(frame) else 0.0,
        scale,
    )
