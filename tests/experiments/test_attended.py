"""Attention of a model on reviews, against padded bags and in extreme cases."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.special import xlogy

from experiments.text.attended import agreement, attend, describe
from jaxselect.data import corpus, sparse
from jaxselect.data.sparse import from_csr
from jaxselect.model.attention import attend_corpus
from tests.tolerances import assert_close

REVIEWS = from_csr(csr_array([[2.0, 1.0, 0.0], [0.0, 3.0, 1.0]]), [1, -1])


def test_one_word_takes_all_of_a_review_however_far_the_others_are():
    found = attend(np.array([0.0, 5000.0, -5000.0]), REVIEWS)
    assert found["weight"].tolist() == [0.0, 1.0, 1.0, 0.0]
    words = describe(found, ("a", "b", "c"), np.zeros(3), 1)
    # The second review says its word three times.
    assert words["positions"] == pytest.approx(np.mean([1.0, 3.0]))
    assert words["top"] == 1.0
    assert words["words"] == [["b", 1.0, 0.0]]


def test_positions_are_all_of_them_where_nothing_is_learned():
    found = attend(np.zeros(3), REVIEWS)
    words = describe(found, ("a", "b", "c"), np.zeros(3), 1)
    assert words["positions"] == pytest.approx(np.mean([3.0, 4.0]))
    other = attend(np.array([9.0, 0.0, 0.0]), REVIEWS)
    assert agreement(found, found) == {"top": 1.0, "overlap": pytest.approx(1.0)}
    assert agreement(found, other)["top"] == 1.0
    assert agreement(found, attend(np.array([-9.0, 0.0, 0.0]), REVIEWS))["top"] == 0.5


@pytest.fixture
def bags():
    rng = np.random.default_rng(0)
    drawn = [rng.integers(0, 40, rng.integers(2, 60)) for _ in range(30)]
    return corpus.from_sequences(drawn, rng.choice([-1, 1], 30), vocabulary=40)


def test_attention_is_that_of_the_padded_bags(bags):
    scores = np.random.default_rng(1).normal(size=40)
    report = attend(scores, sparse.from_corpus(bags))
    wanted = attend_corpus(jnp.asarray(scores), jnp.zeros(40), bags)
    filled = np.asarray(bags.counts) > 0
    assert_close(report["weight"], np.exp(wanted.log_weights)[filled])


def test_one_position_per_word_gives_the_entropy_of_the_words():
    """With counts of one, positions and words are the same thing."""
    flat = corpus.from_sequences([[0, 1, 2, 3], [1, 4]], [1, -1], vocabulary=5)
    scores = np.array([0.3, -1.0, 2.0, 0.1, 0.5])
    report = attend(scores, sparse.from_corpus(flat))
    wanted = attend_corpus(jnp.asarray(scores), jnp.zeros(5), flat)
    weights = np.exp(wanted.log_weights)
    entropy = -xlogy(weights, weights).sum(axis=1)
    described = describe(report, tuple("abcde"), scores, 2)
    assert_close(described["positions"], np.exp(entropy).mean())
    assert_close(described["top"], np.exp(wanted.log_weights).max(axis=1).mean())
