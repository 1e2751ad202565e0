"""An MLP behind the attention (reply to reviewer E1M4, Q4).

Which sign E·v has before an MLP is random where its matrix is, so `turned`, E·v times
the sign of gᵀv, g the mean response of the output, stands beside the table, too.

    python -m experiments.paper.mlp --dataset imdb_reviews
"""

import dataclasses

import numpy as np
from matplotlib.figure import Figure

from experiments.common.claims import Claim, Measured
from experiments.common.console import command
from experiments.common.results import Finished
from experiments.common.study import Experiment
from experiments.paper import _network, _tables

TABLE = "mlp"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(_network.Settings):
    """The network, its data and its training: those of `networks`."""


PRESETS = _network.presets(Settings, TABLE, "results/paper/mlp")


def run(settings: Settings, results: dict) -> dict[str, np.ndarray]:
    """Train the network."""
    return _network.run(settings, results)


def draw(finished: Finished) -> Figure:
    """Words, their bin means, and the published means in the same axes."""
    return _tables.draw(finished, TABLE)


def with_mlp(found: Finished) -> Measured:
    """Bin means against the published, in order and in size."""
    return _tables.measured(
        _tables.tables_of(found, TABLE), TABLE, found.results["vocabulary"]
    )


CLAIMS = (
    Claim(
        "With an MLP behind the attention E·p still rises with the size of α_s, from "
        "0.6 to 6.1; that E·v rises is less evident, 0 to 1.4.",
        with_mlp,
        "Reply to reviewer E1M4, Q4, two tables",
    ),
)

main = Experiment(run, draw=draw, claims=CLAIMS, title="An MLP", precision="float32")


if __name__ == "__main__":
    command(main, PRESETS)
