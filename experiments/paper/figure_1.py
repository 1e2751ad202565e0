"""Figure 1: two layers of attention on reviews.

The numbers of the figure were not published. Beside ours stands the table of the same
network with key-query matrices, which "has the same behaviour as in Figure 1".

    python -m experiments.paper.figure_1 --dataset imdb_reviews
"""

import dataclasses

import numpy as np
from matplotlib.figure import Figure

from experiments.common.claims import Claim, Measured
from experiments.common.console import command
from experiments.common.results import Finished
from experiments.common.study import Experiment
from experiments.paper import _network, _tables

TABLE = "two_layer"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(_network.Settings):
    """The network, its data and its training: those of `networks`."""


PRESETS = _network.presets(Settings, TABLE, "results/paper/figure_1")


def run(settings: Settings, results: dict) -> dict[str, np.ndarray]:
    """Train the network."""
    return _network.run(settings, results)


def draw(finished: Finished) -> Figure:
    """Words, their bin means, and the published means in the same axes."""
    return _tables.draw(finished, TABLE)


def two_layers(found: Finished) -> Measured:
    """Bin means against the published, in order and in size."""
    return _tables.measured(
        _tables.tables_of(found, TABLE), TABLE, found.results["vocabulary"]
    )


CLAIMS = (
    Claim(
        "Two layers, E, p and v trained together: E·v rises with the posterior "
        "difference, E·p with its size.",
        two_layers,
        "Figure 1, IMDB; table of the reply to reviewer q6jg, Q2",
    ),
)

main = Experiment(
    run, draw=draw, claims=CLAIMS, title="Figure 1: two layers", precision="float32"
)


if __name__ == "__main__":
    command(main, PRESETS)
