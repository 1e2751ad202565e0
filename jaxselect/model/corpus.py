"""Labelled bags of tokens, and what their counts alone say about each token.

The model has no positional encoding, so a sequence X enters only through the count
C_X[s] of each token s (mathematics, section 1). Bags are padded to one width; padding
has count zero.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from numpy.typing import ArrayLike

from ..arguments import as_annotated, fields_as_annotated
from ..errors import BadInput
from ..program import one_program
from . import _bags, checks


class Corpus(eqx.Module):
    """A set of labelled bags of tokens.

    Attributes:
        tokens: token ids, distinct within a bag; any id where the count is zero.
        counts: how often the token occurs in the sequence; zero marks padding.
        labels: +1 or −1, or a class 0 … K−1 where there are K classes.
        vocabulary: number of tokens |S|.
    """

    tokens: Int[Array, "sequences width"]
    counts: Float[Array, "sequences width"]
    labels: Int[Array, " sequences"]
    vocabulary: int = eqx.field(static=True)

    def __check_init__(self) -> None:
        """Refuse lists, and arrays of another kind or shape."""
        fields_as_annotated(self, "take `from_sequences` or `from_bags`")


class TokenClasses(eqx.Module):
    """Which tokens are positive, negative, irrelevant; a mask over the vocabulary each.

    Attributes:
        positive: α_s > 0.
        negative: α_s < 0.
        irrelevant: α_s = 0, up to the rounding of its own sum.
        completely_positive: occurs, and with label +1 only.
        completely_negative: occurs, and with label −1 only.
    """

    positive: Bool[Array, " vocabulary"]
    negative: Bool[Array, " vocabulary"]
    irrelevant: Bool[Array, " vocabulary"]
    completely_positive: Bool[Array, " vocabulary"]
    completely_negative: Bool[Array, " vocabulary"]


def from_sequences(
    sequences: Sequence[ArrayLike],
    labels: ArrayLike,
    *,
    vocabulary: int,
    classes: int = 2,
) -> Corpus:
    """Bags of the given token sequences, checked.

    Args:
        sequences: one list of token ids in [0, vocabulary) per sequence.
        labels: ±1 per sequence; for `classes` > 2, a class 0 … classes − 1.
        vocabulary: number of tokens |S|.
        classes: number of classes K.

    Returns:
        The corpus, as wide as the sequence with most distinct tokens.

    Raises:
        BadInput: an empty sequence, an id outside the vocabulary, a wrong label.

    Example:
        >>> corpus = from_sequences([[2, 0, 2], [1, 2]], [1, -1], vocabulary=3)
        >>> corpus.counts.tolist()
        [[1.0, 2.0], [1.0, 1.0]]
    """
    if not isinstance(sequences, Iterable):
        raise BadInput(f"sequences {sequences}: wanted one list of token ids each")
    bags = []
    for row, sequence in enumerate(sequences):
        ids = checks.array(
            f"sequence {row}", sequence, kinds="iu", wanted="token ids, integers"
        )
        if ids.ndim != 1 or ids.size == 0:
            raise BadInput(
                f"sequence {row} has shape {ids.shape}; every sequence needs at least "
                "one token: drop it or give it one"
            )
        bags.append(np.unique(ids.astype(np.int64), return_counts=True))
    none = [np.zeros(0, np.int64)]
    padded = _bags.padded(
        np.array([len(ids) for ids, _ in bags], np.int64),
        np.concatenate(none + [ids for ids, _ in bags]),
        np.concatenate(none + [number for _, number in bags]),
    )
    return from_bags(*padded, labels, vocabulary=vocabulary, classes=classes)


def from_counts(counts: Any, labels: ArrayLike, *, classes: int = 2) -> Corpus:
    """A corpus from the rows of a sparse count matrix, checked.

    Args:
        counts: a `scipy.sparse.csr_array`, one row per sequence, one column per token.
        labels: ±1 per sequence; for `classes` > 2, a class 0 … classes − 1.
        classes: number of classes K.

    Returns:
        The corpus, as wide as the sequence with most distinct tokens.

    Raises:
        BadInput: whatever is wrong with the counts or labels, with the first place.

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
    padded = _bags.padded(np.diff(counts.indptr), counts.indices, counts.data)
    return from_bags(*padded, labels, vocabulary=counts.shape[1], classes=classes)


