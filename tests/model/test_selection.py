"""Selected sets and the pairs they make compete, against the definitions.

Source: mathematics, section 3.
"""

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxselect import competing_pairs, coverage, from_sequences, selected_tokens

VOCABULARY = 6
# One shape, by the last of them: one program serves all examples.
SEQUENCES = st.lists(
    st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=5),
    min_size=4,
    max_size=4,
).map(lambda drawn: [*drawn, [0, 1, 2, 3, 4]])
SELECTED, COMPETING = jax.jit(selected_tokens), jax.jit(competing_pairs)
SCORES = st.lists(st.integers(-3, 3), min_size=VOCABULARY, max_size=VOCABULARY)


@given(SEQUENCES, SCORES)
def test_selected_sets_and_pairs_are_their_definitions(sequences, scores):
    corpus = from_sequences(sequences, [1] * len(sequences), vocabulary=VOCABULARY)
    mask = SELECTED(np.array(scores, float), corpus)
    pairs = set()
    for row, sequence in enumerate(sequences):
        best = max(scores[s] for s in sequence)
        wanted = {s for s in sequence if scores[s] == best}
        assert (
            set(np.asarray(corpus.tokens)[row, np.asarray(mask)[row]].tolist())
            == wanted
        )
        pairs |= {(s, r) for s in wanted for r in set(sequence) - wanted}
    found = np.argwhere(COMPETING(mask, corpus)).tolist()
    assert {tuple(pair) for pair in found} == pairs


def test_padding_is_never_selected_even_where_every_score_is_low():
    corpus = from_sequences([[1], [1, 2]], [1, -1], vocabulary=3)
    mask = SELECTED(np.array([9.0, -5.0, -7.0]), corpus)
    assert mask.tolist() == [[True, False], [True, False]]


MIXED = [[0, 3], [1, 3], [2, 3], [2, 4], [3, 4], [3, 4]], [1, 1, -1, -1, 1, -1]
ONE_CLASS = [[0, 1], [0, 1], [0, 2]], [1, -1, 1]
BOTH_CLASSES = [[0, 1], [0, 1]], [1, -1]
TWO_OF_ONE = [[0, 1, 2], [2, 3]], [1, -1]
# Bags, scores, and the shares of positive and of negative ones.
SHARED = {
    "only those with important tokens count": (MIXED, [5, 1, 4, 2, 3], (0.5, 1)),
    "token 2 is important, none of the others": (ONE_CLASS, [1, 2, 3], (1, np.nan)),
    "nothing to select is not everything": (BOTH_CLASSES, [1, 2], (np.nan, np.nan)),
    "one of two is not all of them": (TWO_OF_ONE, [2, 1, 0, 3], (0, 1)),
    "two of two": (TWO_OF_ONE, [2, 2, 0, 3], (1, 1)),
}


@pytest.mark.parametrize("case", SHARED)
def test_shares_by_hand(case):
    (sequences, labels), scores, wanted = SHARED[case]
    corpus = from_sequences(sequences, labels, vocabulary=len(scores))
    mask = SELECTED(np.array(scores, float), corpus)
    np.testing.assert_array_equal(jax.jit(coverage)(mask, corpus), wanted)


def test_the_width_of_the_selection_from_both_sides():
    """A token 0.4 log t behind is selected beside the top one, 0.6 log t behind not."""
    corpus = from_sequences([[0, 1]], [1], vocabulary=2)
    for behind, wanted in ((0.4, True), (0.6, False)):
        scores = np.array([500.0, 500.0 - behind * 80.0])
        assert SELECTED(scores, corpus, 80.0).tolist() == [[True, wanted]]
