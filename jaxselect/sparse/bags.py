"""Labelled bags of any lengths in NumPy: attention, risk, derivatives in p.

Thousands of long bags do not fit into a padded array. A bag is a row of a count matrix
instead, and quantities per token of a bag are arrays over its entries. The Hessian of
the risk is Eᵀ (Σ_X diag(h) − h xᵀ − x hᵀ) E with forces h and partners x of every bag
(mathematics, section 1b). Late in a flow the weights of nearly all words are too small
to matter within the elapsed time, and only the other words are kept in the Hessian
(mathematics, section 7a).
"""

import itertools
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped
from scipy.sparse import csr_array
from scipy.spatial.distance import pdist

from ..checks import BadInput
from ..data.corpus import AbstractBags, labels_among, same_vocabulary
from ..data.loss import LOGISTIC, Loss
from ..data.sparse import SparseCorpus
from ..model.attention import (
    Attention,
    advances,
    attend_bags,
    attention_shares,
    log_weighted_residual,
    partners,
    score_gradient,
    sized_forces,
)
from ..model.parameters import Parameters


def check_sparse_problem(parameters: Parameters, corpus: SparseCorpus) -> None:
    """Refuse parameters and a sparse corpus that do not go together.

    Raises:
        BadInput: another kind of argument, E with another number of rows than the
            vocabulary has tokens, several heads, or labels other than ±1.
    """
    for name, given, wanted in (
        ("parameters", parameters, Parameters),
        ("corpus", corpus, SparseCorpus),
    ):
        if not isinstance(given, wanted):
            kind = type(given).__name__
            raise BadInput(f"{name} of type {kind}: wanted {wanted.__name__}")
    same_vocabulary(parameters.embeddings, corpus.vocabulary)
    labels_among(corpus.labels, (-1, 1))
    if parameters.head.ndim > 1:
        raise BadInput(f"{parameters.head.shape[1]} heads: wanted one, and labels ±1")


@dataclass(frozen=True, eq=False)
class RaggedBags(AbstractBags):
    """Labelled bags of any lengths and the tokens' embeddings, on the host.

    Attributes:
        counts: a row per sequence, a column per token.
        labels: ±1.
        embeddings: E.
        values: b = E v.
        num_total: number of sequences that L is the mean over, these being some of
            them.
        loss: ℓ as a function of the margin y f.
    """

    counts: csr_array
    labels: Float[np.ndarray, " sequences"]
    embeddings: Float[np.ndarray, "vocabulary dim"]
    values: Float[np.ndarray, " vocabulary"]
    num_total: int
    loss: Loss = LOGISTIC

    @classmethod
    def of_corpus(cls, parameters: Parameters, corpus: SparseCorpus) -> "RaggedBags":
        """Check a corpus and the embeddings, and copy them to the host."""
        check_sparse_problem(parameters, corpus)
        embeddings = np.asarray(parameters.embeddings)
        return cls(
            corpus.by_sequence.to_csr(),
            np.asarray(corpus.labels, float),
            embeddings,
            embeddings @ np.asarray(parameters.head),
            len(corpus.labels),
            corpus.loss,
        )

    @property
    def arrays(self) -> Any:
        """The module of the arrays: NumPy."""
        return np

    @property
    def filled(self) -> np.bool_:
        """Whether an entry is a token: every entry is, there is no padding."""
        return np.True_

    @cached_property
    def row(self) -> Int[np.ndarray, " entries"]:
        """Sequence of every entry."""
        return row_of_entry(self.counts)

    @cached_property
    def token(self) -> Int[np.ndarray, " entries"]:
        """Token of every entry, in the type that NumPy indexes fastest."""
        return self.counts.indices.astype(np.intp)

    @cached_property
    def log_counts(self) -> Float[np.ndarray, " entries"]:
        """Logarithm of C_X[s], of every entry."""
        return np.log(self.counts.data)

    @cached_property
    def diameters(self) -> Float[np.ndarray, " sequences"]:
        """Largest distance ‖E_s − E_r‖ of two tokens of every sequence."""
        rows, ends = (
            self.gather(self.embeddings),
            itertools.pairwise(self.counts.indptr),
        )
        apart = (pdist(rows[first:last]) for first, last in ends)
        return np.array([distances.max(initial=0.0) for distances in apart])

    @property
    def begin(self) -> Int[np.ndarray, " sequences"]:
        """First entry of every sequence."""
        return self.counts.indptr[:-1]

    def log_weights(self, dtype: Any) -> np.floating:
        """Log-weight −log n of every bag in the risk."""
        return -np.log(np.asarray(self.num_total, dtype))

    def logits(
        self, scores: Float[np.ndarray, " vocabulary"]
    ) -> Float[np.ndarray, " entries"]:
        """Logit a_s + log C_X[s] of every entry."""
        return self.gather(scores) + self.log_counts

    def gather(
        self, by_token: Shaped[np.ndarray, " vocabulary *rest"]
    ) -> Shaped[np.ndarray, " entries *rest"]:
        """Gather per-token values into entries."""
        return by_token.take(self.token, axis=0)

    def spread(
        self, by_bag: Shaped[np.ndarray, " sequences *rest"]
    ) -> Shaped[np.ndarray, " entries *rest"]:
        """Repeat per-bag values for each entry."""
        return by_bag.take(self.row, axis=0)

    def total(
        self, entries: Shaped[np.ndarray, " entries *rest"]
    ) -> Shaped[np.ndarray, " sequences *rest"]:
        """Sum the entries of every bag."""
        return np.add.reduceat(entries, self.begin)

    def largest(
        self, entries: Shaped[np.ndarray, " entries"]
    ) -> Shaped[np.ndarray, " sequences"]:
        """Largest entry of every bag."""
        return np.maximum.reduceat(entries, self.begin)

    def scatter(
        self, entries: Float[np.ndarray, " entries"]
    ) -> Float[np.ndarray, " vocabulary"]:
        """Sum the entries of every token."""
        return np.bincount(self.token, entries, self.counts.shape[1])

    def first(
        self, marks: Bool[np.ndarray, " entries"]
    ) -> Int[np.ndarray, " sequences"]:
        """First marked entry of every bag; its last entry where none is marked."""
        slots, marked = self.counts.indptr[1:] - 1, np.flatnonzero(marks)[::-1]
        # The last of several assignments to one slot counts.
        slots[self.row[marked]] = marked
        return slots

    def at(
        self,
        entries: Shaped[np.ndarray, " entries *rest"],
        slots: Int[np.ndarray, " sequences"],
    ) -> Shaped[np.ndarray, " sequences *rest"]:
        """Take one entry of every bag."""
        return entries[slots]

    def marks(
        self, slots: Int[np.ndarray, " sequences"]
    ) -> Bool[np.ndarray, " entries"]:
        """Mark one entry of every bag."""
        found = np.zeros(self.counts.nnz, bool)
        found[slots] = True
        return found


