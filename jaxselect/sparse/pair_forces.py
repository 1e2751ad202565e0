"""Forces of pairs (selected token, losing token), in logs, and bounds on their errors.

Orthogonal to the ties dp/dt = Σ_k c_k e^{−D_kᵀp} D_k (mathematics, section 7c). The sum
over the bags of a pair may nearly cancel: what it cancels from bounds its errors.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.sparse import csr_array

from ..model.attention import attend_bags
from .ragged_bags import RaggedBags
from .ragged_objective import BLOCK
from .ragged_pairs import competing_pairs_by_entry


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
    cls: Float[np.ndarray, " dim"],
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
        cls: p.
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
    scores = bags.embeddings @ cls
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
