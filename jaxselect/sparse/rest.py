"""Certificate that p rests: a minimum of the risk near a point of small gradient.

Words on which bags of both classes exert opposite forces may rest at finite odds. That
a true minimum is near a computed one, and that the flow ends in it, follows from the
curvature H and a bound on its change (`margin.minimum`; mathematics, section 7b).
"""

import itertools

import numpy as np
from jaxtyping import Float
from scipy.spatial.distance import pdist

from ..margin.minimum import Minimum, inverse_root, rest_at
from .bags import RaggedBags, attention, curvature, descent, sized_score_gradient

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
    stiffness, root = inverse_root(curvature(bags, query))
    size = newton_decrement(bags, query, root) if stiffness > 0 else np.inf

    def on_ball(narrow: bool) -> Minimum:
        change = change_of_curvature(bags, query, narrow=narrow)
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


def newton_decrement(
    bags: RaggedBags,
    query: Float[np.ndarray, " dim"],
    root: Float[np.ndarray, "dim axes"],
) -> float:
    """Bound ‖Rᵀ ∇L‖ for a root R Rᵀ = H⁻¹, including roundings of the forces.

    The forces of a bag add up to zero, so embeddings may be measured from any origin.
    Their mean weighted by the sizes of the forces gives the smallest rounding error.

    Source: mathematics, section 7b.

    Example:
        >>> from scipy.sparse import csr_array
        >>> bag, axes = csr_array([[1.0, 1.0]]), np.eye(2)
        >>> one = RaggedBags(bag, np.ones(1), axes, axes[0], 1)
        >>> round(newton_decrement(one, np.zeros(2), np.eye(2)), 4)
        0.1335
    """
    of_word, size = (
        bags.scatter(entries) for entries in sized_score_gradient(bags, query)
    )
    total = size.sum()
    seen = bags.embeddings - (size @ bags.embeddings / total if total else 0.0)
    seen = seen @ root
    # A rounding of a score is one of its weight, relative.
    roundings = 16 + np.abs(bags.embeddings @ query).max(initial=0.0)
    error = roundings * np.finfo(float).eps * size
    lengths = np.sqrt(np.sum(seen**2, axis=1))
    return float(np.linalg.norm(of_word @ seen) + error @ lengths)


def change_of_curvature(
    bags: RaggedBags, query: Float[np.ndarray, " dim"], *, narrow: bool = False
) -> tuple[Float[np.ndarray, "dim dim"], float]:
    """Compute B with |D³L[u, u, δ]| ≤ ‖δ‖ uᵀBu on a ball around p, and its radius.

    B = mean_X D g(A) Σ_s q_s (|b_s − f| + A) (E_s − Ē)(E_s − Ē)ᵀ, where D is the
    diameter of the bag, Ē the mean of its E_s, A that of |b_s − f|, and g = 3.3 L₁ +
    7.2 L₂ A + 1.9 L₃ A² with bounds L₁, L₂, L₃ of the loss's derivatives at the margins
    that the bag has on the ball. A word of small weight contributes little to B and
    little to the curvature, so their quotient stays bounded.

    Source: mathematics, section 7b.

    Args:
        bags: the corpus and the words' embeddings.
        query: p, the centre.
        narrow: whether the ball is so small that −ℓ′ of no bag grows by more than a
            seventh on it.

    Returns:
        B, and the radius 1/(8 max D); of the narrow ball 1/(8 max D (1 + r A)), r the
        largest ratio ℓ″/|ℓ′|. Zero where the loss has no bounds.

    Example:
        >>> from scipy.sparse import csr_array
        >>> bag, axes = csr_array([[1.0, 1.0]]), np.eye(2)
        >>> one = RaggedBags(bag, np.ones(1), axes, axes[0], 1)
        >>> round(change_of_curvature(one, np.zeros(2))[1], 4)
        0.0884
    """
    if bags.loss.bounds is None:
        return np.zeros((len(query), len(query))), 0.0
    share, _ = attention(bags.counts, bags.embeddings @ query)
    value, place = bags.gather(bags.values), bags.gather(bags.embeddings)

    def mean(entries: np.ndarray) -> np.ndarray:
        return bags.total((share * entries.T).T)

    output = mean(value)
    off = np.abs(value - bags.spread(output))
    spread = mean(off)
    ahead = place - bags.spread(mean(place))
    diameter = np.array(
        [
            pdist(place[first:last]).max(initial=0.0)
            for first, last in itertools.pairwise(bags.counts.indptr)
        ]
    )
    slopes = 1 + bags.loss.largest_ratio * spread if narrow else 1.0
    widest = float((diameter * slopes).max(initial=0.0))
    radius = 1 / (8 * widest) if widest else np.inf
    # Where equal embeddings leave no diameter no output moves.
    moved = spread * np.expm1(diameter * radius if widest else diameter)
    near = bags.loss.bounds_near(bags.labels * output, moved)
    grown = diameter * near.third_of_risk(spread) / bags.num_total
    weight = bags.spread(grown) * share * (off + bags.spread(spread))
    return (ahead.T * weight) @ ahead, radius
