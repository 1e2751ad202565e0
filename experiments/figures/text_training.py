"""Draw a finished `experiments.text_training`: the words of each model.

python -m experiments.figures.text_training results/text-training
"""

import sys
from pathlib import Path

import numpy as np
from matplotlib import pyplot

from experiments.figures.reviews import cloud, command, save


def draw(folder: Path) -> Path:
    """E_sᵀv and E_sᵀp against the posterior difference, a column per model.

    Args:
        folder: of results.

    Returns:
        The figure's file.

    Raises:
        FileNotFoundError: no results in the folder.
    """
    with np.load(folder / "words.npz") as kept:
        columns = dict(kept)
    models = [name.partition(" ")[2] for name in columns if name.startswith("scores")]
    size = (4.5 * len(models), 7)
    figure, axes = pyplot.subplots(2, len(models), figsize=size, layout="constrained")
    for place, model in enumerate(models):
        for row, (part, label) in enumerate((("values", "E·v"), ("scores", "E·p"))):
            across, upward = columns["posterior_difference"], columns[f"{part} {model}"]
            cloud(axes[row, place], across, upward, f"{label}, {model}")
    return save(figure, folder / "text_training.png")


if __name__ == "__main__":
    sys.exit(command(draw, sys.argv[1:], __doc__ or ""))
