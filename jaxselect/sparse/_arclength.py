"""The curve (p, τ) of a late flow, τ = log(1+t), and how p and τ move along it.

p is driven by pairs of a selected word and one that lost, dp/dt = Σ_k c_k e^{−D_kᵀp}
D_k. It is straight in τ while nothing comes back, and straight while a word does, which
takes no time of τ: as a curve it has few bends (mathematics, section 7d).
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from .ragged_objective import LEFT_OUT

# Share of the speed from which the error of a step sees a pair.
SEEN = 1e-3


class Pairs(NamedTuple):
    """Pairs of a selected word and one that lost, K of them, and what they pull.

    Attributes:
        free: E orthogonal to the words that rest.
        winners: the word selected.
        losers: the word that lost.
        sign: 1 where the bags together pull towards the winner, else −1.
        log_pull: log |c_k e^{−D_kᵀp}| at the p that they were taken at.
        log_share: log of the largest share of weight that the loser has in a bag there.
    """

    free: Float[np.ndarray, "vocabulary dim"]
    winners: Int[np.ndarray, " pairs"]
    losers: Int[np.ndarray, " pairs"]
    sign: Float[np.ndarray, " pairs"]
    log_pull: Float[np.ndarray, " pairs"]
    log_share: Float[np.ndarray, " pairs"]

    @property
    def longest(self) -> float:
        """A bound on ‖D_k‖."""
        return float(2 * np.sqrt(np.max(np.sum(self.free**2, axis=1))))

    def ahead(self, moved: Float[np.ndarray, " dim"]) -> Float[np.ndarray, " pairs"]:
        """D_kᵀ of a move of p."""
        scores = self.free @ moved
        return scores[self.winners] - scores[self.losers]

    def combined(self, weights: Float[np.ndarray, " pairs"]) -> np.ndarray:
        """Σ_k w_k D_k."""
        words = len(self.free)
        scores = np.bincount(self.winners, weights, words)
        return (scores - np.bincount(self.losers, weights, words)) @ self.free

    def apart(self, some: Int[np.ndarray, " some"]) -> Float[np.ndarray, "some dim"]:
        """D_k of some pairs."""
        return self.free[self.winners[some]] - self.free[self.losers[some]]


class ArclengthField(NamedTuple):
    """How p and s move along the curve, at a place of it.

    With ℓ its length and Q = ‖dp/dτ‖: dp/dℓ = w g, w = Q/√(1+Q²), dτ/dℓ = 1/√(1+Q²).

    Attributes:
        force: of every pair, what of D_k is in dp/dℓ.
        towards: g, of length one.
        speed: w.
        rate: ds/dℓ.
    """

    force: Float[np.ndarray, " pairs"]
    towards: Float[np.ndarray, " dim"]
    speed: float
    rate: float


def arclength_field(pairs: Pairs, place: Float[np.ndarray, " axes"]) -> ArclengthField:
    """dp/dℓ and ds/dℓ.

    Source: mathematics, section 7d.

    Args:
        pairs: what drives p.
        place: how far p has moved since they were taken, and s.

    Returns:
        The motion; without a pair p stands still.

    Example:
        >>> words, one = np.array([[0.5], [-0.5]]), np.ones(1)
        >>> pair = Pairs(words, np.array([0]), np.array([1]), one, 0 * one, one)
        >>> found = arclength_field(pair, np.array([3.0, 3.0]))
        >>> round(found.speed / found.rate, 9), found.towards.tolist()
        (1.0, [1.0])
    """
    log_pull = pairs.log_pull - pairs.ahead(place[:-1])
    # All exponents are taken off the largest: no time is too late for a double.
    top = log_pull.max(initial=-np.inf)
    force = pairs.sign * np.exp(log_pull - top)
    total = pairs.combined(force)
    size = np.linalg.norm(total)
    if not size:
        return ArclengthField(0 * force, total, 0.0, 1.0)
    log_pace = place[-1] + top + np.log(size)
    speed = np.exp(-np.logaddexp(0.0, -2 * log_pace) / 2)
    rate = np.exp(-np.logaddexp(0.0, 2 * log_pace) / 2)
    return ArclengthField(
        force * (speed / size), total / size, float(speed), float(rate)
    )


def jacobian(
    pairs: Pairs, place: Float[np.ndarray, " axes"], length: float
) -> Float[np.ndarray, "axes axes"]:
    """The Jacobian of the motion, without pairs that change little of it.

    Source: mathematics, section 7d.

    Args:
        pairs: what drives p.
        place: how far p has moved since they were taken, and s.
        length: of the longest step that it is for.

    Returns:
        ∂(dp/dℓ, ds/dℓ)/∂(p, τ).

    Example:
        >>> words, one = np.array([[0.5], [-0.5]]), np.ones(1)
        >>> pair = Pairs(words, np.array([0]), np.array([1]), one, 0 * one, one)
        >>> jacobian(pair, np.zeros(2), 1.0).round(4).tolist()
        [[-0.3536, 0.3536], [0.3536, -0.3536]]
    """
    motion = arclength_field(pairs, place)
    force = motion.force
    part = max(length, 1.0) * pairs.longest**2 * np.abs(force)
    order = np.argsort(part)
    kept = order[np.cumsum(part[order]) > LEFT_OUT]
    apart = pairs.apart(kept)
    within = -(apart.T * force[kept]) @ apart
    _, towards, speed, rate = motion
    turned = towards @ within
    found = np.empty((len(towards) + 1, len(towards) + 1))
    found[:-1, :-1] = within - np.outer(speed**2 * towards, turned)
    found[:-1, -1] = speed * rate**2 * towards
    found[-1, :-1] = -rate * speed * turned
    found[-1, -1] = -rate * speed**2
    return found


def max_step(pairs: Pairs, place: Float[np.ndarray, " axes"]) -> float:
    """Longest step within which no force towards a losing token can grow unseen.

    An implicit step can skip an instability that grows within the step: at most half of
    the length after which the force has a thousandth of the speed.

    Source: mathematics, section 7d.

    Args:
        pairs: what drives p.
        place: how far p has moved since they were taken, and s.

    Returns:
        A length; infinite where no such pull grows.

    Example:
        >>> words, one = np.array([[0.5], [-0.5]]), np.ones(1)
        >>> pair = Pairs(words, np.array([0]), np.array([1]), one, 0 * one, one)
        >>> max_step(pair, np.zeros(2))
        inf
    """
    motion = arclength_field(pairs, place)
    against = np.flatnonzero(pairs.sign < 0)
    grows = motion.rate - motion.speed * pairs.ahead(motion.towards)[against]
    size = np.abs(motion.force[against]) * pairs.longest
    hidden = (grows > 0) & (size > 0) & (size < motion.speed)
    to_go = np.log(SEEN * motion.speed) - np.log(size[hidden])
    grows = grows[hidden]
    return float(np.min(np.maximum(to_go / 2, 1.0) / grows, initial=np.inf))
