"""The rounding of α: what cancels in ten thousand sequences is zero."""

import jax
import numpy as np

from jaxselect.data.corpus import from_bags
from jaxselect.model.selection import token_classes

PAIRS = 5000


def classes(more):
    """Every bag with both labels, shuffled; the first with `more` of token 2."""
    draw = np.random.default_rng(0)
    counts = np.ones((PAIRS, 3))
    # Sums of shares such as 1/7 round otherwise in another order.
    counts[:, 1] = draw.integers(1, 9, PAIRS)
    counts = np.tile(counts, (2, 1))
    labels = np.repeat([1, -1], PAIRS)
    counts[0, 2] += more
    order = draw.permutation(2 * PAIRS)
    tokens = np.tile([0, 1, 2], (2 * PAIRS, 1))
    corpus = from_bags(tokens, counts[order], labels[order], vocabulary=3)
    return jax.jit(token_classes)(corpus)


def test_what_cancels_in_ten_thousand_sequences_is_irrelevant():
    assert classes(more=0).irrelevant.all()


def test_one_occurrence_more_among_ten_thousand_is_seen():
    """Token 2 has a larger share of one positive sequence, the others smaller ones."""
    found = classes(more=1)
    assert found.positive.tolist() == [False, False, True]
    assert found.negative.tolist() == [True, True, False]
