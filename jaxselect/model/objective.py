"""The empirical risk and its derivatives in score space.

With a = E p and b = E v the empirical risk is a function of 2|S| numbers; its gradient
in E has rank two. Derivatives are in closed form because the flow needs them multiplied
by e^τ at times τ = log(1+t) where they underflow on their own.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Scalar

from ..corpora.checks import for_corpus
from ..corpora.corpus import Corpus
from ..program import one_program
from ._score_gradient import advances, log_weighted_residual, score_gradient
from .attention import attend_corpus, outputs
from .functional_margin import functional_margin
from .parameters import Parameters


class Metrics(NamedTuple):
    """Loss and accuracy of a model on a corpus.

    Attributes:
        loss: the empirical risk, in nats where it is logistic.
        accuracy: share of sequences whose label is predicted, by their weights.
    """

    loss: Float[Scalar, ""]
    accuracy: Float[Scalar, ""]


@for_corpus(by_head=True)
@one_program()
def empirical_risk(parameters: Parameters, corpus: Corpus) -> Float[Scalar, ""]:
    """Empirical risk L(p, E) = Σ_X w_X ℓ(m_X).

    Source: mathematics, sections 1, 1b and 1c.

    Args:
        parameters: (E, p, v).
        corpus: n labelled bags.

    Returns:
        The mean of the corpus's loss; in nats where it is logistic.

    Example:
        >>> from jaxselect.corpora import corpus
        >>> from jaxselect.model import parameters
        >>> bags = corpus.from_sequences([[0], [1]], [1, -1], vocabulary=2)
        >>> v = jnp.array([1.0, -1.0])
        >>> model = parameters.Parameters(jnp.eye(2), v, v)
        >>> round(empirical_risk(model, bags).item(), 4)
        0.3133
    """
    margin = functional_margin(corpus.labels, outputs(parameters, corpus)).value
    return corpus.mean(corpus.loss.value(margin))


@for_corpus(by_head=True)
@one_program()
def accuracy(parameters: Parameters, corpus: Corpus) -> Float[Scalar, ""]:
    """Share of sequences whose label is predicted, each by its weight.

    Predicted is the sign of f(X), or the class of the largest output.

    Args:
        parameters: (E, p, v).
        corpus: n labelled bags.

    Returns:
        A number in [0, 1].

    Example:
        >>> from jaxselect.corpora import corpus
        >>> from jaxselect.model import parameters
        >>> bags = corpus.from_sequences([[0], [1]], [1, -1], vocabulary=2)
        >>> v = jnp.array([1.0, -1.0])
        >>> accuracy(parameters.Parameters(jnp.eye(2), v, v), bags).item()
        1.0
    """
    output = outputs(parameters, corpus)
    if output.ndim == 1:
        right = (output > 0) == (corpus.labels > 0)
    else:
        right = jnp.argmax(output, axis=1).astype(corpus.labels.dtype) == corpus.labels
    return corpus.mean(right.astype(parameters.query.dtype))


@for_corpus(by_head=True)
@one_program()
def log_strongest_pull(
    scores: Float[Array, " vocabulary"],
    values: Float[Array, " vocabulary *classes"],
    corpus: Corpus,
) -> Float[Scalar, ""]:
    """Log of the largest single term of ∂L/∂a, exact however late.

    Terms much larger than their sum are tokens that hold each other in balance.

    Source: mathematics, section 3g.

    Args:
        scores: a = E p.
        values: b = E v.
        corpus: n labelled bags.

    Returns:
        max over X and its tokens s, but the top one, of
        log (w_X (−ℓ′(m)) q_X[s] |∂m/∂f · (b_s − f)|).

    Example:
        >>> from jaxselect.corpora.corpus import from_sequences
        >>> corpus = from_sequences([[0, 1]], [1], vocabulary=2)
        >>> late = jnp.array([5000.0, 0.0]), jnp.array([1.0, 0.0])
        >>> round(log_strongest_pull(*late, corpus).item(), 4)
        -5001.3133
    """
    attention = attend_corpus(scores, values, corpus)
    exponent = log_weighted_residual(attention, corpus)
    others = jnp.arange(exponent.shape[1])[None] != attention.top[:, None]
    distance = jnp.where(others, jnp.abs(advances(attention, corpus)), 0.0)
    # The inner `where` keeps the derivative of log finite where there is no pull.
    log_distance = jnp.log(jnp.where(distance > 0, distance, 1.0))
    return jnp.max(jnp.where(distance > 0, exponent + log_distance, -jnp.inf))


class ScoreDescent(NamedTuple):
    """The negative gradient of the risk in score space.

    Attributes:
        scores: −∂L/∂a_s = Σ_X w_X (−ℓ′(m)) q_X[s] ∂m/∂f · (b_s − f).
        values: −∂L/∂b_s = Σ_X w_X (−ℓ′(m)) q_X[s] ∂m/∂f, per head; ∂m/∂f = y for one.
    """

    scores: Float[Array, " vocabulary"]
    values: Float[Array, " vocabulary *classes"]


@for_corpus(by_head=True)
@one_program()
def negative_gradient(
    scores: Float[Array, " vocabulary"],
    values: Float[Array, " vocabulary *classes"],
    corpus: Corpus,
    log_scale: Float[Scalar, ""] | float = 0.0,
) -> ScoreDescent:
    """e^{log_scale} (−∂L/∂a, −∂L/∂b), exact however late.

    The scale joins the exponent of every term, so the product is right where the
    gradient alone is zero in floating point. The terms of one sequence in ∂L/∂a sum to
    zero; the top token's is taken from the others, whose exponents are exact, not from
    its own advantage, which underflows.

    Source: mathematics, sections 1, 1b, 1c and 3a.

    Args:
        scores: a = E p.
        values: b = E v.
        corpus: n labelled bags.
        log_scale: a natural logarithm; τ = log(1+t) in the flow.

    Returns:
        Both halves of the negative gradient, scaled.

    Example:
        >>> from jaxselect.corpora.corpus import from_sequences
        >>> corpus = from_sequences([[0, 1]], [1], vocabulary=2)
        >>> late = jnp.array([5000.0, 0.0]), jnp.array([1.0, 0.0])
        >>> negative_gradient(*late, corpus).scores.tolist()
        [0.0, 0.0]
        >>> scaled = negative_gradient(*late, corpus, log_scale=5000.0).scores
        >>> [round(x, 4) for x in scaled.tolist()]
        [0.2689, -0.2689]
    """
    attention = attend_corpus(scores, values, corpus)
    exponent = log_weighted_residual(attention, corpus) + log_scale
    pull = score_gradient(exponent, advances(attention, corpus), attention, corpus)
    label = functional_margin(corpus.labels, attention.output).gradient
    size = jnp.exp(exponent)
    if label.ndim > 1:
        size = size[..., None]
    weighted = label[:, None] * size
    return ScoreDescent(corpus.scatter(pull), corpus.scatter(weighted))
