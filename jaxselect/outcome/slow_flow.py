"""The flow of p while some ties rest already and other bags are undecided.

A bag of functional margin m pulls with e^{−m}: its tokens part from log t = m on. By
then the gradients of tokens tied long before may cancel below rounding, which ends the
flow of `flow.sparse_flow`; but these rest, and the others need no cancelling
(mathematics, section 7d).
"""

from collections.abc import Callable

import numpy as np
from jaxtyping import Array, Bool, Float

from ..checks import increasing
from ..corpora.checks import for_corpus
from ..corpora.sparse import SparseCorpus
from ..errors import BadInput
from ..flow.bdf import LATEST, REPRESENTABLE, BdfSettings, integrate
from ..flow.result import Flow
from ..margin.certified_minimum import certified_minimum
from ..model.attention import attend_bags
from ..model.parameters import Parameters
from ..model.ragged_bags import RaggedBags
from ..model.ragged_objective import curvature, pull
from ..pairs.merged_ties import merge_ties
from ..pairs.ragged_pairs import contract_ties
from .flow_end import FlowEnd, tied_bags
from .reduced_flow import ends_in_basin

# Log of the force from which on a bag is decided: its tokens have parted for as long.
DECIDED = 17.0
# In log-time: later, ties among undecided bags would cancel below rounding.
LONGEST = LATEST - DECIDED
# Errors made here are amplified later.
CLOSELY = BdfSettings(tolerance=1e-6)


@for_corpus(-1, 1)
def slow_flow(
    parameters: Parameters,
    corpus: SparseCorpus,
    ending: FlowEnd,
    *,
    from_log_time: float,
    until_log_time: float,
    path_log_times: Float[Array, " times"] | None = None,
    settings: BdfSettings = CLOSELY,
    callback: Callable[[float], object] = lambda log_time: None,
) -> Flow | None:
    """The flow dp/dt = −P ∇L, P orthogonal to the ties of the decided bags, at rest.

    A bag is decided if e^τ σ(−m) w / n ≥ e¹⁷, w its range of values.

    Source: mathematics, section 7d.

    Args:
        parameters: (E, p, v), p where `ending` was found.
        corpus: n bags with labels ±1.
        ending: what is selected there; of undecided bags it is not read.
        from_log_time: log(1+t) there.
        until_log_time: log(1+t) to stop at; 17 log-times on it stops by itself.
        path_log_times: increasing values of log(1+t) to save p at; none by default.
        settings: tolerance and bound.
        callback: called with log(1+t) after every step.

    Returns:
        The flow's end; nothing where every bag is decided, or the rest of a tie is not
        proved.

    Raises:
        BadInput: log-times out of range or order.

    Example:
        See `trajectory`.
    """
    times = np.zeros(0) if path_log_times is None else np.asarray(path_log_times)
    if not 0 <= from_log_time <= until_log_time <= REPRESENTABLE:
        raise BadInput(
            f"from {from_log_time} until {until_log_time}: wanted log-times in order, "
            f"within 0 … {REPRESENTABLE:g}"
        )
    increasing("path_log_times", times)
    bags = RaggedBags.of_corpus(parameters, corpus)
    cls = np.asarray(parameters.cls)
    decided, top = _decided(bags, cls, from_log_time)
    if decided.all():
        return None
    selected = np.where(decided, ending.selected, top)
    axes, tied, shared = tied_bags(bags, selected)
    if tied.size:
        rest = certified_minimum(shared, axes.T @ cls)
        if not ends_in_basin(shared, rest, axes.T @ cls):
            return None
        cls = cls + axes @ (rest.cls - axes.T @ cls)
    classes, _ = contract_ties(bags.counts, selected)
    slow = merge_ties(bags, classes, bags.embeddings @ (axes @ (axes.T @ cls)))

    def across(vectors: np.ndarray) -> np.ndarray:
        return vectors - (vectors @ axes) @ axes.T

    return integrate(
        lambda _, place: across(pull(slow, place)),
        lambda time, place: -across(across(curvature(slow, place, time)).T),
        cls,
        from_log_time=from_log_time,
        until_log_time=min(until_log_time, from_log_time + LONGEST),
        path_log_times=times,
        settings=settings,
        callback=callback,
    )


def _decided(
    bags: RaggedBags, cls: Float[np.ndarray, " dim"], log_time: float
) -> tuple[Bool[np.ndarray, " entries"], Bool[np.ndarray, " entries"]]:
    """Entries of decided bags, and the top entry of every bag."""
    attention = attend_bags(bags.embeddings @ cls, bags.values, bags)
    values = bags.gather(bags.values)
    spread = bags.largest(values) + bags.largest(-values)
    slope = bags.loss.log_slope(bags.labels * attention.output)
    # A bag of one value has nothing to decide.
    with np.errstate(divide="ignore"):
        force = log_time + slope + np.log(spread / bags.num_total)
    decided = (force >= DECIDED) | (spread == 0)
    return bags.spread(decided), bags.marks(np.asarray(attention.top))
