"""Figure of `experiments.theory.step_size`: derivatives over the phase diagram."""

import numpy as np
from matplotlib import pyplot
from matplotlib.figure import Figure

from experiments.common.results import Finished


def draw(finished: Finished) -> Figure:
    """Derivative of both times in log η₀ over d and η₀, and the optima found."""
    found = finished.arrays
    optima = finished.results["optima"]
    dims, steps = found["dims"], found["step_sizes"]
    figure, axes = pyplot.subplots(1, 3, figsize=(13, 3.8))
    for panel, name, title in (
        (axes[0], "selection_log_time", "∂ log time to selection / ∂ log η₀"),
        (axes[1], "log_time_to_error", "∂ log(log t to error 10⁻⁴) / ∂ log η₀"),
    ):
        slope = found[f"{name}_slope"]
        if name == "log_time_to_error":
            slope = slope / np.abs(found[name])
        kept = found["predicted"] & np.isfinite(slope)
        number = kept.sum(axis=2)
        shown = np.where(kept, slope, 0).sum(axis=2) / np.maximum(number, 1)
        shown = np.where(number > 0, shown, np.nan)
        size = np.nanquantile(np.abs(shown), 0.9) if number.any() else 1.0
        mesh = panel.pcolormesh(
            steps, dims, shown, cmap="RdBu", vmin=-size, vmax=size, shading="nearest"
        )
        figure.colorbar(mesh, ax=panel)
        panel.set(xscale="log", yscale="log", xlabel="η₀", ylabel="d", title=title)
    best = [cell["step_size_descent"] for cell in optima]
    across = [cell["dim"] for cell in optima]
    axes[0].plot(best, across, "*", color="0.1", label="optimum")
    axes[0].legend()
    for search, mark in (("grid", "o"), ("descent", "*")):
        axes[2].semilogx(
            across, [cell[f"log_time_{search}"] for cell in optima], mark, label=search
        )
    axes[2].set(xlabel="d", ylabel="log time to selection at the best η₀")
    axes[2].legend()
    return figure
