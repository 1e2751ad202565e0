"""Figure of `experiments.theory.lists`: where runs end at the decision list."""

import numpy as np
from matplotlib import pyplot
from matplotlib.figure import Figure

from experiments.common.results import Finished
from experiments.figures._page import power


def draw(finished: Finished) -> Figure:
    """Share of runs at the list over (d, η₀), a row per kind of data.

    Runs that are not certified count as not at the list.
    """
    rows, found = finished.results["rows"], finished.arrays
    kinds, ways = (
        [*dict.fromkeys(row[key] for row in rows)] for key in ("data", "way")
    )
    across, upward = found["dims"], found["sizes"]
    figure, axes = pyplot.subplots(
        len(kinds),
        len(ways),
        figsize=(3.0 * len(ways) + 1, 2.0 * len(kinds)),
        squeeze=False,
    )
    for panel, (kind, way) in zip(
        axes.flat, ((kind, way) for kind in kinds for way in ways), strict=True
    ):
        key = f"{kind}, {way}"
        if f"same_list {key}" not in found:
            panel.set_axis_off()
            continue
        sound = found[f"sound {key}"].astype(bool)
        share = (found[f"same_list {key}"].astype(bool) & sound).mean(axis=2)
        labels = (found[f"same_labels {key}"].astype(bool) & sound).mean(axis=2)
        drawn = panel.imshow(
            share.T, origin="lower", vmin=0, vmax=1, cmap="cividis", aspect="auto"
        )
        for place, value in np.ndenumerate(labels):
            shade = "0.98" if share[place] < 0.5 else "0.1"
            panel.text(*place, f"{value:.2g}", ha="center", va="center", color=shade)
        panel.set_xticks(range(len(across)), [power(dim) for dim in across])
        panel.set_yticks(range(len(upward)), [f"{size:g}" for size in upward])
        panel.set_title(key, fontsize="small")
        panel.set(xlabel="d", ylabel="η₀")
    figure.colorbar(
        drawn,
        ax=axes,
        shrink=0.4,
        aspect=40,
        label="share at the list; number: share with its labels",
    )
    return figure
