"""The reviews of a study: read, split, counted, and kept on disk for the next time."""

import contextlib
import dataclasses
import hashlib
import json
import sys
import zipfile
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from experiments.common.console import say
from experiments.common.progress import progress_bar
from experiments.text import datasets, words
from experiments.text import reviews as text
from experiments.text.counts import SparseCorpus, from_csr
from experiments.text.invented import invent_reviews
from experiments.text.reviews import Name, listed
from experiments.text.source import Source
from experiments.text.words import Bags
from jaxselect.checks import BadInput
from jaxselect.files import replacing

CACHE = Path("results") / "cache"
# Inverse share of the training reviews that decide when to stop.
HELD_OUT = 10


# Version of the stored form; counts of another version are made again.
FORM = 2


class Counted(NamedTuple):
    """Counts that are stored for later runs.

    Attributes:
        words: the vocabulary.
        names: what the data call the classes.
        bags: of the three parts.
        given: number of reviews in each, with those that hold no known word.
    """

    words: tuple[str, ...]
    names: tuple[text.Name, ...]
    bags: list[Bags]
    given: list[int]


class Splits(NamedTuple):
    """A vocabulary and the three parts of the reviews.

    Attributes:
        words: the vocabulary, from the part trained on alone.
        train: nine tenths of the training split.
        validation: the last tenth.
        test: the test split.
    """

    words: tuple[str, ...]
    train: SparseCorpus
    validation: SparseCorpus
    test: SparseCorpus


def load(source: Source) -> tuple[Splits, dict]:
    """The corpora of a study, from the cache if they are there.

    Returns:
        The corpora, and what to say of them.

    Raises:
        BadInput: no source or one that cannot be used.
        OSError: a missing file, or a download that fails.
    """
    if source.max_size < 1:
        raise BadInput(f"--max-size {source.max_size}: wanted one word or more")
    source = _located(source)
    path = CACHE / f"{_key(source)}.npz"
    counted = _kept(path)
    if counted is None:
        counted = _count(source, path)
        with replacing(path) as aside:
            np.savez(aside, **_pack(counted))
    facts: dict = {"vocabulary": len(counted.words), "labels": mapping(counted.names)}
    say_mapping(facts["labels"])
    rows = zip(Splits._fields[1:], counted.bags, counted.given, strict=True)
    for name, bag, number in rows:
        facts[f"{name}_reviews"] = len(bag.labels)
        facts[f"{name}_left_out"] = left_out = number - len(bag.labels)
        if left_out:
            say(
                f"{left_out} of {number} {name} reviews hold no known word and are "
                "left out"
            )
    say(
        f"{facts['train_reviews']} reviews to train on, {facts['validation_reviews']} "
        f"to decide when to stop, {facts['test_reviews']} to test; "
        f"{facts['vocabulary']} words"
    )
    parts = (from_csr(bag.counts, bag.labels) for bag in counted.bags)
    return Splits(counted.words, *parts), facts


def read(source: Source) -> tuple[text.Reviews, text.Reviews]:
    """The texts of both splits, with the classes of the training split.

    Raises:
        BadInput: as for `load`.
    """
    source = _located(source)
    if source.train is None or source.test is None:
        number = source.invented or 0
        train, test = (invent_reviews(seed=seed, reviews=number) for seed in (1, 2))
        return train, test
    take = partial(text.read_reviews, text=source.text, label=source.label)
    train = take(source.train, split="train")
    if len(set(train.labels.tolist())) < 2:
        raise BadInput(
            f"every training review of {source.train} has the same label: wanted two "
            "classes"
        )
    test = take(source.test, split="test", names=train.names)
    return train, test


def _located(source: Source) -> Source:
    """The source with its files in place."""
    if source.dataset is not None:
        # tensorflow-datasets prints; standard output is for results.
        with contextlib.redirect_stdout(sys.stderr):
            folder = datasets.prepare(source.dataset, source.data_dir)
        return dataclasses.replace(source, train=folder, test=folder)
    if source.invented is None and (source.train is None or source.test is None):
        raise BadInput(
            "no reviews: give --train FILE and --test FILE, or --dataset NAME, or "
            "--preset smoke for synthetic ones"
        )
    return source


def _count(source: Source, path: Path) -> Counted:
    """The three parts of the reviews, read and counted."""
    train, test = read(source)
    require_two(train.names)
    if source.train is not None:
        say(f"counting words; they will be kept in {path} for the next time")
    parts = [*_hold_out(train), test]
    bags: list[Bags] = []
    # The vocabulary takes as long as counting what it is chosen from.
    sizes = [len(part.texts) for part in (parts[0], *parts)]
    with progress_bar("counting words", sum(sizes)) as advance:
        vocabulary = words.choose_vocabulary(
            parts[0].texts, min_count=source.min_count, max_size=source.max_size
        )
        advance(sizes[0])
        for part in parts:
            bags.append(words.count_words(part, vocabulary))
            advance(len(part.texts))
    given = [len(part.texts) for part in parts]
    return Counted(vocabulary, train.names, bags, given)


