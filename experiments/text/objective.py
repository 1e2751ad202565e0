"""The empirical risk of a sparse corpus and its gradient, in four sparse products.

The function of a = E p and b = E v is that of `model.attention`. Here it is computed by
products with the count matrix instead of one softmax per padded bag.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Scalar

from experiments.common.model import Metrics
from experiments.text.counts import SparseCorpus, products
from jaxselect.model.attention import ScoreDescent, functional_margin, token_scores
from jaxselect.model.parameters import Parameters


class Readout(NamedTuple):
    """Outputs and partition sums of every sequence.

    Attributes:
        output: f = Σ_s q[s] b_s.
        weight: e^{a_s − shift}, one per token.
        normaliser: Z_X = Σ_s C[s] e^{a_s − shift}, so that q[s] = C[s] weight[s] / Z.
    """

    output: Float[Array, " sequences"]
    weight: Float[Array, " vocabulary"]
    normaliser: Float[Array, " sequences"]


class FactoredDescent(NamedTuple):
    """−∇L with its part in E as factors: −∇_E L = scores pᵀ + values vᵀ.

    Attributes:
        rank_two: the factors, −∂L/∂a and −∂L/∂b.
        query: −∇_p L = Eᵀ(−∂L/∂a).
        head: −∇_v L = Eᵀ(−∂L/∂b).
    """

    rank_two: ScoreDescent
    query: Float[Array, " dim"]
    head: Float[Array, " dim"]


@partial(jax.jit, inline=True)
def read(
    scores: Float[Array, " vocabulary"],
    values: Float[Array, " vocabulary"],
    corpus: SparseCorpus,
) -> Readout:
    """Compute the output f = Σ_s C[s] e^{a_s} b_s / Σ_s C[s] e^{a_s} of every sequence.

    All sequences share one shift of the exponent, so two products with C suffice. If
    max a − min a exceeds 159 in float32 or 1277 in float64, no shift suits every
    sequence and the output is NaN; padded bags have a shift each and no such limit.

    Source: mathematics, section 1a.

    Args:
        scores: a = E p.
        values: b = E v.
        corpus: n bags.

    Returns:
        Outputs, and the two parts of the attention weights.

    Example:
        >>> from jaxselect.data.corpus import from_sequences
        >>> from experiments.text.counts import from_corpus
        >>> corpus = from_corpus(from_sequences([[0, 1]], [1], vocabulary=2))
        >>> read(jnp.zeros(2), jnp.array([1.0, 3.0]), corpus).output.tolist()
        [2.0]
    """
    low, high = scores.min(), scores.max()
    weight = jnp.exp(scores - 0.5 * (low + high))
    normaliser, total = products(corpus.by_sequence, weight, weight * values)
    # Both ends stay e^{±0.9 log max} or nearer: no sum or quotient leaves the range.
    within = high - low < 1.8 * float(np.log(jnp.finfo(scores.dtype).max))
    return Readout(jnp.where(within, total / normaliser, jnp.nan), weight, normaliser)


@partial(jax.jit, inline=True)
def risk_and_score_descent(
    scores: Float[Array, " vocabulary"],
    values: Float[Array, " vocabulary"],
    corpus: SparseCorpus,
    weights: Float[Array, " sequences"] | None = None,
) -> tuple[Float[Scalar, ""], ScoreDescent]:
    """Compute the risk and its negative gradient in score space.

    With u_X = w_X y (−ℓ′(y f)) / Z_X,
    −∂L/∂b = e^a ∘ Cᵀu and −∂L/∂a = e^a ∘ (b ∘ Cᵀu − Cᵀ(u ∘ f)).

    Source: mathematics, section 1a.

    Args:
        scores: a = E p.
        values: b = E v.
        corpus: n bags.
        weights: w_X, adding up to one; 1/n if not given. A minibatch is a choice of
            weights: the passes over C cost less than those over E, which any batch
            needs in full.

    Returns:
        Σ_X w_X ℓ(y f), and (−∂L/∂a, −∂L/∂b); NaN where `read` is.

    Example:
        >>> from jaxselect.data.corpus import from_sequences
        >>> from experiments.text.counts import from_corpus
        >>> corpus = from_corpus(from_sequences([[0, 1]], [1], vocabulary=2))
        >>> risk, descent = risk_and_score_descent(*jnp.zeros((2, 2)), corpus)
        >>> round(risk.item(), 4), descent.values.tolist()
        (0.6931, [0.25, 0.25])
    """
    output, weight, normaliser = read(scores, values, corpus)
    margin, label = functional_margin(corpus.labels, output, corpus.loss)[:2]
    if weights is None:
        weights = jnp.full_like(output, 1 / len(output))
    share = weights * label * corpus.loss.slope(margin) / normaliser
    plain, by_output = products(corpus.by_token, share, share * output)
    descent = ScoreDescent(weight * (values * plain - by_output), weight * plain)
    return jnp.sum(weights * corpus.loss.value(margin)), descent


@jax.jit
def risk_and_descent(
    parameters: Parameters,
    corpus: SparseCorpus,
    weights: Float[Array, " sequences"] | None = None,
) -> tuple[Float[Scalar, ""], FactoredDescent]:
    """Compute the risk and −∇L by four products with C and two passes over E.

    Source: mathematics, section 1a.

    Args:
        parameters: (E, p, v).
        corpus: n bags with labels ±1.
        weights: weights of the sequences, adding up to one; 1/n if not given.

    Returns:
        The risk and its negative gradient.
    """
    # Both products at once, here and below: E is read from memory once for the two.
    both = parameters.embeddings @ jnp.stack(
        [parameters.query, parameters.head], axis=1
    )
    risk, rank_two = risk_and_score_descent(both[:, 0], both[:, 1], corpus, weights)
    pulled = jnp.stack([rank_two.scores, rank_two.values]) @ parameters.embeddings
    return risk, FactoredDescent(rank_two, pulled[0], pulled[1])


@partial(jax.jit, inline=True)
def expand(descent: FactoredDescent, parameters: Parameters) -> Parameters:
    """Multiply out the rank-two part of −∇L.

    Args:
        descent: result of `risk_and_descent`.
        parameters: those it was taken at.

    Returns:
        One array per parameter.

    Example:
        >>> from jaxselect.data import corpus
        >>> from experiments.text import counts as sparse
        >>> bags = corpus.from_sequences([[0], [1]], [1, -1], vocabulary=2)
        >>> bags = sparse.from_corpus(bags)
        >>> model = Parameters(jnp.zeros((2, 1)), jnp.zeros(1), jnp.ones(1))
        >>> expand(risk_and_descent(model, bags)[1], model).embeddings.tolist()
        [[0.25], [-0.25]]
    """
    by_query = jnp.outer(descent.rank_two.scores, parameters.query)
    by_head = jnp.outer(descent.rank_two.values, parameters.head)
    return Parameters(by_query + by_head, descent.query, descent.head)


@jax.jit
def evaluate(parameters: Parameters, corpus: SparseCorpus) -> Metrics:
    """Compute loss and accuracy on a corpus.

    Args:
        parameters: (E, p, v).
        corpus: n bags with labels ±1.

    Returns:
        Both means; NaN where `read` is.
    """
    output = read(*token_scores(parameters), corpus).output
    right = ((output > 0) == (corpus.labels > 0)).astype(output.dtype)
    accuracy = jnp.where(jnp.isnan(output).any(), jnp.nan, jnp.mean(right))
    margin = functional_margin(corpus.labels, output, corpus.loss).value
    return Metrics(jnp.mean(corpus.loss.value(margin)), accuracy)
