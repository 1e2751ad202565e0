"""The phase diagram over (d, η₀): all important tokens, one class, ties, or neither."""

from typing import Any

import numpy as np
import xarray as xr
from matplotlib import pyplot
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from experiments.common.edges import borders, predicted
from experiments.common.palette import EDGES, STATUS
from experiments.common.runs import with_status

MARKED = 0.5
"""Share of a cell from which its status has its mark there, for grey print."""
MARK: dict[str, Any] = {
    "ha": "center",
    "va": "center",
    "color": "white",
    "fontsize": 6,
}
EDGE: dict[str, Any] = {"color": "black", "linewidth": 1.0, "marker": ""}


def draw(results: xr.Dataset) -> Figure | None:
    """One map over (d, η₀): each cell is cut by the shares of its runs' statuses.

    The edges that theory predicts for the sweep's own sizes are drawn as thin lines,
    one for each of its shapes; where it predicts none, a line above the map says why.

    Args:
        results: of `store.load`.

    Returns:
        The figure; none for a sweep of a single d or η₀.
    """
    if min(results.sizes["dim"], results.sizes["step_size"]) < 2:
        return None
    shares = status_shares(results)
    across = borders(results.dim.values)
    upward = borders(results.step_size.values)
    figure, axes = pyplot.subplots(figsize=(7.0, 4.2))
    for name, share in shares.items():
        if share.any():
            _strips(axes, across, upward, shares, name)
    border: dict[str, Any] = {"color": "white", "linewidth": 0.6}
    axes.vlines(across, *upward[[0, -1]], **border)
    axes.hlines(upward, *across[[0, -1]], **border)
    axes.set(
        # Predictions reach beyond what was run: the map's own range is shown.
        xscale="log",
        yscale="log",
        xlim=across[[0, -1]],
        ylim=upward[[0, -1]],
        xlabel="embedding dimension d",
        ylabel="step size η₀ of the step on E",
    )
    edges, note = predicted(results.attrs["grid"])
    for edge in edges:
        line, _ = EDGES[edge.name.partition("_")[0]]
        axes.plot(edge.dims, edge.step_sizes, linestyle=line, **EDGE)
    axes.set_title(note, fontsize="x-small", loc="left")
    handles: list[Artist] = [
        Patch(color=look.colour, label=f"{look.mark}  {look.words}")
        for name, look in STATUS.items()
        if name in shares and shares[name].any()
    ]
    handles += [
        Line2D([], [], linestyle=line, label=f"predicted: {words}", **EDGE)
        for name, (line, words) in EDGES.items()
        if any(
            edge.name.startswith(name) and np.isfinite(edge.step_sizes).any()
            for edge in edges
        )
    ]
    figure.legend(handles=handles, loc="outside right upper")
    return figure


def status_shares(results: xr.Dataset) -> dict[str, np.ndarray]:
    """Share of all runs of a cell (d, η₀) that ended in each status.

    Returns:
        By status, in the palette's order; they sum to one in every cell.
    """
    over = [name for name in results.status.dims if name not in ("dim", "step_size")]
    found = {}
    for name in STATUS:
        hit = results.status < 0 if name == "MISSING" else with_status(results, name)
        found[name] = hit.mean(over).transpose("dim", "step_size").values
    return found


def _strips(
    axes: Axes,
    across: np.ndarray,
    upward: np.ndarray,
    shares: dict[str, np.ndarray],
    name: str,
) -> None:
    """The upright strip of a status in every cell, and its mark where it prevails."""
    names = list(shares)
    before = sum((shares[other] for other in names[: names.index(name)]), start=0.0)
    before = np.broadcast_to(before, shares[name].shape)
    logs = np.log(across)
    width = np.diff(logs)[:, None]
    left = np.exp(logs[:-1, None] + width * before)
    right = np.exp(logs[:-1, None] + width * (before + shares[name]))
    strips = [
        Rectangle(
            (float(left[cell]), float(upward[cell[1]])),
            float(right[cell] - left[cell]),
            float(upward[cell[1] + 1] - upward[cell[1]]),
        )
        for cell in np.ndindex(*left.shape)
        if shares[name][cell] > 0
    ]
    look = STATUS[name]
    hatch: dict[str, Any] = {"hatch": "////"} if name == "MISSING" else {}
    axes.add_collection(
        PatchCollection(strips, facecolor=look.colour, linewidth=0, **hatch)
    )
    for cell in np.argwhere(shares[name] > MARKED):
        middle = np.sqrt(left[tuple(cell)] * right[tuple(cell)])
        height = np.sqrt(upward[cell[1]] * upward[cell[1] + 1])
        axes.text(middle, height, look.mark, **MARK)
