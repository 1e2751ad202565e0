"""Figure of `experiments.text.assumption_violation`: how flows on reviews end."""

from typing import Any

import numpy as np
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from experiments.common.palette import SERIES
from experiments.common.results import Finished

COLOUR = {
    "SELECTED": SERIES[2],
    "TIED": SERIES[4],
    "AT_REST": SERIES[3],
    "UNPROVED": "#d9d9d9",
    "LOSS_UNBOUNDED": "#8a8a8a",
}
"""Labels of the ends of a flow on text."""
SENTENCE = {
    "SELECTED": "all decided, p goes on",
    "TIED": "some words tied, p goes on",
    "AT_REST": "p rests",
    "UNPROVED": "not certified",
    "LOSS_UNBOUNDED": "not certified: the loss has no bounds",
}


def draw(finished: Finished) -> Figure:
    """Two maps of certified ends, c and d against η₀; the tied words in each cell."""
    cells = [
        # Results of former versions have another name for one end.
        cell | {"status": cell["status"].replace("NOT_CERTIFIED", "UNPROVED")}
        for cell in finished.results["cells"]
    ]
    widest = max(cell["dim"] for cell in cells)
    over_c = [cell for cell in cells if cell["dim"] == widest]
    over_dim = [cell for cell in cells if cell["at_least"] == 0]
    figure, axes = pyplot.subplots(1, 2, figsize=(11, 4.6))
    _map(axes[0], over_c, "at_least", "kept: |posterior difference| ≥ c")
    _map(axes[1], over_dim, "dim", "dimension d")
    axes[0].set_title(f"d = {widest}; in each cell, words tied")
    axes[1].set_title("all words kept")
    found = [name for name in COLOUR if any(c["status"] == name for c in cells)]
    patches = [Patch(color=COLOUR[name], label=SENTENCE[name]) for name in found]
    figure.legend(handles=patches, loc="outside lower center", ncols=len(patches))
    return figure


def _map(axes: Axes, cells: list[dict], across: str, label: str) -> None:
    columns = sorted({cell[across] for cell in cells})
    rows = sorted({cell["step_size"] for cell in cells})
    names = list(COLOUR)
    code = np.full((len(rows), len(columns)), np.nan)
    for cell in cells:
        place = rows.index(cell["step_size"]), columns.index(cell[across])
        code[place] = names.index(cell["status"])
        row, column = place
        middle: dict[str, Any] = {"ha": "center", "va": "center", "color": "0.1"}
        axes.text(column, row, str(cell["tied_words"]), **middle)
    colours = ListedColormap(list(COLOUR.values()))
    axes.imshow(
        code,
        cmap=colours,
        vmin=-0.5,
        vmax=len(names) - 0.5,
        origin="lower",
        aspect="auto",
    )
    axes.set_xticks(range(len(columns)), [f"{value:g}" for value in columns])
    axes.set_yticks(range(len(rows)), [f"{value:g}" for value in rows])
    axes.set(xlabel=label, ylabel="step size η₀")
