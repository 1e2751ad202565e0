"""Which training makes the published tables of a richer network.

The authors do not say how they trained. Protocols are taken by hand, then drawn from a
box, then drawn around the best so far. Every second bin of the tables chooses: mean
|log ratio of size| + 1 − rank correlation of the columns, of those that reach an
accuracy. The other bins judge. All tries are kept; a search goes on where it stopped.

    python -m experiments.networks.protocol --dataset imdb_reviews [--table mlp]
    python -m experiments.networks.protocol --table stars --accuracy 0.7 --train FILE …
"""

import contextlib
import dataclasses
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import numpy as np

from experiments.common.claims import Shown
from experiments.common.console import command, say
from experiments.common.numbers import num
from experiments.common.progress import progress_bar
from experiments.common.results import Finished, read, write
from experiments.common.statistics import compare_bins
from experiments.common.study import Count, Experiment, Share, Study, presets
from experiments.networks.data import posteriors, take
from experiments.networks.network import Design, Network, Variables, start
from experiments.networks.training import Strata, evaluate, stratify, train
from experiments.paper import _tables
from experiments.paper._network import (
    adam,
    differences,
    subsample,
    with_length,
    word_columns,
)
from experiments.text.baseline import Counted
from experiments.text.source import Source
from jaxselect.checks import BadInput

WIDTH = 2048
"""The d of the authors, to which rates refer."""
NAMES = ("embeddings", "cls", "heads", "matrices", "length", "steps", "batch")
"""Of a protocol: Adam's rates of E, p, v and W or U, a length, steps, batch."""


