"""Where the flow of p on real text ends: what it selects, and what stays in balance.

A review is decided for one word, or some words share it at finite odds. Those are held
by reviews of both classes, in the span of their differences, where p comes to rest.
Orthogonal to it p goes on like p_mm log t, in the max-margin direction of the selection
(mathematics, section 7c).
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from ..model.parameters import Parameters
from ..model.selection import WIDTH
from ..status import Status
from .curvature import BLOCK, Bags, descent, pulls
from .flow import LOOK_BACK, TextFlow, TextFlowStatus
from .margin import TextMargin, TextMarginStatus, contests, net, text_margin, winner
from .rest import Rest, rest, span_axes
from .sparse import SparseCorpus
from .steady import Line, steady

# Slower than this, in units of 1/‖E_s‖, a flow goes nowhere: a margin of one takes ½.
STANDSTILL = 0.1
# Of Δp/Δ log t against p_mm; of a score, moved by pulls towards words that lost until
# they have faded. Where that is small the rest is convex, and ends in p_mm from
# wherever it is. Of a score, moved by all pairs that are not looked at one by one.
PACE, OPPOSED, SLIGHT = 0.2, 1e-2, 1e-6
# Of a margin above one, to the rounding of a direction with hundreds of duals.
TIGHT = 1e-6


class TextEndStatus(Status):
    """What is known of a flow's end; the first three are certified."""

    SELECTED = 0, "Every sequence is decided; p goes on in the max-margin direction."
    TIED = (
        1,
        "Some words rest at finite odds, proved; orthogonal to them p goes on in the "
        "max-margin direction of the selection.",
    )
    AT_REST = 2, "p rests at a strict minimum of the risk, proved."
    NOT_CERTIFIED = 3, "The flow is not at an end that can be proved."


class TextEnding(NamedTuple):
    """A flow's end, and what proves it.

    Attributes:
        selected: of every entry of the count matrix, whether the word keeps its weight.
        tied: the words that share a sequence with another one.
        axes: orthonormal, of the span of their differences.
        shared: the bags of tied words alone, in these axes.
        rest: where p rests in these axes.
        distance: of p in these axes from where it rests.
        margin: the max-margin problem of the selection, orthogonal to the axes.
        pace: ‖Δp/Δ log t − p_mm‖ / ‖p_mm‖ orthogonal to the axes, lately.
        opposed: of the pulls towards words that lost, Σ λ ‖D‖ / ‖p_mm‖.
        repelled: number of pairs pulled that way whose margin p_mm leaves at one: they
            never fade.
        line: with such pairs, the proof that p keeps to a line and none comes back.
        status: a `TextEndStatus`.
    """

    selected: Bool[np.ndarray, " entries"]
    tied: Int[np.ndarray, " words"]
    axes: Float[np.ndarray, "dim axes"]
    shared: Bags
    rest: Rest | None
    distance: float
    margin: TextMargin
    pace: float
    opposed: float
    repelled: int
    line: Line | None
    status: TextEndStatus


