"""Ties that rest on a manifold: twin bags fix f, and p moves along it.

Bags of both labels with the same tied tokens (twins) have a loss of f alone, whose
minima are f = log(n₊/n₋): a manifold, of which no point is a strict minimum. Other ties
may fix p in some axes. The pairs move p along the manifold, to a strict minimum of
their potential there (mathematics, section 7e).
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from ..model.frame import span_axes
from ..model.ragged_bags import RaggedBags
from .ragged_pairs import ACTIVE, INACTIVE, first_selected
from .tie_contents import CANCELLED, Contents, shares


class StrictTies(NamedTuple):
    """Ties with a strict minimum, apart from twins.

    Attributes:
        axes: V, orthonormal, of the span of their differences.
        cls: the computed minimum in them.
        radius: bound on its distance from the true one.
        stiffness: least curvature of the risk there.
        basin: distance within which it is at least half of that.
    """

    axes: Float[np.ndarray, "dim axes"]
    cls: Float[np.ndarray, " axes"]
    radius: float = 0.0
    stiffness: float = np.inf
    basin: float = np.inf


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
        twins: contents that f = target holds.
        strict: ties with a strict minimum, which fix p in their axes.
        target: f of the twins at rest.
        curvature: φ″ of the twins at rest; in the axes of strict ties, half of theirs.
        rising: contents that go on like pairs of the lead y f.
        label: y of these.
        content: of every pair.
        loser: of every pair.
        strength: c_k, what the bags of a pair add up to; then those of rising contents.
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
    strict: StrictTies
    target: Float[np.ndarray, " twins"]
    curvature: Float[np.ndarray, " equations"]
    rising: Int[np.ndarray, " rising"]
    label: Float[np.ndarray, " rising"]
    content: Int[np.ndarray, " competing"]
    loser: Int[np.ndarray, " competing"]
    strength: Float[np.ndarray, " pairs"]
    gross: Float[np.ndarray, " pairs"]
    excess: Float[np.ndarray, " pairs"]
    growth: Float[np.ndarray, " dim"]
    axes: Float[np.ndarray, "dim axes"]
    spread: float
    heaviest: float

    @property
    def tied(self) -> Bool[np.ndarray, "contents words"]:
        """The tokens that share a content with another one."""
        held = (self.counts > 0) & ~self.carried
        return held & (held.sum(axis=1) > 1)[:, None]


class Point(NamedTuple):
    """Weights, constraints and forces of a manifold of ties at one p.

    Attributes:
        share: weights of every content, at leading order.
        off: f − target of the twins, then p less its minimum in strict ties' axes.
        normal: derivatives of these.
        lead: log Z − a of every pair, then y f of rising contents.
        towards: ∂ lead/∂p.
    """

    share: Float[np.ndarray, "contents words"]
    off: Float[np.ndarray, " equations"]
    normal: Float[np.ndarray, "equations dim"]
    lead: Float[np.ndarray, " pairs"]
    towards: Float[np.ndarray, "pairs dim"]


def tie_manifold(
    bags: RaggedBags,
    ties: Contents,
    strict: StrictTies,
    growth: Float[np.ndarray, " dim"],
) -> TieManifold | None:
    """The late flow of ties on a manifold.

    Args:
        bags: the corpus and the tokens' embeddings.
        ties: contents of its bags.
        strict: minimum of those that twins do not hold.
        growth: p_mm of `Contents.competing`, orthogonal to the ties.

    Returns:
        None where a margin is neither one nor clearly above.
    """
    entry, row, content = bags.counts.indices, bags.row, ties.of_bag
    counts, twins, carried = ties.counts, ties.twins, ties.carried
    positive, negative = ties.number
    target = np.log(positive[twins] / negative[twins])
    # Seen in their axes alone: scores of one content differ by nothing else.
    score = (bags.embeddings @ (strict.axes @ strict.cls))[ties.words]
    output = shares(counts, score)[0] @ bags.values[ties.words]
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
    # Beside the force of their content's own loss, that of its losers is nothing.
    strength[np.isin(pairs[0], ties.rising)] = 0.0
    gross[np.isin(pairs[0], ties.rising)] = 0.0
    strength[np.abs(strength) <= CANCELLED * gross] = 0.0
    # Orthogonal to the ties the tokens of a content are one.
    free = ties.free(bags.embeddings)
    best = np.zeros(len(counts), int)
    best[content] = first_selected(ties.contracted, ties.selected)
    apart = free[best[pairs[0]]] - free[pairs[1]]
    excess = apart @ growth - 1
    if len(ties.rising):
        # Nothing is proved of them.
        excess[:] = 0.0
    elif ((excess > ACTIVE) & (excess <= INACTIVE)).any():
        return None
    excess = np.where(excess <= ACTIVE, 0.0, excess)
    alone = (positive + negative)[ties.rising] / bags.num_total
    share = 1 / (1 + np.exp(-target))
    bent = (positive + negative)[twins] / bags.num_total * share * (1 - share)
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
        strict=strict,
        target=target,
        curvature=np.append(bent, np.full(len(strict.cls), strict.stiffness / 2)),
        rising=ties.rising,
        label=np.sign(positive - negative)[ties.rising].astype(float),
        content=pairs[0],
        loser=pairs[1],
        strength=np.append(strength, alone),
        gross=np.append(gross, alone),
        excess=np.append(excess, 0 * alone),
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


def at_point(ties: TieManifold, cls: Float[np.ndarray, " dim"]) -> Point:
    """Weights, equations and exponents at p."""
    scores = ties.embeddings @ cls
    share, log_size = shares(ties.counts, scores[ties.words])
    embeddings, values = ties.embeddings[ties.words], ties.values[ties.words]
    # Seen from the value of the best token: what others hold may be below rounding.
    number = len(ties.twins)
    part = share[np.append(ties.twins, ties.rising)]
    best = values[part.argmax(axis=1)]
    apart = values - best[:, None]
    gain = np.sum(part * apart, axis=1)
    output = best + gain
    slope = (part * (apart - gain[:, None])) @ embeddings
    away = (share @ embeddings)[ties.content] - ties.embeddings[ties.loser]
    strict = ties.strict
    return Point(
        share,
        np.append(output[:number] - ties.target, strict.axes.T @ cls - strict.cls),
        np.vstack([slope[:number], strict.axes.T]),
        np.append(
            log_size[ties.content] - scores[ties.loser], ties.label * output[number:]
        ),
        np.vstack([away, ties.label[:, None] * slope[number:]]),
    )
