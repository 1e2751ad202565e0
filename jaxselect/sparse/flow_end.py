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

from ..corpora.checks import for_corpus
from ..corpora.sparse import SparseCorpus
from ..flow.result import Flow, FlowStatus
from ..model.frame import span_axes
from ..model.parameters import Parameters
from ..model.selection import WIDTH
from .certified_minimum import Minimum, certified_minimum
from .end import End
from .late_flow import FREE, Ties
from .limit_certificate import (
    CertificateStatus,
    LimitCertificate,
    limit_certificate,
)
from .pairs import contract_ties, first_selected, lengths, pair_forces
from .ragged_bags import RaggedBags
from .ragged_objective import curvature, descent
from .sparse_max_margin import SparseMaxMargin, sparse_max_margin

# Slower than this, in units of 1/‖E_s‖, a flow goes nowhere: a margin of one takes ½.
STANDSTILL = 0.1


class FlowEnd(NamedTuple):
    """A flow's end, and what proves it.

    Attributes:
        selected: of every entry of the count matrix, whether the word keeps its weight.
        tied: the words that share a sequence with another one.
        axes: orthonormal, of the span of their differences.
        shared: the bags of tied words alone, in these axes.
        rest: where p rests in these axes.
        distance: of p in these axes from where it rests.
        margin: the max-margin problem of the selection, orthogonal to the axes.
        pace: ‖Δp/Δ log t − p_mm‖ / ‖p_mm‖ orthogonal to the axes, lately; measured, and
            no part of the proof.
        limit: what is proved of the flow orthogonal to the axes.
        status: a `End`.
    """

    selected: Bool[np.ndarray, " entries"]
    tied: Int[np.ndarray, " words"]
    axes: Float[np.ndarray, "dim axes"]
    shared: RaggedBags
    rest: Minimum | None
    distance: float
    margin: SparseMaxMargin
    pace: float
    limit: LimitCertificate
    status: End


@for_corpus(-1, 1)
def flow_end(
    parameters: Parameters,
    corpus: SparseCorpus,
    flow: Flow,
    *,
    after_return: bool = False,
    selection_gap: float = np.inf,
) -> FlowEnd:
    """The end of a flow: selection, ties, their rest, p_mm, and its certificate.

    Source: mathematics, section 7c.

    Args:
        parameters: (E, ·, v) in double precision.
        corpus: n bags with labels ±1.
        flow: of p, with E and v fixed.
        after_return: whether the flow continues an earlier one, so that tokens may
            already have lost.
        selection_gap: in scores; a token that far below the best of its bag has lost at
            any pace, where that is less than half of log t. Then nothing is certified.

    Returns:
        The end and its certificate.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxselect.corpora.corpus import from_sequences
        >>> from jaxselect.sparse.sparse_flow import sparse_flow
        >>> from jaxselect.corpora.sparse import from_corpus
        >>> bags = from_corpus(from_sequences([[0, 2], [1, 2]], [1, -1], vocabulary=3))
        >>> head = jnp.array([1.0, -1.0, 0.0])
        >>> start = Parameters(jnp.eye(3), jnp.zeros(3), head)
        >>> end = flow_end(start, bags, sparse_flow(start, bags))
        >>> end.status.name, end.limit.status.name
        ('SELECTED', 'OFFSET')
    """
    bags = RaggedBags.of_corpus(parameters, corpus)
    p, s = np.asarray(flow.query), float(flow.log_time)
    speed, reached = _speed(bags, flow)
    longest = np.sqrt(np.max(np.sum(bags.embeddings**2, axis=1)))
    # If p is stationary no token is losing, whatever the score gap.
    moves = after_return or np.linalg.norm(speed) * longest > STANDSTILL
    selected = np.ones(bags.counts.nnz, bool)
    if moves:
        selected = _selected(bags, p, speed, min(selection_gap, WIDTH * s))
    counts, selected = contract_ties(bags.counts, selected)
    axes, tied, shared = _tied_bags(bags, selected)
    resting, distance, held = None, 0.0, axes.T @ p
    if tied.size:
        resting = certified_minimum(shared, held)
        distance = float(np.linalg.norm(resting.query - held))
    free = bags.embeddings - (bags.embeddings @ axes) @ axes.T
    across = p - axes @ held
    margin = sparse_max_margin(free, counts, selected, across)
    norm = np.linalg.norm(margin.direction)
    off = speed - axes @ (axes.T @ speed) - margin.direction
    pace = float(np.linalg.norm(off) / norm) if norm else np.inf
    ties, shift = FREE, np.zeros(bags.counts.nnz)
    if resting is not None:
        held = resting.query
        ties = Ties(distance + resting.radius, resting.stiffness, resting.basin)
        shift = _shift(bags, selected, axes, shared, resting)
    forces = pair_forces(bags, counts, selected, across + axes @ held, shift)
    limit = limit_certificate(
        forces, free, margin, s, diameter=float(2 * longest), ties=ties
    )
    at_rest = resting is None or (resting.proved and distance <= resting.basin)
    status = End.UNPROVED
    if resting is not None and bags.loss.bounds is None:
        status = End.LOSS_UNBOUNDED
    if reached and selection_gap == np.inf and at_rest and limit.is_certified:
        moving = limit.status != CertificateStatus.NO_PAIRS
        status = End.TIED if moving else End.AT_REST
        status = End.SELECTED if resting is None else status
    found = selected, tied, axes, shared, resting, distance, margin, pace, limit
    return FlowEnd(*found, status)


