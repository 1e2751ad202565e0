"""Random problems whose rates are differentiated."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp

from experiments.theory.problem import Problem
from jaxselect.model.corpus import Corpus
from jaxselect.model.parameters import Parameters, gaussian_reduced
from jaxselect.model.synthetic import assumption_one


class Case(NamedTuple):
    """A random problem, and random directions to move it in."""

    start: Parameters
    corpus: Corpus
    dim: jax.Array
    step_size: jax.Array
    noise: tuple[jax.Array, ...]


def draw(problem: Problem, seed: jax.Array, log_dim: jax.Array | float = 0.0) -> Case:
    """The case of a seed, its d multiplied by e^log_dim."""
    keys = jax.random.split(jax.random.key(seed), 7)
    corpus = assumption_one(keys[0], **dataclasses.asdict(problem))
    # log₁₀ d from 2.3 to 5 and log₁₀ η₀ from 1 to 2.7, where most tokens are selected.
    dim = 10 ** jax.random.uniform(keys[1], minval=2.3, maxval=5.0) * jnp.exp(log_dim)
    step_size = 10 ** jax.random.uniform(keys[2], minval=1.0, maxval=2.7)
    start = gaussian_reduced(keys[3], vocabulary=corpus.vocabulary, dim=dim)
    like = (start.embeddings, start.cls, corpus.counts)
    noise = tuple(
        jax.random.normal(key, array.shape)
        for key, array in zip(keys[4:], like, strict=True)
    )
    return Case(start, corpus, dim, step_size, noise)
