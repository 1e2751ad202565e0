"""A late flow at one time: its pairs' forces, margins and errors, and its offset.

dp/dτ = Σ_k λ_k D_k, λ_k = c_k e^{τ − D_kᵀp}, orthogonal to ties. Pairs of margin one
move z = p − p_mm τ to rest at the offset ρ. Where all c_k > 0 theirs is the flow of a
convex function Φ; with some c_k < 0 critical points of Φ may be minima still
(mathematics, section 7c).
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from ..model.frame import span_axes
from .certified_minimum import Minimum, certified
from .pairs import ACTIVE, INACTIVE, PairForces, lengths
from .sparse_max_margin import SparseMaxMargin

# Log-time of ties to rest: slower ones are not certified; up to the second it is none.
SETTLED, MOMENT = 1.0, 1e-3
# Log of the largest number, with room for a product.
LARGEST = 600.0
# Log of a force beyond which p is far from its line: ρ is not looked for.
FAR = 40.0
# Terms change by less than e^{1/8} within 1/8 of the longest difference.
BALL = 0.125
NEWTON_STEPS = 80
# Exponents, with room for a square of what they are of.
SQUARABLE = 300.0
# Change of an exponent from which Newton's steps must lessen the gradient.
NEAR = 0.1


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
        distance = float(np.linalg.norm(found.query)) + found.radius
        return found, axes @ found.query, distance


def _duals(forces: PairForces, margin: SparseMaxMargin) -> Float[np.ndarray, " pairs"]:
    """The duals of p_mm, pair by pair in the order of the forces."""
    words = 1 + max(forces.winners.max(), forces.losers.max())
    found = np.zeros(len(forces.winners))
    pairs = forces.winners * words + forces.losers
    found[np.searchsorted(pairs, margin.winners * words + margin.losers)] = margin.duals
    return found


def offset_equilibrium(
    differences: Float[np.ndarray, "pairs axes"],
    force: Float[np.ndarray, " pairs"],
    error: Float[np.ndarray, " pairs"],
    duals: Float[np.ndarray, " pairs"],
) -> Minimum:
    """A critical point x of Φ near zero, with proof of a minimum.

    Φ(x) = Σ λ_k e^{−D_kᵀx} + p_mmᵀx with |D³Φ[u, u, δ]| ≤ Σ |λ_k| (D_kᵀu)² |D_kᵀδ|.

    Source: mathematics, section 7c.

    Args:
        differences: D_k of the pairs of margin one, in axes of their span.
        force: λ_k at x = 0, negative where the bags pull towards the loser.
        error: bound on what the forces may be wrong by.
        duals: λ ≥ 0 with Σ λ_k D_k = p_mm, some of which may be zero.

    Returns:
        The point and its numbers, whether or not they prove anything.

    Example:
        >>> pair, dual = np.array([[2.0]]), np.array([0.25])
        >>> found = offset_equilibrium(pair, np.array([0.5]), np.zeros(1), dual)
        >>> found.proved, round(found.query.item(), 6)
        (True, 0.346574)
    """
    begin = np.zeros(differences.shape[1])
    near = _certified_from(begin, differences, force, error, duals)
    if near.proved:
        return near
    # Where forces come nearest to duals, c_k e^{−D_kᵀx} = λ_k.
    known = (duals > 0) & (force > 0)
    if known.any():
        weight = np.sqrt(duals[known])
        wanted = np.log(force[known]) - np.log(duals[known])
        rows = differences[known] * weight[:, None]
        begin = np.linalg.lstsq(rows, wanted * weight, rcond=None)[0]
    return _certified_from(begin, differences, force, error, duals)


def _certified_from(
    begin: Float[np.ndarray, " axes"],
    differences: Float[np.ndarray, "pairs axes"],
    force: Float[np.ndarray, " pairs"],
    error: Float[np.ndarray, " pairs"],
    duals: Float[np.ndarray, " pairs"],
) -> Minimum:
    """Where Newton's method leads from a point, and its certificate."""
    growth = duals @ differences
    place = _critical_point(begin, differences, force, growth)
    if not (-differences @ place).max(initial=0.0) < SQUARABLE:
        # Forces beyond all numbers: nothing is proved.
        size, nothing = len(growth), np.zeros((len(growth), len(growth)))
        return certified(
            place,
            gradient=np.inf,
            decrement=lambda root: np.inf,
            hessian=-np.eye(size),
            change=(nothing, 0.0),
        )
    spread = np.exp(-differences @ place)
    now, size = force * spread, (np.abs(force) + error) * spread
    left = now @ differences - growth
    lengths = np.linalg.norm(differences, axis=1)
    longest = lengths.max(initial=0.0)
    exponents = np.abs(differences @ place).max(initial=0.0)
    missing = (16 + exponents) * np.finfo(float).eps * size + error * spread

    def decrement(root: np.ndarray) -> float:
        seen = np.linalg.norm(differences @ root, axis=1)
        return float(np.linalg.norm(left @ root) + missing @ seen)

    # The error bound of the forces is taken off the curvature.
    surest = (differences.T * (now - missing)) @ differences
    change = np.exp(BALL) * longest * (differences.T * size) @ differences
    return certified(
        place,
        gradient=float(np.linalg.norm(left) + missing @ lengths),
        decrement=decrement,
        hessian=surest,
        change=(change, BALL / longest if longest else np.inf),
    )


def _critical_point(
    place: Float[np.ndarray, " axes"],
    differences: Float[np.ndarray, "pairs axes"],
    force: Float[np.ndarray, " pairs"],
    growth: Float[np.ndarray, " axes"],
) -> Float[np.ndarray, " axes"]:
    """Newton's method, shortened where exponents change by much."""
    smallest = np.inf
    for _ in range(NEWTON_STEPS):
        if not (-differences @ place).max(initial=0.0) < SQUARABLE:
            break
        now = force * np.exp(-differences @ place)
        left = now @ differences - growth
        try:
            root = np.linalg.cholesky((differences.T * now) @ differences)
        except np.linalg.LinAlgError:
            break
        step = np.linalg.solve(root.T, np.linalg.solve(root, left))
        change = np.abs(differences @ step).max(initial=0.0)
        if change <= NEAR:
            if not np.linalg.norm(left) < smallest:
                break
            smallest = float(np.linalg.norm(left))
        if change:
            # Descends from anywhere where all forces are positive.
            place = place + step * (np.log1p(change) / change)
    return place
