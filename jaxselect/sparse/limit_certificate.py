"""Proofs about a late flow orthogonal to its ties, from numbers at one time.

dp/dτ = Σ_k λ_k D_k, λ_k = c_k e^{τ − D_kᵀp}. Where all c_k > 0 the selection is final.
Where some are not, the line p_mm τ + ρ must be proved, p within R_q of it, a bound
that no such pair exceeds, and R_q within what is convex around ρ (mathematics, section
7c).
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ..margin.max_margin import MaxMarginStatus
from ..status import Status
from .certified_minimum import Minimum
from .late_flow import FREE, MOMENT, LateFlow, Ties
from .pairs import PairForces
from .sparse_max_margin import SparseMaxMargin

# In scores: what pairs with c_k <= 0 may move, all together, from now on.
PUSH = 1e-2
# In scores: the longest way of p that is looked at; its exponential is a number.
ROOM = 500.0


class CertificateStatus(Status):
    """The proof that a late flow has; the first three certify its selection."""

    OFFSET = 0, "The selection is final and p − p_mm log t converges, both proved."
    DIRECTION = (
        1,
        "All c_k > 0: the selection is final and p/‖p‖ → p_mm/‖p_mm‖, proved. No ρ is: "
        "p − p_mm log t may grow like log log t.",
    )
    NO_PAIRS = 2, "No token loses: there is nothing to move p."
    UNSOLVED = 3, "The max-margin problem of the selection has no certified solution."
    UNRESOLVED = (
        4,
        "Tokens that lost have too much weight, or ties are too far from rest, for "
        "forces at leading order.",
    )
    NO_EQUILIBRIUM = 5, "Some c_k <= 0, and no ρ is proved: the selection may change."
    OUT_OF_REACH = (
        6,
        "Some c_k <= 0, and p is farther from its line than is proved to be harmless.",
    )


class LimitCertificate(NamedTuple):
    """Numbers at one time, and what they prove.

    Attributes:
        status: a `CertificateStatus`.
        wrong_sign: number of pairs whose c_k is not proved to be positive.
        active_wrong_sign: how many of them have a margin of one in p_mm.
        equilibrium: ρ in axes of the span of the active differences, seen from p; None
            where it was not looked for.
        distance: of p from the line p_mm τ + ρ.
        push: bound on what pairs with c_k <= 0 still move p by.
        budget: R: distance from the line that p never exceeds; ∞ where none is proved.
        error: bound on the relative change of forces by shares of losers and by ties.
    """

    status: CertificateStatus
    wrong_sign: int = 0
    active_wrong_sign: int = 0
    equilibrium: Minimum | None = None
    distance: float = np.inf
    push: float = 0.0
    budget: float = np.inf
    error: float = 0.0

    @property
    def is_certified(self) -> bool:
        """Whether the selection is proved to be final."""
        return self.status <= CertificateStatus.NO_PAIRS


def limit_certificate(
    forces: PairForces,
    words: Float[np.ndarray, "vocabulary dim"],
    margin: SparseMaxMargin,
    log_time: float,
    *,
    diameter: float,
    ties: Ties = FREE,
) -> LimitCertificate:
    """The strongest statement about a late flow whose hypotheses the numbers fulfil.

    Source: mathematics, sections 3e and 7c.

    Args:
        forces: of all competing pairs at p, ties at rest.
        words: E orthogonal to the ties.
        margin: the max-margin problem of the selection there.
        log_time: τ = log(1+t).
        diameter: bound on ‖E_s − E_r‖ of all tokens.
        ties: where tied tokens rest.

    Returns:
        The status and its numbers.

    Example:
        >>> from scipy.sparse import csr_array
        >>> from jaxselect.sparse.ragged_bags import RaggedBags
        >>> from jaxselect.sparse.sparse_max_margin import sparse_max_margin
        >>> from jaxselect.sparse.pairs import pair_forces
        >>> bag, axes = csr_array([[1.0, 1.0]]), np.eye(2)
        >>> one = RaggedBags(bag, np.ones(1), axes, axes[0], 1)
        >>> chosen, late = np.array([True, False]), np.array([15.0, -15.0])
        >>> margin = sparse_max_margin(np.eye(2), one.counts, chosen, late)
        >>> found = pair_forces(one, one.counts, chosen, late)
        >>> limit_certificate(found, np.eye(2), margin, 30.0, diameter=1.5).status.name
        'OFFSET'
    """
    if margin.status == MaxMarginStatus.NO_PAIRS:
        return LimitCertificate(CertificateStatus.NO_PAIRS, distance=0.0, budget=0.0)
    if margin.status != MaxMarginStatus.SOLVED:
        return LimitCertificate(CertificateStatus.UNSOLVED)
    with np.errstate(over="ignore", invalid="ignore"):
        late = LateFlow.at(forces, words, margin, log_time, diameter, ties)
        final = _all_positive(late)
        return final if final.is_certified else _within_budget(late)


def _all_positive(late: LateFlow) -> LimitCertificate:
    """All c_k > 0, by so much that Σλ stays bounded: the selection is final."""
    forces = late.forces
    norm = float(np.linalg.norm(late.growth))
    total = 2 * max(float(late.size.sum()), norm**2)
    # A loser's share is its force times this, and all forces together are bounded.
    most = np.exp((forces.log_share - forces.log_force).max() - late.log_time)
    error = late.passing_error(float(most * total))
    wrong = ~late.positive(error, 2 * float(late.length.max()) * norm)
    found = LimitCertificate(
        CertificateStatus.UNRESOLVED,
        wrong_sign=int(wrong.sum()),
        active_wrong_sign=int((wrong & (late.excess == 0)).sum()),
        error=error,
    )
    # An error without a bound makes every sign unknown.
    if wrong.any():
        return found
    equilibrium, _, distance = late.equilibrium()
    found = found._replace(equilibrium=equilibrium)
    if late.sharp and equilibrium is not None and equilibrium.proved:
        return found._replace(status=CertificateStatus.OFFSET, distance=distance)
    return found._replace(status=CertificateStatus.DIRECTION)


def _within_budget(late: LateFlow) -> LimitCertificate:
    """Some c_k <= 0: p stays so near a line that none of them returns."""
    active = late.excess == 0
    equilibrium, along, distance = late.equilibrium()
    proved = late.sharp and equilibrium is not None and equilibrium.proved
    scores = late.words @ along
    ahead = scores[late.forces.winners] - scores[late.forces.losers]
    if equilibrium is not None and equilibrium.proved:
        # The line is known to the radius of ρ.
        ahead -= late.length * equilibrium.radius
    size = (late.size + late.error) * np.exp(-ahead)
    fading = np.divide(size * late.length, late.excess, out=0 * size, where=~active)
    longest = float(late.length.max())
    push = PUSH / longest
    # A bound on the way of p, assumed here and checked at the end.
    way = 2 * distance + float(fading[late.forces.sign > 0].sum()) + 2 * push
    room = float(np.exp(min(longest * way, ROOM))) if proved else 1.0
    error = late.passing_error(room * late.forces.lost_share)
    wrong = ~late.positive(error)
    found = LimitCertificate(
        CertificateStatus.NO_EQUILIBRIUM,
        wrong_sign=int(wrong.sum()),
        active_wrong_sign=int((wrong & active).sum()),
        equilibrium=equilibrium,
        error=error,
    )
    if equilibrium is None or not proved:
        return found
    if not np.isfinite(error):
        return found._replace(status=CertificateStatus.UNRESOLVED)
    passing = room * error * float(late.gross @ late.length)
    if late.settling <= MOMENT:
        # Ties that come to rest at once are not part of the error.
        passing += late.settling * float((late.size + late.gross) @ late.length)
    base = distance + float(fading[~wrong].sum()) + passing
    if found.active_wrong_sign:
        # Φ is convex within the basin only.
        push = min(push, equilibrium.basin - base)
    budget = base + push
    pushed = float((fading * np.exp(late.length * budget))[wrong].sum())
    found = found._replace(distance=distance, push=pushed)
    if pushed <= push and longest * (budget + distance) <= np.log(room):
        return found._replace(status=CertificateStatus.OFFSET, budget=budget)
    return found._replace(status=CertificateStatus.OUT_OF_REACH)
