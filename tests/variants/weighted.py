"""Weighted sequences, and what a rate owes to the sample (Bayesian bootstrap)."""

from dataclasses import replace

import jax

from jaxselect import Grid, assumption_one, rates

SIZES = {"sequences": 8, "length": 3, "relevant": 2, "irrelevant": 4}


def weighted(key, *, evenness: float = 10.0):
    bags_key, weights_key = jax.random.split(key)
    weights = jax.random.dirichlet(weights_key, jax.numpy.full(8, evenness))
    return replace(assumption_one(bags_key, **SIZES), weights=weights)


def resampled(start, corpus, step_size, weights):
    """The error constant of a corpus under other weights; `vmap` it over them."""
    return rates(start, replace(corpus, weights=weights), step_size).error_constant


GRID = Grid(weighted, dim=(100.0, 1e4), step_size=(30.0, 100.0), seed=(0, 1))
