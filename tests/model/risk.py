"""A few bags, and their risk as a function of scores and values alone."""

import jax.numpy as jnp

from jaxselect.data.corpus import from_sequences
from jaxselect.model.attention import attend_corpus

VOCABULARY = 5
CORPUS = from_sequences(
    [[0, 2, 2, 4], [0, 3, 3], [1, 2], [1, 3, 4, 4], [0, 1, 4]],
    [1, 1, -1, -1, 1],
    vocabulary=VOCABULARY,
)


def risk(scores, values):
    output = attend_corpus(scores, values, CORPUS).output
    label = CORPUS.labels.astype(output.dtype)
    return jnp.mean(jnp.logaddexp(0.0, -label * output))
