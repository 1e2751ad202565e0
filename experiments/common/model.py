"""The paper's model over a corpus: attention, outputs, risk and accuracy."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Scalar

from jaxselect.data.corpus import Corpus
from jaxselect.model.attention import (
    Attention,
    attend_bags,
    functional_margin,
    token_scores,
)
from jaxselect.model.parameters import Parameters


@partial(jax.jit, inline=True)
def attend_corpus(
    scores: Float[Array, " vocabulary"],
    values: Float[Array, " vocabulary *classes"],
    corpus: Corpus,
) -> Attention:
    """Attend over every bag of a corpus, from a = E p and b = E v.

    Source: mathematics, section 1.

    Example:
        >>> from jaxselect.data.corpus import from_sequences
        >>> corpus = from_sequences([[0, 1], [1]], [1, -1], vocabulary=2)
        >>> attend_corpus(jnp.zeros(2), jnp.array([1.0, 3.0]), corpus).output.tolist()
        [2.0, 3.0]
    """
    return attend_bags(corpus.logits(scores), corpus.gather(values), corpus)


@partial(jax.jit, inline=True)
def outputs(
    parameters: Parameters, corpus: Corpus
) -> Float[Array, " sequences *classes"]:
    """Compute the model's output f(X; p, E) of every sequence.

    Source: mathematics, section 1.

    Args:
        parameters: (E, p, v).
        corpus: n sequences.

    Returns:
        One real number per sequence, whose sign is the predicted label; or one per
        class, of which the largest predicts.

    Example:
        >>> from jaxselect import Parameters, from_sequences
        >>> bags = from_sequences([[0], [1]], [1, -1], vocabulary=2)
        >>> model = Parameters(jnp.eye(2), jnp.zeros(2), jnp.ones(2))
        >>> outputs(model, bags).tolist()
        [1.0, 1.0]
    """
    return attend_corpus(*token_scores(parameters), corpus).output


@partial(jax.jit, inline=True)
def empirical_risk(parameters: Parameters, corpus: Corpus) -> Float[Scalar, ""]:
    """Compute the empirical risk L(p, E) = Σ_X w_X ℓ(m_X).

    Source: mathematics, sections 1, 1b and 1c.

    Args:
        parameters: (E, p, v).
        corpus: n labelled sequences.

    Returns:
        The mean of the corpus's loss; in nats where it is logistic.

    Example:
        >>> from jaxselect import Parameters, from_sequences
        >>> bags = from_sequences([[0], [1]], [1, -1], vocabulary=2)
        >>> v = jnp.array([1.0, -1.0])
        >>> round(empirical_risk(Parameters(jnp.eye(2), v, v), bags).item(), 4)
        0.3133
    """
    margin = functional_margin(
        corpus.labels, outputs(parameters, corpus), corpus.loss
    ).value
    return corpus.mean(corpus.loss.value(margin))


@partial(jax.jit, inline=True)
def accuracy(parameters: Parameters, corpus: Corpus) -> Float[Scalar, ""]:
    """Compute the weighted share of sequences whose label is predicted.

    The predicted label is the sign of f(X), or the class of the largest output.

    Args:
        parameters: (E, p, v).
        corpus: n labelled sequences.

    Returns:
        A number in [0, 1].

    Example:
        >>> from jaxselect import Parameters, from_sequences
        >>> bags = from_sequences([[0], [1]], [1, -1], vocabulary=2)
        >>> v = jnp.array([1.0, -1.0])
        >>> accuracy(Parameters(jnp.eye(2), v, v), bags).item()
        1.0
    """
    output = outputs(parameters, corpus)
    if output.ndim == 1:
        right = (output > 0) == (corpus.labels > 0)
    else:
        right = jnp.argmax(output, axis=1).astype(corpus.labels.dtype) == corpus.labels
    return corpus.mean(right.astype(parameters.query.dtype))


class Metrics(NamedTuple):
    """Loss and accuracy of a model on a corpus.

    Attributes:
        loss: the empirical risk, in nats where it is logistic.
        accuracy: share of sequences whose label is predicted, by their weights.
    """

    loss: Float[Scalar, ""]
    accuracy: Float[Scalar, ""]
