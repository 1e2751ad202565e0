"""Bags of very different lengths: the count matrix C, only ever gathered from.

Padding every review to the longest wastes most of the memory, and adding numbers up by
token scatters. Here the rows of C and the rows of Cᵀ are each cut into short pieces of
one width, so both products are gathers and short sums with static shapes.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from numpy.typing import ArrayLike
from scipy.sparse import csr_array

from .corpus import Corpus

# The shorter, the less padding and the more pieces to add up: the fastest of 8, 16, 32
# and 64 on reviews of 130 distinct words.
WIDTH = 16


class Pieces(eqx.Module):
    """A sparse matrix, its rows cut into pieces of equal width.

    Attributes:
        index: column of each entry; any column where the count is zero.
        count: the entry; zero marks padding.
        row: the row a piece belongs to, ascending.
        rows: number of rows.
    """

    index: Int[Array, "pieces width"]
    count: Float[Array, "pieces width"]
    row: Int[Array, " pieces"]
    rows: int = eqx.field(static=True)


class SparseCorpus(eqx.Module):
    """Labelled bags of tokens as a count matrix, by rows and by columns.

    Attributes:
        by_sequence: C, a row per sequence.
        by_token: Cᵀ, a row per token of the vocabulary.
        labels: +1 or −1.
    """

    by_sequence: Pieces
    by_token: Pieces
    labels: Int[Array, " sequences"]

    @property
    def vocabulary(self) -> int:
        """Number of tokens |S|."""
        return self.by_token.rows


def from_csr(counts: csr_array, labels: ArrayLike) -> SparseCorpus:
    """A sparse corpus from a count matrix, in JAX's default precision.

    Args:
        counts: one row per sequence, one column per token, entries > 0.
        labels: ±1 per sequence.

    Returns:
        The corpus.

    Raises:
        ValueError: an empty sequence, a count that is no positive number, a label
            other than ±1.

    Example:
        >>> from scipy.sparse import csr_array
        >>> from_csr(csr_array([[2, 0, 1], [0, 1, 1]]), [1, -1]).vocabulary
        3
    """
    y, data = np.asarray(labels), np.asarray(counts.data, float)
    sequences, vocabulary = counts.shape
    if y.shape != (sequences,) or not np.isin(y, (-1, 1)).all():
        raise ValueError(
            f"labels {sorted(set(y.ravel().tolist()))[:5]} of shape {y.shape}: wanted "
            f"{sequences} of them, each -1 or 1"
        )
    if not (np.isfinite(data) & (data > 0)).all():
        raise ValueError("a count is not a positive number: drop stored zeros")
    length = np.diff(counts.indptr)
    if sequences == 0 or (length == 0).any():
        where = f"sequence {np.argmin(length)} is empty" if sequences else "no sequence"
        raise ValueError(f"{where}; a corpus needs sequences of at least one token")
    row = np.repeat(np.arange(sequences), length)
    # A stable sort by token keeps the sequences of one token in order.
    order = np.argsort(counts.indices, kind="stable")
    return SparseCorpus(
        by_sequence=_pieces(row, counts.indices, data, sequences),
        by_token=_pieces(counts.indices[order], row[order], data[order], vocabulary),
        labels=jnp.asarray(y.astype(np.int32)),
    )


def from_corpus(corpus: Corpus) -> SparseCorpus:
    """The same bags without their padding.

    Args:
        corpus: padded bags with labels ±1.

    Returns:
        The sparse corpus.

    Example:
        >>> from jaxselect.corpus import from_sequences
        >>> bags = from_sequences([[0, 1], [1]], [1, -1], vocabulary=2)
        >>> occurrences(from_corpus(bags))[0].tolist()
        [1.0, 2.0]
    """
    counts, tokens = np.asarray(corpus.counts), np.asarray(corpus.tokens)
    row, slot = np.nonzero(counts)
    token, count = tokens[row, slot], counts[row, slot]
    order = np.argsort(token, kind="stable")
    return SparseCorpus(
        by_sequence=_pieces(row, token, count, len(counts)),
        by_token=_pieces(token[order], row[order], count[order], corpus.vocabulary),
        labels=corpus.labels,
    )


def pair_sums(
    pieces: Pieces, first: Float[Array, " columns"], second: Float[Array, " columns"]
) -> tuple[Float[Array, " rows"], Float[Array, " rows"]]:
    """Products of one sparse matrix with two vectors.

    Args:
        pieces: the matrix M.
        first: x.
        second: y.

    Returns:
        M x and M y.

    Example:
        >>> from scipy.sparse import csr_array
        >>> corpus = from_csr(csr_array([[2, 0, 1], [0, 1, 1]]), [1, -1])
        >>> mx, my = pair_sums(corpus.by_sequence, jnp.arange(3.0), jnp.ones(3))
        >>> mx.tolist(), my.tolist()
        ([2.0, 3.0], [3.0, 2.0])
    """
    # Two real numbers travel as one complex number: one gather fetches both, and the
    # complex product, its only consumer, keeps gather, product and sum in one loop.
    pair = jax.lax.complex(first, second).at[pieces.index].get(mode="promise_in_bounds")
    weighted = jax.lax.complex(pieces.count, jnp.zeros_like(pieces.count)) * pair
    total = jax.ops.segment_sum(
        weighted.sum(axis=1), pieces.row, pieces.rows, indices_are_sorted=True
    )
    return total.real, total.imag


def importance(corpus: SparseCorpus) -> Float[Array, " vocabulary"]:
    """Average signed frequency α_s = mean_X y C_X[s] / T_X (paper, section 2).

    Args:
        corpus: n bags.

    Returns:
        α, in [−1, 1] per token.

    Example:
        >>> from scipy.sparse import csr_array
        >>> importance(from_csr(csr_array([[1, 0, 1], [0, 1, 1]]), [1, -1])).tolist()
        [0.25, -0.25, 0.0]
    """
    ones = jnp.ones(corpus.vocabulary, corpus.by_token.count.dtype)
    length, _ = pair_sums(corpus.by_sequence, ones, ones)
    signed = corpus.labels.astype(length.dtype) / (length * len(length))
    return pair_sums(corpus.by_token, signed, signed)[0]


def occurrences(
    corpus: SparseCorpus,
) -> tuple[Float[Array, " vocabulary"], Float[Array, " vocabulary"]]:
    """How often a token occurs, and by how much more with label +1 than with −1.

    Their quotient is the posterior difference P(+1 | s) − P(−1 | s).

    Args:
        corpus: n bags.

    Returns:
        Occurrences, and the signed excess.

    Example:
        >>> from scipy.sparse import csr_array
        >>> number, excess = occurrences(from_csr(csr_array([[2, 0], [1, 1]]), [1, -1]))
        >>> number.tolist(), excess.tolist()
        ([3.0, 1.0], [1.0, -1.0])
    """
    label = corpus.labels.astype(corpus.by_token.count.dtype)
    return pair_sums(corpus.by_token, jnp.ones_like(label), label)


def _pieces(
    row: np.ndarray, column: np.ndarray, count: np.ndarray, rows: int
) -> Pieces:
    """Cut rows, given as entries in ascending order of row, into pieces."""
    length = np.bincount(row, minlength=rows)
    number = -(-length // WIDTH)
    first_entry, first_piece = np.cumsum(length) - length, np.cumsum(number) - number
    place = np.arange(len(row)) - first_entry[row]
    slot = first_piece[row] + place // WIDTH, place % WIDTH
    index = np.zeros((number.sum(), WIDTH), np.int32)
    value = np.zeros((number.sum(), WIDTH))
    index[slot], value[slot] = column, count
    return Pieces(
        index=jnp.asarray(index),
        count=jnp.asarray(value.astype(jnp.result_type(float))),
        row=jnp.asarray(np.repeat(np.arange(rows), number).astype(np.int32)),
        rows=rows,
    )
