"""Names and labels of the data, and the bag of words on them."""

from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array

from experiments.text import baseline
from experiments.text.source import Source


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ({"dataset": "imdb_reviews"}, "imdb_reviews"),
        ({"dataset": "imdb_reviews/plain_text:1.0.0"}, "imdb_reviews"),
        ({"train": Path("a.csv"), "named": "imdb_reviews"}, "imdb_reviews"),
        ({"train": Path("imdb_reviews.csv")}, None),
        ({"invented": 100, "named": "imdb_reviews"}, None),
    ],
)
def test_data_have_the_name_that_somebody_gave_them(source, name):
    assert Source(**source).name == name


def test_a_bag_of_words_finds_what_a_word_decides_and_no_more():
    """One word that says all: every review right. Labels at random: about a third."""
    rng = np.random.default_rng(0)
    marks = rng.choice([0, 1, 2], 900)
    counts = rng.poisson(0.3, (900, 20)).astype(float)
    random = baseline.Counted(csr_array(counts), marks)
    bags = baseline.Counted(csr_array(np.eye(3)[marks]), marks)
    assert baseline.baseline(bags, test=bags) == {"test_accuracy": 1.0}
    half = [baseline.Counted(random.counts[k::2], marks[k::2]) for k in (0, 1)]
    found = baseline.baseline(half[0], seen=half[0], unseen=half[1])
    assert found["seen_accuracy"] > found["unseen_accuracy"]
    assert found["unseen_accuracy"] == pytest.approx(1 / 3, abs=0.08)
