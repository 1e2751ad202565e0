"""Certificate that p rests: a minimum of the risk near a point of small gradient.

Words on which bags of both classes exert opposite forces may rest at finite odds. A
computed gradient is never exactly zero. That a true minimum is near, and that the flow
ends in it, follows from the curvature H and a bound on its change (Newton–Kantorovich).
Both are measured in units of H, because curvatures of words may differ by a factor of
10⁹. With ν = √(∇Lᵀ H⁻¹ ∇L), μ the least eigenvalue of H and Ω the change,

    Ω ν/√μ < ½  and  2ν/√μ ≤ radius of the ball that Ω holds on

certify a strict minimum within 2ν/√μ (mathematics, section 7b).
"""

import itertools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.linalg import eigh
from scipy.spatial.distance import pdist

from .bags import RaggedBags, attention, curvature, descent, sized_score_gradient

# Newton's steps towards the minimum; each must lessen the gradient.
NEWTON_STEPS = 30


class Minimum(NamedTuple):
    """A computed minimum, and the numbers that certify a true one near it.

    Attributes:
        query: p there.
        gradient: bound on ‖∇L‖ there, rounding included.
        decrement: ν, bound on √(∇Lᵀ H⁻¹ ∇L), rounding included word by word: a word
            held weakly suffers from the rounding of its own forces alone.
        stiffness: μ, the least eigenvalue of H = ∂²L/∂p² there, rounding taken off.
        change: Ω; within `ball` a move by δ changes H by at most Ω ‖δ‖ H.
        ball: radius that Ω holds for.
        kantorovich: Ω ν/√μ; below ½ a true minimum lies within `radius`.
        radius: 2ν/√μ.
        basin: distance from which the flow surely ends in it.
    """

    query: Float[np.ndarray, " dim"]
    gradient: float
    decrement: float
    stiffness: float
    change: float
    ball: float
    kantorovich: float
    radius: float
    basin: float

    @property
    def proved(self) -> bool:
        """Whether a true, strict minimum is certified within `radius`."""
        return bool(
            self.stiffness > 0 and self.kantorovich < 0.5 and self.radius <= self.ball
        )


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
        >>> found.proved, abs(round(found.query.item(), 9))
        (True, 0.0)
    """
    query = _newton(bags, query)
    pull, rounding = descent(bags, query)
    hessian = curvature(bags, query)

    def on_ball(narrow: bool) -> Minimum:
        return certified(
            query,
            gradient=float(np.linalg.norm(pull)) + rounding,
            decrement=lambda root: newton_decrement(bags, query, root),
            hessian=hessian,
            change=change_of_curvature(bags, query, narrow=narrow),
        )

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


def certified(
    query: Float[np.ndarray, " dim"],
    *,
    gradient: float,
    decrement: Callable[[np.ndarray], float],
    hessian: Float[np.ndarray, "dim dim"],
    change: tuple[Float[np.ndarray, "dim dim"], float],
) -> Minimum:
    """Make the certificate of a point from bounds.

    Source: mathematics, section 7b.

    Args:
        query: the point.
        gradient: bound on the length of the gradient.
        decrement: R → bound on ‖Rᵀ ∇‖, called with R Rᵀ = H⁻¹.
        hessian: H.
        change: B with |D³[u, u, δ]| ≤ ‖δ‖ uᵀBu on a ball, and its radius.

    Example:
        >>> one = np.ones((1, 1))
        >>> near = {"gradient": 0.01, "decrement": lambda root: 0.01}
        >>> certified(np.zeros(1), **near, hessian=one, change=(one, 1.0)).proved
        True
    """
    form, ball = change
    spectrum, vectors = np.linalg.eigh(hessian)
    blur = 16 * len(hessian) * np.finfo(float).eps * np.abs(spectrum).max(initial=0.0)
    stiffness = float(spectrum.min(initial=np.inf) - blur)
    size = radius = most = kantorovich = np.inf
    basin = 0.0
    if stiffness > 0:
        # H^{−½} with every eigenvalue taken as small as it may be.
        size = decrement(vectors / np.sqrt(spectrum - blur))
        radius = float(2 * size / np.sqrt(stiffness))
        # Equal embeddings leave no axis, and nothing to change.
        quotients = eigh(form, hessian, eigvals_only=True)
        most = float(quotients.max(initial=np.finfo(float).tiny))
        kantorovich = float(most * size / np.sqrt(stiffness))
        # A ball around the minimum that holds p and is convex.
        basin = max(0.0, min(ball, 1 / most) / 2 - 2 * radius)
    return Minimum(
        query=query,
        gradient=gradient,
        decrement=size,
        stiffness=stiffness,
        change=most,
        ball=ball,
        kantorovich=kantorovich,
        radius=radius,
        basin=basin,
    )


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
