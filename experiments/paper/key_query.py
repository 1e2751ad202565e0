"""Two layers with key-query matrices W¹ and W² (reply to reviewer q6jg, Q2).

python -m experiments.paper.key_query --dataset imdb_reviews
"""

import dataclasses

import numpy as np
from matplotlib.figure import Figure

from experiments.common.claims import Claim, Measured
from experiments.common.console import command
from experiments.common.results import Finished
from experiments.common.study import Experiment
from experiments.paper import _network, _tables

TABLE = "two_layer_key_query"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(_network.Settings):
    """The network, its data and its training: those of `networks`."""


PRESETS = _network.presets(Settings, TABLE, "results/paper/key_query")


def run(settings: Settings, results: dict) -> dict[str, np.ndarray]:
    """Train the network."""
    return _network.run(settings, results)


def draw(finished: Finished) -> Figure:
    """Words, their bin means, and the published means in the same axes."""
    return _tables.draw(finished, TABLE)


def with_matrices(found: Finished) -> Measured:
    """Bin means against the published, in order and in size."""
    return _tables.measured(
        _tables.tables_of(found, TABLE), TABLE, found.results["vocabulary"]
    )


CLAIMS = (
    Claim(
        "Trained key-query matrices in both layers make no qualitative difference: "
        "E·W²p from −3.9 to 15.5, E·v from −1.1 to 0.9 in 20 bins.",
        with_matrices,
        "Reply to reviewer q6jg, Q2, two tables",
    ),
)

main = Experiment(
    run, draw=draw, claims=CLAIMS, title="Key-query matrices", precision="float32"
)


if __name__ == "__main__":
    command(main, PRESETS)
