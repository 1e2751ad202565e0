"""Gradients, minibatches and measures for training E, p and v by any rule."""

import dataclasses

import jax
import jax.numpy as jnp

from jaxselect.data.corpus import Corpus
from jaxselect.model.attention import (
    attend_corpus,
    empirical_risk,
    negative_gradient,
    token_scores,
)
from jaxselect.model.parameters import Parameters

MEASURED = ("log_loss", "rest", "values", "share")
"""log L; weight off the important tokens; their y b_s; share that selects one."""


def minibatch(key: jax.Array, corpus: Corpus, batch: int) -> Corpus:
    """The corpus with weights of a random minibatch, unbiased."""
    number = len(corpus.labels)
    chosen = jax.random.permutation(key, number) < batch
    assert corpus.weights is not None
    weights = jnp.where(chosen, corpus.weights, 0.0) * (number / batch)
    return dataclasses.replace(corpus, weights=weights)


def gradient(parameters: Parameters, corpus: Corpus) -> Parameters:
    """∇L in E, p and v: −∇_E L = h_a pᵀ + h_b vᵀ."""
    down = negative_gradient(*token_scores(parameters), corpus)
    both = jnp.stack([down.scores, down.values], axis=1)
    pair = jnp.stack([parameters.query, parameters.head])
    pulled = both.T @ parameters.embeddings
    return Parameters(-both @ pair, -pulled[0], -pulled[1])


def measure(parameters: Parameters, corpus: Corpus) -> dict[str, jax.Array]:
    """Numbers by name of `MEASURED`."""
    scores, values = token_scores(parameters)
    weights = jnp.exp(attend_corpus(scores, values, corpus).log_weights)
    important = corpus.present & (corpus.tokens < 4)
    own = jnp.sum(jnp.where(important, weights, 0.0), axis=1)
    top = jnp.argmax(jnp.where(corpus.present, weights, -1.0), axis=1)
    selected = jnp.take_along_axis(important, top[:, None], axis=1)[:, 0]
    return {
        "log_loss": jnp.log(empirical_risk(parameters, corpus)),
        "rest": corpus.mean(1 - own),
        "values": values[:4] * jnp.array([1.0, 1.0, -1.0, -1.0]),
        "share": selected.astype(float).mean(),
    }


def residuals(
    decay: float, parameters: Parameters, corpus: Corpus
) -> tuple[jax.Array, jax.Array]:
    """Largest entries of ∇L + λ (E, p, v) and of EᵀE − p pᵀ − v vᵀ."""
    total = jax.tree.map(
        lambda slope, part: jnp.abs(slope + decay * part).max(),
        gradient(parameters, corpus),
        parameters,
    )
    pair = jnp.stack([parameters.query, parameters.head])
    rows = parameters.embeddings
    off = jnp.abs(rows.T @ rows - pair.T @ pair).max()
    return jnp.stack(jax.tree.leaves(total)).max(), off
