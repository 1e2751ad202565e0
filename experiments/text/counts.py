"""Bags of very different lengths, stored as a sparse count matrix C.

Padding every review to the longest one wastes most of the memory, and sums by token
would need scatters. The rows of C and of Cᵀ are therefore cut into short pieces of
equal width: products become gathers and short sums with static shapes. Entries equal to
one, three in four of real text, are stored without their count.
"""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex, Float, Int, UInt
from numpy.typing import ArrayLike
from scipy.sparse import csr_array, issparse

from jaxselect import checks
from jaxselect.checks import BadInput
from jaxselect.data.corpus import Corpus
from jaxselect.data.loss import LOGISTIC, Loss

# Widths of pieces. The shorter, the less padding and the more pieces to add up: the
# fastest of several on reviews of 130 distinct words. LLVM unrolls sums up to 32 long.
_ONCE, _OFTEN = 32, 8


class Pieces(eqx.Module):
    """Rows of a sparse matrix, cut into pieces of equal width.

    Attributes:
        index: column of each entry; the number of columns marks padding. As few bits
            as that takes: a product is little more than reading them. And no sign: XLA
            guards a signed index against both ends of an array.
        row: the row a piece belongs to. The first pieces of all rows come first, then
            all second ones: each addition to a row waits for the one before.
    """

    index: UInt[Array, "pieces width"]
    row: Int[Array, " pieces"]


class CountMatrix(eqx.Module):
    """A sparse matrix of counts.

    Attributes:
        once: the entries that are one.
        often: the other entries.
        counts: of those; zero on padding.
        shape: rows and columns.
    """

    once: Pieces
    often: Pieces
    counts: Float[Array, "pieces width"]
    shape: tuple[int, int] = eqx.field(static=True)

    def to_csr(self) -> csr_array:
        """Convert to a SciPy CSR matrix with sorted columns.

        Example:
            >>> from experiments.text.counts import from_csr
            >>> counts = csr_array([[2, 0, 1], [0, 1, 1]])
            >>> from_csr(counts, [1, -1]).by_sequence.to_csr().toarray().tolist()
            [[2.0, 0.0, 1.0], [0.0, 1.0, 1.0]]
        """
        count = np.asarray(self.counts)
        ones = np.ones(self.once.index.shape, count.dtype)
        entries = []
        for pieces, value in ((self.once, ones), (self.often, count)):
            column = np.asarray(pieces.index)
            row = np.broadcast_to(np.asarray(pieces.row)[:, None], column.shape)
            present = column < self.shape[1]
            entries.append((value[present], row[present], column[present]))
        data, row, column = map(np.concatenate, zip(*entries, strict=True))
        return csr_array((data, (row, column)), shape=self.shape)


def _count_matrix(
    row: Int[np.ndarray, " entries"],
    column: Int[np.ndarray, " entries"],
    count: Float[np.ndarray, " entries"],
    shape: tuple[int, int],
) -> CountMatrix:
    """Build a matrix from its entries, sorted by row."""
    one = count == 1
    once, _ = _pieces(row[one], column[one], count[one], shape, _ONCE)
    often, counts = _pieces(row[~one], column[~one], count[~one], shape, _OFTEN)
    return CountMatrix(once, often, counts, shape)


@partial(jax.jit, inline=True)
def products(
    matrix: CountMatrix,
    first: Float[Array, " columns"],
    second: Float[Array, " columns"],
) -> tuple[Float[Array, " rows"], Float[Array, " rows"]]:
    """Multiply one sparse matrix with two vectors: M x and M y.

    Source: mathematics, section 1a.

    Example:
        >>> one, of = np.array([0, 0, 1, 1]), np.array([0, 2, 1, 2])
        >>> matrix = _count_matrix(one, of, np.array([2.0, 1, 1, 1]), (2, 3))
        >>> mx, my = products(matrix, jnp.arange(3.0), jnp.ones(3))
        >>> mx.tolist(), my.tolist()
        ([2.0, 3.0], [3.0, 2.0])
    """
    # Two real numbers travel as one complex number, so one gather fetches both, and a
    # complex sum, its only consumer, keeps gather, product and sum in one loop. The
    # zero for padding comes last: an array that is appended to is stored, and not made
    # again wherever it is gathered.
    pair = jax.lax.complex(first, second)
    pair = jnp.append(pair, jnp.zeros_like(pair, shape=1))
    counts = jax.lax.complex(matrix.counts, jnp.zeros_like(matrix.counts))
    once = _add_up(matrix, matrix.once, _at(pair, matrix.once))
    total = once + _add_up(matrix, matrix.often, counts * _at(pair, matrix.often))
    return total.real, total.imag


