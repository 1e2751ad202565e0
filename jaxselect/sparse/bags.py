"""Labelled bags of any lengths, on the host: the layout of thousands of long ones.

Attention, risk and the derivatives of the risk in p, of ragged bags on the host.

A sequence contributes diag(h) − h xᵀ − x hᵀ to the curvature in scores
(`model.objective`). Late, the weights of nearly all words are too small to matter
within the time that has passed: only the others, few of thousands, are kept
(mathematics, section 7a).
"""

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped
from scipy.sparse import csr_array

from ..data.corpus import AbstractBags
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
)
from ..model.parameters import Parameters


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
        """The whole corpus, and the embeddings of all words.

        Args:
            parameters: (E, ·, v).
            corpus: n bags with labels ±1.

        Returns:
            The same on the host.
        """
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
        """The arrays are those of NumPy."""
        return np

    @property
    def filled(self) -> np.bool_:
        """Whether an entry is a token: each one."""
        return np.True_

    @cached_property
    def row(self) -> Int[np.ndarray, " entries"]:
        """Sequence of every entry."""
        return row_of_entry(self.counts)

    @cached_property
    def token(self) -> Int[np.ndarray, " entries"]:
        """Token of every entry, as NumPy reads an index fastest."""
        return self.counts.indices.astype(np.intp)

    @cached_property
    def log_counts(self) -> Float[np.ndarray, " entries"]:
        """The log C_X[s] of every entry."""
        return np.log(self.counts.data)

    @property
    def begin(self) -> Int[np.ndarray, " sequences"]:
        """First entry of every sequence."""
        return self.counts.indptr[:-1]

    def log_weights(self, dtype: Any) -> np.floating:
        """The log 1/n."""
        return -np.log(np.asarray(self.num_total, dtype))

    def logits(
        self, scores: Float[np.ndarray, " vocabulary"]
    ) -> Float[np.ndarray, " entries"]:
        """The a_s + log C_X[s] of every entry."""
        return self.gather(scores) + self.log_counts

    def gather(
        self, by_token: Shaped[np.ndarray, " vocabulary *rest"]
    ) -> Shaped[np.ndarray, " entries *rest"]:
        """Numbers of tokens, entry by entry."""
        return by_token.take(self.token, axis=0)

    def spread(
        self, by_bag: Shaped[np.ndarray, " sequences *rest"]
    ) -> Shaped[np.ndarray, " entries *rest"]:
        """Numbers of sequences, entry by entry."""
        return by_bag.take(self.row, axis=0)

    def total(
        self, entries: Shaped[np.ndarray, " entries *rest"]
    ) -> Shaped[np.ndarray, " sequences *rest"]:
        """Sum over every sequence."""
        return np.add.reduceat(entries, self.begin)

    def largest(
        self, entries: Shaped[np.ndarray, " entries"]
    ) -> Shaped[np.ndarray, " sequences"]:
        """Maximum over every sequence."""
        return np.maximum.reduceat(entries, self.begin)

    def scatter(
        self, entries: Float[np.ndarray, " entries"]
    ) -> Float[np.ndarray, " vocabulary"]:
        """Sum over every token."""
        return np.bincount(self.token, entries, self.counts.shape[1])

    def first(
        self, marks: Bool[np.ndarray, " entries"]
    ) -> Int[np.ndarray, " sequences"]:
        """First marked entry of every sequence; the last one where none is."""
        slots, marked = self.counts.indptr[1:] - 1, np.flatnonzero(marks)[::-1]
        # The last of several assignments to one slot counts.
        slots[self.row[marked]] = marked
        return slots

    def at(
        self,
        entries: Shaped[np.ndarray, " entries *rest"],
        slots: Int[np.ndarray, " sequences"],
    ) -> Shaped[np.ndarray, " sequences *rest"]:
        """Given entries, one of every sequence."""
        return entries[slots]

    def marks(
        self, slots: Int[np.ndarray, " sequences"]
    ) -> Bool[np.ndarray, " entries"]:
        """Whether an entry is the given one of its sequence."""
        found = np.zeros(self.counts.nnz, bool)
        found[slots] = True
        return found


