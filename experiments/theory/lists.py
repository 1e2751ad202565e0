"""Decision lists: the token of highest priority in a sequence decides its label.

With hard attention the model computes such a list: f is the value b of the token with
the highest score. The signs of α alone do not determine the list, because a token may
occur mostly where another one overrides it (mathematics, section 3j).

In the corpora below labels follow a list; token ids are in the order of the list,
irrelevant tokens last.
"""

from functools import partial
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, Scalar

from jaxselect import checks
from jaxselect.checks import BadInput, is_array, shown
from jaxselect.data.corpus import (
    Corpus,
    check_corpus,
    check_share,
    counted,
    same_vocabulary,
)
from jaxselect.model.selection import selected_tokens

_Shares: TypeAlias = tuple[Float[Scalar, ""] | float, ...]
# Largest share that leaves something of the other kind.
_BELOW_ONE = 1 - 1e-6


def decision_list(
    key: Key[Array, ""],
    *,
    sequences: int = 128,
    length: int = 8,
    depth: int = 5,
    irrelevant: int = 12,
    presence: Float[Scalar, ""] | float = 0.3,
    positive: Float[Scalar, ""] | float = 0.5,
    noise: Float[Scalar, ""] | float = 0.0,
) -> Corpus:
    """Draw sequences labelled by a decision list with signs + − + − ….

    Given its label, each deciding token is present with probability `presence`,
    independently; irrelevant ones, drawn evenly, fill the sequence. With both labels
    equally frequent every α_k has the sign of its token in expectation.

    Source: mathematics, section 3j.

    Args:
        key: a `jax.random.key`.
        sequences: n.
        length: tokens per sequence, more than the list has.
        depth: deciding tokens, ids 0 … depth − 1, 2 or more.
        irrelevant: the other tokens.
        presence: probability in (0, 1); traced.
        positive: share of sequences with label +1, in (0, 1); traced.
        noise: probability that a label is flipped, in [0, 1]; traced.

    Returns:
        A corpus with labels ±1; its list is `alternating_list`.

    Raises:
        BadInput: a setting out of its range.

    Example:
        >>> sizes = dict(sequences=4, length=4, depth=3, irrelevant=2)
        >>> corpus = decision_list(jax.random.key(0), **sizes)
        >>> (1 - 2 * (corpus.tokens[:, 0] % 2)).tolist() == corpus.labels.tolist()
        True
    """
    checks.key(key)
    _check_shares(presence, positive, noise)
    _check(sequences, length, depth, depth, irrelevant)
    checks.whole("depth", depth, least=2)
    shares, sizes = (presence, positive, noise), (length, depth, irrelevant)
    return _decision_list(key, shares, sequences, sizes)


@partial(jax.jit, static_argnums=(2, 3), inline=True)
def _decision_list(
    key: Key[Array, ""], shares: _Shares, sequences: int, sizes: tuple[int, int, int]
) -> Corpus:
    (presence, positive, noise), (_, depth, _) = shares, sizes
    first_key, later_key, rest_key = jax.random.split(key, 3)
    ids = jnp.arange(depth)[None]
    share = jnp.asarray((np.arange(sequences) + 0.5) / sequences)
    labels = jnp.where(share < positive, 1.0, -1.0)
    # The first token that is present has a geometric law over those of the label.
    chance = ids.astype(labels.dtype) * jnp.log1p(-presence)
    fits = jnp.where(ids % 2 == 0, 1.0, -1.0) == labels[:, None]
    chance = jnp.where(fits, chance, -jnp.inf)
    first = jax.random.categorical(first_key, chance)[:, None]
    later = jax.random.uniform(later_key, (sequences, depth)) < presence
    present = (ids == first) | ((ids > first) & later)
    return _filled(rest_key, ids, present, labels, noise, sizes)


