"""Draw a finished `experiments.influence`: ranked influence, and what removal does.

python -m experiments.figures.influence results/influence
"""

import sys
from pathlib import Path

import numpy as np
from matplotlib import pyplot

from experiments.figures.reviews import command, save


def draw(folder: Path) -> Path:
    """Tokens and sequences by influence, beside a tenth and all of them taken away.

    Args:
        folder: of results.

    Returns:
        The figure's file.

    Raises:
        FileNotFoundError: no results in the folder.
    """
    found = np.load(folder / "influence.npz")
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
    return save(figure, folder / "influence.png")


if __name__ == "__main__":
    sys.exit(command(draw, sys.argv[1:], __doc__ or ""))
