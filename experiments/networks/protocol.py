"""Which training makes the published tables of two layers with key-query matrices.

The authors do not say how they trained. Protocols are taken by hand, then drawn from a
box, then drawn around the best so far. Every second bin of the tables chooses: mean
|log ratio of size| + 1 − rank correlation of both columns, of those that reach an
accuracy. The other bins judge. All tries are kept; a search goes on where it stopped.

    python -m experiments.networks.protocol --dataset imdb_reviews
"""

import contextlib
import dataclasses
from pathlib import Path
from typing import Any

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
from experiments.paper import _tables
from experiments.paper._network import adam, subsample, with_query
from experiments.text.baseline import Counted
from experiments.text.source import Source
from jaxselect.checks import BadInput
from jaxselect.networks.network import Design, Network, Variables, alignments, start
from jaxselect.networks.training import Strata, evaluate, stratify, train

TABLE, WIDTH = "two_layer_key_query", 2048
"""The table, and the d of the authors, to which rates refer."""
NAMES = ("embeddings", "cls", "heads", "matrices", "length", "steps", "batch")
"""Of a protocol: Adam's rates of E, p, v and W, ‖p‖ at the start, steps, batch."""
BY_HAND = (
    (1.06e-3, 1.06e-3, 1.06e-3, 3.75e-4, 1.0, 150, 240),
    (2e-4, 5e-5, 5e-5, 2e-6, 30.0, 1000, 24),
    (4e-4, 1e-4, 0.0, 5e-6, 13.0, 280, 480),
    (7e-4, 1.8e-4, 0.0, 9e-6, 13.0, 150, 960),
)
LOW, HIGH = (2e-4, 2e-5, 2e-5, 2e-7, 3, 60, 120), (1e-3, 2e-3, 1e-3, 2e-5, 45, 500, 480)
"""The box; logarithms are drawn evenly, and one head in three does not move."""
SPREAD = 0.2
"""Deviation of a protocol's logarithms from those of the best."""
BINS = {"chosen": slice(0, None, 2), "judged": slice(1, None, 2)}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(Study):
    """How much is tried.

    Attributes:
        source: the reviews.
        drawn: protocols from the box.
        closer: protocols around the best so far.
        dim: d; starts and rates are those of 2,048, the latter scaled so that E·v, E·p
            and W·p move alike.
        most: reviews × steps of one try at most; steps are cut to it.
        accuracy: on the training split, that a protocol has to reach.
        checked: reviews that this is taken on.
    """

    source: Source = Source()
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
    if len(tried) < len(BY_HAND):
        chosen = np.array(BY_HAND[len(tried)])
    elif len(tried) < len(BY_HAND) + settings.drawn:
        chosen = np.exp(rng.uniform(np.log(LOW), np.log(HIGH)))
        chosen[2] *= rng.random() > 1 / 3
    else:
        best = min(tried, key=lambda one: one["criterion"])
        chosen = np.array([best[name] for name in NAMES])
        chosen *= np.exp(SPREAD * rng.standard_normal(len(NAMES)))
    found = dict(zip(NAMES, chosen.tolist(), strict=True))
    batch = round(found["batch"])
    steps = max(1, min(round(found["steps"]), settings.most // batch))
    return found | {"batch": batch, "steps": steps}


def trained(protocol: dict, network: Network, strata: Strata, seed: int) -> Variables:
    """The variables after training by a protocol."""
    begin = with_query(start(network, jax.random.key(seed)), protocol["length"])
    rows = begin["params"]["embeddings"] * (network.dim / WIDTH) ** 0.5
    # Adam moves every coordinate alike: fewer of them have to move further.
    along = (WIDTH / network.dim) ** 0.5
    rates = {name: along * protocol[name] for name in ("cls", "heads")}
    rule = adam(
        along * protocol["embeddings"], **rates, product=along**2 * protocol["matrices"]
    )
    return train(
        network,
        {"params": begin["params"] | {"embeddings": rows}},
        strata,
        rule,
        steps=protocol["steps"],
        batch=protocol["batch"],
        key=jax.random.key(seed + 1),
    )


def scored(means: dict[str, np.ndarray], bins: str) -> dict[str, float]:
    """Size and order of both columns in the bins that choose or judge."""
    found, criterion = {}, []
    for part, (_, theirs) in _tables.published(TABLE).items():
        ours, there = means[part][BINS[bins]], theirs[BINS[bins]]
        here = compare_bins(ours, there, part == "scores")
        found[f"{part} size, {bins}"] = here["ratio"]
        found[f"{part} rank, {bins}"] = here["rank_correlation"]
        criterion.append(abs(np.log(here["ratio"])) + 1 - here["rank_correlation"])
    return found | {f"criterion, {bins}": float(np.mean(criterion))}


def run(settings: Settings, results: dict) -> dict[str, np.ndarray]:
    """Try one protocol after the other."""
    data = take(settings.source, None, None, settings.seed)
    across = posteriors(data, 2)[0][:, 1]
    strata = stratify(data.train, data.labels)
    seen = stratify(*subsample(Counted(data.train, data.labels), settings.checked))
    network = Network(len(data.words), settings.dim, Design(2, "product"))
    tried: list[dict] = []
    arrays: dict[str, list] = {"scores": [], "values": []}
    with contextlib.suppress(BadInput):
        before = read(settings.out)
        tried += before.results["tried"]
        arrays = {name: list(before.arrays[name]) for name in arrays}
    results["tried"] = tried
    left = settings.drawn + len(BY_HAND) + settings.closer - len(tried)
    with progress_bar("tries", left) as advance:
        for _ in range(left):
            row = following(settings, tried)
            end = trained(row, network, strata, settings.seed)
            row["accuracy"] = float(evaluate(network, end, seen).accuracy)
            columns = zip(arrays, alignments(network, end), strict=True)
            means = {}
            for part, column in columns:
                column = np.asarray(column, float).ravel()
                table = _tables.published(TABLE)[part]
                found = _tables.compare(across, column, table, part == "scores")
                means[part] = found["ours"]
                row[f"{part} close"] = int(found["close"].sum())
            row |= scored(means, "chosen") | scored(means, "judged")
            missed = max(0.0, settings.accuracy - row["accuracy"])
            row["criterion"] = row["criterion, chosen"] + 10 * missed
            tried.append(row)
            for part in arrays:
                arrays[part].append(means[part])
            write(settings.out, settings=settings, results=results, arrays=arrays)
            say(", ".join(f"{name} {num(value)}" for name, value in row.items()))
            advance(1)
    return {name: np.array(rows) for name, rows in arrays.items()}


def show(found: Finished) -> Shown:
    """The five best protocols."""
    tried = sorted(found.results["tried"], key=lambda row: row["criterion"])
    names = [name for name in tried[0] if not name.endswith("chosen")]
    rows = [names] + [[num(row[name]) for name in names] for row in tried[:5]]
    return Shown([f"{len(tried)} protocols; the best of them:"], rows)


main = Experiment(run, show=show, title="The authors' training", precision="float32")


if __name__ == "__main__":
    command(main, PRESETS)
