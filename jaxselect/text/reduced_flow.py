"""The flow of p after its ties have come to rest, carried on as pairs of tokens alone.

Tied tokens hold each other with pulls e^s times larger than what still moves p, and the
rounding of these ends the flow of `text.flow` at log t = 34. But ties rest, and move p
nowhere else. What is left is a sum of exponentials, one for each pair of a selected
token and one that lost (mathematics, section 7d).
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.integrate import BDF
from scipy.optimize import brentq

from ..errors import BadInput
from ..model.checks import for_corpus, increasing
from ..model.parameters import Parameters
from . import curve
from . import flow as full
from .curvature import Bags, curvature, descent
from .curve import Pairs
from .ending import TextEnding
from .flow import LOOK_BACK, TextFlow, TextFlowSettings, TextFlowStatus, follow, step
from .margin import contract_ties
from .pair_forces import pair_forces
from .sparse import SparseCorpus

# Share of a bag's weight at which a token that lost has returned: with less it changes
# the forces of others by less than a step may err.
RETURNED = 1e-3
# Errors made here are amplified later, hence the tighter tolerance; of p − p_mm s.
LATE = TextFlowSettings(tolerance=1e-7)
# The flow of the ties alone shall end within a basin.
CLOSELY = TextFlowSettings(tolerance=1e-6, max_steps=600)
# Largest log-time: margins of one are known to 1e-13, times this in scores.
LATEST = 1e5


@for_corpus(-1, 1)
def reduced_flow(
    parameters: Parameters,
    corpus: SparseCorpus,
    ending: TextEnding,
    *,
    from_log_time: float = 0.0,
    until_log_time: float = 600.0,
    path_log_times: Float[Array, " times"] | None = None,
    settings: TextFlowSettings = LATE,
    watch: Callable[[float], object] = lambda log_time: None,
) -> TextFlow:
    """The flow dp/dt = Σ_k c_k e^{−D_kᵀp} D_k, orthogonal to ties at rest.

    Source: mathematics, section 7d.

    Args:
        parameters: (E, p, v), p where `ending` was found.
        corpus: n bags with labels ±1.
        ending: what is selected there, and where tied tokens rest.
        from_log_time: log(1+t) there.
        until_log_time: log(1+t) to stop at, at most 10⁵.
        path_log_times: increasing values of log(1+t) to save p at; none by default.
        settings: tolerance and bound.
        watch: called with log(1+t) after every step.

    Returns:
        The flow's end; SELECTION_CHANGED where a token that had lost has a thousandth
        of some bag's weight again.

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
        >>> late = reduced_flow(there, bags, end, from_log_time=34.0)
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
    pairs, start = _pairs(parameters, corpus, ending)
    earlier = max(until_log_time - LOOK_BACK, from_log_time)
    return _along(
        pairs,
        start,
        ending.margin.direction,
        from_log_time,
        np.append(times, [earlier, until_log_time]),
        settings,
        watch,
    )


def _pairs(
    parameters: Parameters, corpus: SparseCorpus, ending: TextEnding
) -> tuple[Pairs, Float[np.ndarray, " dim"]]:
    """The pairs of an ending, and p with its ties at rest."""
    bags = Bags.of_corpus(parameters, corpus)
    axes, cls = ending.axes, np.asarray(parameters.cls)
    held = axes.T @ cls if ending.rest is None else ending.rest.cls
    start = cls - axes @ (axes.T @ cls) + axes @ held
    free = bags.embeddings - (bags.embeddings @ axes) @ axes.T
    counts, selected = contract_ties(bags.counts, ending.selected)
    found = pair_forces(bags, counts, selected, start)
    moving = found.sign != 0
    pairs = Pairs(
        free,
        found.winners[moving],
        found.losers[moving],
        found.sign[moving],
        found.log_force[moving],
        found.log_share[moving],
    )
    return pairs, start


