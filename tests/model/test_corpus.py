"""What counts say about tokens, held against loops over positions."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxselect.model.corpus import (
    class_importance,
    frequencies,
    from_bags,
    from_sequences,
    importance,
    occurrences,
    posterior_difference,
    token_classes,
)
from tests.tolerances import assert_close

VOCABULARY, SEQUENCES = 6, 5
counts_of_one = st.lists(
    st.integers(0, 2), min_size=VOCABULARY, max_size=VOCABULARY
).filter(any)
labelled = st.lists(
    st.tuples(counts_of_one, st.sampled_from([-1, 1])),
    min_size=SEQUENCES,
    max_size=SEQUENCES,
).map(lambda rows: [(np.repeat(np.arange(VOCABULARY), row), y) for row, y in rows])


def bags(data, classes=2):
    """The corpus, padded to the vocabulary so that nothing is compiled twice."""
    counts = [np.bincount(tokens, minlength=VOCABULARY) for tokens, _ in data]
    ids = np.tile(np.arange(VOCABULARY), (len(data), 1))
    labels = [label for _, label in data]
    return from_bags(
        ids, np.array(counts), labels, vocabulary=VOCABULARY, classes=classes
    )


def literal_importance(data):
    alpha = np.zeros(VOCABULARY)
    for tokens, label in data:
        for token in tokens:
            alpha[token] += label / len(tokens) / len(data)
    return alpha


@given(labelled)
def test_counts_agree_with_loops_over_positions(data):
    corpus = bags(data)
    positions = [(token, label) for tokens, label in data for token in tokens]
    number = np.bincount([token for token, _ in positions], minlength=VOCABULARY)
    signed = np.zeros(VOCABULARY)
    for token, label in positions:
        signed[token] += label
    assert_close(importance(corpus), literal_importance(data))
    assert_close(occurrences(corpus), number)
    seen = number > 0
    assert_close(posterior_difference(corpus)[seen], signed[seen] / number[seen])
    assert jnp.isnan(posterior_difference(corpus)[~seen]).all()
    assert_close(frequencies(corpus).sum(axis=1), np.ones(len(data)))


@given(labelled)
def test_classes_agree_with_their_definitions(data):
    classes = token_classes(bags(data))
    labels_of = [
        {label for tokens, label in data if token in tokens}
        for token in range(VOCABULARY)
    ]
    assert classes.completely_positive.tolist() == [seen == {1} for seen in labels_of]
    assert classes.completely_negative.tolist() == [seen == {-1} for seen in labels_of]
    masks = jnp.stack([classes.positive, classes.negative, classes.irrelevant])
    assert (masks.sum(axis=0) == 1).all()
    alpha = literal_importance(data)
    clear = np.abs(alpha) > 1e-9  # far above rounding, far below 1 / (8 · 8)
    assert (classes.irrelevant == ~clear).all()
    assert (masks[0] == (clear & (alpha > 0))).all()


@given(labelled, st.permutations(range(SEQUENCES)))
def test_order_of_sequences_does_not_matter(data, order):
    shuffled = bags([data[row] for row in order])
    assert_close(importance(shuffled), importance(bags(data)))


@given(labelled, st.randoms(use_true_random=False))
def test_a_sequence_is_a_bag(data, random):
    shuffled = [random.sample(tokens.tolist(), len(tokens)) for tokens, _ in data]
    labels = [label for _, label in data]
    corpus = from_sequences(shuffled, labels, vocabulary=VOCABULARY)
    for row, (tokens, _) in enumerate(data):
        again = np.repeat(corpus.tokens[row], corpus.counts[row].astype(int))
        assert again.tolist() == sorted(tokens)


@given(labelled)
def test_swapping_the_labels_swaps_the_classes(data):
    swapped = [(tokens, -label) for tokens, label in data]
    before, after = bags(data), bags(swapped)
    assert_close(importance(after), -importance(before))
    assert (token_classes(before).positive == token_classes(after).negative).all()


@given(labelled)
def test_two_classes_are_a_special_case(data):
    numbered = [(tokens, (1 - label) // 2) for tokens, label in data]
    signed, both = (
        importance(bags(data)),
        class_importance(bags(numbered, 3), classes=2),
    )
    assert_close(both.sum(axis=1), np.zeros(VOCABULARY))
    assert_close(both[:, 0], signed / 2)


BAD_BAGS = {
    "a label that is neither 1 nor -1": (dict(labels=[1, 0]), "label 0 of sequence 1"),
    "an id below the vocabulary": (dict(tokens=[[0], [-1]]), "-1 in sequence 1"),
    "an id above the vocabulary": (dict(tokens=[[3], [1]]), "3 in sequence 0"),
    "an empty sequence": (dict(counts=[[1.0], [0.0]]), "sequence 1 is empty"),
    "a NaN count": (dict(counts=[[1.0], [np.nan]]), "nan in sequence 1"),
    "an infinite count": (dict(counts=[[np.inf], [1.0]]), "inf in sequence 0"),
    "a negative count": (dict(counts=[[1.0], [-2.0]]), "-2.0 in sequence 1"),
    "labels of another length": (dict(labels=[1]), "wanted"),
    "counts of another shape": (dict(counts=[[1.0]]), "wanted"),
    "no sequence": (dict(tokens=np.zeros((0, 1), int), counts=np.zeros((0, 1)),
                         labels=[]), "at least one"),
    "a token twice in a bag": (dict(tokens=[[0, 1], [2, 2]], counts=np.ones((2, 2))),
                               "2 stands twice in bag 1"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_BAGS)
def test_bad_bags_are_named(case):
    changed, message = BAD_BAGS[case]
    good = dict(tokens=[[0], [1]], counts=[[1.0], [1.0]], labels=[1, -1], vocabulary=3)
    from_bags(**good)
    with pytest.raises(ValueError, match=message):
        from_bags(**good | changed)


@pytest.mark.parametrize(
    ("sequences", "message"),
    [([[0], []], "sequence 1 has shape"), ([[0.5], [1]], "wanted token ids, integers")],
)
def test_bad_sequences_are_named(sequences, message):
    with pytest.raises(ValueError, match=message):
        from_sequences(sequences, [1, -1], vocabulary=3)


def test_a_class_outside_the_range_is_named():
    with pytest.raises(ValueError, match="label 3 of sequence 1"):
        from_sequences([[0], [1]], [2, 3], vocabulary=3, classes=3)