def from_bags(
    tokens: ArrayLike,
    counts: ArrayLike,
    labels: ArrayLike,
    *,
    vocabulary: int,
    classes: int = 2,
) -> Corpus:
    """A corpus from padded bags of distinct tokens, checked.

    Args:
        tokens: ids in [0, vocabulary), shape (sequences, width).
        counts: occurrences, zero for padding, same shape.
        labels: ±1 per sequence; for `classes` > 2, a class 0 … classes − 1.
        vocabulary: number of tokens |S|, at most 2³¹ − 1.
        classes: number of classes K.

    Returns:
        The corpus.

    Raises:
        BadInput: whatever is wrong with the arrays, with the first place where.

    Example:
        >>> from_bags([[0, 1]], [[1, 0]], [1], vocabulary=2).labels.tolist()
        [1]
    """
    ids, number, y = _bags.checked(tokens, counts, labels, vocabulary, classes)
    return Corpus(
        # With its dtype said an array is copied; else JAX compiles that for each shape.
        tokens=jnp.asarray(ids, ids.dtype),
        counts=jnp.asarray(number, number.dtype),
        labels=jnp.asarray(y, y.dtype),
        vocabulary=int(vocabulary),
    )


@as_annotated
@one_program()
def frequencies(corpus: Corpus) -> Float[Array, "sequences width"]:
    """Share C_X[s] / T_X of a token in its sequence.

    Args:
        corpus: n bags.

    Returns:
        Shares in bag layout; a row sums to one.

    Example:
        >>> frequencies(from_sequences([[1, 1, 0, 1]], [1], vocabulary=2)).tolist()
        [[0.25, 0.75]]
    """
    return corpus.counts / corpus.counts.sum(axis=1, keepdims=True)


@as_annotated
@one_program()
def sum_by_token(
    per_slot: Float[Array, "sequences width"], corpus: Corpus
) -> Float[Array, " vocabulary"]:
    """Sum over the corpus of a quantity in bag layout, token by token.

    Args:
        per_slot: one number per slot of every bag, zero on padding.
        corpus: n bags.

    Returns:
        One number per token of the vocabulary.

    Example:
        >>> corpus = from_sequences([[0, 1], [1]], [1, -1], vocabulary=3)
        >>> sum_by_token(corpus.counts, corpus).tolist()
        [1.0, 2.0, 0.0]
    """
    return jnp.zeros(corpus.vocabulary, per_slot.dtype).at[corpus.tokens].add(per_slot)


@as_annotated
def importance(corpus: Corpus) -> Float[Array, " vocabulary"]:
    """Average signed frequency α_s = mean_X y C_X[s] / T_X (mathematics, section 1).

    Args:
        corpus: n bags with labels ±1.

    Returns:
        α, in [−1, 1] per token.

    Example:
        >>> corpus = from_sequences([[0, 2], [1, 2]], [1, -1], vocabulary=3)
        >>> importance(corpus).tolist()
        [0.25, -0.25, 0.0]
    """
    checks.labels_among(corpus.labels, (-1, 1))
    return _importance(corpus)


@one_program()
def _importance(corpus: Corpus) -> Float[Array, " vocabulary"]:
    share = frequencies(corpus)
    signed = corpus.labels.astype(share.dtype)[:, None] * share
    return sum_by_token(signed, corpus) / len(corpus.labels)


