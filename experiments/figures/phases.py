"""What wins over (d, η₀): every important token, one class, a balance, or neither."""

import numpy as np
import xarray as xr
from matplotlib import pyplot
from matplotlib.figure import Figure

from experiments.common.statistics import CERTIFIED, with_status


def draw(results: xr.Dataset) -> Figure | None:
    """Four maps over (d, η₀) of the share of all runs; what is selected is certified.

    Args:
        results: of `store.load`.

    Returns:
        The figure; none for a sweep of a single d or η₀.
    """
    if min(results.sizes["dim"], results.sizes["step_size"]) < 2:
        return None
    certified = with_status(results, *CERTIFIED)
    captured = with_status(results, "CAPTURED_POSITIVE", "CAPTURED_NEGATIVE")
    balanced = with_status(results, "BALANCED")
    there = results.status >= 0
    maps = {
        "every important token is selected": with_status(results, "SELECTED_ALL"),
        "captured: those of one class only": captured,
        "in balance between the classes": balanced,
        "anything else not certified": ~(certified | balanced),
    }
    figure, panels = pyplot.subplots(
        1, 4, figsize=(15, 3.7), sharey=True, layout="constrained"
    )
    step_size, dim = results.step_size.values, results.dim.values
    over = [name for name in results.status.dims if name not in ("dim", "step_size")]
    for axes, (title, hit) in zip(panels, maps.items(), strict=True):
        share = hit.where(there).mean(over).transpose("step_size", "dim").values
        image = axes.pcolormesh(
            _edges(dim), _edges(step_size), share, vmin=0, vmax=1, cmap="viridis"
        )
        axes.set(
            xscale="log", yscale="log", title=title, xlabel="embedding dimension d"
        )
    panels[0].set_ylabel("step size η₀ of the step on E")
    figure.colorbar(image, ax=panels, label="share of runs")
    return figure


def _edges(values: np.ndarray) -> np.ndarray:
    """Borders of cells centred, on a logarithmic axis, at the values."""
    logs = np.log(values)
    inner = (logs[1:] + logs[:-1]) / 2
    return np.exp([2 * logs[0] - inner[0], *inner, 2 * logs[-1] - inner[-1]])
