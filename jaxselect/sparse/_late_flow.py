"""A late flow at one time: its pairs' forces, margins and errors, and its offset.

dp/dτ = Σ_k λ_k D_k, λ_k = c_k e^{τ − D_kᵀp}, orthogonal to ties (mathematics, section
7c).
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from ..model.frame import span_axes
from ._offset_equilibrium import offset_equilibrium
from .certified_minimum import Minimum
from .pair_forces import PairForces, lengths
from .ragged_pairs import ACTIVE, INACTIVE
from .sparse_max_margin import SparseMaxMargin

# Log-time that ties need at most to come to rest, of any use and counted as none.
SETTLED, MOMENT = 1.0, 1e-3
# Log of the largest number, with room for a product.
LARGEST = 600.0
# Log of a force beyond which p is far from its line: ρ is not looked for.
FAR = 40.0


class Ties(NamedTuple):
    """The ties at rest, as the forces of pairs depend on them.

    Attributes:
        distance: of p from the proved minimum, along the ties' axes.
        stiffness: least curvature of the risk there.
        basin: distance from which p ends in it.
    """

    distance: float = 0.0
    stiffness: float = np.inf
    basin: float = np.inf


FREE = Ties()


class LateFlow(NamedTuple):
    """A late flow at one time, as its certificates need it.

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
        margin: SparseMaxMargin,
        log_time: float,
        diameter: float,
        ties: Ties,
    ) -> "LateFlow":
        """From the arguments of `limit_certificate`.

        Args:
            forces: of all competing pairs at p, ties at rest.
            words: E orthogonal to the ties.
            margin: the max-margin problem of the selection there.
            log_time: s.
            diameter: bound on ‖E_s − E_r‖.
            ties: where tied tokens rest.

        Returns:
            The flow with all that follows from these.
        """
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

        Args:
            lost_share: bound on the shares of all losers of a bag, from now on.

        Returns:
            A bound; infinite where forces at leading order describe nothing.
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

    def positive(self, passing: float, by: float = 1.0) -> Bool[np.ndarray, " pairs"]:
        """Whether c_k is positive by some times its error.

        Args:
            passing: error relative to gross forces, of `passing_error`.
            by: how many times.

        Returns:
            For every pair.
        """
        error = by * (passing * self.gross + self.error)
        return (self.forces.sign > 0) & (self.size > error)

    def equilibrium(self) -> tuple[Minimum | None, np.ndarray, float]:
        """ρ seen from p, in axes and as a vector, and its distance.

        Returns:
            None, zero and ∞ where it was not looked for.
        """
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


def _duals(forces: PairForces, margin: SparseMaxMargin) -> Float[np.ndarray, " pairs"]:
    """The duals of p_mm, pair by pair in the order of the forces."""
    words = 1 + max(forces.winners.max(), forces.losers.max())
    found = np.zeros(len(forces.winners))
    pairs = forces.winners * words + forces.losers
    found[np.searchsorted(pairs, margin.winners * words + margin.losers)] = margin.duals
    return found
