"""Figure of `experiments.text.training`: the words of each model."""

import numpy as np
from matplotlib import pyplot
from matplotlib.figure import Figure

from experiments.common.results import Finished
from experiments.common.statistics import binned
from experiments.figures._page import cloud


def draw(finished: Finished) -> Figure:
    """E_sᵀv and E_sᵀp against the posterior difference, a row per model.

    Dashed, for data that figures were published for: their bin means, at our scale.
    """
    columns = finished.arrays
    models = [name.partition(" ")[2] for name in columns if name.startswith("scores")]
    figure, axes = pyplot.subplots(
        len(models), 2, figsize=(7.0, 2.6 * len(models)), squeeze=False
    )
    for row, model in enumerate(models):
        for column, (part, label) in enumerate((("values", "E·v"), ("scores", "E·p"))):
            across, upward = columns["posterior_difference"], columns[f"{part} {model}"]
            panel = axes[row, column]
            cloud(panel, across, upward, f"{label}, {model}")
            if f"published {part}" in columns:
                ours, theirs = binned(across, upward).mean, columns[f"published {part}"]
                scaled = (theirs - theirs.mean()) / theirs.std() * np.nanstd(ours)
                scaled += np.nanmean(ours)
                style = {"linestyle": "--", "color": "black", "marker": ""}
                style["label"] = "published, at our scale"
                panel.plot(columns["published x"], scaled, **style)
                panel.legend(loc="upper left")
    return figure
