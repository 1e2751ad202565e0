"""A sparse matrix of counts, only ever gathered from.

Padding every review to the longest wastes most of the memory, and adding numbers up by
token scatters. Here the rows are cut into short pieces, so that products are gathers
and short sums with static shapes. Entries equal to one, three in four of real text,
stand apart: they need no count and no product.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex, Float, Int, UInt
from scipy.sparse import csr_array

from ..program import one_program

# Widths of pieces. The shorter, the less padding and the more pieces to add up: the
# fastest of several on reviews of 130 distinct words. LLVM unrolls sums up to 32 long.
ONCE, OFTEN = 32, 8


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
        """The same matrix for SciPy.

        Returns:
            Compressed rows, columns ascending.

        Example:
            >>> from jaxselect.corpora.sparse import from_csr
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


def count_matrix(
    row: Int[np.ndarray, " entries"],
    column: Int[np.ndarray, " entries"],
    count: Float[np.ndarray, " entries"],
    shape: tuple[int, int],
) -> CountMatrix:
    """A matrix from its entries in ascending order of row.

    Args:
        row: of every entry.
        column: of every entry.
        count: of every entry.
        shape: rows and columns.

    Returns:
        The matrix.

    Example:
        See `products`.
    """
    one = count == 1
    once, _ = _pieces(row[one], column[one], count[one], shape, ONCE)
    often, counts = _pieces(row[~one], column[~one], count[~one], shape, OFTEN)
    return CountMatrix(once, often, counts, shape)


@one_program()
def products(
    matrix: CountMatrix,
    first: Float[Array, " columns"],
    second: Float[Array, " columns"],
) -> tuple[Float[Array, " rows"], Float[Array, " rows"]]:
    """Products of one sparse matrix with two vectors (mathematics, section 1a).

    Args:
        matrix: M.
        first: x.
        second: y.

    Returns:
        M x and M y.

    Example:
        >>> one, of = np.array([0, 0, 1, 1]), np.array([0, 2, 1, 2])
        >>> matrix = count_matrix(one, of, np.array([2.0, 1, 1, 1]), (2, 3))
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
    """Sums of the rows of a matrix from entries of their pieces."""
    return jax.ops.segment_sum(entries.sum(axis=1), pieces.row, matrix.shape[0])


def _pieces(
    row: Int[np.ndarray, " entries"],
    column: Int[np.ndarray, " entries"],
    count: Float[np.ndarray, " entries"],
    shape: tuple[int, int],
    width: int,
) -> tuple[Pieces, Float[Array, "pieces width"]]:
    """Rows cut into pieces, and the counts of their entries."""
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
