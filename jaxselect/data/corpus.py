"""Labelled bags of tokens, with the loss and the weights of their risk.

The model has no positional encoding, so a sequence X enters only through the count
C_X[s] of each token s (mathematics, section 1). Bags are padded to one width; padding
has count zero.

Attention, risk and gradient are written in terms of the maps of a `Corpus` between
tokens, bags and *entries* (the slots of bags).
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Scalar, Shaped
from numpy.typing import ArrayLike

from ..checks import (
    MOST_TOKENS,
    BadInput,
    array,
    is_array,
    of_kind,
    real,
    shown,
    whole,
)
from .loss import LOGISTIC, Loss

# Array with a row per sequence: (sequences, *classes).
ByBag: TypeAlias = Any
# Likewise with an element per entry of the bags: (sequences, width, *classes).
Entries: TypeAlias = Any


class Corpus(eqx.Module):
    """Labelled sequences, loss and weights of a risk L = Σ_X w_X ℓ(m_X).

    The loss and the weights are stored here because every function that reads the
    labels reads them, too. A sequence of weight zero exerts no force, and its tokens
    neither compete nor are selected or important. Derivatives in a weight that is zero
    are zero. `dataclasses.replace(corpus, loss=…)` changes the loss, `weights=…` the
    weights, also under `vmap`.

    Source: mathematics, section 1b.

    Attributes:
        tokens: token ids, distinct within a sequence; any id where the count is zero.
        counts: how often the token occurs in the sequence; zero marks padding.
        labels: +1 or −1, for one head; a class 0 … K − 1, for K heads.
        vocabulary: number of tokens |S|.
        weights: w_X ≥ 0 of every sequence, adding up to one; None for 1/n each.
        loss: ℓ as a function of the margin m; with several heads the logistic one is
            cross-entropy (`functional_margin`).
        classes: K where labels are 0 … K − 1; None where they are ±1.
    """

    tokens: Int[Array, "sequences width"]
    counts: Float[Array, "sequences width"]
    labels: Int[Array, " sequences"]
    vocabulary: int = eqx.field(static=True)
    weights: Float[Array, " sequences"] | None = None
    loss: Loss = eqx.field(static=True, default=LOGISTIC)
    classes: int | None = eqx.field(static=True, default=None)

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
        """Return log w_X, a single number if all are equal; −∞ for w_X = 0."""
        if self.weights is None:
            return -jnp.log(len(self.labels))
        positive = self.weights > 0
        logs = jnp.log(jnp.where(positive, self.weights, 1.0).astype(dtype))
        return jnp.where(positive, logs, -jnp.inf)

    def weighted(
        self, each: Float[Array, " sequences *rest"]
    ) -> Float[Array, " sequences *rest"]:
        """Multiply a quantity of every sequence by w_X; zero where w_X = 0."""
        if self.weights is None:
            return each / len(self.labels)
        weights = self.weights.astype(each.dtype).reshape(-1, *[1] * (each.ndim - 1))
        return jnp.where(weights > 0, weights * each, 0.0)

    def logits(
        self, scores: Float[Array, " vocabulary"]
    ) -> Float[Array, "sequences width"]:
        """Compute the logits a_s + log C_X[s] of slots, −∞ on padding."""
        counts = self.counts.astype(scores.dtype)
        filled = counts > 0
        # The inner `where` keeps the derivative of log finite on padding.
        log_counts = jnp.log(jnp.where(filled, counts, 1))
        return jnp.where(filled, self.gather(scores) + log_counts, -jnp.inf)

    def gather(
        self, by_token: Shaped[Array, " vocabulary *rest"]
    ) -> Shaped[Array, " sequences width *rest"]:
        """Gather per-token values into slots."""
        # A look for negative ids would keep XLA from seeing that two gathers are one.
        return jnp.take(by_token, self.tokens, axis=0, mode="clip")

    def scatter(
        self, entries: Float[Array, " sequences width *rest"]
    ) -> Float[Array, " vocabulary *rest"]:
        """Sum over the slots of every token."""
        shape = (self.vocabulary, *entries.shape[2:])
        return jnp.zeros(shape, entries.dtype).at[self.tokens].add(entries)

    def at(
        self,
        entries: Shaped[Array, " sequences width *rest"],
        slots: Int[Array, " sequences"],
    ) -> Shaped[Array, " sequences *rest"]:
        """The entry in the given slot of every sequence."""
        return jax.vmap(lambda bag, slot: bag[slot])(entries, slots)

    def marks(self, slots: Int[Array, " sequences"]) -> Bool[Array, "sequences width"]:
        """Whether a slot is the given one."""
        return jnp.arange(self.counts.shape[1])[None] == slots[:, None]

    def spread_of(
        self,
        rows: Float[Array, "vocabulary dim"],
        share: Float[Array, "sequences width"],
        weight: Float[Array, "sequences width"],
    ) -> Float[Array, "dim dim"]:
        """Compute Σ w_s (E_s − Ē)(E_s − Ē)ᵀ over entries, Ē their mean by share.

        Some slots of all sequences at a time, for as long as there is a weight.
        """
        bags, width = self.tokens.shape
        mean = row_sums(rows, self.tokens, share)
        slots = min(width, max(1, BLOCK // (2 * bags * rows.shape[1])))
        blank = (0, 0), (0, -width % slots)
        tokens, weight = (
            jnp.pad(each, blank) for each in _leftmost(weight != 0, self.tokens, weight)
        )

        def add(number: Array, form: Array) -> Float[Array, "dim dim"]:
            here, root = (
                jax.lax.dynamic_slice_in_dim(each, number * slots, slots, axis=1)
                for each in (tokens, jnp.sqrt(weight))
            )
            ahead = root[..., None] * (rows[here] - mean[:, None])
            ahead = ahead.reshape(-1, rows.shape[1])
            return form + ahead.T @ ahead

        most = jnp.max(jnp.sum(weight > 0, axis=1))
        none = jnp.zeros((rows.shape[1],) * 2, rows.dtype)
        return jax.lax.fori_loop(0, -(-most // slots), add, none)

    def mean(self, each: Float[Array, " sequences"]) -> Float[Scalar, ""]:
        """Mean Σ_X w_X x_X over the sequences."""
        return jnp.mean(each) if self.weights is None else self.weighted(each).sum()

    def mean_by_token(
        self, per_slot: Float[Array, " sequences width *rest"]
    ) -> Float[Array, " vocabulary *rest"]:
        """Weighted means of a quantity of slots, by token."""
        if self.weights is None:
            return self.scatter(per_slot) / len(self.labels)
        return self.scatter(self.weighted(per_slot))


def as_wide(
    entries: Shaped[Array, "sequences width ..."], width: int, padding: float = 0
) -> Shaped[Array, "sequences other ..."]:
    """Cut the slots of every sequence off at a width, or add some of padding.

    Example:
        >>> as_wide(jnp.ones((1, 2)), 1).tolist(), as_wide(jnp.ones((1, 2)), 3).tolist()
        ([[1.0]], [[1.0, 1.0, 0.0]])
    """
    kept = entries[:, :width]
    blank = [(0, 0), (0, width - kept.shape[1]), *[(0, 0)] * (kept.ndim - 2)]
    return jnp.pad(kept, blank, constant_values=padding)


# Numbers that a map over bags may hold at a time: 128 MiB.
BLOCK = 2**24


def map_blocks(
    function: Callable[..., Array], *each: Shaped[Array, "..."], numbers: int
) -> Array:
    """Map a function over the first axis, in blocks where all would take much memory.

    Args:
        function: of one element of each array.
        each: arrays with equally many elements.
        numbers: that the function holds for one element.

    Returns:
        Its results, stacked.

    Example:
        >>> map_blocks(jnp.sum, jnp.ones((3, 2)), numbers=2**24).tolist()
        [2.0, 2.0, 2.0]
    """
    size = max(1, BLOCK // max(numbers, 1))
    if size >= len(each[0]):
        return jax.vmap(function)(*each)
    return jax.lax.map(lambda one: function(*one), each, batch_size=size)


# Operations of a matrix product in the time of one on a row that is gathered: measured.
GATHERED = 8


def row_sums(
    rows: Float[Array, "vocabulary dim"],
    tokens: Int[Array, "sequences width"],
    weights: Float[Array, " sequences width *each"],
) -> Float[Array, " sequences *each dim"]:
    """Compute Σ_s w_s E_s over the tokens of every sequence, for each of some weights.

    Example:
        >>> row_sums(jnp.eye(2), jnp.array([[1, 1]]), jnp.array([[2.0, 3.0]])).tolist()
        [[0.0, 5.0]]
    """
    vocabulary, (bags, width), each = len(rows), tokens.shape, weights.shape[2:]
    if vocabulary > GATHERED * width:
        flat = weights.reshape(bags, width, -1)
        return _gathered_sums(rows, tokens, flat).reshape(bags, *each, rows.shape[1])

    def of_bag(tokens: Array, weights: Array) -> Float[Array, " *each dim"]:
        none = jnp.zeros((vocabulary, *each), weights.dtype)
        return jnp.tensordot(none.at[tokens].add(weights), rows, (0, 0))

    return map_blocks(of_bag, tokens, weights, numbers=math.prod(each) * vocabulary)


# Numbers of the sums that are added to at a time, which stay in the cache of a
# processor, and rows that are added at once: measured.
_CACHED, _AT_ONCE = 2**16, 4


@jax.custom_jvp
def _gathered_sums(
    rows: Float[Array, "vocabulary dim"],
    tokens: Int[Array, "sequences width"],
    weights: Float[Array, "sequences width each"],
) -> Float[Array, "sequences each dim"]:
    """Add up rows that are not below a rounding of the largest of their sequence.

    A few slots of some sequences at a time; those with as many left go together.
    """
    (bags, _), shape = tokens.shape, (weights.shape[2], rows.shape[1])
    sizes = jnp.max(jnp.abs(rows), axis=1)[tokens][..., None] * jnp.abs(weights)
    rounding = jnp.finfo(rows.dtype).eps * jnp.max(sizes, axis=1, keepdims=True)
    # What is no number counts, too.
    counts = jnp.any(~(sizes <= rounding), axis=2)
    order = jnp.argsort(-counts.sum(axis=1))
    block = max(1, min(bags, _CACHED // math.prod(shape)))
    left = [
        jnp.pad(
            each[order],
            [(0, -bags % block), (0, -each.shape[1] % _AT_ONCE)]
            + [(0, 0)] * (each.ndim - 2),
        )
        for each in _leftmost(counts, tokens, weights)
    ]

    def of_block(given: tuple[Array, Array]) -> Float[Array, "block each dim"]:
        def add(number: Array, total: Array) -> Float[Array, "block each dim"]:
            some, weights = (
                jax.lax.dynamic_slice_in_dim(each, number * _AT_ONCE, _AT_ONCE, axis=1)
                for each in given
            )
            found = rows[some]
            for slot in range(_AT_ONCE):
                total += weights[:, slot, :, None] * found[:, slot, None]
            return total

        used = jnp.any(given[1] != 0, axis=(0, 2)).sum()
        none = jnp.zeros((block, *shape), rows.dtype)
        return jax.lax.fori_loop(0, -(-used // _AT_ONCE), add, none)

    blocks = (each.reshape(-1, block, *each.shape[1:]) for each in left)
    sums = jax.lax.map(of_block, tuple(blocks)).reshape(-1, *shape)[:bags]
    return jnp.zeros_like(sums).at[order].set(sums)


@_gathered_sums.defjvp
def _gathered_sums_jvp(
    primals: tuple[Array, Array, Array], tangents: tuple[Array, Any, Array]
) -> tuple[Array, Array]:
    """Keep every term: one that is zero may have a derivative."""
    (rows, tokens, weights), (change, _, others) = primals, tangents

    def of_bag(
        tokens: Array, weights: Array, others: Array
    ) -> Float[Array, "each dim"]:
        return weights.T @ change[tokens] + others.T @ rows[tokens]

    numbers = 2 * tokens.shape[1] * rows.shape[1]
    slope = map_blocks(of_bag, tokens, weights, others, numbers=numbers)
    return _gathered_sums(*primals), slope


def _leftmost(
    counts: Bool[Array, "sequences width"], *each: Shaped[Array, "sequences width ..."]
) -> list[Array]:
    """Move slots that count to the first of their sequence, and drop the others."""
    slot = jnp.where(counts, jnp.cumsum(counts, axis=1) - 1, counts.shape[1])
    bag = jnp.arange(len(counts))[:, None]
    return [jnp.zeros_like(x).at[bag, slot].set(x, mode="drop") for x in each]


def sum_blocks(
    function: Callable[..., Array], *each: Shaped[Array, "..."], numbers: int
) -> Array:
    """Sum a function of some elements over blocks, where all would take much memory.

    Args:
        function: of some elements of each array; zero for elements that are zero.
        each: arrays with equally many elements, along the first axis.
        numbers: that the function holds for one element.

    Returns:
        The sum of its results.

    Example:
        >>> sum_blocks(jnp.sum, jnp.ones(5), numbers=2**23).item()
        5.0
    """
    number, size = len(each[0]), max(1, BLOCK // max(numbers, 1))
    if size >= number:
        return function(*each)
    blocks = -(-number // size)

    def cut(all_of: Array) -> Array:
        lacking = jnp.zeros((blocks * size - number, *all_of.shape[1:]), all_of.dtype)
        whole = jnp.concatenate([all_of, lacking])
        return whole.reshape(blocks, size, *all_of.shape[1:])

    cuts = tuple(map(cut, each))
    none = jax.eval_shape(function, *(some[0] for some in cuts))
    return jax.lax.scan(
        lambda total, some: (total + function(*some), None),
        jnp.zeros(none.shape, none.dtype),
        cuts,
    )[0]


def from_sequences(
    sequences: "Sequence[ArrayLike] | np.ndarray",
    labels: "ArrayLike",
    *,
    vocabulary: int,
    classes: int = 2,
    weights: "ArrayLike | None" = None,
    loss: Loss = LOGISTIC,
) -> Corpus:
    """Make a corpus of the given token sequences.

    Args:
        sequences: one list of token ids in [0, vocabulary) per sequence.
        labels: ±1 per sequence; for `classes` > 2, a class 0 … classes − 1.
        vocabulary: number of tokens |S|.
        classes: number of classes K.
        weights: weights of the sequences, relative to each other; equal if not given.
        loss: ℓ, a `Loss` such as `LOGISTIC`.

    Returns:
        The corpus, as wide as the sequence with most distinct tokens.

    Raises:
        BadInput: an empty sequence, an id outside the vocabulary, a wrong label.

    Example:
        >>> corpus = from_sequences([[2, 0, 2], [1, 2]], [1, -1], vocabulary=3)
        >>> corpus.counts.tolist()
        [[1.0, 2.0], [1.0, 1.0]]
    """
    bags = [
        np.unique(ids.astype(np.int64), return_counts=True)
        for ids in sequences_of("sequences", sequences)
    ]
    width = max((len(ids) for ids, _ in bags), default=1)
    tokens, counts = np.zeros((2, len(bags), width), np.int64)
    for row, (ids, number) in enumerate(bags):
        tokens[row, : len(ids)], counts[row, : len(ids)] = ids, number
    return from_bags(
        tokens,
        counts,
        labels,
        vocabulary=vocabulary,
        classes=classes,
        weights=weights,
        loss=loss,
    )


def sequences_of(name: str, given: Any) -> list[np.ndarray]:
    """Return token ids of every sequence, at least one, as a caller gave them.

    Example:
        >>> sequences_of("sequences", [[0], []])
        Traceback (most recent call last):
        jaxselect.checks.BadInput: sequence 1 has shape (0,); every sequence needs ...
    """
    if not isinstance(given, Iterable) or getattr(given, "ndim", 1) == 0:
        raise BadInput(f"{name} {shown(given)}: wanted one list of token ids each")
    found = []
    for row, sequence in enumerate(given):
        ids = array(
            f"sequence {row}", sequence, kinds="iu", wanted="token ids, integers"
        )
        if ids.ndim != 1 or ids.size == 0:
            raise BadInput(
                f"sequence {row} has shape {ids.shape}; every sequence needs at least "
                "one token: drop it or give it one"
            )
        found.append(ids)
    return found


def from_bags(
    tokens: "ArrayLike",
    counts: "ArrayLike",
    labels: "ArrayLike",
    *,
    vocabulary: int,
    classes: int = 2,
    weights: "ArrayLike | None" = None,
    loss: Loss = LOGISTIC,
) -> Corpus:
    """Make a corpus of padded sequences of distinct tokens.

    Args:
        tokens: ids in [0, vocabulary), shape (sequences, width).
        counts: occurrences, zero for padding, same shape.
        labels: ±1 per sequence; for `classes` > 2, a class 0 … classes − 1.
        vocabulary: number of tokens |S|, at most 2³¹ − 1.
        classes: number of classes K.
        weights: weights of the sequences, relative to each other; equal if not given.
        loss: ℓ, a `Loss` such as `LOGISTIC`.

    Returns:
        The corpus.

    Raises:
        BadInput: a wrong shape or value; the message names the first one.

    Example:
        >>> from_bags([[0, 1]], [[1, 0]], [1], vocabulary=2).labels.tolist()
        [1]
    """
    ids, number, y = _checked(tokens, counts, labels, vocabulary, classes)
    of_kind("loss", loss, Loss, ", such as LOGISTIC")
    return Corpus(
        # With its dtype said an array is copied; else JAX compiles that for each shape.
        tokens=jnp.asarray(ids, ids.dtype),
        counts=jnp.asarray(number, number.dtype),
        labels=jnp.asarray(y, y.dtype),
        vocabulary=int(vocabulary),
        weights=weights_of(weights, len(y)),
        loss=loss,
        classes=None if classes == 2 else int(classes),
    )


def _checked(
    tokens: "ArrayLike",
    counts: "ArrayLike",
    labels: "ArrayLike",
    tokens_known: object,
    classes_known: object,
) -> tuple[
    Int[np.ndarray, "sequences width"],
    Float[np.ndarray, "sequences width"],
    Int[np.ndarray, " sequences"],
]:
    """Arrays of a `Corpus`, checked."""
    vocabulary = whole("vocabulary", tokens_known, most=MOST_TOKENS)
    classes = whole("classes", classes_known, least=2)
    ids = array("tokens", tokens, kinds="iu", wanted="token ids, integers")
    number = array("counts", counts, kinds="iufb", wanted="real numbers")
    if ids.ndim != 2 or ids.shape != number.shape:
        raise BadInput(
            f"tokens {ids.shape}, counts {number.shape}: wanted (sequences, width), "
            "the same"
        )
    if len(ids) == 0:
        raise BadInput("the corpus has no sequence; it needs at least one")
    y = labels_of(labels, len(ids))
    # Numbers that single precision makes infinite or zero are seen as such.
    with np.errstate(over="ignore", under="ignore"):
        number = number.astype(jnp.result_type(float))
    if not (np.isfinite(number) & (number >= 0)).all():
        row = np.argwhere(~(np.isfinite(number) & (number >= 0)))[0]
        raise BadInput(
            f"count {number[tuple(row)]} in sequence {row[0]}: counts are finite and "
            "not negative"
        )
    present = number > 0
    if not present.any(axis=1).all():
        row = np.argmin(present.any(axis=1))
        raise BadInput(f"sequence {row} is empty; every sequence needs a token")
    if (present & ((ids < 0) | (ids >= vocabulary))).any():
        row = np.argwhere(present & ((ids < 0) | (ids >= vocabulary)))[0]
        raise BadInput(
            f"token id {ids[tuple(row)]} in sequence {row[0]} is outside the "
            f"vocabulary 0 … {vocabulary - 1}"
        )
    # Padding sorts behind every token, so equal neighbours are repeated tokens.
    ordered = np.sort(np.where(present, ids, vocabulary), axis=1)
    repeated = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] < vocabulary)
    if repeated.any():
        row = np.argwhere(repeated)[0]
        raise BadInput(
            f"token id {ordered[row[0], row[1]]} occurs twice in sequence {row[0]}: "
            "add the counts up, one entry per distinct token"
        )
    labels_among(y, (-1, 1) if classes == 2 else tuple(range(classes)))
    return np.where(present, ids, 0).astype(np.int32), number, y.astype(np.int32)


def labels_of(labels: Any, sequences: int) -> Any:
    """A label for each sequence, as a caller gave them.

    Example:
        >>> labels_of([1], 2)
        Traceback (most recent call last):
        jaxselect.checks.BadInput: labels of shape (1,): wanted one for each of 2 ...
    """
    found: Any = labels
    if not isinstance(labels, jax.core.Tracer):
        found = array("labels", labels, kinds="iuf", wanted="whole numbers")
    if found.shape != (sequences,):
        raise BadInput(
            f"labels of shape {found.shape}: wanted one for each of {sequences} "
            "sequences"
        )
    return found


def check_corpus(corpus: Any) -> None:
    """Refuse what is not a corpus, or one whose arrays do not go together.

    Example:
        >>> check_corpus([[0, 1]])
        Traceback (most recent call last):
        jaxselect.checks.BadInput: corpus of type list: wanted Corpus
    """
    of_kind("corpus", corpus, Corpus)
    of_kind("loss", corpus.loss, Loss, ", such as LOGISTIC")
    bags = np.shape(corpus.tokens)
    for name, dtype, axes in (
        ("tokens", jnp.integer, 2),
        ("counts", jnp.floating, 2),
        ("labels", jnp.integer, 1),
        ("weights", jnp.floating, 1),
    ):
        given = getattr(corpus, name)
        right = is_array(given, dtype, axes) and given.shape == bags[:axes]
        if not right and not (name == "weights" and given is None):
            raise BadInput(
                f"corpus with {name} {shown(given)} beside tokens of shape {bags}: "
                f"wanted an array of {dtype.__name__} type, {axes} axes"
            )


def weights_of(weights: Any, sequences: int) -> Float[Array, " sequences"] | None:
    """Weights of sequences, if they are given, scaled to a sum of one."""
    if weights is None:
        return None
    w, traced = weights, isinstance(weights, jax.core.Tracer)
    if not traced:
        w = array("weights", weights, kinds="iufb", wanted="real numbers")
    w = w.astype(float)
    if w.shape != (sequences,):
        raise BadInput(
            f"weights of shape {w.shape} for {sequences} sequences: wanted one number "
            "for each"
        )
    if not traced and not ((np.isfinite(w) & (w >= 0)).all() and (w > 0).any()):
        raise BadInput(
            f"weights {w.tolist()[:6]}: wanted finite numbers ≥ 0, one of them above 0"
        )
    # The largest comes out first: no sum overflows.
    w = w / w.max()
    w = (w / w.sum()).astype(jnp.result_type(float))
    return jnp.asarray(w, w.dtype)


def labels_among(labels: jax.Array | np.ndarray, wanted: tuple[int, ...]) -> None:
    """Refuse concrete labels other than ±1 or the given classes.

    Example:
        >>> labels_among(np.array([1, 1, 2]), (-1, 1))
        Traceback (most recent call last):
        jaxselect.checks.BadInput: label 2 of sequence 2: wanted one of [-1, 1]; map ...
    """
    if isinstance(labels, jax.core.Tracer):
        return
    given = np.asarray(labels)
    known = np.isin(given, wanted)
    if not known.all():
        row = known.argmin()
        raise BadInput(
            f"label {given[row]} of sequence {row}: wanted one of {list(wanted)}; map "
            "your labels to these"
        )


def labels_suit(classes: tuple[int, ...], corpus: Any) -> None:
    """Refuse labels that do not suit a head of shape (d,) or (d, K): ±1, or 0 … K − 1.

    `classes` is () or (K,). Traced labels pass; the number of classes is never traced.

    Example:
        >>> labels_suit((3,), from_sequences([[0]], [1], vocabulary=1))
        Traceback (most recent call last):
        jaxselect.checks.BadInput: labels ±1 with 3 heads: wanted 3 classes
    """
    known = getattr(corpus, "classes", None)
    given = "labels ±1" if known is None else f"{known} classes"
    if classes == () and known is not None:
        raise BadInput(f"{given} with one head: wanted labels ±1, or {known} heads")
    if classes != () and classes != (known,):
        raise BadInput(f"{given} with {classes[0]} heads: wanted {classes[0]} classes")
    labels_among(corpus.labels, tuple(range(*classes)) if classes else (-1, 1))


def same_vocabulary(embeddings: jax.Array | np.ndarray, vocabulary: int) -> None:
    """Refuse an array whose number of rows is not the size of the vocabulary.

    JAX would read past the end without an error.

    Example:
        >>> same_vocabulary(np.zeros(3), 4)
        Traceback (most recent call last):
        jaxselect.checks.BadInput: 3 tokens beside a corpus with a vocabulary of 4: ...
    """
    if len(embeddings) != vocabulary:
        raise BadInput(
            f"{len(embeddings)} tokens beside a corpus with a vocabulary of "
            f"{vocabulary}: wanted one row per token of that vocabulary"
        )


# A share computed in floating point may miss its end by a few roundings.
ROUNDING = 1e-12


def counted(
    sequences: Int[Array, "sequences length"],
    labels: Int[Array, " sequences"],
    vocabulary: int,
) -> Corpus:
    """Turn sequences into padded bags of sorted tokens with their counts."""

    def bag(
        sequence: Int[Array, " length"],
    ) -> tuple[Int[Array, " length"], Float[Array, " length"]]:
        ordered = jnp.sort(sequence)
        new = jnp.concatenate([jnp.ones(1, bool), ordered[1:] != ordered[:-1]])
        slot = jnp.cumsum(new) - 1
        return jnp.zeros_like(ordered).at[slot].set(ordered), (
            jnp.zeros(ordered.shape).at[slot].add(1.0)
        )

    tokens, counts = jax.vmap(bag)(sequences)
    return Corpus(tokens, counts, labels, vocabulary)


def check_share(
    name: str,
    value: Float[Scalar, ""] | float,
    *,
    above: float = -ROUNDING,
    most: float = 1.0,
) -> None:
    """Refuse a concrete share outside (above, most]; traced ones pass."""
    number = real(name, value)
    if number is not None and not above < number <= most + ROUNDING:
        least = "from 0" if above < 0 else "above 0"
        raise BadInput(f"{name} {number}: wanted a number {least} to {most:.6g}")
