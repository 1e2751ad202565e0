"""Random problems whose rates are differentiated."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp

from experiments.theory.problem import Problem
from jaxselect.model.corpus import Corpus
from jaxselect.model.parameters import Parameters, gaussian, gaussian_reduced
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
    vocabulary = 2 * problem.relevant + problem.irrelevant
    # Where d is not much larger than |S|, the path decides a part of ρ in many draws.
    least = jnp.log10(2.0 * vocabulary)
    dim = 10 ** jax.random.uniform(keys[1], minval=least, maxval=4.0)
    dim = dim * jnp.exp(log_dim)
    start = gaussian_reduced(keys[3], vocabulary=vocabulary, dim=dim)
    return _case(problem, keys, start, dim)


def draw_wide(problem: Problem, dim: int, seed: jax.Array) -> Case:
    """The case of a seed with E drawn in R^d as it stands."""
    keys = jax.random.split(jax.random.key(seed), 7)
    vocabulary = 2 * problem.relevant + problem.irrelevant
    start = gaussian(keys[3], vocabulary=vocabulary, dim=dim)
    # Of the dtype of a drawn d, or every program would be compiled for both.
    return _case(problem, keys, start, jnp.asarray(dim, start.cls.dtype))


def _case(problem: Problem, keys: jax.Array, start: Parameters, dim: jax.Array) -> Case:
    corpus = assumption_one(keys[0], **dataclasses.asdict(problem))
    # log₁₀ η₀ from 1 to 2.7, where most tokens are selected.
    step_size = 10 ** jax.random.uniform(keys[2], minval=1.0, maxval=2.7)
    like = (start.embeddings, start.cls, corpus.counts)
    noise = tuple(
        jax.random.normal(key, array.shape)
        for key, array in zip(keys[4:], like, strict=True)
    )
    return Case(start=start, corpus=corpus, dim=dim, step_size=step_size, noise=noise)
