"""Decision lists: the token of highest priority in a sequence decides its label.

With hard attention the model computes such a list, f = b of the present token of the
highest score. Counts of tokens alone do not give it: a token may occur mostly where
another one overrides it (mathematics, section 3j).
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Scalar

from ..corpora.checks import for_corpus
from ..corpora.corpus import Corpus
from ..program import one_program
from .selection import selected_tokens


class DecisionList(NamedTuple):
    """Priorities and signs of the tokens of a decision list.

    Attributes:
        priority: of every token; that of the least one decides.
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

    Args:
        depth: number of deciding tokens.
        irrelevant: number of the others.

    Returns:
        Priorities and signs.

    Example:
        >>> alternating_list(3, 2).sign.tolist()
        [1.0, -1.0, 1.0, 0.0, 0.0]
    """
    ids = np.arange(depth + irrelevant)
    return _list(np.where(ids < depth, 1.0 - 2.0 * (ids % 2), 0.0))


def negation_list(pairs: int, irrelevant: int) -> DecisionList:
    """The list of `negation`: negations first, then the words that they negate.

    Args:
        pairs: number of words, each with a negation of the other sign.
        irrelevant: number of the other tokens.

    Returns:
        Priorities and signs.

    Example:
        >>> negation_list(2, 1).sign.tolist()
        [-1.0, 1.0, 1.0, -1.0, 0.0]
    """
    ids = np.arange(2 * pairs + irrelevant)
    word = 1.0 - 2.0 * (ids % pairs % 2)
    sign = np.where(ids < pairs, -word, word)
    return _list(np.where(ids < 2 * pairs, sign, 0.0))


def _list(sign: np.ndarray) -> DecisionList:
    """A list whose priorities are the ids."""
    return DecisionList(jnp.arange(len(sign)), jnp.asarray(sign, float))


@for_corpus()
def list_agreement(
    scores: Float[Array, " vocabulary"],
    values: Float[Array, " vocabulary"],
    corpus: Corpus,
    rule: DecisionList,
    log_time: Float[Scalar, ""] | float = 0.0,
) -> ListAgreement:
    """Agreement of selection and values with a decision list.

    Labels are not read: with noise the list is the one before it. Sequences without a
    deciding token do not count, nor do those of weight zero.

    Source: mathematics, section 3j.

    Args:
        scores: a = E p.
        values: b = E v.
        corpus: n bags.
        rule: the list.
        log_time: log(1+t) at which p was reached; see `selected_tokens`.

    Returns:
        Shares, the lead of the deciding tokens, whether list and labels are the same.

    Example:
        >>> from jaxselect.corpora.corpus import from_sequences
        >>> bags = from_sequences([[0, 1, 2], [1, 2]], [1, -1], vocabulary=3)
        >>> rule, values = alternating_list(2, 1), jnp.array([1.0, -1.0, 0.0])
        >>> found = list_agreement(jnp.array([2.0, 1.0, 0.0]), values, bags, rule)
        >>> found.same_list.item(), found.lead.item()
        (True, 1.0)
        >>> list_agreement(jnp.zeros(3), values, bags, rule).order.item()
        0.0
    """
    return _list_agreement(scores, values, corpus, rule, log_time)


@one_program()
def _list_agreement(
    scores: Float[Array, " vocabulary"],
    values: Float[Array, " vocabulary"],
    corpus: Corpus,
    rule: DecisionList,
    log_time: Float[Scalar, ""] | float,
) -> ListAgreement:
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
