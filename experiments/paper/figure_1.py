"""Figure 1: two layers of attention on reviews, E, p and v trained together.

The numbers of the authors' figure were not published, its shape is what is compared. As
in the paper d = 2,048.

    python -m experiments.paper.figure_1 --dataset imdb_reviews
"""

import dataclasses

import numpy as np
from matplotlib.figure import Figure

from experiments.common.claims import Claim, Measured
from experiments.common.console import command
from experiments.common.results import Finished
from experiments.common.study import Experiment
from experiments.common.style import cloud, legend_above, subplots
from experiments.paper import _network
from experiments.paper._tables import follows


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(_network.Settings):
    """The network, its data and its training."""


PRESETS = _network.presets(
    Settings, "two_layer", "results/paper/figure_1", layers=2, dim=2048
)


def run(settings: Settings, results: dict) -> dict[str, np.ndarray]:
    """Train the network."""
    return _network.run(settings, results, None)


def draw(finished: Finished) -> Figure:
    """E·p and E·v of every word over its posterior difference, and their bin means."""
    arrays = finished.arrays
    figure, panels = subplots(1, 2, figsize=(7.2, 3.2))
    for panel, part, letter in zip(panels, ("scores", "values"), "pv", strict=True):
        cloud(panel, arrays["x values"], arrays[part], f"E·{letter}, two layers")
    legend_above(figure, panels[0])
    return figure


def values(found: Finished) -> Measured:
    """E·v over the posterior difference."""
    arrays = found.arrays
    return follows(arrays["x values"], arrays["scores"], arrays["values"], "values")


def scores(found: Finished) -> Measured:
    """E·p over the size of the posterior difference."""
    arrays = found.arrays
    return follows(arrays["x values"], arrays["scores"], arrays["values"], "scores")


CLAIMS = (
    Claim(
        "With two layers E·v rises with the posterior difference.", values, "Figure 1"
    ),
    Claim(
        "With two layers E·p rises with the size of the posterior difference.",
        scores,
        "Figure 1",
    ),
)

main = Experiment(
    run, draw=draw, claims=CLAIMS, title="Figure 1: two layers", precision="float32"
)


if __name__ == "__main__":
    command(main, PRESETS)
