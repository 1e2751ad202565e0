"""Ties that rest on a manifold: twin bags fix f, and p moves along it.

Bags of both labels with the same tied tokens (twins) have a loss of f alone, whose
minima are f = log(n₊/n₋): a manifold, of which no point is a strict minimum. The pairs
move p along it, to a strict minimum of their potential there (mathematics, section 7e).
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.sparse import csr_array

from .frame import span_axes
from .loss import LOGISTIC
from .ragged_bags import RaggedBags
from .ragged_pairs import (
    ACTIVE,
    INACTIVE,
    contract_ties,
    first_selected,
    row_of_entry,
)

# Distances from f = log(n₊/n₋) that the bounds of the loss's curvature are for.
NARROW = 0.1
# Parts of a sum over bags, relative, below which it counts as zero.
CANCELLED = 1e-12


class Contents(NamedTuple):
    """The contents of bags: tied tokens, with their odds' counts.

    Attributes:
        contracted: the count matrix, with ties contracted.
        selected: of every entry.
        carried: of every entry, whether all bags of a twin content hold the token at
            the same ratio, and it has lost: twins together have no force on it.
        ratio: of every entry, its count over those that its bag selects.
        words: the selected tokens.
        counts: of every content over `words`, adding up to one.
        of_bag: content of every bag.
        twins: contents of more than one token.
        number: bags of every content, of labels +1 and −1.
        axes: orthonormal, of the span of tied differences.
    """

    contracted: csr_array
    selected: Bool[np.ndarray, " entries"]
    carried: Bool[np.ndarray, " entries"]
    ratio: Float[np.ndarray, " entries"]
    words: Int[np.ndarray, " words"]
    counts: Float[np.ndarray, "contents words"]
    of_bag: Int[np.ndarray, " bags"]
    twins: Int[np.ndarray, " twins"]
    number: Int[np.ndarray, "2 contents"]
    axes: Float[np.ndarray, "dim axes"]

    def free(
        self, embeddings: Float[np.ndarray, "vocabulary dim"]
    ) -> Float[np.ndarray, "vocabulary dim"]:
        """E orthogonal to the ties."""
        return embeddings - (embeddings @ self.axes) @ self.axes.T

    def competing(self) -> tuple[csr_array, Bool[np.ndarray, " entries"]]:
        """Contracted bags without carried tokens, and their selection."""
        keep = ~self.carried
        length = np.bincount(
            row_of_entry(self.contracted)[keep], minlength=len(self.of_bag)
        )
        begin = np.concatenate([[0], np.cumsum(length)])
        entries = self.contracted.data[keep], self.contracted.indices[keep], begin
        return csr_array(entries, shape=self.contracted.shape), self.selected[keep]


class TieManifold(NamedTuple):
    """The late flow of p along a manifold of ties.

    A pair here is a content and a token that lost to it.

    Attributes:
        embeddings: E.
        values: b = E v.
        words: the tokens of contents, W of them.
        counts: of every content over `words`, those of tied tokens adding up to one.
        carried: the tokens of a content that have lost; no force acts on them.
        falls: margins of these under p_mm, zero for others.
        of_bag: content of every bag.
        twins: contents of more than one token.
        target: f of the twins at rest.
        curvature: φ″ of the twins at rest.
        content: of every pair.
        loser: of every pair.
        strength: c_k, what the bags of a pair add up to.
        gross: what that is the rest of.
        excess: margin of every pair under p_mm less one; zero for active pairs.
        growth: p_mm of the pairs.
        axes: orthonormal, of the span of tied differences, then of active pairs'.
        spread: smallest range of E v over a bag.
        heaviest: largest count of a lost token over those of its content.
    """

    embeddings: Float[np.ndarray, "vocabulary dim"]
    values: Float[np.ndarray, " vocabulary"]
    words: Int[np.ndarray, " words"]
    counts: Float[np.ndarray, "contents words"]
    carried: Bool[np.ndarray, "contents words"]
    falls: Float[np.ndarray, "contents words"]
    of_bag: Int[np.ndarray, " bags"]
    twins: Int[np.ndarray, " twins"]
    target: Float[np.ndarray, " twins"]
    curvature: Float[np.ndarray, " twins"]
    content: Int[np.ndarray, " pairs"]
    loser: Int[np.ndarray, " pairs"]
    strength: Float[np.ndarray, " pairs"]
    gross: Float[np.ndarray, " pairs"]
    excess: Float[np.ndarray, " pairs"]
    growth: Float[np.ndarray, " dim"]
    axes: Float[np.ndarray, "dim axes"]
    spread: float
    heaviest: float


class Point(NamedTuple):
    """Weights, constraints and forces of a manifold of ties at one p.

    Attributes:
        share: weights of every content, at leading order.
        off: f − target of the twins.
        normal: ∂f/∂p of the twins.
        lead: log Z − a of every pair.
        towards: ∂ lead/∂p.
    """

    share: Float[np.ndarray, "contents words"]
    off: Float[np.ndarray, " twins"]
    normal: Float[np.ndarray, "twins dim"]
    lead: Float[np.ndarray, " pairs"]
    towards: Float[np.ndarray, "pairs dim"]


def tie_contents(
    bags: RaggedBags, selected: Bool[np.ndarray, " entries"]
) -> Contents | None:
    """Contents of bags whose ties are held by twins alone.

    Source: mathematics, section 7e.

    Args:
        bags: the corpus and the tokens' embeddings.
        selected: of every entry.

    Returns:
        None where some tied content has bags of one label only, and where the loss is
        not the logistic one.
    """
    if bags.loss != LOGISTIC:
        return None
    contracted, selected = contract_ties(bags.counts, selected)
    entry, row = bags.counts.indices, bags.row
    total = np.bincount(row[selected], bags.counts.data[selected])
    ratio = bags.counts.data / total[row]
    words, place = np.unique(entry[selected], return_inverse=True)
    kept = np.zeros((len(bags.labels), len(words)))
    kept[row[selected], place] = ratio[selected]
    counts, content = np.unique(kept.round(12), axis=0, return_inverse=True)
    content = content.ravel()
    twins = np.flatnonzero((counts > 0).sum(axis=1) > 1)
    number = np.stack(
        [np.bincount(content[bags.labels == y], minlength=len(counts)) for y in (1, -1)]
    )
    if not len(twins) or not number[:, twins].all():
        return None
    carried = ~selected & _common(bags.counts, ratio, content, twins)
    first = first_selected(bags.counts, selected)[row[selected]]
    return Contents(
        contracted,
        selected,
        carried,
        ratio,
        words,
        counts,
        content,
        twins,
        number,
        span_axes(bags.embeddings[first] - bags.embeddings[entry[selected]]),
    )


def tie_manifold(
    bags: RaggedBags, ties: Contents, growth: Float[np.ndarray, " dim"]
) -> TieManifold | None:
    """The late flow of ties that are held by twins alone.

    Args:
        bags: the corpus and the tokens' embeddings.
        ties: contents of its bags.
        growth: p_mm of `Contents.competing`, orthogonal to the ties.

    Returns:
        None where a margin is neither one nor clearly above.
    """
    entry, row, content = bags.counts.indices, bags.row, ties.of_bag
    counts, twins, carried = ties.counts, ties.twins, ties.carried
    positive, negative = ties.number
    target = np.log(positive[twins] / negative[twins])
    output = counts @ bags.values[ties.words]
    output[twins] = target
    words = np.union1d(ties.words, entry[carried])
    wide, falling = np.zeros((2, len(counts), len(words)))
    wide[:, np.searchsorted(words, ties.words)] = counts
    place = content[row[carried]], np.searchsorted(words, entry[carried])
    wide[place], falling[place] = ties.ratio[carried], 1.0
    lost = ~ties.selected & ~carried
    values = bags.values[entry]
    begin = bags.counts.indptr[:-1]
    spread = np.maximum.reduceat(values, begin) - np.minimum.reduceat(values, begin)
    slope = bags.loss.slope(bags.labels * output[content]) / bags.num_total
    size = slope[row][lost] * ties.ratio[lost]
    pairs, at = np.unique(
        np.stack([content[row][lost], entry[lost]]), axis=1, return_inverse=True
    )
    at = at.ravel()
    towards = bags.labels[row][lost] * (output[content][row][lost] - values[lost])
    strength = np.bincount(at, size * towards, pairs.shape[1])
    gross = np.bincount(at, size * spread[row][lost], pairs.shape[1])
    strength[np.abs(strength) <= CANCELLED * gross] = 0.0
    # Orthogonal to the ties the tokens of a content are one.
    free = ties.free(bags.embeddings)
    best = np.zeros(len(counts), int)
    best[content] = first_selected(ties.contracted, ties.selected)
    apart = free[best[pairs[0]]] - free[pairs[1]]
    excess = apart @ growth - 1
    if ((excess > ACTIVE) & (excess <= INACTIVE)).any():
        return None
    excess = np.where(excess <= ACTIVE, 0.0, excess)
    share = 1 / (1 + np.exp(-target))
    pace = free @ growth
    return TieManifold(
        embeddings=bags.embeddings,
        values=bags.values,
        words=words,
        counts=wide,
        carried=falling > 0,
        falls=falling * (pace[best][:, None] - pace[words]),
        of_bag=content,
        twins=twins,
        target=target,
        curvature=(positive + negative)[twins] / bags.num_total * share * (1 - share),
        content=pairs[0],
        loser=pairs[1],
        strength=strength,
        gross=gross,
        excess=excess,
        growth=growth,
        axes=np.hstack([ties.axes, span_axes(apart[excess == 0])]),
        spread=float(spread[spread > 0].min(initial=np.inf)),
        heaviest=float(ties.ratio[lost].max(initial=0.0)),
    )


def forces(
    ties: TieManifold, point: Point, log_time: float
) -> Float[np.ndarray, " pairs"]:
    """λ_k = c_k e^{τ − D_k} of every pair; infinite beyond all numbers.

    Args:
        ties: the late flow.
        point: of `at_point`.
        log_time: τ.

    Returns:
        A force each.
    """
    with np.errstate(over="ignore"):
        return ties.strength * np.exp(log_time - point.lead)


def _common(
    counts: csr_array,
    ratio: Float[np.ndarray, " entries"],
    content: Int[np.ndarray, " bags"],
    twins: Int[np.ndarray, " twins"],
) -> Bool[np.ndarray, " entries"]:
    """Tokens that all bags of a twin content hold at one ratio."""
    row = row_of_entry(counts)
    key = content[row] * counts.shape[1] + counts.indices
    found, at, number = np.unique(key, return_inverse=True, return_counts=True)
    low, high = np.full(len(found), np.inf), np.zeros(len(found))
    np.minimum.at(low, at, ratio)
    np.maximum.at(high, at, ratio)
    of = found // counts.shape[1]
    in_all = np.isin(of, twins) & (number == np.bincount(content)[of])
    return (in_all & (high - low <= CANCELLED * high))[at]


def at_point(ties: TieManifold, cls: Float[np.ndarray, " dim"]) -> Point:
    """Weights, equations and exponents at p."""
    scores = ties.embeddings @ cls
    with np.errstate(divide="ignore"):
        logit = np.log(ties.counts) + scores[ties.words]
    top = logit.max(axis=1, keepdims=True)
    share = np.exp(logit - top)
    size = share.sum(axis=1, keepdims=True)
    share /= size
    log_size = (top + np.log(size)).ravel()
    embeddings, values = ties.embeddings[ties.words], ties.values[ties.words]
    output = (share @ values)[ties.twins]
    part = share[ties.twins] * (values - output[:, None])
    return Point(
        share,
        output - ties.target,
        part @ embeddings,
        log_size[ties.content] - scores[ties.loser],
        (share @ embeddings)[ties.content] - ties.embeddings[ties.loser],
    )
