"""Softmax attention of one query over a bag: scores → weights → output.

Written for one sequence; `jax.vmap` gives the corpus.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Scalar

from ..corpora.bags import AbstractBags, ByToken, Entries, padded_logits
from ..corpora.checks import for_corpus
from ..corpora.corpus import Corpus
from ..precision import full_precision
from ..program import one_program
from .parameters import Parameters


class Attention(NamedTuple):
    """Weights and output of attention over one bag.

    Attributes:
        log_weights: log q[s], −∞ on padding; exact when q itself underflows.
        output: f = Σ_s q[s] b_s, a number per head.
        advantage: b_s − f likewise, exact for the top token too (see `attend`).
        top: slot of the largest weight.
    """

    log_weights: Float[Array, "*batch width"]
    output: Float[Array, "..."]
    advantage: Float[Array, "..."]
    top: Int[Array, "*batch"]


@one_program()
def attend(
    scores: Float[Array, " width"],
    values: Float[Array, " width *classes"],
    counts: Float[Array, " width"],
) -> Attention:
    """Attention over one bag: q[s] ∝ C[s] e^{a_s}, f = Σ q[s] b_s.

    Late in training one token s* holds nearly all the weight, and b_{s*} − f is far
    below the rounding of f. Measured from the top token nothing cancels:
    b_s − f = (b_s − b_{s*}) − Σ_r q[r] (b_r − b_{s*}), where the term r = s* is zero.

    Source: mathematics, section 1.

    Args:
        scores: a_s = pᵀE_s of the tokens in the bag.
        values: b_s = vᵀE_s of the same tokens, a number per head.
        counts: C[s]; zero for padding.

    Returns:
        Log-weights, output and advantages.

    Example:
        >>> bag = attend(jnp.array([1e6, 0.0]), jnp.array([1.0, 3.0]), jnp.ones(2))
        >>> bag.log_weights.tolist(), bag.output.item()
        ([0.0, -1000000.0], 1.0)
    """
    one = Corpus(
        tokens=jnp.arange(len(scores))[None],
        counts=counts[None],
        labels=jnp.ones(1, int),
        vocabulary=len(scores),
    )
    return jax.tree.map(lambda each: each[0], attend_bags(scores, values, one))


def attend_bags(scores: ByToken, values: ByToken, bags: AbstractBags) -> Attention:
    """`attend` for every bag, in any layout.

    Args:
        scores: a = E p.
        values: b = E v.
        bags: n bags.

    Returns:
        An `Attention` entry by entry, with outputs and tops bag by bag.
    """
    shifted, share = _exponentials(scores, bags)
    top = bags.first(shifted == 0)
    total = bags.total(share)
    log_weights = shifted - bags.spread(bags.arrays.log(total))
    entries = bags.values_by_entry(values)
    best = bags.at(entries, top)
    ahead = entries - bags.spread(best)
    heads = [1] * (values.ndim - 1)
    mean = bags.total(share.reshape(*share.shape, *heads) * ahead)
    mean = mean / total.reshape(-1, *heads)
    return Attention(log_weights, best + mean, ahead - bags.spread(mean), top)


def attention_shares(scores: ByToken, bags: AbstractBags) -> Entries:
    """Softmax over every bag, in any layout: q[s] ∝ C[s] e^{a_s}.

    Args:
        scores: a = E p.
        bags: n bags.

    Returns:
        Weights that add up to one in each bag, entry by entry.
    """
    _, share = _exponentials(scores, bags)
    return share / bags.spread(bags.total(share))


@one_program()
def attention_weights(
    scores: Float[Array, " width"], counts: Float[Array, " width"]
) -> Float[Array, " width"]:
    """Softmax weights over a bag: q[s] ∝ C[s] e^{a_s}.

    Args:
        scores: a_s of the tokens in the bag.
        counts: C[s]; zero for padding.

    Returns:
        Weights that add up to one, zero on padding.

    Example:
        >>> weights = attention_weights(jnp.zeros(3), jnp.array([3.0, 1.0, 0.0]))
        >>> weights.tolist()
        [0.75, 0.25, 0.0]
    """
    logits = padded_logits(scores, counts)
    share = jnp.exp(logits - jax.lax.stop_gradient(logits.max()))
    return share / share.sum()


@for_corpus()
@one_program()
def attend_corpus(
    scores: Float[Array, " vocabulary"],
    values: Float[Array, " vocabulary *classes"],
    corpus: Corpus,
) -> Attention:
    """`attend` for every bag of a corpus.

    Args:
        scores: a = E p, one per token of the vocabulary.
        values: b = E v, one per token of the vocabulary and head.
        corpus: n bags.

    Returns:
        An `Attention` with a leading axis of n.

    Example:
        >>> from jaxselect.corpora.corpus import from_sequences
        >>> corpus = from_sequences([[0, 1], [1]], [1, -1], vocabulary=2)
        >>> attend_corpus(jnp.zeros(2), jnp.array([1.0, 3.0]), corpus).output.tolist()
        [2.0, 3.0]
    """
    return attend_bags(scores, values, corpus)


@one_program()
@full_precision
def token_scores(
    parameters: Parameters,
) -> tuple[Float[Array, " vocabulary"], Float[Array, " vocabulary *classes"]]:
    """Scores a = E p and values b = E v of all tokens.

    Source: mathematics, section 1.

    Args:
        parameters: (E, p, v).

    Returns:
        Scores a and values b.

    Example:
        >>> from jaxselect.model.parameters import Parameters
        >>> a, b = token_scores(Parameters(jnp.eye(2), jnp.ones(2), jnp.zeros(2)))
        >>> a.tolist(), b.tolist()
        ([1.0, 1.0], [0.0, 0.0])
    """
    embeddings = parameters.embeddings
    return embeddings @ parameters.query, embeddings @ parameters.head


@for_corpus()
@one_program()
def outputs(
    parameters: Parameters, corpus: Corpus
) -> Float[Array, " sequences *classes"]:
    """Model output f(X; p, E) of every sequence.

    Source: mathematics, section 1.

    Args:
        parameters: (E, p, v).
        corpus: n bags.

    Returns:
        One real number per sequence, whose sign is the predicted label; or one per
        class, of which the largest predicts.

    Example:
        >>> from jaxselect.corpora import corpus
        >>> from jaxselect.model import parameters
        >>> bags = corpus.from_sequences([[0], [1]], [1, -1], vocabulary=2)
        >>> model = parameters.Parameters(jnp.eye(2), jnp.zeros(2), jnp.ones(2))
        >>> outputs(model, bags).tolist()
        [1.0, 1.0]
    """
    return attend_corpus(*token_scores(parameters), corpus).output


@one_program()
def attention_entropy(log_weights: Float[Array, " width"]) -> Float[Scalar, ""]:
    """Entropy −Σ q log q of the attention over one bag, in nats.

    Args:
        log_weights: log q, −∞ on padding.

    Returns:
        Zero when one token holds all the weight.

    Example:
        >>> round(attention_entropy(jnp.log(jnp.full(4, 0.25))).item(), 4)
        1.3863
    """
    weights = jnp.exp(log_weights)
    finite = jnp.where(weights > 0, log_weights, 0.0)
    return -jnp.sum(weights * finite)


def _exponentials(scores: ByToken, bags: AbstractBags) -> tuple[Entries, Entries]:
    """Logits a + log C less the highest of their bag, −∞ on padding; exponentials."""
    logits = bags.logits(scores)
    shifted = logits - bags.spread(bags.largest(logits))
    return shifted, bags.arrays.exp(shifted)
