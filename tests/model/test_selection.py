"""Selected sets and the pairs they make compete, against the definitions.

Source: mathematics, section 3.
"""

import jax
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from jaxselect import competing_pairs, coverage, from_sequences, selected_tokens
from jaxselect.model.selection import important_tokens

VOCABULARY = 6
# One shape, by the last of them: one program serves all examples.
SEQUENCES = st.lists(
    st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=5),
    min_size=4,
    max_size=4,
).map(lambda drawn: [*drawn, [0, 1, 2, 3, 4]])
SELECTED, COMPETING = jax.jit(selected_tokens), jax.jit(competing_pairs)
SHARES = jax.jit(coverage)
SCORES = st.lists(st.integers(-3, 3), min_size=VOCABULARY, max_size=VOCABULARY)


def shares(scores, corpus):
    """Shares of the sequences of either class, under these scores."""
    mask = SELECTED(np.array(scores, float), corpus)
    return map(np.asarray, SHARES(mask, corpus))


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


def test_shares_by_label_count_only_sequences_with_important_tokens():
    sequences = [[0, 3], [1, 3], [2, 3], [2, 4], [3, 4], [3, 4]]
    corpus = from_sequences(sequences, [1, 1, -1, -1, 1, -1], vocabulary=5)
    assert important_tokens(corpus).tolist() == [True, True, True, False, False]
    positive, negative = shares([5, 1, 4, 2, 3], corpus)
    assert positive == 0.5 and negative == 1.0


def test_no_important_token_is_nothing_to_select_not_everything():
    corpus = from_sequences([[0, 1], [0, 1], [0, 2]], [1, -1, 1], vocabulary=3)
    positive, negative = shares([1, 2, 3], corpus)
    # Token 2 is completely positive; no negative sequence has an important token.
    assert positive == 1.0 and np.isnan(negative)
    nothing = from_sequences([[0, 1], [0, 1]], [1, -1], vocabulary=2)
    assert np.isnan(list(shares([1, 2], nothing))).all()


def test_the_width_of_the_selection_from_both_sides():
    """A token 0.4 log t behind is selected beside the top one, 0.6 log t behind not."""
    corpus = from_sequences([[0, 1]], [1], vocabulary=2)
    for behind, wanted in ((0.4, True), (0.6, False)):
        scores = np.array([500.0, 500.0 - behind * 80.0])
        assert SELECTED(scores, corpus, 80.0).tolist() == [[True, wanted]]


def test_one_of_two_important_tokens_is_not_all_of_them():
    corpus = from_sequences([[0, 1, 2], [2, 3]], [1, -1], vocabulary=4)
    positive, negative = shares([2, 1, 0, 3], corpus)
    assert positive == 0.0 and negative == 1.0
    positive, _ = shares([2, 2, 0, 3], corpus)
    assert positive == 1.0
