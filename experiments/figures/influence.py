"""Draw a finished `experiments.influence`: ranked influence, and what removal does.

python -m experiments.figures.influence results/influence
"""

import numpy as np
from matplotlib import pyplot
from matplotlib.figure import Figure

from experiments.common.results import Finished
from experiments.figures._page import command


def draw(finished: Finished) -> Figure:
    """Tokens and sequences by influence, beside a tenth and all of them taken away.

    Args:
        finished: what the study left.

    Returns:
        The figure.
    """
    found = finished.arrays
    figure, axes = pyplot.subplots(1, 2, figsize=(11, 4), layout="constrained")
    for panel, kind in zip(axes, ("token", "sequence"), strict=True):
        order = np.argsort(-found[f"{kind}_turn"])
        rank = np.arange(len(order))
        panel.bar(rank, found[f"{kind}_turn"][order], color="0.8", label="derivative")
        for part, mark in ((0.1, "o"), (1.0, "x")):
            turn = found[f"{kind}_removed_{part:g}"][order] / part
            panel.plot(rank, turn, mark, label=f"{part:.0%} removed")
        foreseen = found[f"{kind}_predicted_1"][order]
        panel.plot(rank, foreseen, "k+", label="100% predicted, constraints lifted")
        panel.set_xticks(rank, order.tolist(), fontsize=5, rotation=90)
        panel.set(
            xlabel=kind, ylabel="turn of p_mm/‖p_mm‖ per share removed", yscale="log"
        )
        panel.legend()
    return figure


if __name__ == "__main__":
    command(draw, "influence", __doc__ or "")
