"""The phase diagram of a sweep: counts of every cell, and its runs to look at."""

from collections import Counter
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from experiments.common.edges import Edge, predicted
from experiments.common.numbers import majors, num, rounded, ticks
from experiments.common.palette import STATUS
from experiments.report.folders import ResultFolder
from experiments.report.uncertified import Uncertified, uncertified
from jaxselect.sweep.store import MISSING

RUNS_SHOWN = 8
"""Runs of a cell whose curves travel with the page."""
CURVES = 400_000
"""Points of curves that travel with the page, in all."""


class Cell(NamedTuple):
    """One d and η₀.

    Attributes:
        row: of η₀, the largest first.
        column: of d.
        label: what a screen reader says of it.
        paint: CSS that shows the shares of its statuses.
    """

    row: int
    column: int
    label: str
    paint: str


class Diagram(NamedTuple):
    """A sweep as a table of cells.

    Attributes:
        name: of its folder.
        dims: as text, and whether there is room for it.
        step_sizes: likewise, the largest first.
        rows: of cells.
        legend: statuses there are, with their number of runs.
        runs: runs that are there.
        expected: runs of the grid.
        uncertified: statuses without a certificate, with causes and commands.
        note: what the predicted lines do not say, or why there is none.
        data: what the page's program needs, ready for JSON.
    """

    name: str
    dims: list[tuple[str, bool]]
    step_sizes: list[tuple[str, bool]]
    rows: list[list[Cell]]
    legend: list[tuple[str, int]]
    runs: int
    expected: int
    uncertified: list[Uncertified]
    note: str
    data: dict[str, Any]


def diagram(found: ResultFolder) -> Diagram:
    """Lay a sweep out over (d, η₀); other axes are pooled, as seeds are."""
    assert isinstance(found.content, xr.Dataset)
    results = found.content
    if not results.sizes.get("point", 1):
        # xarray cannot stack the axes of an empty array.
        results = results.drop_dims("point")
    names = {code: name for name, code in results.attrs["statuses"].items()}
    names[MISSING] = "MISSING"
    over = [name for name in results.status.dims if name not in ("dim", "step_size")]
    flat = results.stack(run=over).transpose("step_size", "dim", "run", ...)
    flat = flat.isel(step_size=slice(None, None, -1))
    codes = flat.status.values
    statuses = np.vectorize(names.__getitem__, otypes=[object])(codes)
    dims, steps = flat.dim.values, flat.step_size.values
    seeds = [int(seed) for seed in flat.seed.values]
    order = list(STATUS)
    rows: list[list[Cell]] = []
    cells = []
    for row, step in enumerate(steps):
        rows.append([])
        for column, dim in enumerate(dims):
            counts = Counter(statuses[row, column].tolist())
            counted = [(name, counts[name]) for name in order if counts[name]]
            label = f"d = {num(dim)}, η₀ = {num(step)}: " + ", ".join(
                f"{number} {STATUS[name].words}" for name, number in counted
            )
            rows[-1].append(Cell(row, column, label, _paint(counted)))
            cells.append([order.index(name) for name in statuses[row, column].tolist()])
    every = Counter(statuses.ravel().tolist())
    edges, note = predicted(results.attrs["grid"])
    return Diagram(
        name=str(found.folder),
        dims=list(zip(ticks(dims), majors(dims), strict=True)),
        step_sizes=list(zip(ticks(steps), majors(steps), strict=True)),
        rows=rows,
        legend=[(name, every[name]) for name in order if every[name]],
        runs=int((codes >= 0).sum()),
        expected=codes.size,
        uncertified=uncertified(results),
        note=note,
        data={
            "dims": rounded(dims),
            "steps": rounded(steps),
            "seeds": seeds,
            "until": results.attrs["grid"]["until_norm"],
            "cells": cells,
            "edges": [line for edge in edges for line in _lines(edge)],
            "curves": _curves(flat),
            "numbers": _numbers(flat),
        },
    )


def _lines(edge: Edge) -> list[dict[str, Any]]:
    """One predicted edge: all of it, pale, and the part in the theory's domain."""
    found = []
    for steps, pale in ((edge.step_sizes, True), (edge.within, False)):
        there = np.isfinite(steps)
        line = {"dims": rounded(edge.dims[there]), "steps": rounded(steps[there])}
        found.append({"name": edge.name, "pale": pale, **line})
    return found


def _paint(counted: list[tuple[str, int]]) -> str:
    """Stripes as wide as the shares, as a CSS image."""
    total = sum(number for _, number in counted)
    stops, reached = [], 0.0
    for name, number in counted:
        end = reached + 100 * number / total
        colour = STATUS[name].colour if name != "MISSING" else "transparent"
        stops.append(f"{colour} {reached:.4g}% {end:.4g}%")
        reached = end
    return f"linear-gradient(to right, {', '.join(stops)})"


def _shown(flat: xr.Dataset) -> int:
    """Number of runs of a cell whose curves travel with the page."""
    points = flat.sizes.get("point", 0)
    if not points or "path_norms" not in flat:
        return 0
    cells = flat.sizes["step_size"] * flat.sizes["dim"]
    affordable = max(1, CURVES // (2 * cells * points))
    return min(RUNS_SHOWN, flat.sizes["run"], affordable)


def _curves(flat: xr.Dataset) -> list[list]:
    """For every cell log t, ‖p‖ and direction error along its first runs."""
    names = ("path_log_times", "path_norms", "path_errors")
    shown = _shown(flat)
    if not shown:
        return []
    table = np.stack([flat[name].values[:, :, :shown] for name in names], axis=-2)
    return [
        [rounded(run[:, np.isfinite(run[:2]).all(axis=0)], 3) for run in cell]
        for cell in table.reshape(-1, *table.shape[2:])
    ]


def _numbers(flat: xr.Dataset) -> list:
    """For the same runs ‖p_mm‖ and the predicted constant of the direction error."""
    names = ("max_margin_norm", "error_constant")
    shown = _shown(flat)
    if not shown:
        return []
    table = np.stack([flat[name].values[:, :, :shown] for name in names], axis=-1)
    return rounded(table.reshape(-1, *table.shape[2:]))