@as_annotated
def class_importance(
    corpus: Corpus, *, classes: int
) -> Float[Array, "vocabulary classes"]:
    """Importance for each of K classes: mean_X (1{y=k} − 1/K) C_X[s] / T_X.

    Args:
        corpus: n bags with labels 0 … K − 1.
        classes: K.

    Returns:
        α^k; a row sums to zero.

    Example:
        >>> corpus = from_sequences([[0], [1], [2]], [0, 1, 2], vocabulary=3, classes=3)
        >>> [round(a, 4) for a in class_importance(corpus, classes=3)[0].tolist()]
        [0.2222, -0.1111, -0.1111]
    """
    checks.labels_among(corpus.labels, tuple(range(classes)))
    return _class_importance(corpus, classes)


@one_program("classes")
def _class_importance(
    corpus: Corpus, classes: int
) -> Float[Array, "vocabulary classes"]:
    share = frequencies(corpus)
    here = corpus.labels[:, None] == jnp.arange(classes, dtype=jnp.int32)[None]
    excess = here.astype(share.dtype) - 1 / classes
    per_slot = share[:, :, None] * excess[:, None, :]
    total = jnp.zeros((corpus.vocabulary, classes), share.dtype)
    return total.at[corpus.tokens].add(per_slot) / len(corpus.labels)


@as_annotated
def token_classes(corpus: Corpus) -> TokenClasses:
    """Positive, negative, irrelevant and completely positive or negative tokens.

    Args:
        corpus: n bags with labels ±1.

    Returns:
        Masks over the vocabulary. A token that never occurs is irrelevant.

    Example:
        >>> corpus = from_sequences([[0, 2], [1, 2]], [1, -1], vocabulary=3)
        >>> token_classes(corpus).irrelevant.tolist()
        [False, False, True]
    """
    checks.labels_among(corpus.labels, (-1, 1))
    return _token_classes(corpus)


@one_program()
def _token_classes(corpus: Corpus) -> TokenClasses:
    share = frequencies(corpus)
    positive_share = jnp.where(corpus.labels[:, None] > 0, share, 0.0)
    with_positive = sum_by_token(positive_share, corpus)
    with_negative = sum_by_token(share - positive_share, corpus)
    # α is a difference of two sums of up to n rounded shares: within their rounding
    # it is zero.
    rounding = jnp.finfo(share.dtype).eps * len(corpus.labels)
    alpha = with_positive - with_negative
    irrelevant = jnp.abs(alpha) <= rounding * (with_positive + with_negative)
    return TokenClasses(
        positive=(alpha > 0) & ~irrelevant,
        negative=(alpha < 0) & ~irrelevant,
        irrelevant=irrelevant,
        completely_positive=(with_positive > 0) & (with_negative == 0),
        completely_negative=(with_negative > 0) & (with_positive == 0),
    )


@as_annotated
def occurrences(corpus: Corpus) -> Float[Array, " vocabulary"]:
    """Number of times each token occurs in the corpus.

    Args:
        corpus: n bags.

    Returns:
        Counts, zero for a token that never occurs.

    Example:
        >>> occurrences(from_sequences([[1, 1, 0]], [1], vocabulary=3)).tolist()
        [1.0, 2.0, 0.0]
    """
    return sum_by_token(corpus.counts, corpus)


@as_annotated
def posterior_difference(corpus: Corpus) -> Float[Array, " vocabulary"]:
    """P(+1 | s) − P(−1 | s) from counts: the x-axis of the paper's figures.

    Args:
        corpus: n bags with labels ±1.

    Returns:
        A number in [−1, 1] per token; NaN for a token that never occurs.

    Example:
        >>> corpus = from_sequences([[0, 0], [0, 1]], [1, -1], vocabulary=2)
        >>> [round(x, 4) for x in posterior_difference(corpus).tolist()]
        [0.3333, -1.0]
    """
    checks.labels_among(corpus.labels, (-1, 1))
    return _posterior_difference(corpus)


@one_program()
def _posterior_difference(corpus: Corpus) -> Float[Array, " vocabulary"]:
    signed = corpus.labels.astype(corpus.counts.dtype)[:, None] * corpus.counts
    return sum_by_token(signed, corpus) / occurrences(corpus)