def text_ending(
    parameters: Parameters,
    corpus: SparseCorpus,
    flow: TextFlow,
    *,
    anew: bool = False,
    width: float = np.inf,
) -> TextEnding:
    """Selection → words in balance → where they rest → max-margin direction of p.

    Source: mathematics, section 7c.

    Args:
        parameters: (E, ·, v) in double precision.
        corpus: n bags with labels ±1.
        flow: of p, with E and v fixed.
        anew: whether it goes on from an earlier one: words may have lost before.
        width: in scores, how far behind a word has lost at any pace, where that is less
            than half of log t; then nothing is certified.

    Returns:
        The end and its certificate.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxselect.model.corpus import from_sequences
        >>> from jaxselect.text.flow import text_flow
        >>> from jaxselect.text.sparse import from_corpus
        >>> bags = from_corpus(from_sequences([[0, 2], [1, 2]], [1, -1], vocabulary=3))
        >>> head = jnp.array([1.0, -1.0, 0.0])
        >>> start = Parameters(jnp.eye(3), jnp.zeros(3), head)
        >>> text_ending(start, bags, text_flow(start, bags)).status.name
        'SELECTED'
    """
    bags = Bags.of_corpus(parameters, corpus)
    p, s = np.asarray(flow.cls), float(flow.log_time)
    earlier, back = np.asarray(flow.earlier), min(LOOK_BACK, s)
    reached = int(flow.status) == TextFlowStatus.REACHED
    reached = reached and back > 0 and bool(np.isfinite(earlier).all())
    speed = (p - earlier) / back if reached else np.exp(s) * descent(bags, p)[0]
    longest = np.sqrt(np.max(np.sum(bags.embeddings**2, axis=1)))
    # What no longer moves has no loser, however far behind a word may be.
    moves = anew or np.linalg.norm(speed) * longest > STANDSTILL
    selected = np.ones(bags.counts.nnz, bool)
    if moves:
        selected = _near(bags, p, speed, min(width, WIDTH * s))
    counts, selected = merged(bags.counts, selected)
    axes, tied, shared = _balance(bags, selected)
    resting, distance = None, 0.0
    if tied.size:
        resting = rest(shared, axes.T @ p)
        distance = float(np.linalg.norm(resting.cls - axes.T @ p))
    free = bags.embeddings - (bags.embeddings @ axes) @ axes.T
    margin = text_margin(free, counts, selected, p - axes @ (axes.T @ p))
    norm = np.linalg.norm(margin.direction)
    off = speed - axes @ (axes.T @ speed) - margin.direction
    pace = float(np.linalg.norm(off) / norm) if norm else np.inf
    opposed, repelled, line, harmless = _line(
        pulls(bags, p)[0], counts, selected, free, s, margin, pace <= PACE
    )
    at_rest = resting is None or (resting.proved and distance <= resting.basin)
    moving = margin.status == TextMarginStatus.SOLVED
    moving = moving and pace <= PACE and harmless
    still = margin.status == TextMarginStatus.NO_PAIRS
    status = TextEndStatus.NOT_CERTIFIED
    if reached and width == np.inf and at_rest and (moving or still):
        status = TextEndStatus.TIED if moving else TextEndStatus.AT_REST
        status = TextEndStatus.SELECTED if resting is None else status
    found = selected, tied, axes, shared, resting, distance, margin
    return TextEnding(*found, pace, opposed, repelled, line, status)


def _near(
    bags: Bags,
    cls: Float[np.ndarray, " dim"],
    speed: Float[np.ndarray, " dim"],
    width: float,
) -> Bool[np.ndarray, " entries"]:
    """Whether a word is near its bag's best, and does not fall behind it.

    A pair that was decided late is still near; but it parts at a speed of one or more.
    """
    counts = bags.counts
    score, pace = (bags.embeddings @ x for x in (cls, speed))
    score, pace = score[counts.indices], pace[counts.indices]
    length, begin = np.diff(counts.indptr), counts.indptr[:-1]
    best = np.repeat(np.maximum.reduceat(score, begin), length)
    first = np.where(score == best, pace, -np.inf)
    lead = np.repeat(np.maximum.reduceat(first, begin), length)
    return (score >= best - width) & (pace >= lead - WIDTH)


def merged(
    counts: csr_array, selected: Bool[np.ndarray, " entries"]
) -> tuple[csr_array, Bool[np.ndarray, " entries"]]:
    """Bags in which one word stands for those tied to it, and the selection made whole.

    Words tied in one bag are at finite odds wherever else they meet.

    Args:
        counts: a row per bag, a column per word.
        selected: of every entry.

    Returns:
        The same entries under other columns, some of them twice; of every entry.

    Example:
        >>> bags = csr_array([[1.0, 1.0, 0.0], [1.0, 1.0, 1.0]])
        >>> tied = np.array([True, True, True, False, False])
        >>> one, whole = merged(bags, tied)
        >>> one.indices.tolist(), whole.tolist()
        ([0, 0, 0, 0, 2], [True, True, True, True, False])
    """
    words = counts.shape[1]
    first = np.repeat(winner(counts, selected), np.diff(counts.indptr))
    edges = first[selected], counts.indices[selected]
    ties = csr_array((np.ones(selected.sum()), edges), shape=(words, words))
    _, label = connected_components(ties, directed=False)
    _, stands = np.unique(label, return_index=True)
    same = stands[label]
    whole = selected | (same[counts.indices] == same[first])
    entries = counts.data, same[counts.indices], counts.indptr
    return csr_array(entries, counts.shape), whole


