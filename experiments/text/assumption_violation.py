"""Certified ends of the flow of p from the theorem's data to real text.

The flow of `experiments.text.flow` on some reviews, over how far they are from the
theorem's assumption (only words with |posterior difference| ≥ c are kept) and η₀; then
over the dimension d. Every cell has a certificate, or says that it has none. Beside the
reviews that end with one word stands what counts alone foresee (mathematics, section
3l): the share of losing words below the ceiling of their pair.

    python -m experiments.text.assumption_violation --train imdb_train.parquet ...
"""

import dataclasses
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from experiments.common.claims import Shown
from experiments.common.console import command, say
from experiments.common.numbers import num
from experiments.common.palette import SERIES
from experiments.common.progress import watched
from experiments.common.results import Finished
from experiments.common.study import Count, Experiment, Positive, Share, Study, presets
from experiments.common.style import subplots
from experiments.text.data import Source, Splits, load, subsample
from experiments.text.fitting import Fit, starting_point
from experiments.text.limit_summary import summarise
from jaxselect.data.corpus import from_counts
from jaxselect.data.sparse import (
    SparseCorpus,
    from_csr,
    importance,
    posterior_difference,
)
from jaxselect.sparse.bags import RaggedBags, attention
from jaxselect.sparse.flow import trajectory
from jaxselect.theory.betweenness import foreseen

# A review is decided where one word has this share of its weight.
DECIDED = 0.99


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
        seed: random seed of the reviews and of (E, p, v).
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


def run(settings: Settings, results: dict) -> None:
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
    bags = RaggedBags.of_corpus(start, splits.train)
    share, _ = attention(bags.counts, np.asarray(start.embeddings) @ course.query)
    most = np.maximum.reduceat(share, bags.counts.indptr[:-1])
    corpus = from_counts(splits.train.by_sequence.to_csr(), bags.labels)
    counted = foreseen(corpus, importance(splits.train), fit.step_size)
    return {
        "dim": fit.dim,
        "step_size": fit.step_size,
        "words": len(splits.words),
        "reviews": len(splits.train.labels),
        "decided": float(np.mean(most > DECIDED)),
        "foreseen": float(counted.share),
        **summarise(course),
    }


COLOUR = {
    "SELECTED": SERIES[2],
    "TIED": SERIES[4],
    "AT_REST": SERIES[3],
    "UNPROVED": "#d9d9d9",
}
"""Labels of the ends of a flow on text."""
SENTENCE = {
    "SELECTED": "all decided, p goes on",
    "TIED": "some words tied, p goes on",
    "AT_REST": "p rests",
    "UNPROVED": "not certified",
}


def draw(finished: Finished) -> Figure:
    """Two maps of certified ends, c and d against η₀; the tied words in each cell."""
    cells = finished.results["cells"]
    widest = max(cell["dim"] for cell in cells)
    over_c = [cell for cell in cells if cell["dim"] == widest]
    over_dim = [cell for cell in cells if cell["at_least"] == 0]
    figure, axes = subplots(1, 2, figsize=(11, 4.6))
    _map(axes[0], over_c, "at_least", "kept: |posterior difference| ≥ c")
    _map(axes[1], over_dim, "dim", "dimension d")
    axes[0].set_title(f"d = {widest}; in each cell, words tied")
    axes[1].set_title("all words kept")
    found = [name for name in COLOUR if any(c["status"] == name for c in cells)]
    patches = [Patch(color=COLOUR[name], label=SENTENCE[name]) for name in found]
    figure.legend(handles=patches, loc="outside lower center", ncols=len(patches))
    return figure


def _map(axes: Axes, cells: list[dict], across: str, label: str) -> None:
    columns = sorted({cell[across] for cell in cells})
    rows = sorted({cell["step_size"] for cell in cells})
    names = list(COLOUR)
    code = np.full((len(rows), len(columns)), np.nan)
    for cell in cells:
        place = rows.index(cell["step_size"]), columns.index(cell[across])
        code[place] = names.index(cell["status"])
        row, column = place
        middle: dict[str, Any] = {"ha": "center", "va": "center", "color": "0.1"}
        axes.text(column, row, str(cell["tied_words"]), **middle)
    colours = ListedColormap(list(COLOUR.values()))
    axes.imshow(
        code,
        cmap=colours,
        vmin=-0.5,
        vmax=len(names) - 0.5,
        origin="lower",
        aspect="auto",
    )
    axes.set_xticks(range(len(columns)), [f"{value:g}" for value in columns])
    axes.set_yticks(range(len(rows)), [f"{value:g}" for value in rows])
    axes.set(xlabel=label, ylabel="step size η₀")


def show(found: Finished) -> Shown:
    """A row per cell."""
    head = ["c", "d", "η₀", "words", "end", "tied words", "‖p_mm‖"]
    table = [[*head, "decided", "below their ceiling"]]
    table += [
        [
            num(cell["at_least"]),
            str(cell["dim"]),
            num(cell["step_size"]),
            str(cell["words"]),
            cell["status"].replace("_", " ").lower(),
            str(cell["tied_words"]),
            num(cell["growth"]),
            num(cell["decided"]),
            num(cell["foreseen"]),
        ]
        for cell in found.results["cells"]
    ]
    counted = found.results["statuses"]
    return Shown(
        [", ".join(f"{name} {number}" for name, number in counted.items()) + "."],
        table,
    )


main = Experiment(run, draw=draw, show=show, title="Where p rests")


if __name__ == "__main__":
    command(main, PRESETS)
