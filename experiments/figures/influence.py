"""Figure of `experiments.theory.influence`: ranked influence, and what removal does."""

import numpy as np
from matplotlib import pyplot
from matplotlib.figure import Figure

from experiments.common.results import Finished


def draw(finished: Finished) -> Figure:
    """Tokens and sequences by influence, beside a tenth and all of them taken away."""
    found = finished.arrays
    figure, axes = pyplot.subplots(1, 2, figsize=(11, 4))
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