def _speed(bags: RaggedBags, flow: Flow) -> tuple[Float[np.ndarray, " dim"], bool]:
    """Late dp/dτ, and whether it is a mean over the flow's last part."""
    p, s = np.asarray(flow.query), float(flow.log_time)
    earlier, back = np.asarray(flow.earlier_query), s - float(flow.earlier_log_time)
    reached = int(flow.status) == FlowStatus.REACHED
    if reached and back > 0 and bool(np.isfinite(earlier).all()):
        return (p - earlier) / back, True
    # Large enough for any motion to show, and a square of it is a number.
    return np.exp(min(s, 300.0)) * descent(bags, p)[0], False


def _selected(
    bags: RaggedBags,
    query: Float[np.ndarray, " dim"],
    speed: Float[np.ndarray, " dim"],
    gap: float,
) -> Bool[np.ndarray, " entries"]:
    """Whether a token's score is near its bag's best, and stays.

    A pair that was decided late is near still, but parts at a speed of one or more.
    """
    score, pace = (bags.gather(bags.embeddings @ x) for x in (query, speed))
    best = bags.spread(bags.largest(score))
    first = np.where(score == best, pace, -np.inf)
    lead = bags.spread(bags.largest(first))
    return (score >= best - gap) & (pace >= lead - WIDTH)


def _shift(
    bags: RaggedBags,
    selected: Bool[np.ndarray, " entries"],
    axes: Float[np.ndarray, "dim axes"],
    shared: RaggedBags,
    minimum: Minimum,
) -> Float[np.ndarray, " entries"]:
    """Bound on the error of scores in a bag from the minimum's error.

    The true minimum lies within 2 √(∇Lᵀ H⁻¹ ∇L) in the norm of H: a token that is held
    weakly is known less well, and no other one.
    """
    if not minimum.proved:
        # Nothing will be certified.
        return np.zeros(bags.counts.nnz)
    spectrum, vectors = np.linalg.eigh(curvature(shared, minimum.query))
    root = vectors / np.sqrt(np.maximum(spectrum, minimum.stiffness))
    seen = bags.embeddings @ axes @ root
    first = bags.spread(first_selected(bags.counts, selected))
    off = lengths(seen, first, bags.counts.indices)
    tied = bags.largest(np.where(selected, off, 0.0))
    return 2 * minimum.decrement * (off + 2 * bags.spread(tied))


def _tied_bags(
    bags: RaggedBags, selected: Bool[np.ndarray, " entries"]
) -> tuple[Float[np.ndarray, "dim axes"], Int[np.ndarray, " words"], RaggedBags]:
    """Axes of the ties; the tied words; bags of these alone.

    Bags that select one word, or none, are left out; the others' E is in these axes.
    """
    counts = bags.counts
    row = bags.row
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
    return (
        axes,
        words,
        RaggedBags(
            shares, labels, embeddings @ axes, values, bags.num_total, bags.loss
        ),
    )
