"""Problems of a few words, each number written out, and small ones at random."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from scipy.sparse import csr_array

from experiments.common.count_matrix import from_counts
from jaxselect import Problem, attention, embedding_step
from jaxselect.data.corpus import from_sequences
from jaxselect.margin.minimum import change_of_curvature
from jaxselect.model import parameters
from jaxselect.ties import _diameters

VOCABULARY, SEQUENCES, LENGTH = 8, 12, 4


def problem(counts, labels, embeddings, values):
    """Bags, E and the value of every word; p_0 = 0."""
    corpus = from_counts(csr_array(np.asarray(counts, float)), labels)
    rows, values = jnp.asarray(embeddings, float), jnp.asarray(values, float)
    return Problem(
        rows=rows,
        start=jnp.zeros(rows.shape[1]),
        offsets=corpus.logits(jnp.zeros(len(rows))),
        values=corpus.gather(values),
        corpus=corpus,
        offset_errors=jnp.zeros(corpus.tokens.shape),
        value_errors=jnp.zeros(len(corpus.tokens)),
    )


def even(scale=1.0):
    """Two words that one bag of each class holds even: the minimum is p = 0."""
    return problem([[1, 1], [1, 1]], [1, -1], [[scale], [-scale]], [1.5, -1.5])


@functools.cache
def model(seed, dim=6):
    """Words drawn alike whatever the label, after one step on E: all of one shape."""
    rng = np.random.default_rng(seed)
    labels = np.where(np.arange(SEQUENCES) % 2, 1, -1)
    drawn = [rng.integers(0, VOCABULARY, LENGTH) for _ in labels]
    bags = from_sequences(drawn, labels, vocabulary=VOCABULARY)
    start = parameters.gaussian(jax.random.key(seed), vocabulary=VOCABULARY, dim=dim)
    return embedding_step(start, bags, 20.0), bags


def drawn(seed, dim=6):
    """The problem of p of such a model."""
    return attention(*model(seed, dim))


@functools.partial(jax.jit, static_argnames="narrow")
def change_at(given, query, *, narrow=False):
    """The bound on the change of curvature in a ball around p, and its radius."""
    logits = given.logits(given.rows @ query)
    diameters = _diameters(given, given.rows)
    here = given.rows, logits, given.values, given.corpus
    return change_of_curvature(*here, diameters, narrow)
