"""‖p_t‖ grows as ‖p_mm‖ log t, with p_mm the max-margin solution of its selection."""

from collections.abc import Iterator

import numpy as np
import xarray as xr
from matplotlib import pyplot
from matplotlib.figure import Figure

from experiments.common.statistics import CERTIFIED, with_status


def draw(results: xr.Dataset) -> Figure | None:
    """Norm against log-time for a few runs, each with its predicted slope.

    Args:
        results: of `store.load`.

    Returns:
        The figure; none for a sweep that saved no paths.
    """
    shown = list(examples(results))
    if not shown:
        return None
    figure, axes = pyplot.subplots(figsize=(5.2, 4))
    for run in shown:
        log_time, norm = run.path_log_times.values, run.path_norms.values
        kept = np.isfinite(log_time)
        name = f"η₀ = {run.step_size.item():g}, {_outcome(run)}"
        (line,) = axes.loglog(log_time[kept], norm[kept], label=name)
        slope = run.max_margin_norm.item() * log_time[kept]
        colour = line.get_color()
        axes.loglog(log_time[kept], slope, "--", color=colour, linewidth=0.8, marker="")
    axes.set(
        xlabel="log-time log(1 + t)",
        ylabel="norm ‖p‖",
        title=r"Growth of p; dashed: $\|p_\mathrm{mm}\|\,\log t$",
        ylim=(0.1, None),
    )
    axes.legend()
    return figure


def examples(results: xr.Dataset, number: int = 5) -> Iterator[xr.Dataset]:
    """Certified runs with paths, one for each of a few step sizes.

    Args:
        results: of `store.load`.
        number: of runs at most.

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


def _outcome(run: xr.Dataset) -> str:
    names = {code: name for name, code in run.attrs["statuses"].items()}
    return names[run.status.item()].lower().replace("_", " ")
