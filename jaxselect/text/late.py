"""The flow of p on real text after its selection, to times that no rounding bounds.

Words at finite odds hold each other with pulls e^s times larger than what still moves
p, and their rounding ends the flow of `text.flow` at log t = 34. But they rest, and
move p nowhere else. What is left is a sum of exponentials, one for each pair of a
selected word and one that lost (mathematics, section 7d).
"""

from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..errors import BadInput
from ..model.parameters import Parameters
from . import flow as plain
from .curvature import LEFT_OUT, Bags, attention, curvature, descent, pulls
from .ending import TextEnding, merged
from .flow import TextFlow, TextFlowSettings, TextFlowStatus, follow
from .margin import contests, net
from .sparse import SparseCorpus

# Share of a sequence's weight at which a word that lost has returned: with less it
# changes the others' pulls by less than the tolerance of a step.
RETURNED = 1e-3
# In log t, where a word may return: its pull grows by a factor of three or so a unit.
STRIDE = 0.5
# Of a flow that shall end within the basin of a minimum.
CLOSELY = TextFlowSettings(tolerance=1e-6)
# The largest double is e^709, and pulls are squared.
LATEST, GREATEST = 600.0, 300.0


def late_flow(
    parameters: Parameters,
    corpus: SparseCorpus,
    ending: TextEnding,
    *,
    until_log_time: float = LATEST,
    path_log_times: Float[Array, " times"] | None = None,
    settings: TextFlowSettings = TextFlowSettings(),
    watch: Callable[[float], object] = lambda log_time: None,
) -> TextFlow:
    """dp/dt = Σ_k c_k e^{−D_kᵀp} D_k, orthogonal to the words that rest.

    Source: mathematics, section 7d.

    Args:
        parameters: (E, p, v), p where `ending` was found.
        corpus: n bags with labels ±1.
        ending: what is selected there, and where the words in balance rest.
        until_log_time: log(1+t) to stop at, at most 600, where t = 0 at `parameters`.
        path_log_times: increasing values of log(1+t) to save p at; none by default.
        settings: tolerance and bound.
        watch: called with log(1+t) after every step.

    Returns:
        The flow's end; RETURNING where a word that had lost is back at a thousandth of
        some sequence's weight.

    Raises:
        BadInput: a log-time out of range.

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
        >>> late = late_flow(there, bags, text_ending(start, bags, flow))
        >>> round(late.log_time.item()), (late.cls[:2] / 600).round(2).tolist()
        (600, [0.33, 0.33])
    """
    if not 0 <= until_log_time <= LATEST:
        raise BadInput(f"until_log_time {until_log_time}: wanted 0 … {LATEST:g}")
    bags = Bags.of_corpus(parameters, corpus)
    axes, cls = ending.axes, np.asarray(parameters.cls)
    rests = axes.T @ cls if ending.rest is None else ending.rest.cls
    free = bags.embeddings - (bags.embeddings @ axes) @ axes.T
    start = cls - axes @ (axes.T @ cls)
    counts, selected = merged(bags.counts, ending.selected)
    winners, losers, place = contests(counts, selected)

    def ahead(cls: np.ndarray) -> np.ndarray:
        scores = free @ cls
        return scores[winners] - scores[losers]

    first = ahead(start)
    pull, _ = pulls(bags, start + axes @ rests)
    strength = net(pull[~selected], place, len(winners))
    share, _ = attention(bags, start + axes @ rests)
    weight = np.zeros(len(winners))
    np.maximum.at(weight, place, share[~selected])

    def faded(cls: np.ndarray) -> np.ndarray:
        return np.exp(np.minimum(first - ahead(cls), GREATEST))

    def field(_: float, cls: np.ndarray) -> np.ndarray:
        force = strength * faded(cls)
        scores = np.bincount(winners, force, len(free))
        return (scores - np.bincount(losers, force, len(free))) @ free

    longest = 4 * np.max(np.sum(free**2, axis=1))

    def jacobian(time: float, cls: np.ndarray) -> np.ndarray:
        force = strength * faded(cls)
        part = time * longest * np.abs(force)
        order = np.argsort(part)
        kept = order[np.cumsum(part[order]) > LEFT_OUT]
        apart = free[winners[kept]] - free[losers[kept]]
        return -(apart.T * force[kept]) @ apart

    def returning(cls: np.ndarray) -> bool:
        return bool(np.max(weight * faded(cls), initial=0.0) > RETURNED)

    times = np.zeros(0) if path_log_times is None else np.asarray(path_log_times)
    flow = follow(
        field,
        jacobian,
        start,
        until_log_time=until_log_time,
        path_log_times=times,
        settings=settings,
        watch=watch,
        returning=returning,
        exact=True,
        stride=STRIDE if (strength < 0).any() else np.inf,
    )
    held = axes @ rests
    saved = lambda flow: (flow.cls, flow.path_cls, flow.earlier)  # noqa: E731
    whole = lambda found: jnp.asarray(np.asarray(found) + held)  # noqa: E731
    return eqx.tree_at(saved, flow, replace_fn=whole)


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
