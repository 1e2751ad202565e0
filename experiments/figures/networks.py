"""Figure of `experiments.networks`: each column over its x, theirs beside ours."""

import numpy as np
from matplotlib import pyplot
from matplotlib.figure import Figure

from experiments.common.results import Finished
from experiments.figures._page import cloud


def draw(finished: Finished) -> Figure:
    """One panel per column, and one per published table."""
    described = finished.results
    columns = finished.arrays
    names = [name.removeprefix("x ") for name in columns if name.startswith("x ")]
    tables = described["published"]
    panels = len(names) + len(tables)
    size = (4.5 * panels, 4)
    figure, axes = pyplot.subplots(1, panels, figsize=size, squeeze=False)
    for panel, name in zip(axes[0], names, strict=False):
        label = name.replace("scores", "E·W²p").replace("values", "E·v")
        label = label.replace("response", "E·g/‖g‖")
        cloud(panel, columns[f"x {name}"], columns[name], label)
        panel.set_xlabel("posterior difference")
    for panel, (name, table) in zip(axes[0, len(names) :], tables.items(), strict=True):
        ours, theirs = np.array(table["ours"]), np.array(table["theirs"])
        panel.plot(table["x"], ours / np.nanstd(ours), "o-", label="ours")
        panel.plot(table["x"], theirs / theirs.std(), "s--", label="published")
        title = f"{name}: rank correlation {table['rank_correlation']:.2f}"
        panel.set(title=title, xlabel="bin", ylabel="mean / its deviation")
        panel.locator_params(axis="x", nbins=5)
        panel.legend()
    return figure
