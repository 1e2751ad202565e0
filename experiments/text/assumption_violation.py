"""Certified ends of the flow of p from the theorem's data to real text.

The flow of `experiments.text.flow` on some reviews, over how far they are from the
theorem's assumption (only words with |posterior difference| ≥ c are kept) and η₀; then
over the dimension d. Every cell has a certificate, or says that it has none.

    python -m experiments.text.assumption_violation --train imdb_train.parquet ...
"""

import dataclasses
from collections import Counter
from pathlib import Path

import numpy as np

from experiments.common.console import command, say
from experiments.common.progress import watched
from experiments.common.study import Count, Positive, Share, Study, presets, study
from experiments.text.data import Source, Splits, load, subsample
from experiments.text.fitting import Fit, starting_point
from experiments.text.flow import summarise
from jaxselect.data.sparse import SparseCorpus, from_csr, posterior_difference
from jaxselect.sparse.flow import trajectory


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(Study):
    """The cells and the reviews.

    Attributes:
        source: the reviews and their vocabulary.
        reviews: how many training reviews, at random; 0 for all of them.
        at_least: values of c.
        step_sizes: values of η₀.
        dims: values of d; the greatest is that of the cells over c.
        until_log_time: log t at which a flow is left without a proof, at most 600.
        seed: of the reviews and of (E, p, v).
        preset: default or smoke (invented reviews).
    """

    source: Source = Source(max_size=500)
    reviews: int = 500
    at_least: tuple[Share, ...] = (0.0, 0.1, 0.2, 0.3, 0.45, 0.6, 0.8, 1.0)
    step_sizes: tuple[Positive, ...] = (10.0, 100.0, 1000.0, 10_000.0)
    dims: tuple[Count, ...] = (2, 4, 8, 16, 32, 64, 256)
    until_log_time: float = 600.0
    out: Path = Path("results/text-assumption-violation")


PRESETS = presets(
    default=Settings(),
    smoke=Settings(
        source=Source(invented=150, min_count=3),
        reviews=0,
        at_least=(0.0, 0.5),
        step_sizes=(100.0,),
        dims=(2, 32),
    ),
)


@study(figure="text_assumption_violation")
def main(settings: Settings, results: dict) -> None:
    """Every cell's end and certificate."""
    splits, facts = load(settings.source)
    corpus = subsample(splits.train, settings.reviews, settings.seed)
    most = max(settings.dims)
    cells = [(c, eta, most) for c in settings.at_least for eta in settings.step_sizes]
    cells += [(0.0, eta, d) for d in settings.dims for eta in settings.step_sizes]
    cells = sorted(set(cells))
    results |= facts | {"reviews": len(corpus.labels), "cells": []}
    parts = {c: purer(corpus, c) for c in {cell[0] for cell in cells}}
    results["left_out"] = sorted(c for c, (part, _) in parts.items() if part is None)
    for c in results["left_out"]:
        say(f"c = {c:g}: no review of one of the classes holds such a word; left out")
    with watched("flows", len(cells)) as advance:
        for c, step_size, dim in cells:
            part, columns = parts[c]
            if part is not None:
                named = tuple(splits.words[place] for place in columns)
                fit = Fit(dim=dim, step_size=step_size, seed=settings.seed)
                found = cell(splits._replace(train=part, words=named), fit, settings)
                results["cells"].append({"at_least": c} | found)
            advance(1)
    statuses = Counter(cell["status"] for cell in results["cells"])
    results["statuses"] = dict(statuses)
    say(", ".join(f"{name} {number}" for name, number in statuses.most_common()))


def purer(
    corpus: SparseCorpus, at_least: float
) -> tuple[SparseCorpus | None, tuple[int, ...]]:
    """Words of |posterior difference| ≥ c, and the reviews with any.

    Returns:
        The bags of those words, none where a class has no such review; their columns.
    """
    counts, labels = corpus.by_sequence.to_csr(), np.asarray(corpus.labels)
    apart = np.nan_to_num(np.abs(posterior_difference(corpus)), nan=-1.0)
    words = np.flatnonzero(apart >= at_least)
    counts = counts[:, words].tocsr()
    left = np.diff(counts.indptr) > 0
    found = None
    if len(set(labels[left].tolist())) == 2:
        found = from_csr(counts[left], labels[left])
    return found, tuple(words.tolist())


def cell(splits: Splits, fit: Fit, settings: Settings) -> dict:
    """Sizes of a cell, and status and certificates of its end."""
    start = starting_point(splits, fit)
    until = settings.until_log_time
    course = trajectory(start, splits.train, until_log_time=until)
    return {
        "dim": fit.dim,
        "step_size": fit.step_size,
        "words": len(splits.words),
        "reviews": len(splits.train.labels),
        **summarise(course),
    }


if __name__ == "__main__":
    command(main, PRESETS)
