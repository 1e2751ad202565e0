"""Labelled bags of any lengths, on the host: the layout of thousands of long ones."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped
from scipy.sparse import csr_array

from ..corpora.bags import AbstractBags
from ..corpora.loss import LOGISTIC, Loss
from ..corpora.sparse import SparseCorpus
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