def whole_decision_list(
    key: Key[Array, ""],
    *,
    depth: int = 5,
    irrelevant: int = 4,
    length: int = 8,
    presence: Float[Scalar, ""] | float = 0.3,
    positive: Float[Scalar, ""] | float = 0.5,
    noise: Float[Scalar, ""] | float = 0.0,
) -> Corpus:
    """List every sequence of `decision_list`, weighted by its probability.

    Each set of deciding tokens is combined with each irrelevant token, which fills the
    sequence, and with either label if labels are noisy.

    Source: mathematics, section 3j.

    Args:
        key: not used.
        depth: deciding tokens, 2 … 10.
        irrelevant: the other tokens.
        length: tokens per sequence.
        presence: probability in (0, 1); traced.
        positive: share of label +1 before labels are turned, in (0, 1); traced.
        noise: probability that a label is flipped, in [0, 1]; traced.

    Returns:
        A corpus of 2 (2^depth − 1) `irrelevant` sequences with weights.

    Raises:
        BadInput: a setting out of its range.

    Example:
        >>> corpus = whole_decision_list(jax.random.key(0), depth=2, irrelevant=1)
        >>> (100 * corpus.weights).round().tolist(), corpus.labels.tolist()
        ([35.0, 0.0, 50.0, 0.0, 15.0, 0.0], [1, -1, -1, 1, 1, -1])
    """
    del key
    _check_shares(presence, positive, noise)
    checks.whole("depth", depth, least=2, most=10)
    _check(1, length, depth, depth, irrelevant)
    return _whole_decision_list(
        (presence, positive, noise), (length, depth, irrelevant)
    )


@partial(jax.jit, static_argnums=1, inline=True)
def _whole_decision_list(shares: _Shares, sizes: tuple[int, int, int]) -> Corpus:
    (presence, positive, noise), (length, depth, irrelevant) = shares, sizes
    subsets = np.arange(1, 2**depth)
    present = subsets[:, None] >> np.arange(depth) & 1 > 0
    sign = np.where(present.argmax(axis=1) % 2, -1, 1)
    num_present, number = present.sum(axis=1).astype(float), 2 * irrelevant
    chance = presence**num_present * (1.0 - presence) ** (depth - num_present)
    above = jnp.where(sign > 0, chance, 0.0)
    below = chance - above
    chance = positive * above / above.sum() + (1.0 - positive) * below / below.sum()
    turned = jnp.asarray(noise, chance.dtype)
    chance = jnp.outer(chance, jnp.stack([1.0 - turned, turned]))
    tokens = np.zeros((len(subsets), irrelevant, 2, depth + 1), np.int32)
    tokens[..., :depth] = np.arange(depth)
    tokens[..., depth] = depth + np.arange(irrelevant)[:, None]
    counts = np.concatenate([present, length - num_present[:, None]], axis=1).astype(
        float
    )
    labels = np.tile((sign[:, None] * [1, -1])[:, None], (1, irrelevant, 1))
    weights = jnp.repeat(chance[:, None] / irrelevant, irrelevant, axis=1).ravel()
    return Corpus(
        jnp.asarray(tokens.reshape(-1, depth + 1)),
        jnp.asarray(np.repeat(counts, number, axis=0)),
        jnp.asarray(labels.ravel().astype(np.int32)),
        depth + irrelevant,
        weights,
    )


def negation(
    key: Key[Array, ""],
    *,
    sequences: int = 128,
    length: int = 6,
    pairs: int = 2,
    irrelevant: int = 12,
    negated: Float[Scalar, ""] | float = 0.3,
    noise: Float[Scalar, ""] | float = 0.0,
) -> Corpus:
    """Draw sequences with one signed word each, which is negated in some of them.

    Each word has its own negation; the model cannot represent one that words of both
    signs share. Signs alternate from word to word, and all words occur equally often.
    In expectation α is a positive multiple of `negated` times its sign for a negation,
    and of 1 − 2 `negated` times its sign for a word.

    Source: mathematics, section 3j.

    Args:
        key: a `jax.random.key`.
        sequences: n.
        length: tokens per sequence, 3 or more.
        pairs: m words, ids m … 2m − 1; that of id m + k has the negation k.
        irrelevant: the other tokens.
        negated: probability of a negation, in [0, 1]; traced.
        noise: probability that a label is flipped, in [0, 1]; traced.

    Returns:
        A corpus with labels ±1; its list is `negation_list`.

    Raises:
        BadInput: a setting out of its range.

    Example:
        >>> sizes = dict(sequences=4, length=3, pairs=2, irrelevant=2, negated=1.0)
        >>> corpus = negation(jax.random.key(0), **sizes)
        >>> sorted(zip(corpus.tokens[:, 0].tolist(), corpus.labels.tolist()))
        [(0, -1), (0, -1), (1, 1), (1, 1)]
    """
    checks.key(key)
    check_share("negated", negated)
    check_share("noise", noise)
    checks.whole("pairs", pairs, least=1, most=checks.MOST_TOKENS)
    _check(sequences, length, 2, 2 * pairs, irrelevant)
    return _negation(key, negated, noise, sequences, length, pairs, irrelevant)