def row_of_entry(counts: csr_array) -> Int[np.ndarray, " entries"]:
    """Sequence of every entry of a count matrix.

    Args:
        counts: a row per sequence.

    Returns:
        Rows, in the order of the entries.

    Example:
        >>> row_of_entry(csr_array([[1.0, 1.0], [0.0, 1.0]])).tolist()
        [0, 0, 1]
    """
    return np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))


# Tolerance of the truncated Jacobian relative to the identity; Newton's rate degrades
# by as much.
LEFT_OUT = 0.01
# Words whose rows of the curvature in scores are made at a time.
BLOCK = 1024


def attention(
    counts: csr_array, scores: Float[np.ndarray, " vocabulary"]
) -> tuple[Float[np.ndarray, " entries"], Int[np.ndarray, " entries"]]:
    """Attention weight q_X[s] = C_X[s] e^{a_s} / Σ_r C_X[r] e^{a_r} of every entry.

    Scores may lie any distance apart.

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
    return attention_shares(scores, bags), bags.row


def outputs(
    bags: RaggedBags, share: Float[np.ndarray, " entries"]
) -> Float[np.ndarray, " sequences"]:
    """Outputs f = Σ_s q_s b_s of every sequence.

    Source: mathematics, section 1.

    Args:
        bags: the corpus and the words' values.
        share: q, of `attention`.

    Returns:
        What the head makes of it.

    Example:
        >>> bag, axes = csr_array([[1.0, 1.0]]), np.eye(2)
        >>> one = RaggedBags(bag, np.ones(1), axes, axes[0], 1)
        >>> outputs(one, np.array([0.75, 0.25])).tolist()
        [0.75]
    """
    return bags.total(share * bags.gather(bags.values))


def risk(bags: RaggedBags, query: Float[np.ndarray, " dim"]) -> float:
    """The part of these sequences in L(p) (mathematics, section 1).

    Args:
        bags: the corpus and the words' embeddings.
        query: p.

    Returns:
        The sum of their losses over the number that L is the mean of.

    Example:
        >>> bag = csr_array([[1.0, 1.0]])
        >>> one = RaggedBags(bag, np.ones(1), np.eye(2), np.zeros(2), 1)
        >>> round(risk(one, np.zeros(2)), 4)
        0.6931
    """
    output = _attend(bags, query).output
    return float(bags.loss.value(bags.labels * output).sum() / bags.num_total)


def descent(
    bags: RaggedBags, query: Float[np.ndarray, " dim"]
) -> tuple[Float[np.ndarray, " dim"], float]:
    """−∂L/∂p, and a bound on its rounding.

    Source: mathematics, section 7a.

    Args:
        bags: the corpus and the words' embeddings.
        query: p.

    Returns:
        −∂L/∂p, and 16 roundings of the sum of its terms.

    Example:
        >>> bag = csr_array([[1.0, 1.0]])
        >>> one = RaggedBags(bag, np.ones(1), np.eye(2), np.array([1.0, 0.0]), 1)
        >>> descent(one, np.zeros(2))[0].round(4).tolist()
        [0.0944, -0.0944]
    """
    pull, size = sized_score_gradient(bags, query)
    length = np.sqrt(np.sum(bags.embeddings**2, axis=1))
    terms = size @ bags.gather(length)
    return bags.scatter(pull) @ bags.embeddings, float(16 * np.finfo(float).eps * terms)


def curvature(
    bags: RaggedBags, query: Float[np.ndarray, " dim"], time: float = 0.0
) -> Float[np.ndarray, "dim dim"]:
    """∂²L/∂p² without words whose part, times `time`, is below `LEFT_OUT`.

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
    pull, partner = _factors(bags, query)
    pulled, partners = np.abs(pull), np.abs(partner)
    all_pulls, all_partners = (
        bags.spread(bags.total(size)) for size in (pulled, partners)
    )
    # A word takes its row and its column along.
    part = pulled * (1 + 2 * all_partners) + 2 * partners * all_pulls
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
        csr_array((factor[entry], where), shape=shape) for factor in (pull, partner)
    )
    embeddings, turned = bags.embeddings[kept], left.T.tocsr()
    pulled = np.bincount(where[1], pull[entry], len(kept))

    def half(first: int) -> Float[np.ndarray, "dim dim"]:
        part = np.arange(first, min(first + BLOCK, len(kept)))
        in_scores = (turned[part] @ right).toarray()
        in_scores[np.arange(len(part)), part] -= pulled[part] / 2
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


