"""The flow of p after its ties have come to rest, carried on as pairs of tokens alone.

Tied tokens hold each other with gradients e^τ times larger than what still moves p, and
the rounding of these ends the flow of `flow.sparse_flow` at log t = 34. But ties rest,
and move p nowhere else. There remains a sum of exponentials, one for each pair of a
selected token and one that lost (mathematics, section 7d).
"""

from collections.abc import Callable

import numpy as np
from jaxtyping import Array, Float

from ..checks import increasing
from ..corpora.checks import for_corpus
from ..corpora.sparse import SparseCorpus
from ..errors import BadInput
from ..flow.result import Flow
from ..model.parameters import Parameters
from . import bdf
from .arclength_flow import Pairs, arclength_flow
from .bdf import LOOK_BACK, BdfSettings, integrate
from .flow_end import FlowEnd
from .pairs import contract_ties, pair_forces
from .ragged_bags import RaggedBags
from .ragged_objective import curvature, descent

# Errors made here are amplified later, hence the tighter tolerance; of p − p_mm τ.
LATE = BdfSettings(tolerance=1e-7)
# The flow of the ties alone shall end within a basin.
CLOSELY = BdfSettings(tolerance=1e-6, max_steps=600)
# Largest log-time: margins of one are known to 1e-13, times this in scores.
LATEST = 1e5


@for_corpus(-1, 1)
def reduced_flow(
    parameters: Parameters,
    corpus: SparseCorpus,
    ending: FlowEnd,
    *,
    from_log_time: float = 0.0,
    until_log_time: float = 600.0,
    path_log_times: Float[Array, " times"] | None = None,
    settings: BdfSettings = LATE,
    callback: Callable[[float], object] = lambda log_time: None,
) -> Flow:
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
        callback: called with log(1+t) after every step.

    Returns:
        The flow's end; SELECTION_CHANGED where a token that had lost has a thousandth
        of some bag's weight again.

    Raises:
        BadInput: log-times out of range or order.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxselect.sparse.sparse_flow import sparse_flow
        >>> from jaxselect.corpora.corpus import from_sequences
        >>> from jaxselect.corpora.sparse import from_corpus
        >>> from jaxselect.sparse.flow_end import flow_end
        >>> bags = from_corpus(from_sequences([[0, 2], [1, 2]], [1, -1], vocabulary=3))
        >>> head = jnp.array([1.0, -1.0, 0.0])
        >>> start = Parameters(jnp.eye(3), jnp.zeros(3), head)
        >>> flow = sparse_flow(start, bags)
        >>> there = Parameters(jnp.eye(3), flow.query, head)
        >>> end = flow_end(start, bags, flow)
        >>> late = reduced_flow(there, bags, end, from_log_time=34.0)
        >>> round(late.log_time.item()), (late.query[:2] / 600).round(2).tolist()
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
    return arclength_flow(
        pairs,
        start,
        ending.margin.direction,
        from_log_time=from_log_time,
        log_times=np.append(times, [earlier, until_log_time]),
        settings=settings,
        callback=callback,
    )


def _pairs(
    parameters: Parameters, corpus: SparseCorpus, ending: FlowEnd
) -> tuple[Pairs, Float[np.ndarray, " dim"]]:
    """The pairs of an ending, and p with its ties at rest."""
    bags = RaggedBags.of_corpus(parameters, corpus)
    axes, query = ending.axes, np.asarray(parameters.query)
    held = axes.T @ query if ending.rest is None else ending.rest.query
    start = query - axes @ (axes.T @ query) + axes @ held
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


def in_basin_of_minimum(ending: FlowEnd, query: Float[np.ndarray, " dim"]) -> bool:
    """Whether the flow of the tied bags ends in the minimum's basin.

    Source: mathematics, section 7d.

    Args:
        ending: of a flow.
        query: p there.

    Returns:
        Whether the flow of these bags alone, from p, enters the basin; true where no
        tokens are tied.
    """
    shared, rest, begin = ending.shared, ending.rest, ending.axes.T @ query
    if rest is None:
        return True
    if not rest.proved:
        return False

    def inside(place: np.ndarray) -> bool:
        return bool(np.linalg.norm(place - rest.query) <= rest.basin)

    # There a flow would follow rounding alone, in any number of steps.
    if inside(begin):
        return True
    flow = integrate(
        lambda _, place: descent(shared, place)[0],
        lambda time, place: -curvature(shared, place, time),
        begin,
        until_log_time=bdf.LATEST,
        path_log_times=np.zeros(0),
        settings=CLOSELY,
        callback=lambda log_time: None,
    )
    return inside(np.asarray(flow.query))
