"""Attention of a model whose scores lie far apart."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from experiments.text.attended import agreement, attend, describe
from jaxselect.model.sparse import from_csr

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
