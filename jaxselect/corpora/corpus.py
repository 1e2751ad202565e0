"""Labelled bags of tokens, with the loss and the weights of their risk.

The model has no positional encoding, so a sequence X enters only through the count
C_X[s] of each token s (mathematics, section 1). Bags are padded to one width; padding
has count zero.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Scalar, Shaped
from numpy.typing import ArrayLike

from .. import checks
from ..arguments import fields_as_annotated
from ..errors import BadInput
from . import _bags
from .bags import AbstractBags, padded_logits
from .loss import LOGISTIC, Loss


class Shift(eqx.Module):
    """What an entry of a bag adds to the score and to the value of its token.

    A count is such a shift, log C_X[s] of the score; a tie at rest that one entry
    stands for is another (`jaxselect.ties`).

    Attributes:
        scores: α of every entry: its weight is C_X[s] e^{a_s + α}, up to a factor.
        values: β of every entry: its value is b_s + β, for every head.
        blur: bound on the error of α against the other α of its bag.
    """

    scores: Float[Array, "sequences width"]
    values: Float[Array, "sequences width"]
    blur: Float[Array, "sequences width"]


class Corpus(AbstractBags, eqx.Module):
    """Labelled bags, loss and weights of a risk L = Σ_X w_X ℓ(m_X).

    The loss and the weights stand here, since every function that reads the labels
    reads them too. A sequence of weight zero does not exist for the flow: it exerts no
    force, and none of its tokens competes, is selected or is important; derivatives
    are those at the given support, zero in its weight. To change either, take
    `dataclasses.replace(corpus, loss=…)`, or `weights=…` under `vmap`.

    Source: mathematics, section 1b.

    Attributes:
        tokens: token ids, distinct within a bag; any id where the count is zero.
        counts: how often the token occurs in the sequence; zero marks padding.
        labels: +1 or −1, for one head; a class 0 … K − 1, for K heads.
        vocabulary: number of tokens |S|.
        weights: w_X ≥ 0 of every sequence, adding up to one; None for 1/n each.
        loss: ℓ as a function of the margin m; with several heads the logistic one is
            cross-entropy (`functional_margin`).
        classes: K where labels are 0 … K − 1; None where they are ±1.
        shift: of scores and values by entry; None for none. Tokens of a bag with one
            need not be distinct.
    """

    tokens: Int[Array, "sequences width"]
    counts: Float[Array, "sequences width"]
    labels: Int[Array, " sequences"]
    vocabulary: int = eqx.field(static=True)
    weights: Float[Array, " sequences"] | None = None
    loss: Loss = eqx.field(static=True, default=LOGISTIC)
    classes: int | None = eqx.field(static=True, default=None)
    shift: Shift | None = None

    def __check_init__(self) -> None:
        """Refuse lists, and arrays of another kind or shape."""
        fields_as_annotated(self, "take `from_sequences` or `from_bags`")

    @property
    def arrays(self) -> Any:
        """The arrays are those of JAX."""
        return jnp

    @property
    def filled(self) -> Bool[Array, "sequences width"]:
        """Slots that hold a token."""
        return self.counts > 0

    @property
    def present(self) -> Bool[Array, "sequences width"]:
        """Slots that hold a token, in sequences of positive weight."""
        filled = self.filled
        return filled if self.weights is None else filled & (self.weights > 0)[:, None]

    def log_weights(self, dtype: jnp.dtype) -> Float[Array, "*sequences"]:
        """The log w_X, one for all if equal; −∞ for w_X = 0."""
        if self.weights is None:
            return -jnp.log(len(self.labels))
        positive = self.weights > 0
        logs = jnp.log(jnp.where(positive, self.weights, 1.0).astype(dtype))
        return jnp.where(positive, logs, -jnp.inf)

    def weighted(
        self, each: Float[Array, " sequences *rest"]
    ) -> Float[Array, " sequences *rest"]:
        """w_X times a quantity of every sequence; zero where w_X = 0."""
        if self.weights is None:
            return each / len(self.labels)
        weights = self.weights.astype(each.dtype).reshape(-1, *[1] * (each.ndim - 1))
        return jnp.where(weights > 0, weights * each, 0.0)

    def logits(
        self, scores: Float[Array, " vocabulary"]
    ) -> Float[Array, "sequences width"]:
        """The a_s + log C_X[s] in bag layout, −∞ on padding."""
        counts = self.counts.astype(scores.dtype)
        return padded_logits(self.scores_by_entry(scores), counts)

    def scores_by_entry(
        self, scores: Float[Array, " vocabulary"]
    ) -> Float[Array, "sequences width"]:
        """The a_s + α of every entry."""
        entries = self.gather(scores)
        return entries if self.shift is None else entries + self.shift.scores

    def values_by_entry(
        self, values: Float[Array, " vocabulary *classes"]
    ) -> Float[Array, " sequences width *classes"]:
        """The b_s + β of every entry."""
        entries = self.gather(values)
        if self.shift is None:
            return entries
        heads = [1] * (values.ndim - 1)
        return entries + self.shift.values.reshape(*self.tokens.shape, *heads)

    def gather(
        self, by_token: Shaped[Array, " vocabulary *rest"]
    ) -> Shaped[Array, " sequences width *rest"]:
        """Numbers of tokens in bag layout."""
        return by_token[self.tokens]

    def spread(
        self, by_bag: Shaped[Array, " sequences *rest"]
    ) -> Shaped[Array, " sequences one *rest"]:
        """Numbers of sequences, for every slot."""
        return by_bag[:, None]

    def total(
        self, entries: Shaped[Array, " sequences width *rest"]
    ) -> Shaped[Array, " sequences *rest"]:
        """Sum over every sequence."""
        return entries.sum(axis=1)

    def largest(
        self, entries: Float[Array, "sequences width"]
    ) -> Float[Array, " sequences"]:
        """Maximum over every sequence, constant in derivatives."""
        return jax.lax.stop_gradient(entries.max(axis=1))

    def scatter(
        self, entries: Float[Array, " sequences width *rest"]
    ) -> Float[Array, " vocabulary *rest"]:
        """Sum over every token."""
        shape = (self.vocabulary, *entries.shape[2:])
        return jnp.zeros(shape, entries.dtype).at[self.tokens].add(entries)

    def first(self, marks: Bool[Array, "sequences width"]) -> Int[Array, " sequences"]:
        """First marked slot; the last one where none is."""
        slots = jnp.arange(marks.shape[1])
        # `argmax` is not vectorised on CPU, where it would cost as much as attention.
        return jnp.min(jnp.where(marks, slots, len(slots) - 1), axis=1)

    def at(
        self,
        entries: Shaped[Array, " sequences width *rest"],
        slots: Int[Array, " sequences"],
    ) -> Shaped[Array, " sequences *rest"]:
        """Entries in the given slot of every sequence."""
        return jax.vmap(lambda bag, slot: bag[slot])(entries, slots)

    def marks(self, slots: Int[Array, " sequences"]) -> Bool[Array, "sequences width"]:
        """Whether a slot is the given one."""
        return jnp.arange(self.counts.shape[1])[None] == slots[:, None]

    def mean(self, each: Float[Array, " sequences"]) -> Float[Scalar, ""]:
        """Mean Σ_X w_X x_X over the sequences."""
        return jnp.mean(each) if self.weights is None else self.weighted(each).sum()

    def mean_by_token(
        self, per_slot: Float[Array, " sequences width *rest"]
    ) -> Float[Array, " vocabulary *rest"]:
        """Weighted means of a quantity in bag layout, by token."""
        if self.weights is None:
            return self.scatter(per_slot) / len(self.labels)
        return self.scatter(self.weighted(per_slot))


def from_sequences(
    sequences: Sequence[ArrayLike],
    labels: ArrayLike,
    *,
    vocabulary: int,
    classes: int = 2,
    weights: ArrayLike | None = None,
    loss: Loss = LOGISTIC,
) -> Corpus:
    """Bags of the given token sequences, checked.

    Args:
        sequences: one list of token ids in [0, vocabulary) per sequence.
        labels: ±1 per sequence; for `classes` > 2, a class 0 … classes − 1.
        vocabulary: number of tokens |S|.
        classes: number of classes K.
        weights: of the sequences, relative to each other; equal if not given.
        loss: ℓ, a function of the margin.

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
    padded = _bags.pad_bags(
        np.array([len(ids) for ids, _ in bags], np.int64),
        np.concatenate(none + [ids for ids, _ in bags]),
        np.concatenate(none + [number for _, number in bags]),
    )
    return from_bags(
        *padded,
        labels,
        vocabulary=vocabulary,
        classes=classes,
        weights=weights,
        loss=loss,
    )


