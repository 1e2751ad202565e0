"""A minimum of the risk, proved to lie near a point at which its gradient is small.

Words that sequences of both classes pull opposite ways rest at finite odds. A computed
gradient is never zero: that a true minimum is near, and that the flow from here ends in
it, takes the curvature there and how fast it may change (Newton–Kantorovich).
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from .curvature import Bags, attention, curvature, descent

NEWTON_STEPS = 30


class Rest(NamedTuple):
    """A point at rest, and what proves it.

    Attributes:
        cls: p at rest.
        gradient: bound on ‖∇L‖ there, rounding included.
        stiffness: μ, the least eigenvalue of ∂²L/∂p² there, rounding taken off.
        lipschitz: K, which bounds the change of ∂²L/∂p² within `ball`.
        ball: radius that K holds for.
        kantorovich: h = ‖∇L‖ K/μ²; up to ½ a true minimum lies within `radius`.
        radius: 2 ‖∇L‖/μ.
        basin: distance from which the flow surely ends in it, min(ball, μ/K)/2.
    """

    cls: Float[np.ndarray, " dim"]
    gradient: float
    stiffness: float
    lipschitz: float
    ball: float
    kantorovich: float
    radius: float
    basin: float

    @property
    def proved(self) -> bool:
        """Whether a true, strict minimum lies within `radius`."""
        return bool(
            self.stiffness > 0 and self.kantorovich <= 0.5 and self.radius <= self.ball
        )


def rest(bags: Bags, cls: Float[np.ndarray, " dim"]) -> Rest:
    """Newton's method from a point, and the certificate of where it ends.

    Source: mathematics, section 7b.

    Args:
        bags: sequences, in axes of the span that they move p in: the curvature must
            not vanish for want of rank.
        cls: p to begin with.

    Returns:
        The point and its numbers, whether or not they prove anything.

    Example:
        >>> from scipy.sparse import csr_array
        >>> counts = csr_array([[1.0, 1.0], [1.0, 1.0], [1.0, 0.0]])
        >>> labels, one = np.array([1.0, -1.0, 1.0]), np.array([[1.0], [0.0]])
        >>> even = Bags(counts, labels, one, np.array([1.0, -1.0]), 3)
        >>> found = rest(even, np.array([0.3]))
        >>> found.proved, abs(round(found.cls.item(), 9))
        (True, 0.0)
    """
    pull, rounding = descent(bags, cls)
    for _ in range(NEWTON_STEPS):
        try:
            moved = cls + np.linalg.solve(curvature(bags, cls), pull)
        except np.linalg.LinAlgError:
            break
        there, bound = descent(bags, moved)
        if not np.linalg.norm(there) < np.linalg.norm(pull):
            break
        cls, pull, rounding = moved, there, bound
    hessian = curvature(bags, cls)
    spectrum = np.linalg.eigvalsh(hessian)
    blur = 16 * len(hessian) * np.finfo(float).eps * np.abs(spectrum).max(initial=0.0)
    stiffness = float(spectrum.min(initial=np.inf) - blur)
    gradient = float(np.linalg.norm(pull)) + rounding
    lipschitz, ball = change_of_curvature(bags, cls)
    convex = stiffness > 0
    return Rest(
        cls=cls,
        gradient=gradient,
        stiffness=stiffness,
        lipschitz=lipschitz,
        ball=ball,
        kantorovich=gradient * lipschitz / stiffness**2 if convex else np.inf,
        radius=2 * gradient / stiffness if convex else np.inf,
        basin=min(ball, stiffness / lipschitz) / 2 if convex else 0.0,
    )


def change_of_curvature(
    bags: Bags, cls: Float[np.ndarray, " dim"]
) -> tuple[float, float]:
    """A Lipschitz constant K of ∂²L/∂p² on a ball around p, and the ball's radius.

    Along a unit vector the scores of a bag spread over at most its diameter D. With A
    the mean distance |b_s − b_r| under its weights, f has derivatives of at most AD/2,
    AD²/2 and 7AD³/8, the loss one of at most 1, 1/4 and 1/(6√3) in f. A move by r
    changes A by a factor of e^{2rD} at most; r is 1/(8 max D).

    Source: mathematics, section 7b.

    Args:
        bags: the corpus and the words' embeddings.
        cls: p, the centre.

    Returns:
        K and r.

    Example:
        >>> from scipy.sparse import csr_array
        >>> one = Bags(csr_array([[1.0, 1.0]]), np.ones(1), np.eye(2), np.eye(2)[0], 1)
        >>> round(change_of_curvature(one, np.zeros(2))[1], 4)
        0.0884
    """
    counts, begin = bags.counts, bags.counts.indptr
    share, _ = attention(bags, cls)
    diameter, apart = np.zeros((2, counts.shape[0]))
    for row in range(counts.shape[0]):
        part = slice(begin[row], begin[row + 1])
        words, q = counts.indices[part], share[part]
        value, place = bags.values[words], bags.embeddings[words]
        square = np.sum(place**2, axis=1)
        between = square[:, None] + square[None, :] - 2 * place @ place.T
        diameter[row] = np.sqrt(max(between.max(), 0.0))
        apart[row] = q @ np.abs(value[:, None] - value[None, :]) @ q
    widest = diameter.max(initial=0.0)
    ball = 1 / (8 * widest) if widest > 0 else np.inf
    grown = apart * np.exp(2 * diameter / (8 * widest)) if widest > 0 else apart
    third = 7 / 8 * grown + 3 / 16 * grown**2 + grown**3 / (48 * np.sqrt(3))
    return float(np.sum(third * diameter**3) / bags.of), float(ball)