def row_of_entry(counts: csr_array) -> Int[np.ndarray, " entries"]:
    """Return the row of every entry of a count matrix."""
    return np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))


def attention(
    counts: csr_array, scores: Float[np.ndarray, " vocabulary"]
) -> tuple[Float[np.ndarray, " entries"], Int[np.ndarray, " entries"]]:
    """Compute q_X[s] = C_X[s] e^{a_s} / Σ_r C_X[r] e^{a_r} of every entry.

    Scores may differ by any amount.

    Source: mathematics, section 1.

    Args:
        counts: a row per sequence, a column per token; every row has an entry.
        scores: a = E p.

    Returns:
        Weights that add up to one in each row, entry by entry, and their rows.

    Example:
        >>> attention(csr_array([[3.0, 1.0]]), np.zeros(2))[0].tolist()
        [0.75, 0.25]
        >>> attention(csr_array([[3.0, 1.0]]), np.array([0.0, 1e6]))[0].tolist()
        [0.0, 1.0]
    """
    rows, words = counts.shape
    bags = RaggedBags(counts, np.ones(rows), np.zeros((words, 0)), scores, rows)
    return attention_shares(bags.logits(scores), bags), bags.row


def outputs(
    bags: RaggedBags, share: Float[np.ndarray, " entries"]
) -> Float[np.ndarray, " sequences"]:
    """Compute f = Σ_s q_s b_s of every bag, from the weights q of `attention`."""
    return bags.total(share * bags.gather(bags.values))


def risk(bags: RaggedBags, query: Float[np.ndarray, " dim"]) -> float:
    """Compute the contribution of these bags to L(p).

    Example:
        >>> bag = csr_array([[1.0, 1.0]])
        >>> one = RaggedBags(bag, np.ones(1), np.eye(2), np.zeros(2), 1)
        >>> round(risk(one, np.zeros(2)), 4)
        0.6931
    """
    output = _attend(bags, query).output
    return float(bags.loss.value(bags.labels * output).sum() / bags.num_total)


def pull(
    bags: RaggedBags, query: Float[np.ndarray, " dim"]
) -> Float[np.ndarray, " dim"]:
    """−∂L/∂p."""
    return bags.scatter(_entry_pulls(_attend(bags, query), bags)[0]) @ bags.embeddings


def descent(
    bags: RaggedBags, query: Float[np.ndarray, " dim"]
) -> tuple[Float[np.ndarray, " dim"], float]:
    """Compute −∂L/∂p and a bound on its rounding.

    Source: mathematics, section 7a.

    Example:
        >>> bag = csr_array([[1.0, 1.0]])
        >>> one = RaggedBags(bag, np.ones(1), np.eye(2), np.array([1.0, 0.0]), 1)
        >>> descent(one, np.zeros(2))[0].round(4).tolist()
        [0.0944, -0.0944]
    """
    force, size = sized_score_gradient(bags, query)
    length = np.sqrt(np.sum(bags.embeddings**2, axis=1))
    terms = size @ bags.gather(length)
    rounding = float(16 * np.finfo(float).eps * terms)
    return bags.scatter(force) @ bags.embeddings, rounding


