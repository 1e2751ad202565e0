"""Importance of tokens from counts, selected tokens from scores, competing pairs.

The importance of a token is α_s = mean_X y C_X[s] / T_X; a token is important if it
occurs with one label only (Assumption 1). A sequence X selects S_X(p) = argmax_{s∈X}
pᵀE_s. Means over sequences use the weights of the corpus (mathematics, section 1).
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Scalar

from ..checks import BadInput, at_least, is_array, precise, shown
from ..data.corpus import Corpus, check_corpus, labels_among, same_vocabulary

# Width of the selection, in log t: midway between a token that is selected with the top
# one (it stays within a bounded distance) and one that lost (it falls back by log t).
WIDTH = 0.5


def frequencies(corpus: Corpus) -> Float[Array, "sequences width"]:
    """Compute the share C_X[s] / T_X of every token in its sequence, in bag layout."""
    return corpus.counts / corpus.counts.sum(axis=1, keepdims=True)


def importance(corpus: Corpus) -> Float[Array, " vocabulary"]:
    """Compute the average signed frequency α_s = mean_X y C_X[s] / T_X.

    Source: mathematics, section 1.

    Args:
        corpus: n sequences with labels ±1.

    Returns:
        α, in [−1, 1] per token.

    Raises:
        BadInput: another label.

    Example:
        >>> from jaxselect.data.corpus import from_sequences
        >>> corpus = from_sequences([[0, 2], [1, 2]], [1, -1], vocabulary=3)
        >>> importance(corpus).tolist()
        [0.25, -0.25, 0.0]
    """
    check_corpus(corpus)
    labels_among(corpus.labels, (-1, 1))
    share = frequencies(corpus)
    return corpus.mean_by_token(corpus.labels.astype(share.dtype)[:, None] * share)


def check_selected(selected: Any, corpus: Any) -> None:
    """Refuse anything but a mask of the entries of a corpus."""
    check_corpus(corpus)
    shape = corpus.tokens.shape
    if not is_array(selected, jnp.bool_) or selected.shape != shape:
        raise BadInput(f"selected {shown(selected)}: wanted bool{list(shape)}")


def class_importance(
    corpus: Corpus, *, classes: int
) -> Float[Array, "vocabulary classes"]:
    """Compute the importance for each class, mean_X (1{y=k} − 1/K) C_X[s] / T_X.

    Example:
        >>> from jaxselect.data.corpus import from_sequences
        >>> corpus = from_sequences([[0], [1], [2]], [0, 1, 2], vocabulary=3, classes=3)
        >>> [round(a, 4) for a in class_importance(corpus, classes=3)[0].tolist()]
        [0.2222, -0.1111, -0.1111]
    """
    labels_among(corpus.labels, tuple(range(classes)))
    share = frequencies(corpus)
    indicator = corpus.labels[:, None] == jnp.arange(classes, dtype=jnp.int32)[None]
    excess = indicator.astype(share.dtype) - 1 / classes
    return corpus.mean_by_token(share[:, :, None] * excess[:, None, :])


@partial(jax.jit, inline=True)
def important_tokens(corpus: Corpus) -> Bool[Array, " vocabulary"]:
    """Find the tokens that occur with one label only (Assumption 1).

    For labels ±1 these are the completely positive and completely negative ones.

    Source: mathematics, sections 1 and 1c.

    Example:
        >>> from jaxselect.data.corpus import from_sequences
        >>> bags = from_sequences([[0, 1], [1, 2]], [1, -1], vocabulary=3)
        >>> important_tokens(bags).tolist()
        [True, False, True]
    """
    share = frequencies(corpus)
    named = (1, -1) if corpus.classes is None else tuple(range(corpus.classes))
    indicator = corpus.labels[:, None] == jnp.array(named, corpus.labels.dtype)[None]
    each = share[:, :, None] * indicator.astype(share.dtype)[:, None, :]
    # Zero if a token never occurs with a class.
    return jnp.sum(corpus.mean_by_token(each) > 0, axis=1) == 1


def selected_tokens(
    scores: Float[Array, " vocabulary"],
    corpus: Corpus,
    log_time: Float[Scalar, ""] | float = 0.0,
    offsets: Float[Array, "sequences width"] | float = 0.0,
) -> Bool[Array, "sequences width"]:
    """Find the selected set S_X(p) = argmax_{s∈X} pᵀE_s of every sequence.

    Along the flow a losing token falls behind the top token by log t or more, while a
    selected one stays within a bounded distance. The set therefore holds the tokens
    within half of log t of the top; at log t = 0 that is the argmax.

    Source: mathematics, section 3.

    Args:
        scores: a = E p.
        corpus: n sequences.
        log_time: log(1+t) at which p was reached.
        offsets: constants to add to the scores of single entries.

    Returns:
        True where a slot holds a selected token; nowhere in a sequence of weight zero.

    Example:
        >>> from jaxselect.data.corpus import from_sequences
        >>> bags = from_sequences([[0, 1], [1, 2]], [1, -1], vocabulary=3)
        >>> selected_tokens(jnp.array([3.0, 2.0, 2.0]), bags).tolist()
        [[True, False], [True, True]]
    """
    check_corpus(corpus)
    at_least("log_time", log_time, 0.0)
    if not is_array(scores, jnp.floating, 1):
        raise BadInput(f"scores {shown(scores)}: wanted a number for each token")
    precise("scores", scores)
    same_vocabulary(scores, corpus.vocabulary)
    present = corpus.present
    in_bag = jnp.where(present, corpus.gather(jnp.asarray(scores)) + offsets, -jnp.inf)
    return present & (in_bag >= in_bag.max(axis=1, keepdims=True) - WIDTH * log_time)


def competing_pairs(
    selected: Bool[Array, "sequences width"], corpus: Corpus
) -> Bool[Array, "vocabulary vocabulary"]:
    """Find the pairs (s, r) with s ∈ S_X and r ∈ X ∖ S_X in some sequence X.

    These are the constraints pᵀ(E_s − E_r) ≥ 1 of the max-margin problem
    (Theorem 4.3).

    Source: mathematics, section 3.

    Args:
        selected: result of `selected_tokens`.
        corpus: n sequences.

    Returns:
        True at [s, r] if the pair competes.

    Example:
        >>> from jaxselect.data.corpus import from_sequences
        >>> bags = from_sequences([[0, 1], [1, 2]], [1, -1], vocabulary=3)
        >>> chosen = selected_tokens(jnp.array([3.0, 2.0, 1.0]), bags)
        >>> jnp.argwhere(competing_pairs(chosen, bags)).tolist()
        [[0, 1], [1, 2]]
    """
    check_selected(selected, corpus)
    rejected = corpus.present & ~selected
    rows = jnp.arange(len(corpus.labels))[:, None]
    chosen, beaten = (
        jnp.zeros((len(corpus.labels), corpus.vocabulary))
        .at[rows, corpus.tokens]
        .max(mask.astype(float))
        for mask in (selected, rejected)
    )
    return chosen.T @ beaten > 0


def selected_output(
    values: Float[Array, " sequences width *classes"],
    offsets: Float[Array, "sequences width"],
    selected: Bool[Array, "sequences width"],
) -> Float[Array, " sequences *classes"]:
    """Compute the limit of every output: the mean of b over the selected entries.

    It is Σ e^α b / Σ e^α over them, with the offsets α, which weighs tokens by their
    counts, or zero if there are none.

    Source: mathematics, section 3.

    Example:
        >>> values = jnp.array([[3.0, 0.0], [0.0, 9.0]])
        >>> offsets = jnp.log(jnp.array([[2.0, 1.0], [1.0, 1.0]]))
        >>> chosen = jnp.array([[True, True], [True, False]])
        >>> selected_output(values, offsets, chosen).round(6).tolist()
        [2.0, 0.0]
    """
    among = jnp.where(selected, offsets, -jnp.inf)
    largest = jnp.max(among, axis=1, keepdims=True)
    share = jnp.exp(among - jnp.where(jnp.isfinite(largest), largest, 0.0))
    total = share.sum(axis=1)
    total = jnp.where(total > 0, total, 1.0)
    if values.ndim > 2:
        share, total = share[..., None], total[:, None]
    return jnp.sum(share * values, axis=1) / total


@partial(jax.jit, inline=True)
def coverage(
    selected: Bool[Array, "sequences width"], corpus: Corpus
) -> Float[Array, " classes"]:
    """Compute the share of sequences whose important tokens are all selected, by class.

    Sequences count by their weights, and those without an important token do not count.
    If a class has no sequence with one, its share is NaN.

    Source: mathematics, section 1c.

    Args:
        selected: result of `selected_tokens`.
        corpus: n labelled sequences.

    Returns:
        One share per class, of labels ±1 for +1 and −1.

    Raises:
        BadInput: `selected` is no mask of the corpus's entries.

    Example:
        >>> from jaxselect.data.corpus import from_sequences
        >>> bags = from_sequences(
        ...     [[0, 3], [1, 3], [2, 3]], [0, 1, 2], vocabulary=4, classes=3
        ... )
        >>> chosen = selected_tokens(jnp.array([3.0, 2.0, 1.0, 2.5]), bags)
        >>> coverage(chosen, bags).tolist()
        [1.0, 0.0, 0.0]
    """
    check_selected(selected, corpus)
    important = important_tokens(corpus)[corpus.tokens] & corpus.present
    holds = important.any(axis=1)
    kept = holds & ~(important & ~selected).any(axis=1)

    def share(label: int) -> Float[Scalar, ""]:
        counted = holds & (corpus.labels == label)
        number = _number(counted, corpus)
        nonempty = number > 0
        part = _number(kept & counted, corpus) / jnp.where(nonempty, number, 1.0)
        # Two sums of the same weights may differ by a rounding.
        part = jnp.where((counted & ~kept).any(), part, 1.0)
        return jnp.where(nonempty, part, jnp.nan)

    labels = (1, -1) if corpus.classes is None else tuple(range(corpus.classes))
    return jnp.stack([share(label) for label in labels])


def mean_coverage(
    by_class: Float[Array, " classes"], corpus: Corpus
) -> Float[Scalar, ""]:
    """Average `coverage` over the classes that have important tokens.

    NaN where no class has one.
    """
    label = corpus.labels
    share = jnp.where(label > 0, by_class[0], by_class[1])
    if corpus.classes is not None:
        share = by_class[label]
    counts = ~jnp.isnan(share)
    of_all = len(share) / counts.sum().astype(share.dtype)
    if corpus.weights is not None:
        of_all = 1 / corpus.mean(counts.astype(share.dtype))
    return corpus.mean(jnp.where(counts, share, 0.0)) * of_all


def _number(counted: Bool[Array, " sequences"], corpus: Corpus) -> Float[Scalar, ""]:
    """Count sequences, each by its weight."""
    if corpus.weights is None:
        return counted.sum().astype(float)
    return jnp.where(counted, corpus.weights, 0.0).sum()
