"""Figure of `experiments.text.deviations`: deviation against its explanations."""

from matplotlib import pyplot
from matplotlib.figure import Figure

from experiments.common.results import Finished


def draw(finished: Finished) -> Figure:
    """One panel per statistic, one dot per word."""
    described = finished.results
    kept = finished.arrays
    columns = {name: column[kept["compared"]] for name, column in kept.items()}
    figure, axes = pyplot.subplots(1, 3, figsize=(7.0, 2.6), sharey=True)
    names = [name for name in described["explained"] if name not in ("all", "chance")]
    for panel, name in zip(axes, names, strict=True):
        dots = panel.scatter(
            columns[name],
            columns["deviation"],
            c=columns["posterior_difference"],
            s=3,
            cmap="coolwarm",
            rasterized=True,
        )
        correlation = described["explained"][name]["r"]
        panel.set(xlabel=name, title=f"r = {correlation:.2f}")
    axes[0].set_ylabel("deviation of E·v")
    figure.colorbar(dots, label="posterior difference")
    return figure
