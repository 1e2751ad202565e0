"""Draw a finished `experiments.text_deviations`: deviation against its explanations.

python -m experiments.figures.text_deviations results/text-deviations
"""

import json
import sys
from pathlib import Path

import numpy as np
from matplotlib import pyplot

from experiments.figures.reviews import command, save

STATISTICS = ("company", "negation", "rarity")


def draw(folder: Path) -> Path:
    """One panel per statistic, one dot per word.

    Args:
        folder: of results.

    Returns:
        The figure's file.

    Raises:
        FileNotFoundError: no results in the folder.
    """
    described = json.loads((folder / "results.json").read_text())["results"]
    with np.load(folder / "words.npz") as kept:
        columns = {name: column[kept["compared"]] for name, column in kept.items()}
    figure, axes = pyplot.subplots(1, 3, figsize=(13, 4), layout="constrained")
    for panel, name in zip(axes, STATISTICS, strict=True):
        dots = panel.scatter(
            columns[name],
            columns["deviation"],
            c=columns["posterior_difference"],
            s=3,
            cmap="coolwarm",
        )
        correlation = described["explained"][name]["r"]
        panel.set(
            xlabel=name, ylabel="deviation of E·v", title=f"r = {correlation:.2f}"
        )
    figure.colorbar(dots, label="posterior difference")
    return save(figure, folder / "text_deviations.png")


if __name__ == "__main__":
    sys.exit(command(draw, sys.argv[1:], __doc__ or ""))
