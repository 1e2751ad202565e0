"""The end of a flow whose ties rest on a manifold: followed until it is proved."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from ..corpora.checks import for_corpus
from ..corpora.sparse import SparseCorpus
from ..flow.manifold_flow import manifold_flow, on_manifold, still_tied
from ..flow.result import Flow, FlowStatus
from ..margin.certified_minimum import certified_minimum
from ..margin.manifold_certificate import is_trapped
from ..margin.manifold_equilibrium import stationary
from ..margin.max_margin import MaxMarginStatus
from ..margin.sparse_max_margin import SparseMaxMargin, sparse_max_margin
from ..model.parameters import Parameters
from ..model.ragged_bags import RaggedBags
from ..pairs.pair_forces import pair_forces
from ..pairs.ragged_pairs import contract_ties
from ..pairs.tie_contents import Contents, tie_contents
from ..pairs.tie_manifold import StrictTies, TieManifold, tie_manifold
from .flow_end import FlowEnd, tied_bags

# In scores: how far ties may be from their manifold, as they come to rest on it.
CLOSE = 1e-2
# Log-time between two certificates; late, as a multiple of the log-time itself.
INTERVAL, LATE_INTERVAL = 60.0, 0.5
# Log-time in which the last token of a content whose f rose loses its share.
FADES = 12.0
# Log-time from which p without a balance near it is taken to leave along the manifold.
LEAVES = 1500.0


class ManifoldEnd(NamedTuple):
    """Where an end on a manifold is proved, or left, and what is selected there.

    Attributes:
        cls: p.
        log_time: log(1+t).
        selected: of every entry of the count matrix, whether the token keeps its share.
        tied: the tokens that share a sequence with another one.
        axes: orthonormal, of the span of their differences.
        margin: the max-margin problem orthogonal to these, without the tokens that all
            twins of a content hold and that lost.
        returned: whether instead a token that had lost returned there.
        released: the flow to where no ties are left that rest on a manifold, instead.
    """

    cls: Float[np.ndarray, " dim"]
    log_time: float
    selected: Bool[np.ndarray, " entries"]
    tied: Int[np.ndarray, " tokens"]
    axes: Float[np.ndarray, "dim axes"]
    margin: SparseMaxMargin
    returned: bool = False
    released: Flow | None = None


@for_corpus(-1, 1)
def manifold_end(
    parameters: Parameters,
    corpus: SparseCorpus,
    ending: FlowEnd,
    *,
    from_log_time: float,
    until_log_time: float,
) -> ManifoldEnd | None:
    """The certified end of p on the manifold of its ties.

    Source: mathematics, section 7e.

    Args:
        parameters: (E, p, v), p where `ending` was found.
        corpus: n bags with labels ±1.
        ending: what is selected there, its ties without a strict rest.
        from_log_time: log(1+t) there.
        until_log_time: log(1+t) to stop at.

    Returns:
        Where the end is proved, or a token returned; none if neither.
    """
    if ending.rest is None or ending.margin.status != MaxMarginStatus.SOLVED:
        return None
    bags, cls = RaggedBags.of_corpus(parameters, corpus), np.asarray(parameters.cls)
    selected = ending.selected
    late = _late_flow(bags, selected, cls, ending.margin)
    if late is None:
        return None
    ties = late.ties
    there = on_manifold(ties, cls)
    if not np.ptp(bags.embeddings @ (there - cls)) <= CLOSE:
        return None
    counts, whole = contract_ties(bags.counts, selected)
    response = pair_forces(bags, counts, whole, there).response
    now = from_log_time
    while now < until_log_time:
        ahead = min(now + _interval(ties, now), until_log_time)
        flow = manifold_flow(ties, there, now, ahead)
        there, now = on_manifold(ties, np.asarray(flow.cls)), float(flow.log_time)
        if flow.status == FlowStatus.SELECTION_CHANGED and flow.num_steps > 1:
            return late.ended(there, now)._replace(returned=True)
        if flow.status != FlowStatus.REACHED or not np.isfinite(there).all():
            return None
        tied = _still_tied(bags, ties, there, now)
        changed = bool((tied != selected).any())
        again = _late_flow(bags, tied, there, late.margin) if changed else None
        if again is None and changed and len(ties.rising):
            return late.ended(there, now)._replace(released=flow)
        if again is not None:
            late, ties, selected = again, again.ties, tied
        if len(ties.rising):
            continue
        rest = stationary(ties, there, now)
        if rest is None and now > LEAVES:
            return None
        if rest and is_trapped(ties, rest, there, now, response=response):
            return late.ended(there, now)
    return None


class _LateFlow(NamedTuple):
    """A late flow, its contents and its max-margin problem."""

    ties: TieManifold
    contents: Contents
    margin: SparseMaxMargin

    def ended(self, cls: Float[np.ndarray, " dim"], log_time: float) -> ManifoldEnd:
        """Its proved end."""
        return ManifoldEnd(
            cls,
            log_time,
            self.contents.selected,
            self.ties.words[self.ties.tied.any(axis=0)],
            self.contents.axes,
            self.margin,
        )


def _late_flow(
    bags: RaggedBags,
    selected: Bool[np.ndarray, " entries"],
    cls: Float[np.ndarray, " dim"],
    guess: SparseMaxMargin,
) -> _LateFlow | None:
    """The late flow of a selection, if it is one on a manifold."""
    contents = tie_contents(bags, selected, cls)
    strict = None if contents is None else _strict_ties(bags, contents, cls)
    if contents is None or strict is None:
        return None
    margin = guess
    if not len(contents.rising):
        free = contents.free(bags.embeddings)
        margin = sparse_max_margin(free, *contents.competing(), guess.direction)
    if margin.status != MaxMarginStatus.SOLVED:
        return None
    ties = tie_manifold(bags, contents, strict, margin.direction)
    return None if ties is None else _LateFlow(ties, contents, margin)


def _interval(ties: TieManifold, log_time: float) -> float:
    """Log-time to the next certificate, or to the top of a rising f."""
    if not len(ties.rising):
        return max(INTERVAL, LATE_INTERVAL * log_time)
    held = np.where(ties.counts > 0, 1.0, np.nan)[ties.rising]
    best = np.nanmax(held * np.outer(ties.label, ties.values[ties.words]), axis=1)
    return max(float(best.min()) - log_time, 0.0) + FADES


def _strict_ties(
    bags: RaggedBags, contents: Contents, cls: Float[np.ndarray, " dim"]
) -> StrictTies | None:
    """Minimum of the ties apart from twins, if p provably ends there."""
    if not len(contents.strict):
        return StrictTies(np.zeros((len(cls), 0)), np.zeros(0))
    of_strict = np.isin(contents.of_bag, contents.strict)[bags.row]
    axes, _, shared = tied_bags(bags, contents.selected & of_strict)
    rest = certified_minimum(shared, axes.T @ cls)
    if not rest.proved or np.linalg.norm(rest.cls - axes.T @ cls) > rest.basin:
        return None
    return StrictTies(axes, rest.cls, rest.radius, rest.stiffness, rest.basin)


def _still_tied(
    bags: RaggedBags,
    ties: TieManifold,
    cls: Float[np.ndarray, " dim"],
    log_time: float,
) -> Bool[np.ndarray, " entries"]:
    """The selection at p, of every entry."""
    place = np.full(len(bags.values), -1)
    place[ties.words] = np.arange(len(ties.words))
    row = np.repeat(ties.of_bag, np.diff(bags.counts.indptr))
    column = place[bags.counts.indices]
    return still_tied(ties, cls, log_time)[row, column] & (column >= 0)
