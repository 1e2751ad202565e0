"""Figure 1: two layers of attention on reviews.

The numbers of the figure were not published. Beside ours stands the table of the same
network with key-query matrices, which "has the same behaviour as in Figure 1".

    python -m experiments.paper.figure_1 --dataset imdb_reviews
"""

import dataclasses

import numpy as np
from matplotlib.figure import Figure

from experiments.common.claims import Claim, Measured, Verdict, of_cases
from experiments.common.console import command
from experiments.common.numbers import num
from experiments.common.results import Finished
from experiments.common.study import Experiment
from experiments.paper import _network, _tables
from experiments.paper._tables import tendency

TABLE = "two_layer"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(_network.Settings):
    """The network, its data and its training."""


PRESETS = _network.presets(Settings, TABLE, "results/paper/figure_1", layers=2)


def run(settings: Settings, results: dict) -> dict[str, np.ndarray]:
    """Train the network."""
    return _network.run(settings, results, TABLE)


def draw(finished: Finished) -> Figure:
    """Words, their bin means, and the published means in the same axes."""
    return _tables.draw(finished, TABLE)


def two_layers(found: Finished) -> Measured:
    """Both columns follow the posterior difference; sizes beside the table."""
    arrays, results = found.arrays, found.results
    ranks = tendency(arrays["x values"], arrays["scores"], arrays["values"])
    said = (
        "over bins, rank correlation of E·v with the posterior difference "
        f"{num(ranks['values'])}, of E·p with its size {num(ranks['scores'])}"
    )
    tables = _tables.tables_of(found, TABLE)
    if tables:
        beside = _tables.measured(tables, TABLE, results["vocabulary"])
        if beside.verdict is Verdict.OPEN:
            return beside
        said += f"; beside the table with matrices, {beside.value}"
    return Measured(
        of_cases(sum(rank >= _tables.RANK for rank in ranks.values()), len(ranks)),
        said,
        f"{results['vocabulary']:,} words",
        "–",
        f"{_tables.RANK:g} or more in both; the figure's numbers are not published",
    )


CLAIMS = (
    Claim(
        "Two layers, E, p and v trained together: E·v rises with the posterior "
        "difference, E·p with its size.",
        two_layers,
        "Figure 1",
    ),
)

main = Experiment(
    run, draw=draw, claims=CLAIMS, title="Figure 1: two layers", precision="float32"
)


if __name__ == "__main__":
    command(main, PRESETS)