@partial(jax.jit, static_argnums=(3, 4, 5, 6), inline=True)
def _negation(
    key: Key[Array, ""],
    negated: Float[Scalar, ""] | float,
    noise: Float[Scalar, ""] | float,
    sequences: int,
    length: int,
    pairs: int,
    irrelevant: int,
) -> Corpus:
    pair_key, negated_key, rest_key = jax.random.split(key, 3)
    # A shuffled round uses every pair before any twice.
    pair = jax.random.permutation(pair_key, jnp.arange(sequences) % pairs)[:, None]
    turned = jax.random.uniform(negated_key, (sequences, 1)) < negated
    own = jnp.concatenate([pair, pair + pairs], axis=1)
    present = jnp.concatenate([turned, jnp.ones_like(turned)], axis=1)
    sign = negation_list(pairs, irrelevant).sign
    labels = jnp.where(turned, sign[pair], sign[pair + pairs])[:, 0]
    sizes = (length, 2 * pairs, irrelevant)
    return _filled(rest_key, own, present, labels, noise, sizes)


def _filled(
    key: Key[Array, ""],
    own: Int[Array, "*sequences slots"],
    present: Bool[Array, "sequences slots"],
    labels: Float[Array, " sequences"],
    noise: Float[Scalar, ""] | float,
    sizes: tuple[int, int, int],
) -> Corpus:
    """Fill the bags of deciding tokens with irrelevant ones."""
    length, deciding, irrelevant = sizes
    rest_key, noise_key = jax.random.split(key)
    tokens = jax.random.randint(
        rest_key, (len(labels), length), deciding, deciding + irrelevant
    )
    slots = present.shape[1]
    tokens = tokens.at[:, :slots].set(jnp.where(present, own, tokens[:, :slots]))
    turned = jax.random.uniform(noise_key, (len(labels),)) < noise
    signs = jnp.where(turned, -labels, labels).astype(jnp.int32)
    return counted(tokens.astype(jnp.int32), signs, deciding + irrelevant)


def _check_shares(*shares: Float[Scalar, ""] | float) -> None:
    """Refuse a presence, share or noise outside its range."""
    presence, positive, noise = shares
    check_share("presence", presence, above=0.0, most=_BELOW_ONE)
    check_share("positive", positive, above=0.0, most=_BELOW_ONE)
    check_share("noise", noise)


def _check(
    sequences: int, length: int, together: int, deciding: int, irrelevant: int
) -> None:
    """Refuse sizes that no corpus of a list has."""
    sizes = {"sequences": sequences, "deciding tokens": deciding}
    for name, value in (sizes | {"irrelevant": irrelevant}).items():
        checks.whole(name, value, least=1, most=checks.MOST_TOKENS)
    checks.whole("length", length, least=1, most=checks.MOST_TOKENS)
    checks.whole("vocabulary", deciding + irrelevant, most=checks.MOST_TOKENS)
    if length <= together:
        raise BadInput(
            f"length {length}: wanted more than the {together} deciding tokens that "
            "may be present together; take longer sequences"
        )


class DecisionList(NamedTuple):
    """Priorities and signs of the tokens of a decision list.

    Attributes:
        priority: priority of every token; that of the least one decides.
        sign: ±1, the label that a token decides for; zero for an irrelevant one.
    """

    priority: Int[Array, " vocabulary"]
    sign: Float[Array, " vocabulary"]


class ListAgreement(NamedTuple):
    """Agreement of scores and values with a decision list.

    Attributes:
        order: share of sequences in which the deciding token, and it alone, is
            selected.
        signs: share of sequences whose deciding token has a value of its sign.
        labels: share of sequences in which every selected token has a value of the
            deciding sign.
        lead: least s (b_s* − b_r) of a deciding token s* of sign s over another token
            of its sequence; above zero, the list attracts p.
        same_list: whether `order` and `signs` are one.
        same_labels: whether `labels` is one; another list may give the same labels, as
            one that ends in irrelevant tokens of positive value does.
    """

    order: Float[Scalar, ""]
    signs: Float[Scalar, ""]
    labels: Float[Scalar, ""]
    lead: Float[Scalar, ""]
    same_list: Bool[Scalar, ""]
    same_labels: Bool[Scalar, ""]