def dense_curvature(
    bags: RaggedBags, query: Float[np.ndarray, " dim"]
) -> Float[np.ndarray, "dim dim"]:
    """∂²L/∂p² by dense factors, which for 10⁴ counts take less time than sparse ones.

    Source: mathematics, section 3a.

    Args:
        bags: the corpus and the tokens' embeddings.
        query: p.

    Returns:
        The Hessian.

    Example:
        >>> bag = csr_array([[1.0, 1.0]])
        >>> one = RaggedBags(bag, np.ones(1), np.eye(2), np.array([1.0, 0.0]), 1)
        >>> dense_curvature(one, np.zeros(2)).round(4).tolist()
        [[0.0147, -0.0147], [-0.0147, 0.0147]]
    """
    pull, partner = _factors(bags, query)
    left, right = np.zeros((2, *bags.counts.shape))
    left[bags.row, bags.token] = pull
    right[bags.row, bags.token] = partner
    in_scores = left.T @ right - np.diag(left.sum(axis=0) / 2)
    found = bags.embeddings.T @ in_scores @ bags.embeddings
    return found + found.T


def pull(
    bags: RaggedBags, query: Float[np.ndarray, " dim"]
) -> Float[np.ndarray, " dim"]:
    """−∂L/∂p alone.

    Source: mathematics, section 7a.

    Args:
        bags: the corpus and the words' embeddings.
        query: p.

    Returns:
        The first part of `descent`.

    Example:
        >>> bag = csr_array([[1.0, 1.0]])
        >>> one = RaggedBags(bag, np.ones(1), np.eye(2), np.array([1.0, 0.0]), 1)
        >>> pull(one, np.zeros(2)).round(4).tolist()
        [0.0944, -0.0944]
    """
    return bags.scatter(_entry_pulls(_attend(bags, query), bags)[0]) @ bags.embeddings


def sized_score_gradient(
    bags: RaggedBags, query: Float[np.ndarray, " dim"]
) -> tuple[Float[np.ndarray, " entries"], Float[np.ndarray, " entries"]]:
    """Pull y (−ℓ′(y f)) q (b − f) / n of every entry; sizes that bound its roundings.

    The pull on the top token of a sequence is minus the sum of the others, which may
    cancel.

    Source: mathematics, sections 1 and 7b.

    Args:
        bags: the corpus and the words' embeddings.
        query: p.

    Returns:
        Terms of −∂L/∂a, which add up to zero in each row; sizes, no less than these in
        absolute value.

    Example:
        >>> bag = csr_array([[1.0, 1.0, 1.0]])
        >>> one = RaggedBags(bag, np.ones(1), np.eye(3), np.array([0.0, 1.0, -1.0]), 1)
        >>> pull, size = sized_score_gradient(one, np.zeros(3))
        >>> abs(pull).round(3).tolist(), size.round(3).tolist()
        ([0.0, 0.167, 0.167], [0.333, 0.167, 0.167])
    """
    attention = _attend(bags, query)
    pull, _ = _entry_pulls(attention, bags)
    top = bags.marks(np.asarray(attention.top))
    size = np.where(top, 0.0, np.abs(pull))
    return pull, np.where(top, bags.spread(bags.total(size)), size)


def _attend(bags: RaggedBags, query: Float[np.ndarray, " dim"]) -> Attention:
    return attend_bags(bags.embeddings @ query, bags.values, bags)


def _entry_pulls(
    attention: Attention, bags: RaggedBags
) -> tuple[Float[np.ndarray, " entries"], Float[np.ndarray, " entries"]]:
    """Pulls, and advances that they are along."""
    advance = advances(attention, bags)
    exponent = log_weighted_residual(attention, bags)
    return score_gradient(exponent, advance, attention, bags), advance


def _factors(
    bags: RaggedBags, query: Float[np.ndarray, " dim"]
) -> tuple[Float[np.ndarray, " entries"], Float[np.ndarray, " entries"]]:
    """Pulls h and partners x of every entry, as in `score_curvature`."""
    attention = _attend(bags, query)
    pull, advance = _entry_pulls(attention, bags)
    return pull, partners(advance, attention, bags)
