"""‖p_t‖ grows as ‖p_mm‖ log t, with p_mm the max-margin solution of its selection."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import xarray as xr
from matplotlib import pyplot
from matplotlib.figure import Figure

from experiments.common.palette import STATUS
from experiments.common.runs import CERTIFIED, with_status

PREDICTED = {"linestyle": "--", "linewidth": 0.8, "label": None}
"""How a prediction is drawn, in the shade of its run."""


def draw(results: xr.Dataset) -> Figure | None:
    """Norm against log-time for a few runs, each with its predicted slope.

    Returns:
        The figure; none for a sweep that saved no paths.
    """
    shown = list(examples(results))
    if not shown:
        return None
    figure, axes = pyplot.subplots(figsize=(5.2, 4.8))
    for run, look in zip(shown, styles(len(shown)), strict=True):
        log_time, norm = run.path_log_times.values, run.path_norms.values
        kept = np.isfinite(log_time)
        axes.loglog(log_time[kept], norm[kept], label=described(run), **look)
        slope = run.max_margin_norm.item() * log_time[kept]
        axes.loglog(log_time[kept], slope, **look | PREDICTED)
    axes.set(
        xlabel="log-time log(1 + t)",
        ylabel="norm ‖p‖",
        title=r"Growth of p; dashed: $\|p_\mathrm{mm}\|\,\log t$, " + place(shown),
        ylim=(0.1, None),
    )
    figure.legend(loc="outside lower center")
    return figure


def examples(results: xr.Dataset, number: int = 5) -> Iterator[xr.Dataset]:
    """Certified runs with paths, one for each of a few step sizes.

    Yields:
        Runs, as data sets of scalars and paths.
    """
    if not results.sizes.get("point", 0):
        return
    certified = with_status(results, *CERTIFIED)
    # A middling d shows all phases; in very large ones randomness has died out.
    dim = results.dim.values[results.sizes["dim"] // 2]
    picks = np.linspace(0, results.sizes["step_size"] - 1, number).round()
    for pick in np.unique(picks.astype(int)):
        at = {"dim": dim, "step_size": results.step_size.values[pick]}
        cell, fine = results.sel(at), certified.sel(at)
        if fine.any():
            place = np.unravel_index(np.argmax(fine.values), fine.shape)
            yield cell.isel(dict(zip(fine.dims, place, strict=True)))


def styles(number: int) -> list[dict[str, Any]]:
    """A shade for each η₀, the smallest the darkest: no colour of a status."""
    shades = pyplot.get_cmap("viridis")(np.linspace(0.0, 0.9, max(number, 2)))
    return [{"color": shade, "marker": ""} for shade in shades[:number]]


def place(shown: list[xr.Dataset]) -> str:
    """The d that all runs of a figure share."""
    return f"d = {shown[0].dim.item():,.0f}"


def described(run: xr.Dataset) -> str:
    """η₀, seed and status of one run."""
    names = {code: name for name, code in run.attrs["statuses"].items()}
    status = STATUS[names[run.status.item()]].words
    return f"η₀ = {run.step_size.item():,g}, seed {run.seed.item()}: {status}"
