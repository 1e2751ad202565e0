"""The direction of p reaches that of p_mm like a constant over ‖p‖, and which."""

import numpy as np
import xarray as xr
from matplotlib import pyplot
from matplotlib.figure import Figure

from experiments.figures.growth import examples


def draw(results: xr.Dataset) -> Figure | None:
    """Direction error against norm for a few runs, each with its predicted limit.

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
        norm, error = run.path_norms.values, run.path_errors.values
        kept = np.isfinite(norm) & (norm > 1)
        name = f"η₀ = {run.step_size.item():g}"
        (line,) = axes.loglog(norm[kept], error[kept], label=name)
        limit = run.error_constant.item() / norm[kept]
        colour = line.get_color()
        axes.loglog(norm[kept], limit, "--", color=colour, linewidth=0.8, marker="")
    axes.set(
        xlabel="norm ‖p‖",
        ylabel=r"$\|\,p/\|p\| - p_\mathrm{mm}/\|p_\mathrm{mm}\|\,\|$",
        title="Direction; dashed: predicted constant / ‖p‖",
        ylim=(None, 3),
    )
    axes.legend()
    return figure
