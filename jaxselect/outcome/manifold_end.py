"""The end of a flow whose ties rest on a manifold: followed until it is proved."""

import numpy as np
from jaxtyping import Float

from ..flow.manifold_flow import manifold_flow, on_manifold
from ..margin.manifold_certificate import is_trapped
from ..margin.manifold_equilibrium import stationary
from ..margin.max_margin import MaxMarginStatus
from ..model.checks import for_corpus
from ..model.pair_forces import pair_forces
from ..model.parameters import Parameters
from ..model.ragged_bags import RaggedBags
from ..model.ragged_pairs import contract_ties
from ..model.sparse import SparseCorpus
from ..model.tie_manifold import tie_manifold
from .flow_end import FlowEnd

# In scores: how far ties may be from their manifold, as they come to rest on it.
CLOSE = 1e-2
# Log-time between two certificates; late, as a multiple of the log-time itself.
STRIDE, LATE_STRIDE = 60.0, 0.5
# Log-time from which p without a balance near it is taken to leave along the manifold.
LEAVES = 150.0


@for_corpus(-1, 1)
def manifold_end(
    parameters: Parameters,
    corpus: SparseCorpus,
    ending: FlowEnd,
    *,
    from_log_time: float,
    until_log_time: float,
) -> tuple[Float[np.ndarray, " dim"], float] | None:
    """Follow p along the manifold of its ties until it is proved to stay.

    Source: mathematics, section 7e.

    Args:
        parameters: (E, p, v), p where `ending` was found.
        corpus: n bags with labels ±1.
        ending: what is selected there, its ties without a strict rest.
        from_log_time: log(1+t) there.
        until_log_time: log(1+t) to stop at.

    Returns:
        p and the log-time at which the end is proved; none if it is not.
    """
    if ending.rest is None or ending.margin.status != MaxMarginStatus.SOLVED:
        return None
    bags, cls = RaggedBags.of_corpus(parameters, corpus), np.asarray(parameters.cls)
    counts, selected = contract_ties(bags.counts, ending.selected)
    ties = tie_manifold(bags, counts, selected, ending.axes, ending.margin.direction)
    if ties is None:
        return None
    there = on_manifold(ties, cls)
    if not np.ptp(bags.embeddings @ (there - cls)) <= CLOSE:
        return None
    response = pair_forces(bags, counts, selected, there).response
    now = from_log_time
    while now < until_log_time:
        ahead = min(now + max(STRIDE, LATE_STRIDE * now), until_log_time)
        moved = manifold_flow(ties, there, now, ahead)
        if moved is None:
            return None
        there, now = moved, ahead
        rest = stationary(ties, there, now)
        if rest is None and now > LEAVES:
            return None
        if rest and is_trapped(ties, rest, there, now, response=response):
            return there, now
    return None