def _line(
    pull: Float[np.ndarray, " entries"],
    counts: csr_array,
    selected: Bool[np.ndarray, " entries"],
    free: Float[np.ndarray, "vocabulary dim"],
    log_time: float,
    margin: TextMargin,
    on_its_way: bool,
) -> tuple[float, int, Line | None, bool]:
    """What pulls towards losers, how many of it never fade, and whether it is harmless.

    Proved of those that never fade is that p keeps to its line all the same.
    """
    norm = np.linalg.norm(margin.direction)
    if not norm:
        return 0.0, 0, None, True
    winners, losers, place = contests(counts, selected)
    force = net(pull[~selected], place, len(winners)) * np.exp(log_time)
    scores = free @ margin.direction
    spare = scores[winners] - scores[losers] - 1
    wrong, tight = force < 0, spare <= TIGHT
    spare[tight] = 0.0
    length = _apart(free, winners, losers)
    opposed = float((np.abs(force) * length)[wrong].sum() / norm)
    # The others fade like e^{−spare s}: so far they may move a score, all together.
    push = np.abs(force) * length * length.max() / np.where(tight, np.inf, spare)
    harmless, line = bool(push[wrong].sum() <= OPPOSED), None
    repelled = int((tight & wrong).sum())
    if repelled and on_its_way:
        order, felt = np.argsort(push), tight.copy()
        felt[order[np.cumsum(push[order]) > SLIGHT]] = True
        apart = free[winners[felt]] - free[losers[felt]]
        line = steady(apart, force[felt], spare[felt], margin.direction)
        harmless = harmless and line.holds(SLIGHT / length.max())
    return opposed, repelled, line, harmless


def _apart(
    free: Float[np.ndarray, "vocabulary dim"],
    one: Int[np.ndarray, " pairs"],
    other: Int[np.ndarray, " pairs"],
) -> Float[np.ndarray, " pairs"]:
    """‖E_s − E_r‖ of many pairs, whose differences would fill the memory."""
    lengths = np.zeros(len(one))
    for at in range(0, len(one), BLOCK):
        part = slice(at, at + BLOCK)
        lengths[part] = np.linalg.norm(free[one[part]] - free[other[part]], axis=1)
    return lengths


def _balance(
    bags: Bags, selected: Bool[np.ndarray, " entries"]
) -> tuple[Float[np.ndarray, "dim axes"], Int[np.ndarray, " words"], Bags]:
    """Axes of the span of words that share, these words, the bags of these alone."""
    counts = bags.counts
    row = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
    number = np.bincount(row[selected], minlength=counts.shape[0])
    entry = selected & (number > 1)[row]
    words, place = np.unique(counts.indices[entry], return_inverse=True)
    kept, order = np.unique(row[entry], return_inverse=True)
    shape = len(kept), len(words)
    shares = csr_array((counts.data[entry], (order, place)), shape=shape)
    # Every shared word against the first of its bag.
    first = np.full(len(kept), len(words))
    np.minimum.at(first, order, place)
    edges = np.unique(np.stack([first[order], place], axis=1), axis=0)
    edges = edges[edges[:, 0] != edges[:, 1]]
    embeddings = bags.embeddings[words]
    apart = embeddings[edges[:, 0]] - embeddings[edges[:, 1]]
    axes = span_axes(apart)
    values, labels = bags.values[words], bags.labels[kept]
    return axes, words, Bags(shares, labels, embeddings @ axes, values, bags.of)
