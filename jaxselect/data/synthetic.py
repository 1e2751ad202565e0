"""Synthetic corpora, drawn from a key.

Ids 0 … m − 1 are the relevant tokens of the first class, the next m those of the second
and so on, the irrelevant tokens come last. Sequences are drawn in groups, one per
class, which share their irrelevant tokens. An irrelevant token therefore occurs equally
often with every label, and its α is exactly zero. Shapes depend on whole-number
settings only, so every family runs under `jax.jit` and `jax.vmap`.
"""

from dataclasses import replace
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, Scalar

from .. import checks
from ..checks import BadInput
from ..compilation import compiled_alone
from .corpus import ROUNDING, Corpus, check_share, counted


class _Sizes(NamedTuple):
    """Integer settings that determine shapes."""

    sequences: int
    length: int
    relevant: int
    irrelevant: int
    classes: int = 2
    per_sequence: int = 1

    @property
    def vocabulary(self) -> int:
        """Number of tokens |S|."""
        return self.classes * self.relevant + self.irrelevant


def assumption_one(
    key: Key[Array, ""], *, sequences: int, length: int, relevant: int, irrelevant: int
) -> Corpus:
    """Draw a corpus that satisfies Assumption 1: one important token per sequence.

    Half of the labels are +1. The other tokens of a sequence are irrelevant, α_s = 0.
    Counts are even: each relevant token is in ⌊n/2m⌋ or ⌈n/2m⌉ sequences, so its
    importance does not fluctuate between draws. `independent_tokens` at its largest
    share draws counts independently instead, and has another phase diagram
    (mathematics, section 6e).

    Source: mathematics, sections 3 and 3m.

    Args:
        key: a `jax.random.key`.
        sequences: n, even.
        length: T ≥ 2, tokens per sequence.
        relevant: relevant tokens per class, m.
        irrelevant: irrelevant tokens; |S| = 2 m + irrelevant.

    Returns:
        A corpus of width T with labels ±1.

    Raises:
        BadInput: a setting out of its range.

    Example:
        >>> sizes = dict(sequences=6, length=4, relevant=2, irrelevant=3)
        >>> corpus = assumption_one(jax.random.key(0), **sizes)
        >>> corpus.labels.tolist(), corpus.vocabulary
        ([1, 1, 1, -1, -1, -1], 7)
    """
    return several_relevant(
        key,
        sequences=sequences,
        length=length,
        relevant=relevant,
        irrelevant=irrelevant,
    )


def several_relevant(
    key: Key[Array, ""],
    *,
    sequences: int,
    length: int,
    relevant: int,
    irrelevant: int,
    per_sequence: int = 1,
    purity: Float[Scalar, ""] | float = 1.0,
) -> Corpus:
    """Draw several relevant tokens per sequence, of a given purity.

    A relevant token belongs to the class of its sequence with probability (1 + purity)
    / 2, else to the other class, so its expected posterior difference is ± purity. The
    other tokens are irrelevant, α_s = 0. Of the `per_sequence` relevant tokens of a
    sequence, at most T, some may be the same. The purity, in (0, 1], may be traced; one
    is of completely positive and negative tokens. The rest is as in `assumption_one`.

    Source: mathematics, section 3.

    Raises:
        BadInput: a setting out of its range.

    Example:
        >>> sizes = dict(sequences=6, length=4, relevant=2, irrelevant=3)
        >>> corpus = several_relevant(jax.random.key(0), **sizes, per_sequence=2)
        >>> jnp.where(corpus.tokens < 4, corpus.counts, 0.0).sum(axis=1).tolist()
        [2.0, 2.0, 2.0, 2.0, 2.0, 2.0]
    """
    checks.key(key)
    check_share("purity", purity, above=0.0)
    sizes = _Sizes(sequences, length, relevant, irrelevant, per_sequence=per_sequence)
    _check(sizes)
    return _several_relevant(key, purity, sizes=sizes)


@partial(compiled_alone, static=("sizes",))
def _several_relevant(
    key: Key[Array, ""], purity: Float[Scalar, ""] | float, *, sizes: _Sizes
) -> Corpus:
    balanced_key, flip_key = jax.random.split(key)
    tokens, classes = _balanced(balanced_key, sizes)
    own = tokens[:, : sizes.per_sequence]
    flipped = jax.random.uniform(flip_key, own.shape) > (1 + purity) / 2
    other = (own + sizes.relevant) % (2 * sizes.relevant)
    tokens = tokens.at[:, : sizes.per_sequence].set(jnp.where(flipped, other, own))
    return counted(tokens, 1 - 2 * classes, sizes.vocabulary)


def independent_tokens(
    key: Key[Array, ""],
    *,
    sequences: int,
    length: int,
    relevant: int,
    irrelevant: int,
    irrelevant_share: Float[Scalar, ""] | float,
    weakest: Float[Scalar, ""] | float = 0.1,
) -> Corpus:
    """Draw tokens independently given the label, with a share δ̃ of irrelevant ones.

    The paper's synthetic data are of this kind; the parametrisation here is ours. The
    `irrelevant_share` δ̃ is in [0, (|S| − 1)/|S|], and both shares may be traced. With
    ι = δ̃ |S| / (|S| − 1), which is one for the largest δ̃, the first token of a
    sequence is relevant and each other one with probability 1 − ι. A relevant token s
    is drawn with P(s | y) = (1 + y δ_s) / 2m, so its posterior difference is δ_s in
    expectation. Over the m tokens of a class |δ_s| is spread evenly from w to 1, with w
    = ι + (1 − ι) `weakest`, `weakest` in (0, 1]. At ι = 1 every draw fulfils Assumption
    1. Sizes are as in `assumption_one`.

    Source: mathematics, section 3.

    Raises:
        BadInput: a setting out of its range.

    Example:
        >>> from jaxselect.model.selection import important_tokens
        >>> sizes = dict(sequences=40, length=4, relevant=2, irrelevant=6)
        >>> corpus = independent_tokens(
        ...     jax.random.key(0), **sizes, irrelevant_share=9 / 10
        ... )
        >>> important_tokens(corpus).tolist()[:6]
        [True, True, True, True, False, False]
    """
    checks.key(key)
    sizes = _Sizes(sequences, length, relevant, irrelevant)
    _check(sizes)
    check_share("weakest", weakest, above=0.0)
    check_share("irrelevant_share", irrelevant_share, most=1 - 1 / sizes.vocabulary)
    return _independent_tokens(key, irrelevant_share, weakest, sizes=sizes)


