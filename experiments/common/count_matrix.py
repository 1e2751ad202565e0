"""Corpora from sparse count matrices, as vectorisers of text give them."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from jaxselect.checks import BadInput
from jaxselect.data.corpus import Corpus, from_bags
from jaxselect.data.loss import LOGISTIC, Loss


def from_counts(
    counts: Any, labels: "ArrayLike", *, classes: int = 2, loss: Loss = LOGISTIC
) -> Corpus:
    """Make a corpus from the rows of a sparse count matrix.

    Args:
        counts: a `scipy.sparse.csr_array`, one row per sequence, one column per token.
        labels: ±1 per sequence; for `classes` > 2, a class 0 … classes − 1.
        classes: number of classes K.
        loss: ℓ, a function of the margin.

    Returns:
        The corpus, as wide as the sequence with most distinct tokens.

    Raises:
        BadInput: whatever is wrong with the counts or labels, and where first.

    Example:
        >>> from scipy.sparse import csr_array
        >>> corpus = from_counts(csr_array([[2, 0, 1], [0, 1, 0]]), [1, -1])
        >>> corpus.tokens.tolist(), corpus.counts.tolist()
        ([[0, 2], [1, 0]], [[2.0, 1.0], [1.0, 0.0]])
    """
    if not hasattr(counts, "indptr"):
        raise BadInput(
            f"counts of type {type(counts).__name__}: wanted a `scipy.sparse.csr_array`"
        )
    length = np.diff(counts.indptr)
    filled = np.arange(length.max(initial=1)) < length[:, None]
    tokens = np.zeros(filled.shape, counts.indices.dtype)
    number = np.zeros(filled.shape, counts.data.dtype)
    tokens[filled], number[filled] = counts.indices, counts.data
    return from_bags(
        tokens, number, labels, vocabulary=counts.shape[1], classes=classes, loss=loss
    )
