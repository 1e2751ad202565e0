"""Charts as data: axes and series that the page's program draws, with a summary."""

from typing import Any, NamedTuple

import numpy as np

from experiments.report.numbers import short

POINTS = 4000
"""Points of a series that travel with the page."""


class Chart(NamedTuple):
    """One chart.

    Attributes:
        name: of its place in the page.
        title: what it shows.
        caption: what to see in it, in a sentence; a screen reader says it too.
        data: axes and series, ready for JSON.
    """

    name: str
    title: str
    caption: str
    data: dict[str, Any]


def axis(title: str, log: bool = False, **more: Any) -> dict[str, Any]:
    """An axis: its symbol and unit, and whether it is logarithmic."""
    return {"title": title, "log": log, **more}


def series(
    name: str,
    x: Any,
    y: Any,
    *,
    kind: str = "line",
    colour: int = 0,
    spread: Any = None,
    text: Any = None,
    legend: bool = True,
) -> dict[str, Any]:
    """One series.

    Args:
        name: in the legend.
        x: across.
        y: upward.
        kind: `line`, `dash`, `dots`, `points` (a line with marks) or `bars`.
        colour: place in the palette's `SERIES`.
        spread: half of an error bar, at each point.
        text: at each point, for the pointer.
        legend: name it there.

    Returns:
        Plain data; a long series is thinned evenly.
    """
    x, y = np.asarray(x), np.asarray(y)
    step = max(1, -(-len(x) // POINTS))
    found = {
        "name": name,
        "x": short(x[::step]),
        "y": short(y[::step]),
        "kind": kind,
        "colour": colour,
        "legend": legend,
    }
    if spread is not None:
        found["spread"] = short(np.asarray(spread)[::step])
    if text is not None:
        found["text"] = [str(word)[:60] for word in text][::step]
    return found


def chart(
    name: str,
    title: str,
    caption: str,
    x: dict[str, Any],
    y: dict[str, Any],
    drawn: list[dict[str, Any]],
) -> Chart:
    """Put a chart together."""
    return Chart(name, title, caption, {"x": x, "y": y, "series": drawn})
