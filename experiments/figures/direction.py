"""The direction of p reaches that of p_mm like a constant over ‖p‖, and which."""

import numpy as np
import xarray as xr
from matplotlib import pyplot
from matplotlib.figure import Figure

from experiments.figures.growth import PREDICTED, described, examples, place, styles


def draw(results: xr.Dataset) -> Figure | None:
    """Direction error against norm for a few runs, each with its predicted limit.

    Returns:
        The figure; none for a sweep that saved no paths.
    """
    shown = list(examples(results))
    if not shown:
        return None
    figure, axes = pyplot.subplots(figsize=(5.2, 4.8))
    for run, look in zip(shown, styles(len(shown)), strict=True):
        norm, error = run.path_norms.values, run.path_errors.values
        kept = np.isfinite(norm) & (norm > 1)
        axes.loglog(norm[kept], error[kept], label=described(run), **look)
        limit = run.error_constant.item() / norm[kept]
        axes.loglog(norm[kept], limit, **look | PREDICTED)
    axes.set(
        xlabel="norm ‖p‖",
        ylabel=r"$\|\,p/\|p\| - p_\mathrm{mm}/\|p_\mathrm{mm}\|\,\|$",
        title=f"Direction; dashed: predicted constant / ‖p‖, {place(shown)}",
        ylim=(None, 3),
    )
    figure.legend(loc="outside lower center")
    return figure
