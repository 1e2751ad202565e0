"""Problems of tokens of which nothing counts but their values."""

import jax.numpy as jnp

from jaxselect import Parameters, attention


def valued(values, corpus):
    """The problem in which E v has given values, exactly; E is what they are."""
    rows = values.reshape(len(values), -1)
    heads = jnp.eye(rows.shape[1], dtype=values.dtype)
    head = heads[0] if values.ndim == 1 else heads
    return attention(Parameters(rows, heads[0], head), corpus)
