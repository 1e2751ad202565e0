"""The flow of p on real text after its selection, to times that no rounding bounds.

Words at finite odds hold each other with pulls e^s times larger than what still moves
p, and their rounding ends the flow of `text.flow` at log t = 34. But they rest, and
move p nowhere else. What is left is a sum of exponentials, one for each pair of a
selected word and one that lost (mathematics, section 7d).
"""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.integrate import BDF
from scipy.optimize import brentq

from ..errors import BadInput
from ..model.checks import increasing
from ..model.parameters import Parameters
from . import curve
from . import flow as plain
from .attention import attention
from .curvature import Bags, curvature, descent, pulls
from .curve import Pairs
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
# changes the others' pulls by less than a step may err.
RETURNED = 1e-3
# A small error now leads astray late.
LATE = TextFlowSettings(tolerance=1e-5)
LATEST = 600.0


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
        The flow's end; SELECTION_CHANGED where a word that had lost has a
        thousandth of some sequence's weight again.

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
    weight, _ = attention(bags.counts, bags.embeddings @ (start + held))
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
        found = curve.motion(pairs, place)
        return np.append(found.speed * found.towards, found.rate)

    def nearest(place: np.ndarray) -> float:
        """How far the word that is most nearly back is beyond, in log-weight."""
        log_share = np.log(pairs.share) - pairs.ahead(place[:-1])
        return float(log_share.max(initial=-np.inf) - np.log(RETURNED))

    with np.errstate(divide="ignore"):
        bounds = {"rtol": settings.tolerance, "atol": settings.tolerance}
        first = np.append(np.zeros(dim), begun)
        change = lambda length, place: curve.jacobian(pairs, place, length)  # noqa: E731
        bdf = BDF(field, 0.0, first, np.inf, jac=change, **bounds)
        saved = np.where((wanted <= begun)[:, None], start, np.inf)
        steps, cls, now = 0, start, begun
        status = TextFlowStatus.OUT_OF_STEPS
        if wanted[-1] <= begun:
            status = TextFlowStatus.REACHED
        while steps < settings.max_steps and status == TextFlowStatus.OUT_OF_STEPS:
            bdf.max_step = max(curve.stride(pairs, bdf.y), np.finfo(float).tiny)
            if not step(bdf):
                status = TextFlowStatus.FAILED
                break
            steps += 1
            along, end = bdf.dense_output(), bdf.t
            if nearest(bdf.y) > 0:
                status = TextFlowStatus.SELECTION_CHANGED
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
    rest = ending.rest

    def inside(place: np.ndarray) -> bool:
        return bool(np.linalg.norm(place - rest.cls) <= rest.basin)

    begin = ending.axes.T @ cls
    # So near its rest, what a flow could follow is rounding, and takes any number of
    # steps.
    if inside(begin):
        return True
    flow = follow(
        lambda _, place: descent(ending.shared, place)[0],
        lambda time, place: -curvature(ending.shared, place, time),
        begin,
        until_log_time=plain.LATEST,
        path_log_times=np.zeros(0),
        settings=CLOSELY,
        watch=lambda log_time: None,
    )
    return inside(np.asarray(flow.cls))