@partial(compiled_alone, static=("sizes",))
def _independent_tokens(
    key: Key[Array, ""],
    irrelevant_share: Float[Scalar, ""] | float,
    weakest: Float[Scalar, ""] | float,
    *,
    sizes: _Sizes,
) -> Corpus:
    vocabulary = sizes.vocabulary
    balanced_key, place_key, token_key = jax.random.split(key, 3)
    tokens, classes = _balanced(balanced_key, sizes)
    labels = 1 - 2 * classes
    # Rounding may leave ι just below one: then one slot in 10¹⁶ would be relevant.
    rho = jnp.minimum(irrelevant_share * vocabulary / (vocabulary - 1) + ROUNDING, 1.0)
    least = rho + (1 - rho) * weakest
    strength = least + (1 - least) * jnp.linspace(0.0, 1.0, sizes.relevant)
    difference = jnp.concatenate([strength, -strength])
    chance = (1 + jnp.outer(labels.astype(difference.dtype), difference)) / 2
    drawn = jax.random.categorical(
        token_key, jnp.log(chance)[:, None, :], shape=tokens.shape
    )
    is_relevant = jax.random.uniform(place_key, tokens.shape) >= rho
    is_relevant = is_relevant.at[:, 0].set(True)
    tokens = jnp.where(is_relevant, drawn.astype(tokens.dtype), tokens)
    return counted(tokens, labels, vocabulary)


def multi_class(
    key: Key[Array, ""],
    *,
    sequences: int,
    length: int,
    relevant: int,
    irrelevant: int,
    classes: int,
) -> Corpus:
    """Draw by Assumption 1 for K classes: one token per sequence has a single class.

    Labels are 0 … K − 1, for K heads, and |S| = K m + irrelevant. The rest is as in
    `assumption_one`, with a number of sequences that is a multiple of K.

    Raises:
        BadInput: a setting out of its range.

    Example:
        >>> sizes = dict(sequences=6, length=4, relevant=1, irrelevant=3)
        >>> multi_class(jax.random.key(0), **sizes, classes=3).labels.tolist()
        [0, 0, 1, 1, 2, 2]
    """
    checks.key(key)
    sizes = _Sizes(sequences, length, relevant, irrelevant, classes)
    _check(sizes)
    return _multi_class(key, sizes=sizes)


@partial(compiled_alone, static=("sizes",))
def _multi_class(key: Key[Array, ""], *, sizes: _Sizes) -> Corpus:
    tokens, labels = _balanced(key, sizes)
    return replace(counted(tokens, labels, sizes.vocabulary), classes=sizes.classes)


def _check(sizes: _Sizes) -> None:
    """Refuse integer settings of a family that do not go together."""
    for (name, value), least in zip(
        sizes._asdict().items(), (1, 1, 1, 0, 2, 1), strict=True
    ):
        checks.whole(name, value, least=least, most=checks.MOST_TOKENS)
    sequences, length, _, irrelevant, classes, per_sequence = sizes
    if length == 1:
        raise BadInput("length 1: wanted 2 or more; nothing competes with a lone token")
    if sequences % classes:
        raise BadInput(
            f"sequences {sequences}: wanted as many for each of {classes} classes; "
            f"take a multiple of {classes}"
        )
    if length < per_sequence or (length > per_sequence and irrelevant < 1):
        raise BadInput(
            f"length {length}, per_sequence {per_sequence}, irrelevant {irrelevant}: "
            "wanted room for the relevant tokens, and an irrelevant token to fill the "
            "rest"
        )
    checks.whole("vocabulary", sizes.vocabulary, most=checks.MOST_TOKENS)


def _balanced(
    key: Key[Array, ""], sizes: _Sizes
) -> tuple[Int[Array, "sequences length"], Int[Array, " sequences"]]:
    """Draw sequences that begin with relevant tokens of their class."""
    sequences, length, relevant, _, classes, per_sequence = sizes
    relevant_key, context_key = jax.random.split(key)
    each = sequences // classes
    # A shuffled round of all m tokens uses every one before any twice.
    draws = each * per_sequence
    deck = jnp.arange(draws, dtype=jnp.int32) % relevant
    decks = jax.vmap(jax.random.permutation, in_axes=(0, None))(
        jax.random.split(relevant_key, classes), deck
    )
    first = relevant * jnp.arange(classes, dtype=jnp.int32)[:, None]
    own = (decks + first).reshape(sequences, per_sequence)
    context = jax.random.randint(
        context_key,
        (each, length - per_sequence),
        classes * relevant,
        max(sizes.vocabulary, classes * relevant + 1),
        dtype=jnp.int32,
    )
    tokens = jnp.concatenate([own, jnp.tile(context, (classes, 1))], axis=1)
    return tokens, jnp.repeat(jnp.arange(classes, dtype=jnp.int32), each)