def alternating_list(depth: int, irrelevant: int) -> DecisionList:
    """The list of `decision_list`: signs + − + − …, then irrelevant tokens.

    Example:
        >>> alternating_list(3, 2).sign.tolist()
        [1.0, -1.0, 1.0, 0.0, 0.0]
    """
    ids = np.arange(depth + irrelevant)
    return _list(np.where(ids < depth, 1.0 - 2.0 * (ids % 2), 0.0))


def negation_list(pairs: int, irrelevant: int) -> DecisionList:
    """The list of `negation`: negations first, then the words that they negate.

    Example:
        >>> negation_list(2, 1).sign.tolist()
        [-1.0, 1.0, 1.0, -1.0, 0.0]
    """
    ids = np.arange(2 * pairs + irrelevant)
    word = 1.0 - 2.0 * (ids % pairs % 2)
    sign = np.where(ids < pairs, -word, word)
    return _list(np.where(ids < 2 * pairs, sign, 0.0))


def _list(sign: np.ndarray) -> DecisionList:
    """Make a list whose priorities are the token ids."""
    return DecisionList(jnp.arange(len(sign)), jnp.asarray(sign, float))


@partial(jax.jit, inline=True)
def list_agreement(
    scores: Float[Array, " vocabulary"],
    values: Float[Array, " vocabulary"],
    corpus: Corpus,
    rule: DecisionList,
    log_time: Float[Scalar, ""] | float = 0.0,
) -> ListAgreement:
    """Compare selection and values with a decision list.

    Labels are not read, so noise in them does not matter. Sequences without a deciding
    token and those of weight zero are not counted.

    Source: mathematics, section 3j.

    Args:
        scores: a = E p.
        values: b = E v.
        corpus: n bags.
        rule: the list.
        log_time: log(1+t) at which p was reached; see `selected_tokens`.

    Returns:
        A `ListAgreement`: shares of sequences, the lead of the deciding tokens, and
        whether list and labels are the same.

    Example:
        >>> from jaxselect.data.corpus import from_sequences
        >>> bags = from_sequences([[0, 1, 2], [1, 2]], [1, -1], vocabulary=3)
        >>> rule, values = alternating_list(2, 1), jnp.array([1.0, -1.0, 0.0])
        >>> found = list_agreement(jnp.array([2.0, 1.0, 0.0]), values, bags, rule)
        >>> found.same_list.item(), found.lead.item()
        (True, 1.0)
        >>> list_agreement(jnp.zeros(3), values, bags, rule).order.item()
        0.0
    """
    check_corpus(corpus)
    checks.of_kind("rule", rule, DecisionList)
    if not is_array(values, jnp.floating, 1):
        raise BadInput(f"values {shown(values)}: wanted a number for each token")
    same_vocabulary(values, corpus.vocabulary)
    present, signs = corpus.present, rule.sign[corpus.tokens]
    last = rule.priority.max() + 1
    deciding = present & (signs != 0)
    order = jnp.where(deciding, rule.priority[corpus.tokens], last)
    decides = deciding & (order == order.min(axis=1, keepdims=True))
    counts = decides.any(axis=1)
    selected = selected_tokens(scores, corpus, log_time)
    entries = values[corpus.tokens]
    sign = jnp.sum(jnp.where(decides, signs, 0.0), axis=1, keepdims=True)
    own = jnp.sum(jnp.where(decides, entries, 0.0), axis=1, keepdims=True)
    follows = (selected == decides).all(axis=1)
    fits = (sign * own > 0)[:, 0]
    labelled = ((sign * entries > 0) | ~selected).all(axis=1)
    ahead = jnp.where(
        present & ~decides & counts[:, None], sign * (own - entries), jnp.inf
    )
    total = corpus.mean(counts.astype(values.dtype))

    def share(holds: Bool[Array, " sequences"]) -> Float[Scalar, ""]:
        return corpus.mean((holds & counts).astype(values.dtype)) / total

    return ListAgreement(
        order=share(follows),
        signs=share(fits),
        labels=share(labelled),
        lead=ahead.min(),
        same_list=((follows & fits) | ~counts).all(),
        same_labels=(labelled | ~counts).all(),
    )
