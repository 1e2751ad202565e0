"""Bags of very different lengths, as a count matrix C by rows and by columns."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from numpy.typing import ArrayLike
from scipy.sparse import csr_array, issparse

from .. import checks
from ..arguments import as_annotated
from ..errors import BadInput
from ..program import one_program
from .corpus import Corpus
from .count_matrix import CountMatrix, count_matrix, products
from .loss import LOGISTIC, Loss


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
    """A sparse corpus from a count matrix, in JAX's default precision.

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
        by_sequence=count_matrix(row, counts.indices, data, (sequences, vocabulary)),
        by_token=count_matrix(token, row[order], data[order], (vocabulary, sequences)),
        labels=jnp.asarray(y.astype(np.int32), np.int32),
        loss=loss,
    )


@as_annotated
def from_corpus(corpus: Corpus) -> SparseCorpus:
    """The same bags without their padding.

    Args:
        corpus: padded bags with labels ±1, equal weights.

    Returns:
        The sparse corpus, with the same loss.

    Raises:
        BadInput: weights of sequences, which no sparse corpus has.

    Example:
        >>> from jaxselect.corpora.corpus import from_sequences
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


@as_annotated
@one_program()
def importance(corpus: SparseCorpus) -> Float[Array, " vocabulary"]:
    """Average signed frequency mean_X y C_X[s] / T_X (mathematics, section 1a).

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


@as_annotated
def occurrences(corpus: SparseCorpus) -> Float[Array, " vocabulary"]:
    """Number of times each token occurs in the corpus.

    Args:
        corpus: n bags.

    Returns:
        Counts, zero for a token that never occurs.

    Example:
        >>> occurrences(from_csr(csr_array([[2, 0], [1, 1]]), [1, -1])).tolist()
        [3.0, 1.0]
    """
    return _occurrences(corpus)[0]


@as_annotated
@one_program()
def posterior_difference(corpus: SparseCorpus) -> Float[Array, " vocabulary"]:
    """P(+1 | s) − P(−1 | s), from counts of occurrences.

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


@one_program()
def _occurrences(
    corpus: SparseCorpus,
) -> tuple[Float[Array, " vocabulary"], Float[Array, " vocabulary"]]:
    """Occurrences of each token, and of label +1 less those of −1."""
    label = corpus.labels.astype(corpus.by_token.counts.dtype)
    return products(corpus.by_token, jnp.ones_like(label), label)
