"""Competing pairs of ragged bags, classes of tied tokens, and the forces of pairs.

Bags are rows of a count matrix on the host; a token that lost is one entry of a row.
Orthogonal to the ties dp/dt = Σ_k c_k e^{−D_kᵀp} D_k (mathematics, section 7c). The sum
over the bags of a pair may nearly cancel: what it cancels from bounds its errors.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from ..model.attention import attend_bags
from .ragged_bags import RaggedBags, row_of_entry
from .ragged_objective import BLOCK

# Margin above one, absolute. Up to the first a pair is active, which is as exact as
# p_mm is computed; beyond the second it is not; between the two nothing is claimed.
ACTIVE, INACTIVE = 1e-8, 1e-6


def competing_pairs(
    counts: csr_array, selected: Bool[np.ndarray, " entries"]
) -> tuple[Int[np.ndarray, " pairs"], Int[np.ndarray, " pairs"]]:
    """Distinct pairs (first selected word, losing word) of all bags.

    Args:
        counts: a row per bag.
        selected: of every entry.

    Returns:
        Winners and losers.

    Example:
        >>> bags = csr_array([[1.0, 1.0, 0.0], [1.0, 1.0, 1.0]])
        >>> chosen = np.array([True, False, True, False, False])
        >>> [part.tolist() for part in competing_pairs(bags, chosen)]
        [[0, 0], [1, 2]]
    """
    winners, losers, _ = competing_pairs_by_entry(counts, selected)
    return winners, losers


def competing_pairs_by_entry(
    counts: csr_array, selected: Bool[np.ndarray, " entries"]
) -> tuple[
    Int[np.ndarray, " pairs"], Int[np.ndarray, " pairs"], Int[np.ndarray, " lost"]
]:
    """`competing_pairs`, and the pair of every entry that is not selected.

    Args:
        counts: a row per bag.
        selected: of every entry.

    Returns:
        Winners, losers, and a pair for each entry that lost.

    Example:
        >>> bags = csr_array([[1.0, 1.0, 0.0], [1.0, 1.0, 1.0]])
        >>> chosen = np.array([True, False, True, False, False])
        >>> competing_pairs_by_entry(bags, chosen)[2].tolist()
        [0, 0, 1]
    """
    first = np.repeat(first_selected(counts, selected), np.diff(counts.indptr))[
        ~selected
    ]
    keys = first * counts.shape[1] + counts.indices[~selected]
    found, pair = np.unique(keys, return_inverse=True)
    winners, losers = np.divmod(found, counts.shape[1])
    return winners, losers, pair


def contract_ties(
    counts: csr_array, selected: Bool[np.ndarray, " entries"]
) -> tuple[csr_array, Bool[np.ndarray, " entries"]]:
    """Bags with one word per class of ties; the completed selection.

    Words tied in one bag are at finite odds wherever else they meet.

    Source: mathematics, section 7c.

    Args:
        counts: a row per bag, a column per word.
        selected: of every entry.

    Returns:
        The same entries under other columns, some of them twice; of every entry.

    Example:
        >>> bags = csr_array([[1.0, 1.0, 0.0], [1.0, 1.0, 1.0]])
        >>> tied = np.array([True, True, True, False, False])
        >>> one, whole = contract_ties(bags, tied)
        >>> one.indices.tolist(), whole.tolist()
        ([0, 0, 0, 0, 2], [True, True, True, True, False])
    """
    words = counts.shape[1]
    first = np.repeat(first_selected(counts, selected), np.diff(counts.indptr))
    edges = first[selected], counts.indices[selected]
    ties = csr_array((np.ones(selected.sum()), edges), shape=(words, words))
    _, label = connected_components(ties, directed=False)
    _, stands = np.unique(label, return_index=True)
    same = stands[label]
    whole = selected | (same[counts.indices] == same[first])
    entries = counts.data, same[counts.indices], counts.indptr
    return csr_array(entries, counts.shape), whole


def first_selected(
    counts: csr_array, selected: Bool[np.ndarray, " entries"]
) -> Int[np.ndarray, " bags"]:
    """The first selected word of every bag.

    Args:
        counts: a row per bag.
        selected: of every entry; one at least in each bag.

    Returns:
        A word each.

    Example:
        >>> bag = csr_array([[1.0, 1.0]])
        >>> first_selected(bag, np.array([False, True])).tolist()
        [1]
    """
    row = row_of_entry(counts)
    first = np.full(counts.shape[0], counts.shape[1], np.int64)
    np.minimum.at(first, row[selected], counts.indices[selected].astype(np.int64))
    return first


class PairForces(NamedTuple):
    """Competing pairs, their signed forces on p, and bounds.

    Attributes:
        winners: the word selected.
        losers: the word that lost.
        sign: of c_k; 1 where the bags together pull towards the winner.
        log_force: log |c_k e^{−D_kᵀp}|.
        log_gross: log of the sum that this is the rest of, Σ_X (−ℓ′(y f)) w_X q_X / n
            over the bags of the pair, with w_X the range of E v in the bag.
        log_error: log of a bound on what rounding and the error of the ties' minimum
            may have changed of the force.
        log_share: log of the largest share of weight that the loser has in a bag.
        lost_share: the largest share of weight that all losers of one bag have.
        response: a relative change of weights by ε changes a force by at most
            response · ε of its gross, for response · ε ≤ ½.
        drive: mean of −ℓ′(y f) w_X response: lost shares up to ε move a tied word's
            score with at most drive · ε · ‖D‖² per unit of t.
    """

    winners: Int[np.ndarray, " pairs"]
    losers: Int[np.ndarray, " pairs"]
    sign: Float[np.ndarray, " pairs"]
    log_force: Float[np.ndarray, " pairs"]
    log_gross: Float[np.ndarray, " pairs"]
    log_error: Float[np.ndarray, " pairs"]
    log_share: Float[np.ndarray, " pairs"]
    lost_share: float
    response: float
    drive: float


def pair_forces(
    bags: RaggedBags,
    counts: csr_array,
    selected: Bool[np.ndarray, " entries"],
    query: Float[np.ndarray, " dim"],
    shift: Float[np.ndarray, " entries"] | float = 0.0,
) -> PairForces:
    """Signed forces of all competing pairs at p, with bounds.

    λ_k e^{−s} = Σ_{X∋k} (1/n) (−ℓ′(y f)) q_X[r] y (f − b_r): no exponential is taken
    before the largest of a pair is taken out.

    Source: mathematics, section 7c.

    Args:
        bags: the corpus and the words' embeddings.
        counts: its counts, with ties contracted.
        selected: of every entry.
        query: p.
        shift: bound on the error of every entry's score against the scores of the
            tokens that its bag selects.

    Returns:
        The forces, in logs.

    Example:
        >>> bag, axes = csr_array([[1.0, 1.0]]), np.eye(2)
        >>> one = RaggedBags(bag, np.ones(1), axes, axes[0], 1)
        >>> chosen, far = np.array([True, False]), np.array([1000.0, 0.0])
        >>> found = pair_forces(one, one.counts, chosen, far)
        >>> found.sign.tolist(), found.log_force.round(3).tolist()
        ([1.0], [-1001.313])
    """
    scores = bags.embeddings @ query
    attention = attend_bags(scores, bags.values, bags)
    log_share = attention.log_weights
    value = bags.gather(bags.values)
    slope = bags.loss.slope(bags.labels * attention.output)
    spread = bags.largest(value) + bags.largest(-value)
    response = 4 + 1.3 * max(bags.loss.largest_ratio, 1.0) * spread
    towards = -bags.spread(bags.labels * slope / bags.num_total) * attention.advantage
    lost = ~selected
    winners, losers, pair = competing_pairs_by_entry(counts, selected)
    top = np.full(len(winners), -np.inf)
    np.maximum.at(top, pair, log_share[lost])
    weight = np.exp(log_share[lost] - top[pair])
    size = bags.spread(slope * spread / bags.num_total)[lost] * weight
    # An exponent of size a is known to some a roundings.
    rounding = (64 + 8 * np.abs(scores).max(initial=0.0)) * np.finfo(float).eps
    known = (rounding + bags.spread(response) * shift)[lost]
    total, gross, error = np.zeros((3, len(winners)))
    np.add.at(total, pair, towards[lost] * weight)
    np.add.at(gross, pair, size)
    np.add.at(error, pair, size * known)
    shares = bags.total(np.where(lost, np.exp(log_share), 0.0))
    with np.errstate(divide="ignore"):
        return PairForces(
            winners,
            losers,
            np.sign(total),
            np.log(np.abs(total)) + top,
            np.log(gross) + top,
            np.log(error) + top,
            top,
            lost_share=float(shares.max(initial=0.0)),
            response=float(response.max(initial=0.0)),
            drive=float((slope * spread * response).sum() / bags.num_total),
        )


def lengths(
    words: Float[np.ndarray, "vocabulary dim"],
    one: Int[np.ndarray, " pairs"],
    other: Int[np.ndarray, " pairs"],
) -> Float[np.ndarray, " pairs"]:
    """‖E_s − E_r‖ of many pairs, in blocks of bounded memory.

    Args:
        words: E.
        one: s of every pair.
        other: r of every pair.

    Returns:
        A length each.

    Example:
        >>> lengths(np.eye(2) * 3, np.array([0]), np.array([0])).tolist()
        [0.0]
    """
    found = np.zeros(len(one))
    for at in range(0, len(one), BLOCK):
        part = slice(at, at + BLOCK)
        found[part] = np.linalg.norm(words[one[part]] - words[other[part]], axis=1)
    return found
