"""What a late flow is proved to do orthogonal to its ties, from numbers at one time.

dp/ds = Σ_k λ_k D_k, λ_k = c_k e^{s − D_kᵀp}. Where all c_k > 0 the selection is final.
Where some are not, the line p_mm s + ρ must be proved, p within a budget R of it that
no such pair can leave, and R within what is convex around ρ (mathematics, section 7c).
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from ..status import Status
from .margin import TextMargin, TextMarginStatus
from .offset_equilibrium import offset_equilibrium
from .pair_forces import PairForces, lengths
from .rest import Rest, span_axes

# Margin above one, absolute. Up to the first a pair is active, which is as exact as
# p_mm is computed; beyond the second it is not; between the two nothing is claimed.
ACTIVE, INACTIVE = 1e-8, 1e-6
# In scores: what pairs with c_k <= 0 may move, all together, from now on.
PUSH = 1e-2
# Exponents of losers that the budget allows to rise, in scores.
ROOM = 12.0
# Log-time that ties need at most to come to rest, of any use and counted as none.
SETTLED, MOMENT = 1.0, 1e-3
# Log of the largest number, with room for a product.
LARGEST = 600.0
# Log of a force beyond which p is far from its line: ρ is not looked for.
FAR = 40.0


class LimitStatus(Status):
    """What is proved of a late flow; the first three certify its selection."""

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
        status: a `LimitStatus`.
        wrong_sign: number of pairs whose c_k is not proved to be positive.
        active_wrong_sign: how many of them have a margin of one in p_mm.
        equilibrium: ρ in axes of the span of the active differences, seen from p; None
            where it was not looked for.
        distance: of p from the line p_mm s + ρ.
        push: bound on what pairs with c_k <= 0 still move p by.
        budget: R: distance from the line that p never exceeds; ∞ where none is proved.
        error: bound on the relative change of forces by shares of losers and by ties.
    """

    status: LimitStatus
    wrong_sign: int = 0
    active_wrong_sign: int = 0
    equilibrium: Rest | None = None
    distance: float = np.inf
    push: float = 0.0
    budget: float = np.inf
    error: float = 0.0

    @property
    def is_certified(self) -> bool:
        """Whether the selection is proved to be final."""
        return self.status <= LimitStatus.NO_PAIRS


class Ties(NamedTuple):
    """What the forces of pairs need to know of the ties' rest.

    Attributes:
        distance: of p from the proved minimum, along the ties' axes.
        stiffness: least curvature of the risk there.
        basin: distance from which p ends in it.
    """

    distance: float = 0.0
    stiffness: float = np.inf
    basin: float = np.inf


FREE = Ties()


