"""Predicted edges over a sweep's map: lines where theory says that phases change."""

import math
from typing import Any

import xarray as xr

from experiments.common.tokens import same_tokens
from experiments.report.folders import ILL_FORMED, Found
from experiments.report.numbers import short

NAMES = (
    "selection",
    "breaking_lower",
    "breaking_upper",
    "capture_lower",
    "capture_upper",
)


def edges_over(sweep: Found, found: list[Found]) -> list[dict[str, Any]]:
    """The edges predicted for the problem of a sweep.

    Returns:
        `name`, and `dims` and `steps` where the edge is; nothing without a study of the
        same problem.
    """
    assert isinstance(sweep.content, xr.Dataset)
    grid = sweep.content.attrs["grid"]
    for one in found:
        if one.study != "theory.edges":
            continue
        try:
            problem = one.settings["problem"]
            if same_tokens(grid, problem):
                return [_edge(name, one.results) for name in NAMES]
        except ILL_FORMED:
            continue
    return []


def _edge(name: str, results: dict[str, Any]) -> dict[str, Any]:
    """One edge, where there is one."""
    both = zip(results["dims"], results[name], strict=True)
    there = [(dim, step) for dim, step in both if 0 < step < math.inf]
    return {
        "name": name,
        "dims": short([dim for dim, _ in there]),
        "steps": short([step for _, step in there]),
    }
