"""From labelled reviews to bags of words over a vocabulary.

Needs the extra `text`.
"""

import re
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Int
from scipy.sparse import csr_array
from sklearn.feature_extraction.text import CountVectorizer

from experiments.text.reviews import Reviews
from jaxselect import checks
from jaxselect.checks import BadInput

# A word starts with a letter or digit and may hold apostrophes: "don't" is one word.
WORD = r"(?u)\b\w[\w']*\b"
# A line break of HTML, which is read as a space.
LINE_BREAK = re.compile(r"<br\s*/?>", re.IGNORECASE)


class Bags(NamedTuple):
    """Counts of vocabulary words, for each review that has any.

    Attributes:
        counts: one row per review kept, one column per word of the vocabulary.
        labels: labels of the reviews kept.
        kept: their places among the reviews given.
    """

    counts: csr_array
    labels: Int[np.ndarray, " kept"]
    kept: Int[np.ndarray, " kept"]


def choose_vocabulary(
    texts: list[str], *, min_count: int = 5, max_size: int | None = None
) -> tuple[str, ...]:
    """Find the frequent words of a training split, most frequent first.

    Args:
        texts: the training split; no word of any other may enter.
        min_count: occurrences a word needs.
        max_size: how many words to keep at most; equally frequent ones in the order of
            the alphabet.

    Returns:
        Words in the order of the alphabet; a word's place is its token id.

    Raises:
        BadInput: no word occurs often enough, or a number below one.

    Example:
        >>> choose_vocabulary(["Good<br />good film", "a film"], min_count=2)
        ('film', 'good')
    """
    checks.whole("min_count", min_count)
    if max_size is not None:
        checks.whole("max_size", max_size)
    counter = _counter(None)
    try:
        counts = counter.fit_transform(texts)
    except ValueError as error:  # scikit-learn's way to say that there is no word
        raise BadInput(f"no word in {len(texts)} training texts") from error
    words = counter.get_feature_names_out()
    number = np.asarray(counts.sum(axis=0)).ravel()
    frequent = np.lexsort((words, -number))[:max_size]
    frequent = np.sort(frequent[number[frequent] >= min_count])
    if frequent.size == 0:
        raise BadInput(
            f"no word occurs {min_count} times in {len(texts)} training texts: lower "
            "the minimum count"
        )
    return tuple(words[frequent].tolist())


def count_words(reviews: Reviews, vocabulary: tuple[str, ...]) -> Bags:
    """Count vocabulary words, and drop reviews that have none.

    Args:
        reviews: texts and labels.
        vocabulary: the known words, of `choose_vocabulary`.

    Returns:
        Counts and labels of the reviews that hold a known word.

    Raises:
        BadInput: not one review holds a known word.

    Example:
        >>> bags = count_words(Reviews(["A good, good film"], [1]), ("bad", "good"))
        >>> bags.counts.toarray().tolist()
        [[0.0, 2.0]]
    """
    counts = csr_array(_counter(vocabulary).transform(reviews.texts))
    kept = np.flatnonzero(np.diff(counts.indptr))
    if kept.size == 0:
        raise BadInput(
            f"none of {len(reviews.texts)} reviews holds one of the {len(vocabulary)} "
            "words of the vocabulary: is it of the same language and source?"
        )
    return Bags(counts[kept], np.asarray(reviews.labels)[kept], kept)


@cache
def _analyzer() -> Callable[[str], list[str]]:
    """Return the function that splits a text."""
    return _counter(None).build_analyzer()


def _counter(vocabulary: tuple[str, ...] | None) -> CountVectorizer:
    """Return the vectoriser with which the package splits text into words."""
    return CountVectorizer(
        preprocessor=lambda text: LINE_BREAK.sub(" ", text).lower(),
        token_pattern=WORD,
        vocabulary=vocabulary,
        dtype=np.float64,
    )
