"""Ties that rest on a manifold: twin bags fix f, and p moves along it.

Bags of both labels with the same tied tokens (twins) have a loss of f alone, whose
minima are f = log(n₊/n₋): a manifold, of which no point is a strict minimum. The pairs
move p along it, to a strict minimum of their potential there (mathematics, section 7e).
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.sparse import csr_array

from .frame import span_axes
from .loss import LOGISTIC
from .ragged_bags import RaggedBags
from .ragged_pairs import ACTIVE, INACTIVE, first_selected

# Distances from f = log(n₊/n₋) that the bounds of the loss's curvature are for.
NARROW = 0.1
# Parts of a sum over bags, relative, below which it counts as zero.
CANCELLED = 1e-12


class TieManifold(NamedTuple):
    """The late flow of p along a manifold of ties.

    A content is what a bag keeps of its weight: tokens and their odds' counts. A pair
    here is a content and a token that lost to it.

    Attributes:
        embeddings: E.
        values: b = E v.
        words: the selected tokens, W of them.
        counts: of every content over `words`, adding up to one.
        twins: contents of more than one token.
        target: f of the twins at rest.
        curvature: φ″ of the twins at rest.
        content: of every pair.
        loser: of every pair.
        strength: c_k, what the bags of a pair add up to.
        gross: what that is the rest of.
        excess: margin of every pair under p_mm less one; zero for active pairs.
        growth: p_mm.
        axes: orthonormal, of the span of tied differences, then of active pairs'.
        spread: smallest range of E v over a bag.
        heaviest: largest count of a lost token over those of its content.
    """

    embeddings: Float[np.ndarray, "vocabulary dim"]
    values: Float[np.ndarray, " vocabulary"]
    words: Int[np.ndarray, " words"]
    counts: Float[np.ndarray, "contents words"]
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


def tie_manifold(
    bags: RaggedBags,
    contracted: csr_array,
    selected: np.ndarray,
    tied_axes: Float[np.ndarray, "dim axes"],
    growth: Float[np.ndarray, " dim"],
) -> TieManifold | None:
    """The late flow of ties that are held by twins alone.

    Args:
        bags: the corpus and the words' embeddings.
        contracted: its counts, with ties contracted.
        selected: of every entry.
        tied_axes: orthonormal, of the span of tied differences.
        growth: p_mm, orthogonal to them.

    Returns:
        None where some tied content has bags of one label only, where the loss is not
        the logistic one, or where a margin is neither one nor clearly above.
    """
    if bags.loss != LOGISTIC:
        return None
    entry, row = bags.counts.indices, _rows(bags.counts)
    words, position = np.unique(entry[selected], return_inverse=True)
    kept = np.zeros((len(bags.labels), len(words)))
    kept[row[selected], position] = bags.counts.data[selected]
    total = kept.sum(axis=1)
    counts, content = np.unique(
        (kept / total[:, None]).round(12), axis=0, return_inverse=True
    )
    content = content.ravel()
    twins = np.flatnonzero((counts > 0).sum(axis=1) > 1)
    positive, negative = (
        np.bincount(content[bags.labels == y], minlength=len(counts)) for y in (1, -1)
    )
    if not len(twins) or not (positive * negative)[twins].all():
        return None
    target = np.log(positive[twins] / negative[twins])
    output = counts @ bags.values[words]
    output[twins] = target
    values = bags.values[entry]
    starts = bags.counts.indptr[:-1]
    spread = np.maximum.reduceat(values, starts) - np.minimum.reduceat(values, starts)
    lost = ~selected
    slope = bags.loss.slope(bags.labels * output[content]) / bags.num_total
    size = (slope / total)[row][lost] * bags.counts.data[lost]
    pairs, at = np.unique(
        np.stack([content[row][lost], entry[lost]]), axis=1, return_inverse=True
    )
    at = at.ravel()
    towards = bags.labels[row][lost] * (output[content][row][lost] - values[lost])
    strength = np.bincount(at, size * towards, pairs.shape[1])
    gross = np.bincount(at, size * spread[row][lost], pairs.shape[1])
    strength[np.abs(strength) <= CANCELLED * gross] = 0.0
    # Orthogonal to the ties the tokens of a content are one.
    free = bags.embeddings - (bags.embeddings @ tied_axes) @ tied_axes.T
    first = np.zeros(pairs.shape[1], int)
    first[at] = np.repeat(
        first_selected(contracted, selected), np.diff(contracted.indptr)
    )[lost]
    excess = (free[first] - free[pairs[1]]) @ growth - 1
    if ((excess > ACTIVE) & (excess <= INACTIVE)).any():
        return None
    excess = np.where(excess <= ACTIVE, 0.0, excess)
    on = excess == 0
    share = 1 / (1 + np.exp(-target))
    return TieManifold(
        embeddings=bags.embeddings,
        values=bags.values,
        words=words,
        counts=counts,
        twins=twins,
        target=target,
        curvature=(positive + negative)[twins] / bags.num_total * share * (1 - share),
        content=pairs[0],
        loser=pairs[1],
        strength=strength,
        gross=gross,
        excess=excess,
        growth=growth,
        axes=np.hstack([tied_axes, span_axes(free[first[on]] - free[pairs[1][on]])]),
        spread=float(spread[spread > 0].min(initial=np.inf)),
        heaviest=float((bags.counts.data / total[row])[lost].max(initial=0.0)),
    )


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


def _rows(counts: csr_array) -> Int[np.ndarray, " entries"]:
    return np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