def from_counts(
    counts: Any,
    labels: ArrayLike,
    *,
    classes: int = 2,
    weights: ArrayLike | None = None,
    loss: Loss = LOGISTIC,
) -> Corpus:
    """A corpus from the rows of a sparse count matrix, checked.

    Args:
        counts: a `scipy.sparse.csr_array`, one row per sequence, one column per token.
        labels: ±1 per sequence; for `classes` > 2, a class 0 … classes − 1.
        classes: number of classes K.
        weights: of the sequences, relative to each other; equal if not given.
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
    padded = _bags.pad_bags(np.diff(counts.indptr), counts.indices, counts.data)
    return from_bags(
        *padded,
        labels,
        vocabulary=counts.shape[1],
        classes=classes,
        weights=weights,
        loss=loss,
    )


def from_bags(
    tokens: ArrayLike,
    counts: ArrayLike,
    labels: ArrayLike,
    *,
    vocabulary: int,
    classes: int = 2,
    weights: ArrayLike | None = None,
    loss: Loss = LOGISTIC,
) -> Corpus:
    """A corpus from padded bags of distinct tokens, checked.

    Args:
        tokens: ids in [0, vocabulary), shape (sequences, width).
        counts: occurrences, zero for padding, same shape.
        labels: ±1 per sequence; for `classes` > 2, a class 0 … classes − 1.
        vocabulary: number of tokens |S|, at most 2³¹ − 1.
        classes: number of classes K.
        weights: of the sequences, relative to each other; equal if not given.
        loss: ℓ, a function of the margin.

    Returns:
        The corpus.

    Raises:
        BadInput: whatever is wrong with the arrays, and where first.

    Example:
        >>> from_bags([[0, 1]], [[1, 0]], [1], vocabulary=2).labels.tolist()
        [1]
    """
    ids, number, y = _bags.checked(tokens, counts, labels, vocabulary, classes)
    w = None if weights is None else _bags.checked_weights(weights, len(y))
    return Corpus(
        # With its dtype said an array is copied; else JAX compiles that for each shape.
        tokens=jnp.asarray(ids, ids.dtype),
        counts=jnp.asarray(number, number.dtype),
        labels=jnp.asarray(y, y.dtype),
        vocabulary=int(vocabulary),
        weights=None if w is None else jnp.asarray(w, w.dtype),
        loss=loss,
        classes=None if classes == 2 else int(classes),
    )
