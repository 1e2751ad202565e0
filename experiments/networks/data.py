"""Sequences for richer networks: reviews of any number of classes, or invented."""

from typing import NamedTuple

import jax
import numpy as np
from scipy.sparse import csr_array

from experiments.text import reviews as text
from experiments.text import words
from experiments.text.data import load, mapping, read, say_mapping
from experiments.text.source import Source
from jaxselect.checks import BadInput
from jaxselect.data import synthetic
from jaxselect.data.corpus import Corpus


class Data(NamedTuple):
    """Counts and labels of both splits.

    Attributes:
        words: the vocabulary.
        train: counts of the sequences trained on.
        labels: ±1, or classes.
        test: counts of the others.
        test_labels: likewise.
        names: what the data call the classes.
    """

    words: tuple[str, ...]
    train: csr_array
    labels: np.ndarray
    test: csr_array
    test_labels: np.ndarray
    names: tuple[text.Name, ...]

    @property
    def classes(self) -> int:
        """K."""
        return len(self.names)


def take(source: Source, classes: int | None, drop: str | None, seed: int) -> Data:
    """The sequences of a study.

    Args:
        source: the reviews; synthetic tokens where there are none.
        classes: number of classes; by default that of the labels of reviews, or two.
        drop: name of a class to leave out, or none.
        seed: random seed of what is invented.

    Raises:
        BadInput: reviews that cannot be used or are of another number of classes; no
            class of the name to leave out, or one alone that would be left.
    """
    if source.train is None and source.dataset is None and source.invented is None:
        return invented(classes or 2, drop, seed)
    data = reviews(source, drop)
    if classes is not None and data.classes + (drop is not None) != classes:
        raise BadInput(
            f"--classes {classes}: the labels are {text.listed(data.names)}, without "
            f"--drop {drop}; leave --classes out, and it is read from the data"
        )
    return data


def reviews(source: Source, drop: str | None) -> Data:
    """Counts of real text; `load` stores those of two classes."""
    given = read(source)
    if drop is None and len(given[0].names) == 2:
        splits, _ = load(source)
        train, test = (
            part.by_sequence.to_csr() for part in (splits.train, splits.test)
        )
        signs = (np.asarray(part.labels) for part in (splits.train, splits.test))
        return Data(splits.words, train, next(signs), test, next(signs), given[0].names)
    parts = [without(part, drop) for part in given]
    say_mapping(mapping(parts[0].names))
    known = words.choose_vocabulary(
        parts[0].texts, min_count=source.min_count, max_size=source.max_size
    )
    bags = [words.count_words(part, known) for part in parts]
    counted = (bags[0].counts, bags[0].labels, bags[1].counts, bags[1].labels)
    return Data(known, *counted, names=parts[0].names)


def without(given: text.Reviews, drop: str | None) -> text.Reviews:
    """The reviews of all classes but one.

    Returns:
        The others, with labels for so many classes.

    Raises:
        BadInput: no class of that name, or one alone that would be left.
    """
    if drop is None:
        return given
    left = remaining(given.names, drop)
    place = given.labels if len(given.names) > 2 else (given.labels + 1) // 2
    gone = [str(name) for name in given.names].index(drop)
    kept = np.flatnonzero(place != gone)
    labels = place[kept] - (place[kept] > gone)
    if len(left) == 2:
        labels = 2 * labels - 1
    return text.Reviews([given.texts[row] for row in kept], labels, left)


def remaining(names: tuple[text.Name, ...], drop: str) -> tuple[text.Name, ...]:
    """The classes but for one, two or more."""
    left = tuple(name for name in names if str(name) != drop)
    if len(left) == len(names):
        raise BadInput(f"--drop {drop}: the classes are {text.listed(names)}")
    if len(left) < 2:
        raise BadInput(f"--drop {drop} leaves {left[0]!r} alone; wanted two classes")
    return left


def invented(classes: int, drop: str | None, seed: int) -> Data:
    """Sequences of a few important tokens, in part or wholly, among others."""
    called: tuple[text.Name, ...] = (-1, 1) if classes == 2 else tuple(range(classes))
    if drop is not None:
        called = remaining(called, drop)
    known = len(called)
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
    tokens = tuple(f"token {place}" for place in range(corpus.vocabulary))
    train, labels, test, test_labels = parts
    return Data(tokens, train, labels, test, test_labels, called)


def dense(corpus: Corpus) -> csr_array:
    """The count matrix of a padded corpus."""
    counts = np.asarray(corpus.counts)
    row, slot = np.nonzero(counts)
    token = np.asarray(corpus.tokens)[row, slot]
    shape = (len(counts), corpus.vocabulary)
    return csr_array((counts[row, slot], (row, token)), shape=shape)


def posteriors(data: Data, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Posterior difference and importance of every token for every class.

    Returns:
        P(k|s) − mean_{j≠k} P(j|s), NaN for a token that never occurs; and α_s^k, the
        mean over sequences of 1{s in X} (1{y=k} − 1/K).
    """
    names = (-1, 1) if classes == 2 else range(classes)
    each = np.stack(
        [np.asarray(data.train[data.labels == k].sum(axis=0)).ravel() for k in names],
        axis=1,
    )
    total = each.sum(axis=1, keepdims=True)
    posterior = np.where(total > 0, each / np.maximum(total, 1), np.nan)
    own = np.stack([data.labels == k for k in names], axis=1) - 1 / classes
    importance = (data.train > 0).T @ own / len(own)
    return posterior - (1 - posterior) / (classes - 1), importance
