"""Certificate that p rests: a minimum of the risk near a point of small gradient.

Words on which bags of both classes exert opposite forces may rest at finite odds. That
a true minimum is near a computed one, and that the flow ends in it, follows from the
curvature H and a bound on its change (`margin.minimum`; mathematics, section 7b).
"""

import numpy as np
from jaxtyping import Float

from ..margin.minimum import (
    Minimum,
    change_of_curvature,
    inverse_root,
    newton_decrement,
    rest_at,
)
from .bags import RaggedBags, curvature, descent, entries_at

# Newton's steps towards the minimum; each must lessen the gradient.
NEWTON_STEPS = 30


def certified_minimum(bags: RaggedBags, query: Float[np.ndarray, " dim"]) -> Minimum:
    """Run Newton's method from a point, and certify where it ends.

    Source: mathematics, section 7b.

    Args:
        bags: bags, in axes of the span that they move p in: the curvature must not
            vanish for want of rank.
        query: p to begin with.

    Returns:
        The point that Newton's method ends at, with the numbers that would certify it.

    Example:
        >>> from scipy.sparse import csr_array
        >>> counts = csr_array([[1.0, 1.0], [1.0, 1.0], [1.0, 0.0]])
        >>> labels, one = np.array([1.0, -1.0, 1.0]), np.array([[1.0], [0.0]])
        >>> even = RaggedBags(counts, labels, one, np.array([1.0, -1.0]), 3)
        >>> found = certified_minimum(even, np.array([0.3]))
        >>> bool(found.proved), abs(round(found.point.item(), 9))
        (True, 0.0)
    """
    query = _newton(bags, query)
    problem = bags.embeddings, *entries_at(bags, query), bags, query
    stiffness, root = inverse_root(curvature(bags, query))
    size = newton_decrement(*problem, root) if stiffness > 0 else np.inf

    def on_ball(narrow: bool) -> Minimum:
        change = change_of_curvature(*problem, bags.diameters, narrow)
        return rest_at(query, (stiffness, root), size, change)

    # The theorem holds for either ball; which one proves more is a matter of margins.
    return max(map(on_ball, (False, True)), key=lambda minimum: minimum.basin)


def _newton(
    bags: RaggedBags, query: Float[np.ndarray, " dim"]
) -> Float[np.ndarray, " dim"]:
    """Run Newton's method for ∇L = 0 while each step reduces the gradient."""
    left, _ = descent(bags, query)
    for _ in range(NEWTON_STEPS):
        try:
            moved = query + np.linalg.solve(curvature(bags, query), left)
        except np.linalg.LinAlgError:
            break
        there, _ = descent(bags, moved)
        if not np.linalg.norm(there) < np.linalg.norm(left):
            break
        query, left = moved, there
    return query