def _at(
    pair: Complex[Array, " columns"], pieces: Pieces
) -> Complex[Array, "pieces width"]:
    # `pair[index]` would give the indices a sign, in a copy; XLA would copy indices in
    # two dimensions.
    found = jax.lax.gather(
        pair,
        pieces.index.reshape(-1, 1),
        jax.lax.GatherDimensionNumbers(
            offset_dims=(), collapsed_slice_dims=(0,), start_index_map=(0,)
        ),
        slice_sizes=(1,),
        mode="promise_in_bounds",
    )
    return found.reshape(pieces.index.shape)


def _add_up(
    matrix: CountMatrix, pieces: Pieces, entries: Complex[Array, "pieces width"]
) -> Complex[Array, " rows"]:
    """Add up the pieces of every row of a matrix."""
    return jax.ops.segment_sum(entries.sum(axis=1), pieces.row, matrix.shape[0])


def _pieces(
    row: Int[np.ndarray, " entries"],
    column: Int[np.ndarray, " entries"],
    count: Float[np.ndarray, " entries"],
    shape: tuple[int, int],
    width: int,
) -> tuple[Pieces, Float[Array, "pieces width"]]:
    """Cut rows into pieces; return them and the counts of their entries."""
    rows, columns = shape
    length = np.bincount(row, minlength=rows)
    number = -(-length // width)
    first_entry, first_piece = np.cumsum(length) - length, np.cumsum(number) - number
    rank = np.arange(len(row)) - first_entry[row]
    slot = first_piece[row] + rank // width, rank % width
    index = np.full((number.sum(), width), columns, np.min_scalar_type(columns))
    value = np.zeros((number.sum(), width))
    index[slot], value[slot] = column, count
    owner = np.repeat(np.arange(rows), number).astype(np.int32)
    order = np.argsort(np.arange(len(owner)) - first_piece[owner], kind="stable")
    # With its dtype said an array is copied; else JAX compiles that for each shape.
    real = jnp.result_type(float)
    pieces = Pieces(
        jnp.asarray(index[order], index.dtype), jnp.asarray(owner[order], owner.dtype)
    )
    return pieces, jnp.asarray(value[order].astype(real), real)


class SparseCorpus(eqx.Module):
    """Labelled bags as a count matrix, by rows and by columns.

    Attributes:
        by_sequence: C, a row per sequence.
        by_token: Cᵀ, a row per token of the vocabulary.
        labels: +1 or −1.
        loss: ℓ as a function of the margin y f.
    """

    by_sequence: CountMatrix
    by_token: CountMatrix
    labels: Int[Array, " sequences"]
    loss: Loss = eqx.field(static=True, default=LOGISTIC)

    @property
    def vocabulary(self) -> int:
        """Number of tokens |S|."""
        return self.by_token.shape[0]


def from_csr(
    counts: csr_array, labels: ArrayLike, *, loss: Loss = LOGISTIC
) -> SparseCorpus:
    """Make a sparse corpus of a count matrix, in JAX's default precision.

    Args:
        counts: one row per sequence, one column per token, entries > 0.
        labels: ±1 per sequence.
        loss: ℓ, a function of the margin.

    Returns:
        The corpus.

    Raises:
        BadInput: an empty sequence, a count that is no positive number, a label
            other than ±1.

    Example:
        >>> from_csr(csr_array([[2, 0, 1], [0, 1, 1]]), [1, -1]).vocabulary
        3
    """
    if not (issparse(counts) and counts.format == "csr"):
        raise BadInput(f"counts of type {type(counts).__name__}: wanted a csr_array")
    y = checks.array("labels", labels, kinds="iufb", wanted="-1 or 1 each")
    data = checks.array("counts", counts.data, kinds="iufb", wanted="real numbers")
    # Numbers that single precision makes infinite or zero are seen as such.
    with np.errstate(over="ignore", under="ignore"):
        data = data.astype(jnp.result_type(float))
    sequences, vocabulary = counts.shape
    if y.shape != (sequences,) or not np.isin(y, (-1, 1)).all():
        raise BadInput(
            f"labels {sorted(set(y.ravel().tolist()))[:5]} of shape {y.shape}: wanted "
            f"{sequences} of them, each -1 or 1"
        )
    if not (np.isfinite(data) & (data > 0)).all():
        raise BadInput("a count is not a positive number: drop stored zeros")
    length = np.diff(counts.indptr)
    if sequences == 0 or (length == 0).any():
        where = f"sequence {np.argmin(length)} is empty" if sequences else "no sequence"
        raise BadInput(f"{where}; a corpus needs sequences of at least one token")
    row = np.repeat(np.arange(sequences), length)
    # A stable sort by token keeps the sequences of one token in order.
    order = np.argsort(counts.indices, kind="stable")
    token = counts.indices[order]
    return SparseCorpus(
        by_sequence=_count_matrix(row, counts.indices, data, (sequences, vocabulary)),
        by_token=_count_matrix(token, row[order], data[order], (vocabulary, sequences)),
        labels=jnp.asarray(y.astype(np.int32), np.int32),
        loss=loss,
    )


def from_corpus(corpus: Corpus) -> SparseCorpus:
    """Convert padded bags to bags without padding.

    Args:
        corpus: padded bags with labels ±1, equal weights.

    Returns:
        The sparse corpus, with the same loss.

    Raises:
        BadInput: weights of sequences, which no sparse corpus has.

    Example:
        >>> from jaxselect.data.corpus import from_sequences
        >>> bags = from_sequences([[0, 1], [1]], [1, -1], vocabulary=2)
        >>> occurrences(from_corpus(bags)).tolist()
        [1.0, 2.0]
    """
    if corpus.weights is not None:
        raise BadInput(
            "weights in a corpus to be sparse: wanted none; repeat sequences, or keep "
            "to the padded corpus"
        )
    counts, tokens = np.asarray(corpus.counts), np.asarray(corpus.tokens)
    row, slot = np.nonzero(counts)
    shape = (len(counts), corpus.vocabulary)
    entries = csr_array((counts[row, slot], (row, tokens[row, slot])), shape=shape)
    return from_csr(entries, np.asarray(corpus.labels), loss=corpus.loss)


def attention_weights(
    counts: csr_array, scores: Float[np.ndarray, " vocabulary"]
) -> csr_array:
    """Compute q_X[s] = C_X[s] e^{a_s} / Σ_r C_X[r] e^{a_r}, for scores of any size.

    Source: mathematics, section 1.

    Args:
        counts: one row per sequence, one column per token; every row has an entry.
        scores: a = E p.

    Returns:
        Weights in the places of the counts; each row adds up to one.

    Example:
        >>> attention_weights(csr_array([[3.0, 1.0]]), np.zeros(2)).toarray().tolist()
        [[0.75, 0.25]]
        >>> far = np.array([0.0, 1e6])
        >>> attention_weights(csr_array([[3.0, 1.0]]), far).toarray().tolist()
        [[0.0, 1.0]]
    """
    begin, length = counts.indptr[:-1], np.diff(counts.indptr)
    logits = scores[counts.indices] + np.log(counts.data)
    weights = np.exp(logits - np.repeat(np.maximum.reduceat(logits, begin), length))
    weights /= np.repeat(np.add.reduceat(weights, begin), length)
    return csr_array((weights, counts.indices, counts.indptr), counts.shape)


def importance(corpus: SparseCorpus) -> Float[Array, " vocabulary"]:
    """Compute the average signed frequency mean_X y C_X[s] / T_X.

    Source: mathematics, section 1a.

    Args:
        corpus: n bags.

    Returns:
        α, in [−1, 1] per token.

    Example:
        >>> importance(from_csr(csr_array([[1, 0, 1], [0, 1, 1]]), [1, -1])).tolist()
        [0.25, -0.25, 0.0]
    """
    ones = jnp.ones(corpus.vocabulary, corpus.by_token.counts.dtype)
    length, _ = products(corpus.by_sequence, ones, ones)
    signed = corpus.labels.astype(length.dtype) / (length * len(length))
    return products(corpus.by_token, signed, signed)[0]


def occurrences(corpus: SparseCorpus) -> Float[Array, " vocabulary"]:
    """Count how often each token occurs in the corpus.

    Example:
        >>> occurrences(from_csr(csr_array([[2, 0], [1, 1]]), [1, -1])).tolist()
        [3.0, 1.0]
    """
    return _occurrences(corpus)[0]


@partial(jax.jit, inline=True)
def posterior_difference(corpus: SparseCorpus) -> Float[Array, " vocabulary"]:
    """Compute P(+1 | s) − P(−1 | s) from counts of occurrences.

    Args:
        corpus: n bags.

    Returns:
        A number in [−1, 1] per token; NaN for a token that never occurs.

    Example:
        >>> corpus = from_csr(csr_array([[2, 0], [1, 1]]), [1, -1])
        >>> [round(x, 4) for x in posterior_difference(corpus).tolist()]
        [0.3333, -1.0]
    """
    number, excess = _occurrences(corpus)
    return excess / number


@partial(jax.jit, inline=True)
def _occurrences(
    corpus: SparseCorpus,
) -> tuple[Float[Array, " vocabulary"], Float[Array, " vocabulary"]]:
    """Count occurrences of each token, and the difference between both labels."""
    label = corpus.labels.astype(corpus.by_token.counts.dtype)
    return products(corpus.by_token, jnp.ones_like(label), label)
