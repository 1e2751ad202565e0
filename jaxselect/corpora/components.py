"""Components of the graph of tokens that share a sequence, and E centred in each.

A softmax sees score differences within a sequence only, so scores count up to one
constant per component.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ..arguments import as_annotated
from .corpus import Corpus


@as_annotated
def components(corpus: Corpus) -> Int[Array, " vocabulary"]:
    """Component of every token; tokens that share a sequence are joined.

    Only score differences within a component reach a softmax.

    Source: mathematics, section 3a.

    Args:
        corpus: n bags.

    Returns:
        The smallest token of the component, by token; absent tokens are alone.

    Example:
        >>> from jaxselect.corpora.corpus import from_sequences
        >>> bags = from_sequences([[0, 2], [2, 3]], [1, -1], vocabulary=5)
        >>> components(bags).tolist()
        [0, 1, 0, 0, 4]
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


@as_annotated
def centred_in_components(
    embeddings: Float[Array, "vocabulary dim"], corpus: Corpus
) -> Float[Array, "vocabulary dim"]:
    """Each embedding less the mean of its component.

    The rows span what the differences E_s − E_r within sequences span, and have the
    same differences.

    Source: mathematics, section 3a.

    Args:
        embeddings: E.
        corpus: n bags.

    Returns:
        The centred rows; zero for a token that shares no sequence.

    Example:
        >>> from jaxselect.corpora.corpus import from_sequences
        >>> bags = from_sequences([[0, 2], [1]], [1, -1], vocabulary=3)
        >>> centred_in_components(jnp.array([[1.0], [7.0], [3.0]]), bags).tolist()
        [[-1.0], [0.0], [1.0]]
    """
    name = components(corpus)
    number = jnp.zeros(len(embeddings), embeddings.dtype).at[name].add(1.0)
    number = jnp.maximum(number, 1.0)[:, None]
    # Twice: a mean is known up to a rounding, which its component has in common.
    for _ in range(2):
        mean = jnp.zeros_like(embeddings).at[name].add(embeddings) / number
        embeddings = embeddings - mean[name]
    return embeddings
