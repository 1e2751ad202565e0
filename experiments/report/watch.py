"""Trajectories for the eye: scores and attention along the flow, for the page."""

from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from experiments.beyond.watch import lasts
from experiments.common.numbers import short, ticks
from experiments.common.runs import CERTIFIED
from experiments.common.tokens import same_tokens
from experiments.report.folders import ILL_FORMED, Found, best


class Watched(NamedTuple):
    """Data that the page needs to move tokens.

    Attributes:
        missing: why there is nothing to watch; empty where there is.
        dims: values of d, as text.
        step_sizes: of η₀, likewise.
        stories: cells worth a look: name, place and a sentence.
        data: for the page's program.
    """

    missing: str
    dims: list[str]
    step_sizes: list[str]
    stories: list[tuple[str, int, str]]
    data: dict[str, Any] | None


def watched(found: list[Found]) -> Watched:
    """Pack the best trajectories there are.

    Returns:
        Them, or why there are none.
    """
    results = best(found, "beyond.watch")
    if results is None:
        return Watched("not run here", [], [], [], None)
    try:
        return _packed(results, best(found, "sweep"))
    except ILL_FORMED as error:
        trouble = f"these results cannot be shown ({type(error).__name__})"
        return Watched(trouble, [], [], [], None)


def _packed(results: Found, sweep: Found | None) -> Watched:
    arrays, cells = results.arrays, results.results["cells"]
    dims, steps = np.unique(arrays["dims"]), np.unique(arrays["step_sizes"])
    packed = []
    for place, cell in enumerate(cells):
        status = _status(cell, results, sweep)
        times = arrays["log_times"][place]
        kept = np.isfinite(times)
        heights = arrays["scores"][place][kept] / times[kept, None]
        packed.append(
            {
                "dim": short(cell["dim"]),
                "step": short(cell["step_size"]),
                "status": status,
                "certified": status in CERTIFIED,
                "ended": cell["status"],
                "times": short(times[kept]),
                "norms": short(arrays["norms"][place][kept]),
                "heights": short(heights, 3),
                "values": short(arrays["values"][place]),
                "classes": arrays["classes"][place].tolist(),
                "tokens": arrays["shown_tokens"][place].tolist(),
                "counts": arrays["shown_counts"][place].tolist(),
                "labels": arrays["shown_labels"][place].tolist(),
                "weights": np.rint(1000 * arrays["weights"][place][kept])
                .astype(int)
                .tolist(),
                "positive": short(arrays["positive"][place][kept], 3),
                "negative": short(arrays["negative"][place][kept], 3),
            }
        )
    return Watched(
        "",
        ticks(dims),
        ticks(steps),
        _stories(cells, packed),
        {"dims": short(dims), "steps": short(steps), "cells": packed},
    )


def _status(cell: dict, results: Found, sweep: Found | None) -> str:
    """The verdict that a sweep over the same problem has on this very run."""
    if sweep is None or not isinstance(sweep.content, xr.Dataset):
        return ""
    grid, settings = sweep.content.attrs["grid"], results.settings
    same = same_tokens(grid, settings["problem"]) and grid["precision"] == "float64"
    if not same or grid["until_norm"] != settings["until_norm"]:
        return ""
    at = {"dim": cell["dim"], "step_size": cell["step_size"], "seed": settings["seed"]}
    if any(value not in sweep.content[name].values for name, value in at.items()):
        return ""
    code = int(sweep.content.status.sel(at).values.ravel()[0])
    names = {code: name for name, code in sweep.content.attrs["statuses"].items()}
    return names[code] if code >= 0 else ""


def _stories(cells: list[dict], packed: list[dict]) -> list[tuple[str, int, str]]:
    """One cell for each thing that attention can do."""
    kinds: dict[str, list[int]] = {}
    for place, cell in enumerate(cells):
        during = cell["capture"]
        lasting = during and lasts(cell)
        if cell["status"] == "TIES_UNPROVED":
            kind = "tied"
        elif lasting:
            kind = "captured"
        elif during:
            kind = "captured, and back"
        elif min(packed[place]["positive"][-1], packed[place]["negative"][-1]) > 0.99:
            kind = "selected"
        else:
            continue
        kinds.setdefault(kind, []).append(place)
    about = {
        "selected": "Every important token of both classes wins its sequences.",
        "captured": "p runs along ± v and serves one class; it stays so.",
        "captured, and back": "One class holds all attention for a while, then the "
        "other returns.",
        "tied": "Sequences of both classes keep tokens at finite odds; the flow is not "
        "followed further.",
    }
    # The largest d shows each most clearly, a middling η₀ at a middling pace.
    largest = {
        kind: [
            place for place in places if cells[place]["dim"] == _largest(cells, places)
        ]
        for kind, places in kinds.items()
    }
    return [
        (kind, largest[kind][len(largest[kind]) // 2], sentence)
        for kind, sentence in about.items()
        if kind in kinds
    ]


def _largest(cells: list[dict], places: list[int]) -> float:
    return max(cells[place]["dim"] for place in places)
