"""Sequences for richer networks: reviews of any number of classes, or invented."""

from typing import NamedTuple

import jax
import numpy as np
from scipy.sparse import csr_array

from experiments.text.data import Source, load
from jaxselect.errors import BadInput
from jaxselect.model import synthetic
from jaxselect.model.corpus import Corpus
from jaxselect.text import reviews as text
from jaxselect.text import words


class Data(NamedTuple):
    """Counts and labels of both splits.

    Attributes:
        words: the vocabulary.
        train: counts of the sequences trained on.
        labels: ±1, or classes.
        test: counts of the others.
        test_labels: likewise.
    """

    words: tuple[str, ...]
    train: csr_array
    labels: np.ndarray
    test: csr_array
    test_labels: np.ndarray


def take(source: Source, classes: int, drop: int | None, seed: int) -> Data:
    """The sequences of a study.

    Args:
        source: the reviews; invented tokens where there are none.
        classes: in the labels.
        drop: a class to leave out, or none.
        seed: of what is invented.

    Returns:
        Both splits.
    """
    if source.train is None and source.dataset is None and source.invented is None:
        return invented(classes, drop, seed)
    return reviews(source, classes, drop)


def reviews(source: Source, classes: int, drop: int | None) -> Data:
    """Real text; more than two classes are read here, two by `review_data`."""
    if classes == 2:
        splits, _ = load(source)
        train, test = (
            part.by_sequence.to_csr() for part in (splits.train, splits.test)
        )
        signs = (np.asarray(part.labels) for part in (splits.train, splits.test))
        return Data(splits.words, train, next(signs), test, next(signs))
    parts = []
    for path, split in ((source.train, "train"), (source.test, "test")):
        if path is None:
            raise BadInput("--train and --test belong together; one is missing")
        given = text.read_reviews(
            path, text=source.text, label=source.label, split=split, classes=classes
        )
        kept = np.flatnonzero(given.labels != drop)
        labels = given.labels[kept]
        if drop is not None:
            labels = labels - (labels > drop)
        parts.append(text.Reviews([given.texts[row] for row in kept], labels))
    known = words.choose_vocabulary(
        parts[0].texts, min_count=source.min_count, max_size=source.max_size
    )
    train_bags, test_bags = (words.count_words(part, known) for part in parts)
    return Data(
        known, train_bags.counts, train_bags.labels, test_bags.counts, test_bags.labels
    )


def invented(classes: int, drop: int | None, seed: int) -> Data:
    """Sequences of a few important tokens, in part or wholly, among others."""
    known = classes - (drop is not None)
    parts = []
    for split in range(2):
        key = jax.random.fold_in(jax.random.key(100 + seed), split)
        if known == 2:
            corpus = synthetic.several_relevant(
                key,
                sequences=600,
                length=30,
                relevant=20,
                irrelevant=200,
                per_sequence=4,
                purity=0.6,
            )
        else:
            corpus = synthetic.multi_class(
                key,
                sequences=120 * known,
                length=30,
                relevant=8,
                irrelevant=200,
                classes=known,
            )
        parts += [dense(corpus), np.asarray(corpus.labels)]
    names = tuple(f"token {place}" for place in range(corpus.vocabulary))
    return Data(names, *parts)


def dense(corpus: Corpus) -> csr_array:
    """The count matrix of a padded corpus."""
    counts = np.asarray(corpus.counts)
    row, slot = np.nonzero(counts)
    token = np.asarray(corpus.tokens)[row, slot]
    shape = (len(counts), corpus.vocabulary)
    return csr_array((counts[row, slot], (row, token)), shape=shape)


def posteriors(data: Data, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Posterior difference, and difference of frequencies, of every token and class.

    Args:
        data: the training split counts.
        classes: K; two stand for labels −1 and +1.

    Returns:
        P(k|s) − mean_{j≠k} P(j|s), NaN for a token that never occurs; and
        P(s|k) − P(s|not k).
    """
    names = (-1, 1) if classes == 2 else range(classes)
    each = np.stack(
        [np.asarray(data.train[data.labels == k].sum(axis=0)).ravel() for k in names],
        axis=1,
    )
    total = each.sum(axis=1, keepdims=True)
    posterior = np.where(total > 0, each / np.maximum(total, 1), np.nan)
    here = each / each.sum(axis=0)
    others = (total - each) / (each.sum() - each.sum(axis=0))
    return posterior - (1 - posterior) / (classes - 1), here - others
