"""The flow of p on real text after its selection, to times that no rounding bounds.

Words at finite odds hold each other with pulls e^s times larger than what still moves
p, and their rounding ends the flow of `text.flow` at log t = 34. But they rest, and
move p nowhere else. What is left is a sum of exponentials, one for each pair of a
selected word and one that lost (mathematics, section 7d).
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from scipy.integrate import BDF
from scipy.optimize import brentq

from ..errors import BadInput
from ..model.checks import increasing
from ..model.parameters import Parameters
from . import flow as plain
from .curvature import LEFT_OUT, Bags, attention, curvature, descent, pulls
from .ending import TextEnding, merged
from .flow import (
    LOOK_BACK,
    TextFlow,
    TextFlowSettings,
    TextFlowStatus,
    follow,
    step,
)
from .margin import contests, net
from .sparse import SparseCorpus
from .steady import CLOSELY

# Share of a sequence's weight at which a word that lost has returned: with less it
# changes the others' pulls by less than a step may err. Share of the speed from which
# the error of a step sees a pair.
RETURNED = SEEN = 1e-3
# A small error now leads astray late.
LATE = TextFlowSettings(tolerance=1e-5)
LATEST = 600.0


class Pairs(NamedTuple):
    """Pairs of a selected word and one that lost, K of them, and what they pull.

    Attributes:
        free: E orthogonal to the words that rest.
        winners: the word selected.
        losers: the word that lost.
        sign: 1 where the bags together pull towards the winner, else −1.
        log_pull: log |c_k e^{−D_kᵀp}| at the p that they were taken at.
        share: the most that the loser has there of some sequence's weight.
    """

    free: Float[np.ndarray, "vocabulary dim"]
    winners: Int[np.ndarray, " pairs"]
    losers: Int[np.ndarray, " pairs"]
    sign: Float[np.ndarray, " pairs"]
    log_pull: Float[np.ndarray, " pairs"]
    share: Float[np.ndarray, " pairs"]

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


class _Motion(NamedTuple):
    """How p and s move along the curve (p, s), at a point of it.

    With Q = ‖dp/ds‖: dp/dℓ = w g of length w = Q/√(1+Q²), and ds/dℓ = r = 1/√(1+Q²).
    """

    force: Float[np.ndarray, " pairs"]
    towards: Float[np.ndarray, " dim"]
    speed: float
    rate: float
    ahead: Float[np.ndarray, " pairs"]


def late_flow(
    parameters: Parameters,
    corpus: SparseCorpus,
    ending: TextEnding,
    *,
    from_log_time: float = 0.0,
    until_log_time: float = LATEST,
    path_log_times: Float[Array, " times"] | None = None,
    settings: TextFlowSettings = LATE,
    watch: Callable[[float], object] = lambda log_time: None,
) -> TextFlow:
    """dp/dt = Σ_k c_k e^{−D_kᵀp} D_k, orthogonal to the words that rest.

    Source: mathematics, section 7d.

    Args:
        parameters: (E, p, v), p where `ending` was found.
        corpus: n bags with labels ±1.
        ending: what is selected there, and where the words in balance rest.
        from_log_time: log(1+t) there.
        until_log_time: log(1+t) to stop at, at most 600.
        path_log_times: increasing values of log(1+t) to save p at; none by default.
        settings: tolerance and bound.
        watch: called with log(1+t) after every step.

    Returns:
        The flow's end; RETURNING where a word that had lost is back at a thousandth of
        some sequence's weight.

    Raises:
        BadInput: log-times out of range or order.

    Example:
        >>> from jaxselect.model.corpus import from_sequences
        >>> from jaxselect.text.ending import text_ending
        >>> from jaxselect.text.flow import text_flow
        >>> from jaxselect.text.sparse import from_corpus
        >>> bags = from_corpus(from_sequences([[0, 2], [1, 2]], [1, -1], vocabulary=3))
        >>> head = jnp.array([1.0, -1.0, 0.0])
        >>> start = Parameters(jnp.eye(3), jnp.zeros(3), head)
        >>> flow = text_flow(start, bags)
        >>> there = Parameters(jnp.eye(3), flow.cls, head)
        >>> end = text_ending(start, bags, flow)
        >>> late = late_flow(there, bags, end, from_log_time=34.0)
        >>> round(late.log_time.item()), (late.cls[:2] / 600).round(2).tolist()
        (600, [0.33, 0.33])
    """
    times = np.zeros(0) if path_log_times is None else np.asarray(path_log_times)
    if not 0 <= from_log_time <= until_log_time <= LATEST:
        raise BadInput(
            f"from {from_log_time} until {until_log_time}: wanted log-times in order, "
            f"within 0 … {LATEST:g}"
        )
    increasing("path_log_times", times)
    pairs, start, held = _pairs(parameters, corpus, ending)
    earlier = max(until_log_time - LOOK_BACK, from_log_time)
    return _along(
        pairs,
        start + held,
        from_log_time,
        np.append(times, [earlier, until_log_time]),
        settings,
        watch,
    )


def _pairs(
    parameters: Parameters, corpus: SparseCorpus, ending: TextEnding
) -> tuple[Pairs, Float[np.ndarray, " dim"], Float[np.ndarray, " dim"]]:
    """The pairs of an ending, and p in its two parts: free, and at rest."""
    bags = Bags.of_corpus(parameters, corpus)
    axes, cls = ending.axes, np.asarray(parameters.cls)
    held = axes @ (axes.T @ cls if ending.rest is None else ending.rest.cls)
    start = cls - axes @ (axes.T @ cls)
    free = bags.embeddings - (bags.embeddings @ axes) @ axes.T
    counts, selected = merged(bags.counts, ending.selected)
    winners, losers, place = contests(counts, selected)
    pull, _ = pulls(bags, start + held)
    strength = net(pull[~selected], place, len(winners))
    weight, _ = attention(bags, start + held)
    share = np.zeros(len(winners))
    np.maximum.at(share, place, weight[~selected])
    felt = strength != 0
    pairs = Pairs(
        free,
        winners[felt],
        losers[felt],
        np.sign(strength[felt]),
        np.log(np.abs(strength[felt])),
        share[felt],
    )
    return pairs, start, held


def _along(
    pairs: Pairs,
    start: Float[np.ndarray, " dim"],
    begun: float,
    wanted: Float[np.ndarray, " times"],
    settings: TextFlowSettings,
    watch: Callable[[float], object],
) -> TextFlow:
    """SciPy's BDF along the curve (p, s), in its own length.

    Late p is straight in s, and a word comes back along a straight line, in no time of
    s: both are long steps.
    """
    dim = len(start)

    def field(_: float, place: np.ndarray) -> np.ndarray:
        motion = _motion(pairs, place)
        return np.append(motion.speed * motion.towards, motion.rate)

    def nearest(place: np.ndarray) -> float:
        """How far the word that is most nearly back is beyond, in log-weight."""
        log_share = np.log(pairs.share) - pairs.ahead(place[:-1])
        return float(log_share.max(initial=-np.inf) - np.log(RETURNED))

    with np.errstate(divide="ignore"):
        bounds = {"rtol": settings.tolerance, "atol": settings.tolerance}
        first = np.append(np.zeros(dim), begun)
        change = lambda length, place: _jacobian(pairs, place, length)  # noqa: E731
        bdf = BDF(field, 0.0, first, np.inf, jac=change, **bounds)
        saved = np.where((wanted <= begun)[:, None], start, np.inf)
        steps, cls, now = 0, start, begun
        status = TextFlowStatus.OUT_OF_STEPS
        if wanted[-1] <= begun:
            status = TextFlowStatus.REACHED
        while steps < settings.max_steps and status == TextFlowStatus.OUT_OF_STEPS:
            bdf.max_step = max(_stride(pairs, bdf.y), np.finfo(float).tiny)
            if not step(bdf):
                status = TextFlowStatus.FAILED
                break
            steps += 1
            along, end = bdf.dense_output(), bdf.t
            if nearest(bdf.y) > 0:
                status = TextFlowStatus.RETURNING
                end = _crossing(nearest, along, bdf.t_old, end)
            if along(end)[-1] >= wanted[-1]:
                status = TextFlowStatus.REACHED
                end = _crossing(_beyond(wanted[-1]), along, bdf.t_old, end)
            cls, now = start + along(end)[:-1], float(along(end)[-1])
            if status == TextFlowStatus.REACHED:
                now = float(wanted[-1])
            for new in np.flatnonzero(~np.isfinite(saved[:, 0]) & (wanted <= now)):
                at = _crossing(_beyond(wanted[new]), along, bdf.t_old, end)
                saved[new] = start + along(at)[:-1]
            watch(now)
    *path, earlier, _ = saved
    times = np.where(np.isfinite(saved[:-2, 0]), wanted[:-2], np.inf)
    return TextFlow(
        # Equinox has a `cls` of its own: no keyword.
        jnp.asarray(cls),
        log_time=jnp.asarray(now),
        status=jnp.asarray(status, jnp.int32),
        num_steps=steps,
        num_fields=bdf.nfev,
        num_curvatures=bdf.njev,
        path_log_times=jnp.asarray(times),
        path_cls=jnp.asarray(path).reshape(-1, dim),
        earlier=jnp.asarray(earlier),
    )


def _motion(pairs: Pairs, place: Float[np.ndarray, " axes"]) -> _Motion:
    """At a move of p and a log-time s; forces are those on dp/dℓ."""
    ahead = pairs.ahead(place[:-1])
    log_pull = pairs.log_pull - ahead
    # All exponents are taken off the largest: no time is too late for a double.
    top = log_pull.max(initial=-np.inf)
    force = pairs.sign * np.exp(log_pull - top)
    total = pairs.combined(force)
    size = np.linalg.norm(total)
    if not size:
        return _Motion(0 * force, total, 0.0, 1.0, ahead)
    log_pace = place[-1] + top + np.log(size)
    speed = np.exp(-np.logaddexp(0.0, -2 * log_pace) / 2)
    rate = np.exp(-np.logaddexp(0.0, 2 * log_pace) / 2)
    return _Motion(force * (speed / size), total / size, speed, rate, ahead)


def _jacobian(
    pairs: Pairs, place: Float[np.ndarray, " axes"], length: float
) -> Float[np.ndarray, "axes axes"]:
    """Of the motion, without pairs that change it little in a step of some length."""
    force, towards, speed, rate, _ = _motion(pairs, place)
    part = max(length, 1.0) * pairs.longest**2 * np.abs(force)
    order = np.argsort(part)
    kept = order[np.cumsum(part[order]) > LEFT_OUT]
    apart = pairs.apart(kept)
    within = -(apart.T * force[kept]) @ apart
    turned = towards @ within
    found = np.empty((len(place), len(place)))
    found[:-1, :-1] = within - np.outer(speed**2 * towards, turned)
    found[:-1, -1] = speed * rate**2 * towards
    found[-1, :-1] = -rate * speed * turned
    found[-1, -1] = -rate * speed**2
    return found


def _stride(pairs: Pairs, place: Float[np.ndarray, " axes"]) -> float:
    """Longest step that an unseen pull towards a loser cannot grow unseen in."""
    force, towards, speed, rate, _ = _motion(pairs, place)
    against = np.flatnonzero(pairs.sign < 0)
    grows = rate - speed * pairs.ahead(towards)[against]
    size = np.abs(force[against]) * pairs.longest
    hidden = (grows > 0) & (size > 0) & (size < speed)
    to_go = np.log(SEEN * speed) - np.log(size[hidden])
    return float(np.min(np.maximum(to_go / 2, 1.0) / grows[hidden], initial=np.inf))


def _beyond(log_time: float) -> Callable[[np.ndarray], float]:
    """How far a place on the curve is beyond a log-time."""
    return lambda place: place[-1] - log_time


def _crossing(
    value: Callable[[np.ndarray], float],
    along: Callable[[float], np.ndarray],
    first: float,
    last: float,
) -> float:
    """Length at which a value becomes positive on the way, or the nearer end."""
    if value(along(first)) >= 0:
        return first
    if value(along(last)) <= 0:
        return last
    return brentq(lambda length: value(along(length)), first, last)


def comes_to_rest(ending: TextEnding, cls: Float[np.ndarray, " dim"]) -> bool:
    """Whether the words in balance end where `ending` proves that they can rest.

    Source: mathematics, section 7d.

    Args:
        ending: of a flow.
        cls: p there.

    Returns:
        Whether the flow of their bags alone, from p, comes into the basin of the rest;
        true where no words are in balance.
    """
    if ending.rest is None:
        return True
    if not ending.rest.proved:
        return False
    flow = follow(
        lambda _, place: descent(ending.shared, place)[0],
        lambda time, place: -curvature(ending.shared, place, time),
        ending.axes.T @ cls,
        until_log_time=plain.LATEST,
        path_log_times=np.zeros(0),
        settings=CLOSELY,
        watch=lambda log_time: None,
    )
    apart = np.linalg.norm(np.asarray(flow.cls) - ending.rest.cls)
    return bool(flow.status == TextFlowStatus.REACHED and apart <= ending.rest.basin)
