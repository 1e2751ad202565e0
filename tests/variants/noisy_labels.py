"""A family of data of one's own: Assumption 1, but some labels are wrong."""

from dataclasses import replace

import jax
import jax.numpy as jnp

from jaxselect import Grid, assumption_one

REST = {"length": 3, "relevant": 2, "irrelevant": 4}


def noisy_labels(key, *, sequences: int = 8, noise: float = 0.0):
    bags_key, noise_key = jax.random.split(key)
    clean = assumption_one(bags_key, sequences=sequences, **REST)
    wrong = jax.random.uniform(noise_key, (sequences,)) < noise
    return replace(clean, labels=jnp.where(wrong, -clean.labels, clean.labels))


GRID = Grid(
    noisy_labels,
    {"noise": (0.0, 0.1)},
    dim=(100.0, 1e4),
    step_size=(30.0, 100.0),
    seed=(0, 1),
)
