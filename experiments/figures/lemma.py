"""Lemma 4.1: the error of one step on E falls as d^{−1/2}."""

import numpy as np
import xarray as xr
from matplotlib import pyplot
from matplotlib.figure import Figure

from experiments.common.runs import lemma_fit


def draw(results: xr.Dataset) -> Figure | None:
    """Relative error against d: median and 80 % range over runs, and the fitted law.

    Returns:
        The figure; none for a sweep of fewer than three d.
    """
    dim = results.dim.values
    if len(dim) < 3:
        return None
    # The error does not depend on η₀: the first one holds it all.
    runs = results.alignment_error.isel(step_size=0).transpose("dim", ...).values
    error = runs.reshape(len(dim), -1)
    fit = lemma_fit(results)
    low_end, middle, high_end = np.nanquantile(error, [0.1, 0.5, 0.9], axis=1)
    label = "median" if fit is None else f"median; exponent {fit}"
    figure, axes = pyplot.subplots(figsize=(5.2, 4))
    axes.fill_between(dim, low_end, high_end, alpha=0.25, label="80 % of runs")
    axes.loglog(dim, middle, "o-", label=label)
    axes.loglog(dim, middle[-1] * (dim / dim[-1]) ** -0.5, "k--", label="$d^{-1/2}$")
    axes.set(
        xlabel="embedding dimension d",
        ylabel="‖E¹ − E⁰ − (η₀/2) α vᵀ‖ / ‖(η₀/2) α‖",
        title="One step on the embeddings",
    )
    axes.legend()
    return figure
