"""The late flow of pairs alone, along its curve (p, τ), τ = log(1+t).

p is driven by pairs of a selected word and one that lost, dp/dt = Σ_k c_k e^{−D_kᵀp}
D_k. It is straight in τ while nothing comes back, and straight while a word does, which
takes no time of τ: as a curve it has few bends (mathematics, section 7d).
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.integrate import BDF
from scipy.optimize import brentq

from ..flow.result import Flow, FlowStatus
from .bdf import BdfSettings, host_flow, step
from .ragged_objective import LEFT_OUT

# Share of a bag's weight at which a token that lost has returned: with less it changes
# the forces of others by less than a step may err.
RETURNED = 1e-3
# Least tolerance of a step, in roundings of p: Newton's method asks for 3e-4 of it.
ROUNDINGS = 1e4 * float(np.finfo(float).eps)
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
    """How p and τ move along the curve, at a place of it.

    With ℓ its length and Q = ‖dp/dτ‖: dp/dℓ = w g, w = Q/√(1+Q²), dτ/dℓ = 1/√(1+Q²).

    Attributes:
        force: of every pair, what of D_k is in dp/dℓ.
        towards: g, of length one.
        speed: w.
        rate: dτ/dℓ.
    """

    force: Float[np.ndarray, " pairs"]
    towards: Float[np.ndarray, " dim"]
    speed: float
    rate: float


def arclength_field(pairs: Pairs, place: Float[np.ndarray, " axes"]) -> ArclengthField:
    """dp/dℓ and dτ/dℓ at `place`: how far p has moved, and τ. No pair, no motion.

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
    """∂(dp/dℓ, dτ/dℓ)/∂(p, τ), without pairs that change little in a step of a length.

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


def arclength_flow(
    pairs: Pairs,
    start: Float[np.ndarray, " dim"],
    growth: Float[np.ndarray, " dim"],
    *,
    from_log_time: float,
    log_times: Float[np.ndarray, " times"],
    settings: BdfSettings,
    callback: Callable[[float], object],
) -> Flow:
    """SciPy's BDF along the curve (z, τ), in its length; z = p − p_start − g (τ − τ_0).

    Late p is straight in τ, and a token returns along a straight line, in no time of τ:
    both are long steps. Errors of a step are of z, however long p is.

    Source: mathematics, section 7d.

    Args:
        pairs: what drives p.
        start: p_start.
        growth: g, the velocity of p in τ; p_mm where it is known.
        from_log_time: τ_0 = log(1+t) there.
        log_times: values of τ to save p at; the last is where the flow stops, the one
            before it is that of `earlier_query`.
        settings: tolerance and bound.
        callback: called with log(1+t) after every step.

    Returns:
        The flow's end; SELECTION_CHANGED where a token that had lost has a thousandth
        of some bag's weight again.

    Example:
        >>> tokens, one = np.array([[0.5], [-0.5]]), np.ones(1)
        >>> pair = Pairs(tokens, np.array([0]), np.array([1]), one, 0 * one, -one * 9)
        >>> until = dict(from_log_time=0.0, log_times=np.array([38.0, 40.0]))
        >>> quiet = dict(settings=BdfSettings(tolerance=1e-7), callback=lambda s: None)
        >>> round(arclength_flow(pair, 0 * one, one, **until, **quiet).query.item(), 4)
        40.0
    """
    curve = _Sheared(pairs, start, growth, from_log_time)
    dim, until = len(start), float(log_times[-1])
    with np.errstate(divide="ignore"):
        bounds = {"rtol": settings.tolerance, "atol": settings.tolerance}
        first = np.append(np.zeros(dim), from_log_time)
        bdf = BDF(curve.field, 0.0, first, np.inf, jac=curve.jacobian, **bounds)
        saved = np.where((log_times <= from_log_time)[:, None], start, np.inf)
        steps, query, now = 0, start, from_log_time
        status = FlowStatus.OUT_OF_STEPS
        if until <= from_log_time:
            status = FlowStatus.REACHED
        while steps < settings.max_steps and status == FlowStatus.OUT_OF_STEPS:
            bdf.max_step = curve.max_step(bdf.y)
            bdf.atol = settings.tolerance + ROUNDINGS * np.linalg.norm(query)
            if not step(bdf):
                status = FlowStatus.FAILED
                break
            steps += 1
            along, end = bdf.dense_output(), bdf.t
            if curve.nearest(bdf.y) > 0:
                status = FlowStatus.SELECTION_CHANGED
                end = _crossing(curve.nearest, along, bdf.t_old, end)
            if along(end)[-1] >= until:
                status = FlowStatus.REACHED
                end = _crossing(_beyond(until), along, bdf.t_old, end)
            query, now = curve.query(along(end)), float(along(end)[-1])
            if status == FlowStatus.REACHED:
                now = until
            for new in np.flatnonzero(~np.isfinite(saved[:, 0]) & (log_times <= now)):
                at = _crossing(_beyond(log_times[new]), along, bdf.t_old, end)
                saved[new] = curve.query(along(at))
            callback(now)
    counts = bdf.nfev, bdf.njev
    return host_flow(query, now, status, steps, log_times[:-1], saved[:-1], counts)


class _Sheared(NamedTuple):
    """The curve (z, τ), z = p − p_start − p_mm (s − s_start): late z hardly moves.

    Errors of a step are of z, however long p is.
    """

    pairs: Pairs
    start: Float[np.ndarray, " dim"]
    growth: Float[np.ndarray, " dim"]
    begun: float

    def query(self, point: Float[np.ndarray, " axes"]) -> Float[np.ndarray, " dim"]:
        """The query p at a point of the curve."""
        return self.start + self.place(point)[:-1]

    def place(self, point: Float[np.ndarray, " axes"]) -> Float[np.ndarray, " axes"]:
        """How far p has moved, and s."""
        moved = point[:-1] + self.growth * (point[-1] - self.begun)
        return np.append(moved, point[-1])

    def field(self, _: float, point: np.ndarray) -> np.ndarray:
        """d(z, τ)/dℓ."""
        found = arclength_field(self.pairs, self.place(point))
        moved = found.speed * found.towards - found.rate * self.growth
        return np.append(moved, found.rate)

    def jacobian(self, length: float, point: np.ndarray) -> np.ndarray:
        """Its derivative."""
        found = jacobian(self.pairs, self.place(point), length)
        found[:-1] -= np.outer(self.growth, found[-1])
        found[:, -1] += found[:, :-1] @ self.growth
        return found

    def max_step(self, point: Float[np.ndarray, " axes"]) -> float:
        """Longest step in which no return stays unseen."""
        longest = max_step(self.pairs, self.place(point))
        return max(longest, np.finfo(float).tiny)

    def nearest(self, point: Float[np.ndarray, " axes"]) -> float:
        """Largest log-share of a token that lost, less that of a return."""
        log_share = self.pairs.log_share - self.pairs.ahead(self.place(point)[:-1])
        return float(log_share.max(initial=-np.inf) - np.log(RETURNED))


def _beyond(log_time: float) -> Callable[[np.ndarray], float]:
    """Log-time of a point on the curve, less a given one."""
    return lambda point: point[-1] - log_time


def _crossing(
    value: Callable[[np.ndarray], float],
    along: Callable[[float], np.ndarray],
    first: float,
    last: float,
) -> float:
    """Length at which a value becomes positive, or the nearer end."""
    if value(along(first)) >= 0:
        return first
    if value(along(last)) <= 0:
        return last
    return brentq(lambda length: value(along(length)), first, last)