class _Sheared(NamedTuple):
    """The curve (z, s), z = p − p_start − p_mm (s − s_start): late z hardly moves.

    Errors of a step are of z, however long p is.
    """

    pairs: Pairs
    growth: Float[np.ndarray, " dim"]
    begun: float

    def place(self, point: Float[np.ndarray, " axes"]) -> Float[np.ndarray, " axes"]:
        """How far p has moved, and s."""
        moved = point[:-1] + self.growth * (point[-1] - self.begun)
        return np.append(moved, point[-1])

    def field(self, _: float, point: np.ndarray) -> np.ndarray:
        """d(z, s)/dℓ."""
        found = curve.motion(self.pairs, self.place(point))
        moved = found.speed * found.towards - found.rate * self.growth
        return np.append(moved, found.rate)

    def jacobian(self, length: float, point: np.ndarray) -> np.ndarray:
        """Its derivative."""
        found = curve.jacobian(self.pairs, self.place(point), length)
        found[:-1] -= np.outer(self.growth, found[-1])
        found[:, -1] += found[:, :-1] @ self.growth
        return found

    def max_step(self, point: Float[np.ndarray, " axes"]) -> float:
        """Longest step in which no return stays unseen."""
        longest = curve.stride(self.pairs, self.place(point))
        return max(longest, np.finfo(float).tiny)

    def nearest(self, point: Float[np.ndarray, " axes"]) -> float:
        """Largest log-share of a token that lost, less that of a return."""
        log_share = self.pairs.log_share - self.pairs.ahead(self.place(point)[:-1])
        return float(log_share.max(initial=-np.inf) - np.log(RETURNED))


def _along(
    pairs: Pairs,
    start: Float[np.ndarray, " dim"],
    growth: Float[np.ndarray, " dim"],
    begun: float,
    wanted: Float[np.ndarray, " times"],
    settings: TextFlowSettings,
    watch: Callable[[float], object],
) -> TextFlow:
    """SciPy's BDF along the curve (z, s), in its length.

    Late p is straight in s, and a token returns along a straight line, in no time of s:
    both are long steps.
    """
    dim = len(start)
    path_of = _Sheared(pairs, growth, begun)

    def cls_at(point: np.ndarray) -> np.ndarray:
        return start + path_of.place(point)[:-1]

    with np.errstate(divide="ignore"):
        bounds = {"rtol": settings.tolerance, "atol": settings.tolerance}
        first = np.append(np.zeros(dim), begun)
        bdf = BDF(path_of.field, 0.0, first, np.inf, jac=path_of.jacobian, **bounds)
        saved = np.where((wanted <= begun)[:, None], start, np.inf)
        steps, cls, now = 0, start, begun
        status = TextFlowStatus.OUT_OF_STEPS
        if wanted[-1] <= begun:
            status = TextFlowStatus.REACHED
        while steps < settings.max_steps and status == TextFlowStatus.OUT_OF_STEPS:
            bdf.max_step = path_of.max_step(bdf.y)
            if not step(bdf):
                status = TextFlowStatus.FAILED
                break
            steps += 1
            along, end = bdf.dense_output(), bdf.t
            if path_of.nearest(bdf.y) > 0:
                status = TextFlowStatus.SELECTION_CHANGED
                end = _crossing(path_of.nearest, along, bdf.t_old, end)
            if along(end)[-1] >= wanted[-1]:
                status = TextFlowStatus.REACHED
                end = _crossing(_beyond(wanted[-1]), along, bdf.t_old, end)
            cls, now = cls_at(along(end)), float(along(end)[-1])
            if status == TextFlowStatus.REACHED:
                now = float(wanted[-1])
            for new in np.flatnonzero(~np.isfinite(saved[:, 0]) & (wanted <= now)):
                at = _crossing(_beyond(wanted[new]), along, bdf.t_old, end)
                saved[new] = cls_at(along(at))
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


def in_basin_of_minimum(ending: TextEnding, cls: Float[np.ndarray, " dim"]) -> bool:
    """Whether the flow of the tied bags ends in the basin of the proved minimum.

    Source: mathematics, section 7d.

    Args:
        ending: of a flow.
        cls: p there.

    Returns:
        Whether the flow of these bags alone, from p, enters the basin; true where no
        tokens are tied.
    """
    if ending.rest is None:
        return True
    if not ending.rest.proved:
        return False
    rest = ending.rest

    def inside(place: np.ndarray) -> bool:
        return bool(np.linalg.norm(place - rest.cls) <= rest.basin)

    begin = ending.axes.T @ cls
    # There a flow would follow rounding alone, in any number of steps.
    if inside(begin):
        return True
    flow = follow(
        lambda _, place: descent(ending.shared, place)[0],
        lambda time, place: -curvature(ending.shared, place, time),
        begin,
        until_log_time=full.LATEST,
        path_log_times=np.zeros(0),
        settings=CLOSELY,
        watch=lambda log_time: None,
    )
    return inside(np.asarray(flow.cls))
