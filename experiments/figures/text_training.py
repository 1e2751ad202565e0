"""Figure of `experiments.text.training`: the words of each model."""

from matplotlib import pyplot
from matplotlib.figure import Figure

from experiments.common.results import Finished
from experiments.figures._page import cloud


def draw(finished: Finished) -> Figure:
    """E_sᵀv and E_sᵀp against the posterior difference, a row per model."""
    columns = finished.arrays
    models = [name.partition(" ")[2] for name in columns if name.startswith("scores")]
    figure, axes = pyplot.subplots(
        len(models), 2, figsize=(7.0, 2.6 * len(models)), squeeze=False
    )
    for row, model in enumerate(models):
        for column, (part, label) in enumerate((("values", "E·v"), ("scores", "E·p"))):
            across, upward = columns["posterior_difference"], columns[f"{part} {model}"]
            cloud(axes[row, column], across, upward, f"{label}, {model}")
    return figure
