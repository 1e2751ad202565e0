"""Figure of `experiments.theory.discrete`: distance to the flow against step size."""

import numpy as np
from matplotlib import pyplot
from matplotlib.figure import Figure

from experiments.common.results import Finished


def draw(finished: Finished) -> Figure:
    """Deviation of both rules, step sizes in units of the predicted stable limit."""
    found = finished.arrays
    figure, axes = pyplot.subplots(1, 2, figsize=(9, 3.8))
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
    return figure
