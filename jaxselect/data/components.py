"""Connected components of the graph that joins tokens of a sequence.

A softmax depends on score differences within a sequence, so scores are defined up to
one constant per component.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from .corpus import Corpus


def components(corpus: Corpus) -> Int[Array, " vocabulary"]:
    """Label each token by the smallest token of its component; absent tokens are alone.

    Source: mathematics, section 3a.
    """
    present = corpus.present
    last = corpus.vocabulary

    def spread(state: tuple[Array, Array]) -> tuple[Array, Array]:
        name, _ = state
        least = jnp.min(jnp.where(present, name[corpus.tokens], last), axis=1)
        smaller = jnp.where(present, least[:, None], last)
        after = name.at[corpus.tokens].min(smaller)
        return after, jnp.any(after != name)

    start = jnp.arange(last, dtype=jnp.int32), jnp.asarray(True)
    return jax.lax.while_loop(lambda state: state[1], spread, start)[0]


def centred_in_components(
    embeddings: Float[Array, "vocabulary dim"], corpus: Corpus
) -> Float[Array, "vocabulary dim"]:
    """Subtract from each embedding the mean of its component.

    Differences within sequences are unchanged, and the rows span the same space as
    these differences.

    Source: mathematics, section 3a.
    """
    return subtract_group_means(embeddings, components(corpus))


def subtract_group_means(
    rows: Float[Array, "vocabulary dim"], names: Int[Array, " vocabulary"]
) -> Float[Array, "vocabulary dim"]:
    """Subtract from each row the mean of all rows of the same name."""
    number = jnp.zeros(len(rows), rows.dtype).at[names].add(1.0)
    number = jnp.maximum(number, 1.0)[:, None]
    # Twice: a mean is known up to a rounding, which all rows of a name have in common.
    for _ in range(2):
        mean = jnp.zeros_like(rows).at[names].add(rows) / number
        rows = rows - mean[names]
    return rows
