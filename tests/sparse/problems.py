"""Small invented corpora for the flow of p on sparse counts, all of one shape."""

import functools

import jax
import numpy as np

from jaxselect.data import corpus as padded
from jaxselect.data import sparse
from jaxselect.model import parameters
from jaxselect.model import step as embedding_step
from jaxselect.sparse.bags import RaggedBags
from jaxselect.sparse.flow import sparse_flow

VOCABULARY, SEQUENCES, LENGTH = 8, 12, 4
# Seeds by where the flow ends; in two dimensions there is no room to go on.
SELECTED, TIED, AT_REST = (3, 6, 7), (1, 2, 5, 8), (0, 2, 6)


@functools.cache
def problem(seed, dim=6):
    """Words drawn alike whatever the label, after one step on E; padded and sparse."""
    rng = np.random.default_rng(seed)
    labels = np.where(np.arange(SEQUENCES) % 2, 1, -1)
    drawn = [rng.integers(0, VOCABULARY, LENGTH) for _ in labels]
    dense = padded.from_sequences(drawn, labels, vocabulary=VOCABULARY)
    start = parameters.gaussian(jax.random.key(seed), vocabulary=VOCABULARY, dim=dim)
    model = embedding_step.embedding_step(start, dense, 20.0)
    return model, dense, sparse.from_corpus(dense)


@functools.cache
def followed(seed, dim=6):
    """The flow of that problem, with the settings that a user gets."""
    model, _, corpus = problem(seed, dim)
    return sparse_flow(model, corpus)


def on_host(seed, dim=6):
    model, _, corpus = problem(seed, dim)
    return RaggedBags.of_corpus(model, corpus)


def stacked(seeds, dim=6):
    """Several problems as one, for `vmap`."""
    several = [problem(seed, dim)[:2] for seed in seeds]
    return jax.tree.map(lambda *leaves: jax.numpy.stack(leaves), *several)
