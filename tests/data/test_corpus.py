"""Statistics of tokens from counts, compared with loops over positions."""

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from experiments.common.count_matrix import from_counts
from jaxselect import BadInput, importance
from jaxselect.data.components import subtract_group_means
from jaxselect.data.corpus import from_bags, from_sequences
from jaxselect.model.selection import class_importance, frequencies, important_tokens
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
def test_importance_agrees_with_loops_over_positions(data):
    corpus = bags(data)
    labels_of = [
        {label for tokens, label in data if token in tokens}
        for token in range(VOCABULARY)
    ]
    assert_close(importance(corpus), literal_importance(data))
    important = np.asarray(important_tokens(corpus))
    assert important.tolist() == [len(seen) == 1 for seen in labels_of]
    assert_close(np.asarray(frequencies(corpus)).sum(axis=1), np.ones(len(data)))


@given(labelled, st.randoms(use_true_random=False))
def test_a_sequence_is_a_bag(data, random):
    shuffled = [random.sample(tokens.tolist(), len(tokens)) for tokens, _ in data]
    labels = [label for _, label in data]
    corpus = from_sequences(shuffled, labels, vocabulary=VOCABULARY)
    ids, counts = np.asarray(corpus.tokens), np.asarray(corpus.counts)
    for row, (tokens, _) in enumerate(data):
        again = np.repeat(ids[row], counts[row].astype(int))
        assert again.tolist() == sorted(tokens)


@given(labelled)
def test_two_classes_are_a_special_case(data):
    numbered = [(tokens, (1 - label) // 2) for tokens, label in data]
    signed, both = (
        importance(bags(data)),
        class_importance(bags(numbered, 3), classes=2),
    )
    assert_close(both.sum(axis=1), np.zeros(VOCABULARY))
    assert_close(both[:, 0], signed / 2)


def made(**changed):
    """Two bags of one token, with something else in them."""
    good = dict(tokens=[[0], [1]], counts=[[1.0], [1.0]], labels=[1, -1], vocabulary=3)
    return from_bags(**good | changed)


BAD = {
    "a label that is neither 1 nor -1": (lambda: made(labels=[1, 0]),
                                         "label 0 of sequence 1"),
    "an id below the vocabulary": (lambda: made(tokens=[[0], [-1]]),
                                   "-1 in sequence 1"),
    "an id above the vocabulary": (lambda: made(tokens=[[3], [1]]), "3 in sequence 0"),
    "an empty sequence": (lambda: made(counts=[[1.0], [0.0]]), "sequence 1 is empty"),
    "a NaN count": (lambda: made(counts=[[1.0], [np.nan]]), "nan in sequence 1"),
    "a negative count": (lambda: made(counts=[[1.0], [-2.0]]), "-2.0 in sequence 1"),
    "a token twice in a bag": (lambda: made(tokens=[[0, 1, 2], [2, 1, 2]],
                                            counts=np.ones((2, 3))),
                               "2 occurs twice in sequence 1"),
    "an id that would wrap": (lambda: from_sequences([[2**32]], [1], vocabulary=3),
                              "4294967296 in sequence 0"),
    "complex counts in a matrix": (lambda: from_counts(csr_array([[1 + 1j]]), [1]),
                                   "counts of type complex128"),
    "a label of half": (lambda: from_sequences([[0]], [0.5], vocabulary=3),
                        "label 0.5 of sequence 0"),
    "a class too many": (lambda: from_sequences([[0], [1]], [2, 3], vocabulary=3,
                                                classes=3),
                         "label 3 of sequence 1"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_bags_are_named(case):
    """Also what would become another token or count."""
    make, message = BAD[case]
    with pytest.raises(BadInput, match=message):
        make()


@given(labelled)
def test_a_count_matrix_gives_the_bags_of_its_rows(data):
    counts = np.stack([np.bincount(t, minlength=VOCABULARY) for t, _ in data])
    labels = [label for _, label in data]
    got = from_counts(csr_array(counts), labels)
    wanted = from_sequences([t for t, _ in data], labels, vocabulary=VOCABULARY)
    jax.tree.map(np.testing.assert_array_equal, got, wanted)
    width = (np.asarray(got.counts) > 0).sum(axis=1)
    assert got.tokens.shape[1] == width.max()


def test_counts_that_single_precision_cannot_hold_are_refused():
    with jax.enable_x64(False):
        for count, message in ((1e300, "count inf"), (1e-300, "sequence 0 is empty")):
            with pytest.raises(BadInput, match=message):
                from_bags([[0]], [[count]], [1], vocabulary=1)


def test_a_group_mean_leaves_nothing_but_a_rounding_of_what_is_left():
    """A large common part is known up to its own rounding alone."""
    left = np.random.default_rng(0).normal(size=(6, 2))
    names = np.array([0, 1, 0, 1, 4, 1])
    found = np.asarray(
        subtract_group_means(jax.numpy.asarray(1e8 + left), jax.numpy.asarray(names))
    )
    for name in (0, 1, 4):
        np.testing.assert_allclose(found[names == name].sum(axis=0), 0.0, atol=1e-14)
        wanted = left[names == name] - left[names == name].mean(axis=0)
        np.testing.assert_allclose(found[names == name], wanted, atol=1e-7)
