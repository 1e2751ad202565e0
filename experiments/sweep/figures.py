"""Figures of a sweep: the step on E, the map of phases, growth, direction of p."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import xarray as xr
from matplotlib import colormaps
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from experiments.common.edges import borders, predicted
from experiments.common.palette import EDGES, STATUS
from experiments.common.runs import CERTIFIED, lemma_fit, with_status
from experiments.common.style import subplots


def draw_lemma(results: xr.Dataset) -> Figure | None:
    """Relative error of the step on E over d: median and 80 % range of the runs.

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
    figure, axes = subplots(figsize=(5.2, 4))
    axes.fill_between(dim, low_end, high_end, alpha=0.25, label="80 % of runs")
    axes.loglog(dim, middle, "o-", label=label)
    axes.loglog(dim, middle[-1] * (dim / dim[-1]) ** -0.5, "k--", label="$d^{-1/2}$")
    axes.set(
        xlabel="embedding dimension d",
        ylabel="‖E¹ − E⁰ − (η₀/2) α vᵀ‖ / ‖(η₀/2) α‖",
    )
    axes.legend(loc="lower left")
    return figure


MARKED = 0.5
"""Share of a cell above which its status has its mark there, for grey print."""
MARK: dict[str, Any] = {
    "ha": "center",
    "va": "center",
    "color": "white",
    "fontsize": 6,
}
PALE = 0.4
"""Opacity of an edge beyond the domain of the theory."""
EDGE: dict[str, Any] = {"color": "black", "linewidth": 1.0, "marker": ""}


def draw_phases(results: xr.Dataset) -> Figure | None:
    """Each cell is one d and one η₀, cut into the shares of how its runs end.

    The edges that theory predicts for the sweep's own sizes are drawn as thin lines,
    one for each of its shapes; where it predicts none, a line above the map says why.

    Returns:
        The figure; none for a sweep of a single d or η₀.
    """
    if min(results.sizes["dim"], results.sizes["step_size"]) < 2:
        return None
    shares = status_shares(results)
    across = borders(results.dim.values)
    upward = borders(results.step_size.values)
    figure, axes = subplots(figsize=(7.0, 6.2))
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
        axes.plot(edge.dims, edge.step_sizes, linestyle=line, alpha=PALE, **EDGE)
        axes.plot(edge.dims, edge.within, linestyle=line, **EDGE)
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
    title = "how runs end (mark: more than half of a cell), and what is predicted"
    figure.legend(handles=handles, loc="outside lower center", ncols=2, title=title)
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
        # More than half of a cell holds its middle.
        x, y = (
            float(np.sqrt(ends[place] * ends[place + 1]))
            for ends, place in zip((across, upward), cell, strict=True)
        )
        axes.text(x, y, look.mark, **MARK)


LAW = {"linestyle": "--", "linewidth": 0.8, "label": None}
"""How a prediction is drawn, in the shade of its run."""


def draw_growth(results: xr.Dataset) -> Figure | None:
    """‖p‖ of a few runs over log-time, beside its law ‖p_mm‖ log t.

    Returns:
        The figure; none for a sweep that saved no paths.
    """
    shown = list(examples(results))
    if not shown:
        return None
    figure, axes = subplots(figsize=(5.2, 4.8))
    for run, look in zip(shown, styles(len(shown)), strict=True):
        log_time, norm = run.path_log_times.values, run.path_norms.values
        kept = np.isfinite(log_time)
        axes.loglog(log_time[kept], norm[kept], label=described(run), **look)
        slope = run.max_margin_norm.item() * log_time[kept]
        axes.loglog(log_time[kept], slope, **look | LAW)
    axes.set(
        xlabel="log-time log(1 + t)",
        ylabel="norm ‖p‖",
        title=r"dashed: $\|p_\mathrm{mm}\|\,\log t$; " + place(shown),
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
    shades = colormaps["viridis"](np.linspace(0.0, 0.9, max(number, 2)))
    return [{"color": shade, "marker": ""} for shade in shades[:number]]


def place(shown: list[xr.Dataset]) -> str:
    """The d that all runs of a figure share."""
    return f"d = {shown[0].dim.item():,.0f}"


def described(run: xr.Dataset) -> str:
    """η₀ and status of one run."""
    names = {code: name for name, code in run.attrs["statuses"].items()}
    status = STATUS[names[run.status.item()]].words
    return f"η₀ = {run.step_size.item():,g}: {status}"


def draw_direction(results: xr.Dataset) -> Figure | None:
    """Direction error of a few runs over ‖p‖, beside its predicted constant over ‖p‖.

    Returns:
        The figure; none for a sweep that saved no paths.
    """
    shown = list(examples(results))
    if not shown:
        return None
    figure, axes = subplots(figsize=(5.2, 4.8))
    for run, look in zip(shown, styles(len(shown)), strict=True):
        norm, error = run.path_norms.values, run.path_errors.values
        kept = np.isfinite(norm) & (norm > 1)
        axes.loglog(norm[kept], error[kept], label=described(run), **look)
        limit = run.error_constant.item() / norm[kept]
        axes.loglog(norm[kept], limit, **look | LAW)
    axes.set(
        xlabel="norm ‖p‖",
        ylabel=r"$\|\,p/\|p\| - p_\mathrm{mm}/\|p_\mathrm{mm}\|\,\|$",
        title=f"dashed: predicted constant / ‖p‖; {place(shown)}",
        ylim=(None, 3),
    )
    figure.legend(loc="outside lower center")
    return figure


FIGURES = {
    "lemma": draw_lemma,
    "phases": draw_phases,
    "growth": draw_growth,
    "direction": draw_direction,
}
"""By the name of the file."""