class Space(NamedTuple):
    """The protocols of a table.

    Attributes:
        design: the network.
        longer: the parameter that has the length at the start.
        by_hand: the first protocols.
        low: the box in which logarithms are drawn evenly; one head in three does not
            move.
        high: its other end.
    """

    design: Design
    longer: str
    by_hand: tuple[tuple[float, ...], ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


SPACES = {
    "two_layer_key_query": Space(
        Design(2, "product"),
        "cls",
        (
            (1.06e-3, 1.06e-3, 1.06e-3, 3.75e-4, 1.0, 150, 240),
            (2e-4, 5e-5, 5e-5, 2e-6, 30.0, 1000, 24),
            (4e-4, 1e-4, 0.0, 5e-6, 13.0, 280, 480),
            (7e-4, 1.8e-4, 0.0, 9e-6, 13.0, 150, 960),
        ),
        low=(2e-4, 2e-5, 2e-5, 2e-7, 3, 60, 120),
        high=(1e-3, 2e-3, 1e-3, 2e-5, 45, 500, 480),
    ),
    "mlp": Space(
        Design(activation="relu", hidden="identity"),
        "cls",
        (
            (2.1e-4, 1e-4, 2.1e-4, 7.5e-5, 8.0, 280, 480),
            (1e-3, 1e-3, 1e-3, 1e-3, 1.0, 150, 240),
            (3.4e-4, 5e-5, 0.0, 2e-5, 5.0, 254, 376),
        ),
        low=(1e-4, 2e-5, 2e-5, 2e-7, 1, 60, 120),
        high=(1e-3, 1e-3, 1e-3, 2e-4, 20, 600, 480),
    ),
    "stars": Space(
        Design(heads=4),
        "heads",
        (
            (1e-3, 1e-3, 1e-3, 1.0, 1.0, 150, 240),
            (1e-2, 1e-2, 1e-2, 1.0, 45.0, 300, 240),
            (3e-3, 3e-3, 3e-3, 1.0, 45.0, 600, 240),
        ),
        low=(3e-3, 1e-3, 3e-3, 1.0, 20, 150, 120),
        high=(2e-2, 2e-2, 3e-2, 1.0, 100, 600, 480),
    ),
}
SPREAD = 0.2
"""Deviation of a protocol's logarithms from those of the best."""
BINS = {"chosen": slice(0, None, 2), "judged": slice(1, None, 2)}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(Study):
    """How much is tried.

    Attributes:
        source: the reviews.
        table: the published one, and its network.
        drop: a class to leave out, by its label in the data.
        drawn: protocols from the box.
        closer: protocols around the best so far.
        dim: d; starts and rates are those of 2,048, the latter scaled so that E·v, E·p
            and W·p move alike.
        most: reviews × steps of one try at most; steps are cut to it.
        accuracy: on the training split, that a protocol has to reach.
        checked: reviews that this is taken on.
    """

    source: Source = Source()
    table: Literal["two_layer_key_query", "mlp", "stars"] = "two_layer_key_query"
    drop: str | None = None
    drawn: Count = 12
    closer: Count = 16
    dim: Count = 128
    most: Count = 150_000
    accuracy: Share = 0.9
    checked: Count = 2500
    out: Path = Path("results/networks/protocol")


PRESETS = presets(
    full=Settings(), smoke=Settings(drawn=2, closer=1, dim=16, most=2000, checked=100)
)


def following(settings: Settings, tried: list[dict]) -> dict[str, Any]:
    """The next protocol."""
    rng = np.random.default_rng([settings.seed, len(tried)])
    space = SPACES[settings.table]
    if len(tried) < len(space.by_hand):
        chosen = np.array(space.by_hand[len(tried)])
    elif len(tried) < len(space.by_hand) + settings.drawn:
        chosen = np.exp(rng.uniform(np.log(space.low), np.log(space.high)))
        chosen[2] *= rng.random() > 1 / 3
    else:
        best = min(tried, key=lambda one: one["criterion"])
        chosen = np.array([best[name] for name in NAMES])
        chosen *= np.exp(SPREAD * rng.standard_normal(len(NAMES)))
    found = dict(zip(NAMES, chosen.tolist(), strict=True))
    batch = round(found["batch"])
    steps = max(1, min(round(found["steps"]), settings.most // batch))
    return found | {"batch": batch, "steps": steps}


def trained(
    protocol: dict, network: Network, strata: Strata, seed: int, longer: str
) -> Variables:
    """The variables after training by a protocol."""
    drawn = start(network, jax.random.key(seed))
    begin = with_length(drawn, longer, protocol["length"])
    rows = begin["params"]["embeddings"] * (network.dim / WIDTH) ** 0.5
    # Adam moves every coordinate alike: fewer of them have to move further.
    along = (WIDTH / network.dim) ** 0.5
    rates = {name: along * protocol[name] for name in ("cls", "heads")}
    square = along**2 * protocol["matrices"]
    rule = adam(along * protocol["embeddings"], **rates, product=square, hidden=square)
    return train(
        network,
        {"params": begin["params"] | {"embeddings": rows}},
        strata,
        rule,
        steps=protocol["steps"],
        batch=protocol["batch"],
        key=jax.random.key(seed + 1),
    )


def scored(tables: dict[str, dict], name: str, bins: str) -> dict[str, float]:
    """Size and order of the columns in the bins that choose or judge."""
    found, criterion = {}, []
    for part, table in tables.items():
        theirs = _tables.published(name)[part][1]
        ours, there = table["ours"][BINS[bins]], theirs[BINS[bins]]
        here = compare_bins(ours, there)
        found[f"{part} size, {bins}"] = here["ratio"]
        found[f"{part} rank, {bins}"] = here["rank_correlation"]
        criterion.append(abs(np.log(here["ratio"])) + 1 - here["rank_correlation"])
    return found | {f"criterion, {bins}": float(np.mean(criterion))}


def run(settings: Settings, results: dict) -> dict[str, np.ndarray]:
    """Try one protocol after the other."""
    data = take(settings.source, None, settings.drop, settings.seed)
    classes, name = data.classes, settings.table
    space = SPACES[name]
    across = differences(*posteriors(data, classes))
    strata = stratify(data.train, data.labels, classes=classes)
    some = subsample(Counted(data.train, data.labels), settings.checked)
    seen = stratify(*some, classes=classes)
    network = Network(len(data.words), settings.dim, space.design)
    tried: list[dict] = []
    means: list[np.ndarray] = []
    with contextlib.suppress(BadInput):
        before = read(settings.out)
        tried += before.results["tried"]
        means += [*before.arrays["means"]]
    results["tried"] = tried
    left = settings.drawn + len(space.by_hand) + settings.closer
    with progress_bar("tries", left - len(tried)) as advance:
        for _ in range(left - len(tried)):
            row = following(settings, tried)
            end = trained(row, network, strata, settings.seed, space.longer)
            row["accuracy"] = float(evaluate(network, end, seen).accuracy)
            columns = across | word_columns(network, end, seen)
            found = Finished({}, {"published": True}, columns, {})
            tables = _tables.tables_of(found, name)
            for part, table in tables.items():
                row[f"{part} close"] = int(table["close"].sum())
            for bins in BINS:
                row |= scored(tables, name, bins)
            missed = max(0.0, settings.accuracy - row["accuracy"])
            row["criterion"] = row["criterion, chosen"] + 10 * missed
            tried.append(row)
            means.append(np.stack([table["ours"] for table in tables.values()]))
            arrays = {"means": np.stack(means)}
            write(settings.out, settings=settings, results=results, arrays=arrays)
            say(", ".join(f"{name} {num(value)}" for name, value in row.items()))
            advance(1)
    return {"means": np.stack(means)}


def show(found: Finished) -> Shown:
    """The five best protocols."""
    tried = sorted(found.results["tried"], key=lambda row: row["criterion"])
    names = [name for name in tried[0] if not name.endswith("chosen")]
    rows = [names] + [[num(row[name]) for name in names] for row in tried[:5]]
    return Shown([f"{len(tried)} protocols; the best of them:"], rows)


main = Experiment(run, show=show, title="The authors' training", precision="float32")


if __name__ == "__main__":
    command(main, PRESETS)