def limit_certificate(
    forces: PairForces,
    words: Float[np.ndarray, "vocabulary dim"],
    margin: TextMargin,
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
        log_time: s = log(1+t).
        diameter: bound on ‖E_s − E_r‖ of all tokens.
        ties: where tied tokens rest.

    Returns:
        The status and its numbers.

    Example:
        >>> from scipy.sparse import csr_array
        >>> from jaxselect.text.curvature import Bags
        >>> from jaxselect.text.margin import text_margin
        >>> from jaxselect.text.pair_forces import pair_forces
        >>> one = Bags(csr_array([[1.0, 1.0]]), np.ones(1), np.eye(2), np.eye(2)[0], 1)
        >>> chosen, late = np.array([True, False]), np.array([15.0, -15.0])
        >>> margin = text_margin(np.eye(2), one.counts, chosen, late)
        >>> found = pair_forces(one, one.counts, chosen, late)
        >>> limit_certificate(found, np.eye(2), margin, 30.0, diameter=1.5).status.name
        'OFFSET'
    """
    if margin.status == TextMarginStatus.NO_PAIRS:
        return LimitCertificate(LimitStatus.NO_PAIRS, distance=0.0, budget=0.0)
    if margin.status != TextMarginStatus.SOLVED:
        return LimitCertificate(LimitStatus.UNSOLVED)
    with np.errstate(over="ignore", invalid="ignore"):
        case = _Case.at(forces, words, margin, log_time, diameter, ties)
        final = case.all_positive()
        return final if final.is_certified else case.within_budget()


class _Case(NamedTuple):
    """A late flow at one time, as both theorems need it.

    Attributes:
        forces: of the pairs, in logs.
        ties: where tied tokens rest.
        words: E orthogonal to the ties.
        growth: p_mm.
        duals: of every pair in p_mm.
        log_time: s.
        excess: margins under p_mm less one; zero for active pairs.
        length: ‖D_k‖.
        size: |λ_k|.
        gross: what λ_k is the rest of.
        error: what λ_k may be wrong by for ever.
        diameter: bound on ‖E_s − E_r‖.
        sharp: whether every pair is active or clearly not.
    """

    forces: PairForces
    ties: Ties
    words: Float[np.ndarray, "vocabulary dim"]
    growth: Float[np.ndarray, " dim"]
    duals: Float[np.ndarray, " pairs"]
    log_time: float
    excess: Float[np.ndarray, " pairs"]
    length: Float[np.ndarray, " pairs"]
    size: Float[np.ndarray, " pairs"]
    gross: Float[np.ndarray, " pairs"]
    error: Float[np.ndarray, " pairs"]
    diameter: float
    sharp: bool

    @classmethod
    def at(
        cls,
        forces: PairForces,
        words: Float[np.ndarray, "vocabulary dim"],
        margin: TextMargin,
        log_time: float,
        diameter: float,
        ties: Ties,
    ) -> "_Case":
        """From the arguments of `limit_certificate`."""
        scores = words @ margin.direction
        excess = scores[forces.winners] - scores[forces.losers] - 1
        sharp = not bool(((excess > ACTIVE) & (excess <= INACTIVE)).any())
        return cls(
            forces,
            ties,
            words,
            margin.direction,
            _duals(forces, margin),
            log_time,
            np.where(excess <= INACTIVE, 0.0, excess),
            lengths(words, forces.winners, forces.losers),
            np.exp(forces.log_force + log_time),
            np.exp(forces.log_gross + log_time),
            np.exp(forces.log_error + log_time),
            diameter,
            sharp,
        )

    def passing_error(self, lost_share: float) -> float:
        """Change of forces relative to their gross that fades like e^{−s}.

        Infinite where leading order is no description.

        Args:
            lost_share: bound on the shares of all losers of a bag, from now on.
        """
        drive = self.forces.drive * lost_share * self.diameter
        # Within the basin the curvature is half of the least at rest, or more.
        held = 2 * drive / self.ties.stiffness
        off = held if self.settling <= MOMENT else max(self.ties.distance, held)
        error = self.forces.response * (lost_share + self.diameter * off)
        described = error <= 0.5 and max(held, self.ties.distance) <= self.ties.basin
        return error if described and self.settling <= SETTLED else np.inf

    @property
    def settling(self) -> float:
        """Log-time in which ties lose a part e^{−100} less than all of `distance`."""
        rate = self.ties.stiffness * np.exp(min(self.log_time, LARGEST)) / 2
        return float(100 / rate)

    def all_positive(self) -> LimitCertificate:
        """All c_k > 0, by so much that Σλ stays bounded: the selection is final."""
        forces = self.forces
        norm = np.linalg.norm(self.growth)
        total = 2 * max(float(self.size.sum()), float(norm**2))
        # A loser's share is its force times this, and all forces together are bounded.
        most = np.exp((forces.log_share - forces.log_force).max() - self.log_time)
        error = self.passing_error(float(most * total))
        wrong = ~self._positive(error, 2 * float(self.length.max() * norm))
        counted = {
            "wrong_sign": int(wrong.sum()),
            "active_wrong_sign": int((wrong & (self.excess == 0)).sum()),
        }
        if wrong.any() or not np.isfinite(error):
            return LimitCertificate(LimitStatus.UNRESOLVED, **counted, error=error)
        equilibrium, _, distance = self._equilibrium()
        known = self.sharp and equilibrium is not None and equilibrium.proved
        status = LimitStatus.OFFSET if known else LimitStatus.DIRECTION
        return LimitCertificate(
            status,
            **counted,
            equilibrium=equilibrium,
            distance=distance if known else np.inf,
            error=error,
        )

    def within_budget(self) -> LimitCertificate:
        """Some c_k <= 0: p stays so near a line that none of them comes back."""
        error = self.passing_error(float(np.exp(ROOM) * self.forces.lost_share))
        wrong = ~self._positive(error)
        active = self.excess == 0
        counted = {
            "wrong_sign": int(wrong.sum()),
            "active_wrong_sign": int((wrong & active).sum()),
        }
        if not np.isfinite(error):
            return LimitCertificate(LimitStatus.UNRESOLVED, **counted, error=error)
        equilibrium, along, distance = self._equilibrium()
        if not self.sharp or equilibrium is None or not equilibrium.proved:
            none = LimitStatus.NO_EQUILIBRIUM
            return LimitCertificate(
                none, **counted, equilibrium=equilibrium, error=error
            )
        scores = self.words @ along
        ahead = scores[self.forces.winners] - scores[self.forces.losers]
        # The line is known to the radius of ρ.
        near = np.exp(self.length * equilibrium.radius - ahead)
        size = (self.size + self.error) * near
        fading = np.divide(size * self.length, self.excess, out=0 * size, where=~active)
        longest = float(self.length.max())
        # What fades with losers' shares, at forces as large as the budget allows.
        passing = error * np.exp(ROOM) * float(self.gross @ self.length)
        passing += self.settling * float((self.size + self.gross) @ self.length)
        base = distance + float(fading[~wrong].sum()) + passing
        push = PUSH / longest
        if counted["active_wrong_sign"]:
            push = min(push, equilibrium.basin - base)
        budget = base + push
        pushed = float((fading * np.exp(self.length * budget))[wrong].sum())
        within = push > 0 and pushed <= push
        within = within and longest * (budget + distance) <= ROOM
        return LimitCertificate(
            LimitStatus.OFFSET if within else LimitStatus.OUT_OF_REACH,
            **counted,
            equilibrium=equilibrium,
            distance=distance,
            push=pushed,
            budget=budget if within else np.inf,
            error=error,
        )

    def _positive(self, passing: float, by: float = 1.0) -> Bool[np.ndarray, " pairs"]:
        """Whether c_k is positive by some times its error."""
        error = by * (passing * self.gross + self.error)
        return (self.forces.sign > 0) & (self.size > error)

    def _equilibrium(self) -> tuple[Rest | None, np.ndarray, float]:
        """ρ seen from p, in axes and as a vector, and its distance."""
        on = np.flatnonzero(self.excess == 0)
        nowhere = None, np.zeros_like(self.growth), np.inf
        if not on.size or not (self.forces.log_force[on] + self.log_time < FAR).all():
            return nowhere
        winners, losers = self.forces.winners[on], self.forces.losers[on]
        differences = self.words[winners] - self.words[losers]
        axes = span_axes(differences)
        found = offset_equilibrium(
            differences @ axes,
            self.forces.sign[on] * self.size[on],
            self.error[on],
            self.duals[on],
        )
        distance = float(np.linalg.norm(found.cls)) + found.radius
        return found, axes @ found.cls, distance


def _duals(forces: PairForces, margin: TextMargin) -> Float[np.ndarray, " pairs"]:
    """The duals of p_mm, pair by pair in the order of the forces."""
    words = 1 + max(forces.winners.max(), forces.losers.max())
    found = np.zeros(len(forces.winners))
    pairs = forces.winners * words + forces.losers
    found[np.searchsorted(pairs, margin.winners * words + margin.losers)] = margin.duals
    return found
