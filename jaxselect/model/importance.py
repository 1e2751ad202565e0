"""Importance and classes of tokens, from the counts of labelled bags.

Means over sequences are those of the corpus, by its weights (mathematics, section 1).
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ..arguments import as_annotated
from ..corpora.checks import labels_among
from ..corpora.corpus import Corpus
from ..program import one_program


class TokenClasses(eqx.Module):
    """Masks of the positive, negative, irrelevant and important tokens.

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


@as_annotated
@one_program()
def frequencies(corpus: Corpus) -> Float[Array, "sequences width"]:
    """Share C_X[s] / T_X of a token in its sequence.

    Args:
        corpus: n bags.

    Returns:
        Shares in bag layout; a row sums to one.

    Example:
        >>> from jaxselect.corpora.corpus import from_sequences
        >>> frequencies(from_sequences([[1, 1, 0, 1]], [1], vocabulary=2)).tolist()
        [[0.25, 0.75]]
    """
    return corpus.counts / corpus.counts.sum(axis=1, keepdims=True)


@as_annotated
def importance(corpus: Corpus) -> Float[Array, " vocabulary"]:
    """Average signed frequency α_s = mean_X y C_X[s] / T_X (mathematics, section 1).

    Args:
        corpus: n bags with labels ±1.

    Returns:
        α, in [−1, 1] per token.

    Example:
        >>> from jaxselect.corpora.corpus import from_sequences
        >>> corpus = from_sequences([[0, 2], [1, 2]], [1, -1], vocabulary=3)
        >>> importance(corpus).tolist()
        [0.25, -0.25, 0.0]
    """
    labels_among(corpus.labels, (-1, 1))
    return _importance(corpus)


@one_program()
def _importance(corpus: Corpus) -> Float[Array, " vocabulary"]:
    share = frequencies(corpus)
    signed = corpus.labels.astype(share.dtype)[:, None] * share
    return corpus.mean_by_token(signed)


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
        >>> from jaxselect.corpora.corpus import from_sequences
        >>> corpus = from_sequences([[0], [1], [2]], [0, 1, 2], vocabulary=3, classes=3)
        >>> [round(a, 4) for a in class_importance(corpus, classes=3)[0].tolist()]
        [0.2222, -0.1111, -0.1111]
    """
    labels_among(corpus.labels, tuple(range(classes)))
    return _class_importance(corpus, classes)


@one_program("classes")
def _class_importance(
    corpus: Corpus, classes: int
) -> Float[Array, "vocabulary classes"]:
    share = frequencies(corpus)
    excess = _indicator(corpus, classes, share) - 1 / classes
    per_slot = share[:, :, None] * excess[:, None, :]
    return corpus.mean_by_token(per_slot)


@as_annotated
def shares_by_class(corpus: Corpus) -> Float[Array, "vocabulary classes"]:
    """Sums of a token's shares C_X[s]/T_X over each class.

    Args:
        corpus: n bags with labels 0 … K − 1, and `classes` K.

    Returns:
        Sums up to a common factor, weighted as the sequences are; exactly zero where a
        token never occurs with a class.

    Example:
        >>> from jaxselect.corpora.corpus import from_sequences
        >>> sizes = dict(vocabulary=3, classes=3)
        >>> bags = from_sequences([[0, 1], [1], [2]], [0, 1, 2], **sizes)
        >>> shares_by_class(bags).tolist()
        [[0.5, 0.0, 0.0], [0.5, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    number = 2 if corpus.classes is None else corpus.classes
    labels_among(corpus.labels, tuple(range(number)))
    return _shares_by_class(corpus, number)


@one_program("classes")
def _shares_by_class(
    corpus: Corpus, classes: int
) -> Float[Array, "vocabulary classes"]:
    share = frequencies(corpus)
    indicator = _indicator(corpus, classes, share)
    return _total(share[:, :, None] * indicator[:, None, :], corpus)


def _indicator(
    corpus: Corpus, classes: int, like: Float[Array, "..."]
) -> Float[Array, "sequences classes"]:
    """1{y = k} of every sequence."""
    indicator = corpus.labels[:, None] == jnp.arange(classes, dtype=jnp.int32)[None]
    return indicator.astype(like.dtype)


@as_annotated
def token_classes(corpus: Corpus) -> TokenClasses:
    """Positive, negative, irrelevant and completely positive or negative tokens.

    Args:
        corpus: n bags with labels ±1.

    Returns:
        Masks over the vocabulary. A token that never occurs is irrelevant.

    Example:
        >>> from jaxselect.corpora.corpus import from_sequences
        >>> corpus = from_sequences([[0, 2], [1, 2]], [1, -1], vocabulary=3)
        >>> token_classes(corpus).irrelevant.tolist()
        [False, False, True]
    """
    labels_among(corpus.labels, (-1, 1))
    return _token_classes(corpus)


@one_program()
def _token_classes(corpus: Corpus) -> TokenClasses:
    share = frequencies(corpus)
    positive_share = jnp.where(corpus.labels[:, None] > 0, share, 0.0)
    with_positive = _total(positive_share, corpus)
    with_negative = _total(share - positive_share, corpus)
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
    """Number of times each token occurs in the corpus, whatever the weights.

    Args:
        corpus: n bags.

    Returns:
        Counts, zero for a token that never occurs.

    Example:
        >>> from jaxselect.corpora.corpus import from_sequences
        >>> occurrences(from_sequences([[1, 1, 0]], [1], vocabulary=3)).tolist()
        [1.0, 2.0, 0.0]
    """
    return corpus.scatter(corpus.counts)


@as_annotated
def posterior_difference(corpus: Corpus) -> Float[Array, " vocabulary"]:
    """P(+1 | s) − P(−1 | s), from counts of occurrences.

    Args:
        corpus: n bags with labels ±1.

    Returns:
        A number in [−1, 1] per token; NaN for a token that never occurs.

    Example:
        >>> from jaxselect.corpora.corpus import from_sequences
        >>> corpus = from_sequences([[0, 0], [0, 1]], [1, -1], vocabulary=2)
        >>> [round(x, 4) for x in posterior_difference(corpus).tolist()]
        [0.3333, -1.0]
    """
    labels_among(corpus.labels, (-1, 1))
    return _posterior_difference(corpus)


@one_program()
def _posterior_difference(corpus: Corpus) -> Float[Array, " vocabulary"]:
    signed = corpus.labels.astype(corpus.counts.dtype)[:, None] * corpus.counts
    return _total(signed, corpus) / _total(corpus.counts, corpus)


def _total(
    per_slot: Float[Array, " sequences width *rest"], corpus: Corpus
) -> Float[Array, " vocabulary *rest"]:
    """Weighted sums by token, up to a common factor."""
    if corpus.weights is not None:
        per_slot = corpus.weighted(per_slot)
    return corpus.scatter(per_slot)