def sized_score_gradient(
    bags: RaggedBags, query: Float[np.ndarray, " dim"]
) -> tuple[Float[np.ndarray, " entries"], Float[np.ndarray, " entries"]]:
    """Compute the force y (−ℓ′(y f)) q (b − f) / n of every entry, and its size.

    The forces are the terms of −∂L/∂a and add up to zero in each bag. Their rounding
    errors are relative to sizes.

    Source: mathematics, sections 1 and 7b.

    Example:
        >>> bag = csr_array([[1.0, 1.0, 1.0]])
        >>> one = RaggedBags(bag, np.ones(1), np.eye(3), np.array([0.0, 1.0, -1.0]), 1)
        >>> force, size = sized_score_gradient(one, np.zeros(3))
        >>> abs(force).round(3).tolist(), size.round(3).tolist()
        ([0.0, 0.167, 0.167], [0.333, 0.167, 0.167])
    """
    return sized_forces(*entries_at(bags, query), bags)


# Tolerance of the truncated Hessian relative to the identity; Newton's rate degrades
# by as much.
LEFT_OUT = 0.01
# Words whose rows of the Hessian in score space are made at a time.
BLOCK = 1024


def curvature(
    bags: RaggedBags, query: Float[np.ndarray, " dim"], time: float = 0.0
) -> Float[np.ndarray, "dim dim"]:
    """Compute ∂²L/∂p² without words whose contributions are negligible at `time`.

    Source: mathematics, sections 3a and 7a.

    Args:
        bags: the corpus and the words' embeddings.
        query: p.
        time: t; zero leaves nothing out.

    Returns:
        The Hessian.

    Example:
        >>> bag = csr_array([[1.0, 1.0]])
        >>> one = RaggedBags(bag, np.ones(1), np.eye(2), np.array([1.0, 0.0]), 1)
        >>> curvature(one, np.zeros(2)).round(4).tolist()
        [[0.0147, -0.0147], [-0.0147, 0.0147]]
    """
    counts, word = bags.counts, bags.counts.indices
    attention = _attend(bags, query)
    force, advance = _entry_pulls(attention, bags)
    partner = partners(advance, attention, bags)
    sizes = np.abs(force), np.abs(partner)
    all_forces, all_partners = (bags.spread(bags.total(size)) for size in sizes)
    # A word takes its row and its column along.
    part = sizes[0] * (1 + 2 * all_partners) + 2 * sizes[1] * all_forces
    part = np.bincount(word, part, counts.shape[1])
    part *= time * np.max(np.sum(bags.embeddings**2, axis=1))
    order = np.argsort(part)
    small = order[np.cumsum(part[order]) <= LEFT_OUT] if time else order[:0]
    kept = np.setdiff1d(order, small)
    position = np.full(counts.shape[1], -1)
    position[kept] = np.arange(len(kept))
    entry = position[word] >= 0
    where = bags.row[entry], position[word[entry]]
    shape = counts.shape[0], len(kept)
    left, right = (
        csr_array((factor[entry], where), shape=shape) for factor in (force, partner)
    )
    embeddings, turned = bags.embeddings[kept], left.T.tocsr()
    force_on_word = np.bincount(where[1], force[entry], len(kept))

    def half(first: int) -> Float[np.ndarray, "dim dim"]:
        part = np.arange(first, min(first + BLOCK, len(kept)))
        in_scores = (turned[part] @ right).toarray()
        in_scores[np.arange(len(part)), part] -= force_on_word[part] / 2
        return embeddings[part].T @ (in_scores @ embeddings)

    nothing = np.zeros((len(query), len(query)))
    if len(kept) <= BLOCK:
        # Handing one block to a thread takes longer than a small block itself.
        found = half(0) if len(kept) else nothing
        return found + found.T
    # SciPy and NumPy both let other threads run meanwhile.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = sum(pool.map(half, range(0, len(kept), BLOCK)), nothing)
    return found + found.T


def _attend(bags: RaggedBags, query: Float[np.ndarray, " dim"]) -> Attention:
    return attend_bags(*entries_at(bags, query), bags)


def entries_at(
    bags: RaggedBags, query: Float[np.ndarray, " dim"]
) -> tuple[Float[np.ndarray, " entries"], Float[np.ndarray, " entries"]]:
    """Compute logits and values of every entry at p."""
    return bags.logits(bags.embeddings @ query), bags.gather(bags.values)


def _entry_pulls(
    attention: Attention, bags: RaggedBags
) -> tuple[Float[np.ndarray, " entries"], Float[np.ndarray, " entries"]]:
    """Compute the forces h of every entry, and the differences b − f."""
    advance = advances(attention, bags)
    exponent = log_weighted_residual(attention, bags)
    return score_gradient(exponent, advance, attention, bags), advance
