"""The max-margin problem of thousands of bags, few of its pairs ever written down.

Only pairs (selected word, losing word) near the margin decide. Starting
from a guess, the pairs that it violates most are added until none is violated: each
round solves a small problem exactly, and looks at every pair once (mathematics, section
7c).
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.optimize import nnls
from scipy.sparse import csr_array

from ..margin.max_margin import MaxMarginStatus
from .pairs import competing_pairs

# Pairs added a round; the fastest of several on reviews.
ADDED = 300
ROUNDS = 200
# Relative error of a margin of one: that of a direction with hundreds of duals.
EXACT = 1e-10
# Relative length of a convex combination of differences that counts as zero.
CANCELLED = 1e-12


UNSOLVED = MaxMarginStatus.NOT_CONVERGED


class SparseMaxMargin(NamedTuple):
    """Solution of the max-margin problem of a selection.

    Attributes:
        direction: p_mm; zero without a solution.
        winners: of every active pair, the word selected.
        losers: the word that it beats.
        duals: λ ≥ 0 of the active pairs.
        infeasibility: max(0, 1 − the least margin of all pairs).
        gap: relative duality gap.
        pairs: number of distinct pairs.
        status: a `MaxMarginStatus`.
    """

    direction: Float[np.ndarray, " dim"]
    winners: Int[np.ndarray, " active"]
    losers: Int[np.ndarray, " active"]
    duals: Float[np.ndarray, " active"]
    infeasibility: float
    gap: float
    pairs: int
    status: MaxMarginStatus


def sparse_max_margin(
    embeddings: Float[np.ndarray, "vocabulary dim"],
    counts: csr_array,
    selected: Bool[np.ndarray, " entries"],
    guess: Float[np.ndarray, " dim"],
) -> SparseMaxMargin:
    """Solve min ‖p‖ subject to pᵀ(E_s − E_r) ≥ 1, s selected and r not, in every bag.

    Words selected together stand for one another: their rows must be equal.

    Source: mathematics, section 7c.

    Args:
        embeddings: E.
        counts: a row per bag, a column per word.
        selected: of every entry of `counts`, whether its bag selects the word.
        guess: a direction to begin with, such as p late in a flow.

    Returns:
        p_mm with its duals and its certificate.

    Example:
        >>> bag = csr_array([[1.0, 1.0]])
        >>> tokens = np.array([[2.0, 0.0], [0.0, 0.0]])
        >>> found = sparse_max_margin(tokens, bag, np.array([True, False]), np.ones(2))
        >>> found.direction.round(9).tolist(), found.duals.round(9).tolist()
        ([0.5, 0.0], [0.25])
    """
    winners, losers = competing_pairs(counts, selected)
    used = np.zeros(len(winners), bool)
    direction, duals = guess, np.zeros(0)
    nothing = np.zeros(0, int)
    if not len(winners):
        empty = np.zeros_like(guess), nothing, nothing, duals, 0.0, 0.0, 0
        return SparseMaxMargin(*empty, MaxMarginStatus.NO_PAIRS)
    for _ in range(ROUNDS):
        scores = embeddings @ direction
        margins = scores[winners] - scores[losers]
        # The guess has no scale: all pairs are open, the narrowest are tried first.
        short = ~used & ((margins < 1 - EXACT) | ~used.any())
        if not short.any():
            break
        worst = np.argsort(np.where(short, margins, np.inf))[: min(ADDED, short.sum())]
        used[worst] = True
        rows = embeddings[winners[used]] - embeddings[losers[used]]
        direction, duals = least_distance(rows)
        if not direction.any():
            # Farkas: λ ≥ 0 with Σλ = 1 and Dᵀλ = 0, to rounding, leave no p.
            lengths = np.sqrt(np.sum(rows**2, axis=1))
            proved = np.linalg.norm(duals @ rows) <= CANCELLED * (duals @ lengths)
            status = MaxMarginStatus.INFEASIBLE if proved and duals.any() else UNSOLVED
            kept = winners[used], losers[used], duals, 1.0, 1.0, len(winners)
            return SparseMaxMargin(direction, *kept, status)
        # Pairs without a dual leave again: the next rounds stay small.
        used[np.flatnonzero(used)[duals == 0]] = False
        duals = duals[duals > 0]
    scores = embeddings @ direction
    infeasible = max(0.0, 1 - float((scores[winners] - scores[losers]).min()))
    half = direction @ direction / 2
    rows = embeddings[winners[used]] - embeddings[losers[used]]
    carried = duals @ rows
    gap = abs(1 - (duals.sum() - carried @ carried / 2) / half)
    solved = infeasible <= EXACT and gap <= EXACT
    status = MaxMarginStatus.SOLVED if solved else MaxMarginStatus.NOT_CONVERGED
    active = winners[used], losers[used], duals
    return SparseMaxMargin(
        direction, *active, infeasible, float(gap), len(winners), status
    )


def least_distance(
    rows: Float[np.ndarray, "pairs dim"],
) -> tuple[Float[np.ndarray, " dim"], Float[np.ndarray, " pairs"]]:
    """Least distance: min ‖p‖ subject to D p ≥ 1, and its duals.

    Where there is no such p it is zero, and the duals are those of Farkas' lemma: λ ≥ 0
    with Σλ = 1 and Dᵀλ = 0.

    Source: C. Lawson and R. Hanson, Solving Least Squares Problems, chapter 23.

    Args:
        rows: D.

    Returns:
        p and λ ≥ 0 with p = Dᵀλ; λ = 0 where neither was found.

    Example:
        >>> least_distance(np.array([[2.0, 0.0]]))[0].round(9).tolist()
        [0.5, 0.0]
    """
    nothing = np.zeros(rows.shape[1]), np.zeros(len(rows))
    # ‖p‖ is at least one in these units, and near it its duals keep most digits.
    unit = np.sqrt(np.min(np.sum(rows**2, axis=1)))
    if not unit:
        empty = ~rows.any(axis=1)
        return nothing[0], empty / empty.sum()
    system = np.vstack([rows.T / unit, np.ones(len(rows))])
    target = np.zeros(len(system))
    target[-1] = 1.0
    try:
        weights, _ = nnls(system, target, maxiter=30 * len(rows))
    except RuntimeError:
        return nothing
    residual = target - system @ weights
    if residual[-1] <= np.finfo(float).eps * len(system):
        return nothing[0], weights / weights.sum()
    duals = weights / (residual[-1] * unit**2)
    return duals @ rows, duals