def _hold_out(train: text.Reviews) -> tuple[text.Reviews, text.Reviews]:
    """The reviews trained on, and those that decide when to stop."""
    order = np.random.default_rng(0).permutation(len(train.texts))
    held_out, fitted = np.split(order, [len(order) // HELD_OUT])
    if held_out.size == 0:
        raise BadInput(
            f"{len(train.texts)} training reviews: wanted at least {HELD_OUT}"
        )
    return _take(train, fitted), _take(train, held_out)


def _take(reviews: text.Reviews, rows: np.ndarray) -> text.Reviews:
    """Some of the reviews, in their old order."""
    rows = np.sort(rows)
    texts = [reviews.texts[row] for row in rows]
    return reviews._replace(texts=texts, labels=reviews.labels[rows])


def _key(source: Source) -> str:
    """Digest of the files and of the settings that shape the bags."""
    files = {source.train, source.test} - {None}
    for file in files:
        if not file.exists():  # type: ignore[union-attr]
            raise FileNotFoundError(f"{file} does not exist")
    settings = dataclasses.asdict(source) | {"train": None, "test": None}
    settings |= {"data_dir": None, "dataset": None, "named": None}
    content = [str(p and text.fingerprint(p)) for p in (source.train, source.test)]
    rules = [FORM, words.WORD, HELD_OUT]
    described = json.dumps([settings, content, *rules], sort_keys=True)
    return hashlib.sha256(described.encode()).hexdigest()[:24]


def _pack(counted: Counted) -> dict:
    """Everything as plain arrays."""
    packed = {"words": np.array(counted.words), "given": np.array(counted.given)}
    packed["names"] = np.array(json.dumps(counted.names))
    for place, bag in enumerate(counted.bags):
        counts = bag.counts
        arrays = (counts.indptr, counts.indices, counts.data, bag.labels, bag.kept)
        names = ("indptr", "indices", "data", "labels", "kept")
        packed |= {
            f"{name}{place}": array for name, array in zip(names, arrays, strict=True)
        }
    return packed


def _kept(path: Path) -> Counted | None:
    """The stored counts; None if there are none, or they are damaged."""
    try:
        with path.open("rb") as file, np.load(file) as kept:
            return _unpack(kept)
    except FileNotFoundError:
        return None
    except (ValueError, EOFError, KeyError, TypeError, zipfile.BadZipFile):
        say(f"{path} is damaged: the words are counted again")
        return None


def _unpack(kept: np.lib.npyio.NpzFile) -> Counted:
    """The inverse of `_pack`."""
    vocabulary = tuple(kept["words"].tolist())
    bags = []
    for place in range(3):
        data, indices, indptr = (
            kept[f"{name}{place}"] for name in ("data", "indices", "indptr")
        )
        shape = (len(indptr) - 1, len(vocabulary))
        counts = csr_array((data, indices, indptr), shape=shape)
        bags.append(Bags(counts, kept[f"labels{place}"], kept[f"kept{place}"]))
    names = tuple(json.loads(kept["names"].item()))
    return Counted(vocabulary, names, bags, kept["given"].tolist())


def subsample(corpus: SparseCorpus, reviews: int, seed: int) -> SparseCorpus:
    """A random sample of the reviews."""
    number = len(corpus.labels)
    if not 0 < reviews < number:
        return corpus
    rows = np.sort(np.random.default_rng(seed).permutation(number)[:reviews])
    labels = np.asarray(corpus.labels)[rows]
    return from_csr(corpus.by_sequence.to_csr()[rows], labels)


def mapping(names: tuple[Name, ...]) -> dict[str, int]:
    """The value of each label.

    Returns:
        −1 and +1 for two classes, else 0 … K − 1, by name.

    Example:
        >>> mapping(("bad", "good")), mapping((3, 4, 5))
        ({'bad': -1, 'good': 1}, {'3': 0, '4': 1, '5': 2})
    """
    values = (-1, 1) if len(names) == 2 else range(len(names))
    return dict(zip(map(str, names), values, strict=True))


def say_mapping(labels: dict[str, int]) -> None:
    """Print a mapping, unless every label stands for itself."""
    if any(name != str(value) for name, value in labels.items()):
        pairs = [f"{name[:40]} → {value}" for name, value in labels.items()]
        say("labels: " + ", ".join(pairs[:10]) + (", …" if pairs[10:] else ""))


def mostly_left_out(facts: dict) -> str:
    """What to say beside an accuracy of less than half of the reviews; else nothing.

    Args:
        facts: of `load`, or results that hold them.

    Example:
        >>> mostly_left_out({"test_reviews": 358, "test_left_out": 1642})
        'no accuracy counts 1,642 of 2,000 test reviews, which hold no known word: ...'
    """
    said = []
    for name in Splits._fields[1:]:
        lost, kept = (
            facts.get(f"{name}_{kind}", 0) for kind in ("left_out", "reviews")
        )
        if lost > kept:
            said.append(f"{lost:,} of {lost + kept:,} {name} reviews")
    if not said:
        return ""
    return (
        f"no accuracy counts {', '.join(said)}, which hold no known word: put spaces "
        "between the words of a text that has none, or take both splits from one "
        "source and more words (--min-count, --max-size)"
    )


def say_mostly_left_out(facts: dict) -> None:
    """Print the warning of `mostly_left_out`, if there is one."""
    if warning := mostly_left_out(facts):
        say(warning)


def in_order(labels: dict[str, int]) -> bool:
    """Whether labels rise with their meaning, as in published tables.

    Returns:
        True for numbers, and for words that are known to; the alphabet knows no order.

    Example:
        >>> in_order({"neg": -1, "pos": 1}), in_order({"fresh": -1, "rotten": 1})
        (True, False)
    """
    numbers = all(name.removeprefix("-").isdigit() for name in labels)
    return numbers or tuple(labels) in (("neg", "pos"), ("negative", "positive"))


def require_two(names: tuple[Name, ...]) -> None:
    """Refuse more classes than one head separates.

    Raises:
        BadInput: more than two.
    """
    if len(names) > 2:
        raise BadInput(
            f"the labels are of {len(names)} classes, {listed(names)}: wanted two; "
            "more are for python -m experiments.paper.classes"
        )
