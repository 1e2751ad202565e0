"""Bags of very different widths, for networks that look at pairs of tokens.

A bag of u distinct tokens costs u² there, and padding to the widest bag would cost
twenty times the work on reviews. Bags are sorted by width into strata, each as wide as
its own widest bag; a stratum is an ordinary padded `Corpus`.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key
from numpy.typing import ArrayLike
from scipy.sparse import csr_array

from .corpus import Corpus

Strata = tuple[Corpus, ...]


def stratify(counts: csr_array, labels: ArrayLike, number: int = 6) -> Strata:
    """A count matrix as strata of as many bags each, up to one.

    Args:
        counts: one row per sequence, one column per token, entries > 0.
        labels: ±1, or classes 0 … K − 1, one per sequence.
        number: of strata, fewer if there are fewer sequences. More waste less, but
            each is a shape of its own to compile for.

    Returns:
        Corpora in ascending order of width; together they hold every sequence once.

    Raises:
        ValueError: no sequence, an empty one, or labels of another number.

    Example:
        >>> counts = csr_array([[2, 0, 1], [0, 1, 0], [1, 1, 1]])
        >>> [bags.tokens.shape for bags in stratify(counts, [1, -1, 1], number=2)]
        [(2, 2), (1, 3)]
    """
    y, width = np.asarray(labels).astype(np.int32), np.diff(counts.indptr)
    if len(width) == 0 or y.shape != width.shape or width.min() < 1 or number < 1:
        raise ValueError(
            f"counts {counts.shape}, labels {y.shape}, {number} strata: wanted a label "
            "for each sequence, a token in each, and one stratum or more"
        )
    order = np.argsort(width, kind="stable")
    return tuple(
        _pad(counts[rows], y[rows])
        for rows in np.array_split(order, min(number, len(order)))
    )


def minibatch(key: Key[Array, ""], strata: Strata, batch: int) -> Strata:
    """The same number of bags from each stratum, without replacement.

    Strata are of equal size, up to one, so every bag has the same chance.

    Args:
        key: what is drawn.
        strata: of `stratify`.
        batch: bags in all, rounded to a multiple of the number of strata.

    Returns:
        Smaller strata.

    Example:
        >>> strata = stratify(csr_array(np.ones((8, 3))), np.ones(8), number=2)
        >>> [len(bags.labels) for bags in minibatch(jax.random.key(0), strata, 4)]
        [2, 2]
    """
    each = max(1, round(batch / len(strata)))
    keys = jax.random.split(key, len(strata))
    return tuple(_draw(k, bags, each) for k, bags in zip(keys, strata, strict=True))


def _draw(key: Key[Array, ""], corpus: Corpus, number: int) -> Corpus:
    """Some bags of a corpus."""
    total = len(corpus.labels)
    rows = jax.random.choice(key, total, (min(number, total),), replace=False)
    return jax.tree.map(lambda leaf: leaf[rows], corpus)


def _pad(counts: csr_array, labels: Int[np.ndarray, " sequences"]) -> Corpus:
    """Padded bags as wide as the widest."""
    width = np.diff(counts.indptr)
    filled = np.arange(width.max()) < width[:, None]
    tokens, number = np.zeros(filled.shape, np.int32), np.zeros(filled.shape)
    tokens[filled], number[filled] = counts.indices, counts.data
    return Corpus(
        jnp.asarray(tokens),
        jnp.asarray(number.astype(jnp.result_type(float))),
        jnp.asarray(labels),
        counts.shape[1],
    )
