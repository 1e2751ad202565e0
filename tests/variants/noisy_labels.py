"""A family of data from outside the package: labels that are wrong now and then."""

import equinox as eqx
import jax
import jax.numpy as jnp

from jaxselect import Corpus, assumption_one


def noisy_labels(key, *, sequences: int = 40, length: int = 6, noise: float = 0.0):
    """Each label is the other one with the probability `noise`."""
    bags_key, noise_key = jax.random.split(key)
    sizes = {"sequences": sequences, "length": length, "relevant": 2, "irrelevant": 8}
    clean: Corpus = assumption_one(bags_key, **sizes)
    wrong = jax.random.uniform(noise_key, (sequences,)) < noise
    labels = jnp.where(wrong, -clean.labels, clean.labels)
    return eqx.tree_at(lambda corpus: corpus.labels, clean, labels)
