"""The instances that flows are timed on."""

from typing import Any

import numpy as np


def instance(
    shape: dict[str, int], dim: float, gamma: float, seed: int
) -> tuple[Any, Any]:
    """A corpus and the parameters after a step that makes the mean |E_sᵀv| be γ.

    Args:
        shape: of the corpus, as `assumption_one` takes it.
        dim: d.
        gamma: γ.
        seed: of the corpus and of the parameters.

    Returns:
        The parameters, the corpus.
    """
    import jax

    from jaxselect.data.synthetic import assumption_one
    from jaxselect.model.parameters import gaussian_reduced
    from jaxselect.model.selection import importance, important_tokens
    from jaxselect.model.step import embedding_step

    corpus_key, key = jax.random.split(jax.random.key(seed))
    corpus = assumption_one(corpus_key, **shape)
    mean = np.abs(importance(corpus))[np.asarray(important_tokens(corpus))].mean()
    start = gaussian_reduced(key, vocabulary=corpus.vocabulary, dim=dim)
    return embedding_step(start, corpus, 2 * gamma / float(mean)), corpus
