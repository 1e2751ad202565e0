"""Draw a finished `experiments.discrete`: distance to the flow against step size.

python -m experiments.figures.discrete results/discrete
"""

import sys
from pathlib import Path

import numpy as np
from matplotlib import pyplot

from experiments.figures.reviews import command, save


def draw(folder: Path) -> Path:
    """Deviation of both rules, step sizes in units of the predicted stable limit.

    Args:
        folder: of results.

    Returns:
        The figure's file.

    Raises:
        FileNotFoundError: no results in the folder.
    """
    found = np.load(folder / "deviations.npz")
    figure, axes = pyplot.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
    titles = ("gradient descent", "normalised gradient descent")
    for panel, off, limits, title in zip(
        axes, found["deviations"], found["limits"], titles, strict=True
    ):
        panel.loglog(found["shares"], off.T, "o-", color="C0", alpha=0.5)
        panel.axvline(1, color="k", linestyle="--", label="stable up to here")
        panel.set(
            xlabel="h / predicted limit",
            ylabel="largest distance to the flow / ‖p‖",
            title=f"{title}, limit h ≈ {np.median(limits):.3g}",
        )
        panel.legend()
    return save(figure, folder / "discrete.png")


if __name__ == "__main__":
    sys.exit(command(draw, sys.argv[1:], __doc__ or ""))
