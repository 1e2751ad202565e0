"""The style of all figures: panels, files, the element of a page.

Figures are made without pyplot: nothing is registered, and no setting of Matplotlib
changes but within `in_style`.
"""

import html
import io
import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.common.statistics import binned
from jaxselect.files import replacing

STYLE = Path(__file__).with_name("paper.mplstyle")
FORMATS = ("png", "pdf", "svg")
INCH, DPI = 96, 120
"""Pixels of a page to the inch, and of what is a picture in a figure of it."""


def in_style() -> AbstractContextManager[None]:
    """Matplotlib's settings for figures of a page, while they are drawn and written."""
    return rc_context(fname=STYLE)


def draw_in_style(draw: Callable[[Any], Figure | None], results: Any) -> Figure | None:
    """The figure that a function draws of results, in this style."""
    with in_style():
        return draw(results)


def subplots(
    rows: int = 1, columns: int = 1, *, figsize: tuple[float, float], **kinds: Any
) -> tuple[Figure, Any]:
    """A figure and its panels, as of `pyplot.subplots`."""
    figure = Figure(figsize=figsize)
    return figure, figure.subplots(rows, columns, **kinds)


def save(figure: Figure, target: Path, formats: Sequence[str]) -> list[Path]:
    """Write a figure, all of it or nothing, once for each format."""
    files = [target.with_name(f"{target.name}.{kind}") for kind in formats]
    for file in files:
        with in_style(), replacing(file) as aside:
            figure.savefig(aside)
    return files


def to_svg(figure: Figure, name: str, title: str) -> str:
    """The figure as an SVG element, as wide as its place and in the ink of its page.

    Pure black becomes the page's text colour and pure white its ground, so that light
    and dark pages both show it; what is printed upon a colour has another shade.

    Args:
        figure: what was drawn.
        name: that no other figure of the page has.
        title: what it shows, for a screen reader.
    """
    file = io.StringIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with in_style(), rc_context({"svg.hashsalt": name}):
        figure.savefig(file, format="svg", dpi=DPI, transparent=True, metadata=nothing)
    text = file.getvalue()
    wide = INCH * figure.get_size_inches()[0]
    body = re.sub(r"<style.*?</style>", "", text[text.index("<defs>") :], flags=re.S)
    kept = set(re.findall(r"#(\w+)", body))
    body = re.sub(r' id="([^"]+)"', lambda at: at[0] * (at[1] in kept), body)
    body = re.sub(r"'DejaVu Sans'[^;\"]*", "inherit", body)
    for colour, ink in (("#000000", "currentColor"), ("#ffffff", "var(--raised)")):
        body = body.replace(f": {colour}", f": {ink}")
    box = re.search(r'viewBox="[^"]*"', text)
    assert box is not None
    return (
        f'<svg {box[0]} role="img" aria-label="{html.escape(title)}" '
        f'fill="currentColor" stroke-linejoin="round" style="width:{wide:.0f}px">{body}'
    )


def power(value: float) -> str:
    """A number with its power of ten, for a label.

    Example:
        >>> power(1e4), power(31600.0)
        ('$10^{4}$', '3.16·$10^{4}$')
    """
    mantissa, exponent = f"{value:.2e}".split("e")
    front = "" if float(mantissa) == 1 else f"{float(mantissa):g}·"
    return f"{front}$10^{{{int(exponent)}}}$"


def legend_above(figure: Figure, panel: Axes) -> None:
    """Put the legend of one panel, which serves all, above them: dots lie below it."""
    handles, labels = panel.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=3)


def cloud(axes: Axes, across: np.ndarray, upward: np.ndarray, name: str) -> None:
    """One dot per word, and the mean ± one standard deviation of each bin."""
    dots: dict[str, Any] = {
        "markersize": 2,
        "alpha": 0.25,
        "color": "tab:grey",
        "rasterized": True,
    }
    axes.plot(across, upward, ".", **dots)
    positions, mean, spread, _ = binned(across, upward)
    bars: dict[str, Any] = {
        "label": "ours: mean ± standard deviation of a bin",
        "capsize": 2,
    }
    axes.errorbar(positions, mean, spread, fmt="o-", markersize=4, **bars)
    axes.axhline(0, color="black", linewidth=0.5)
    # A handful of words far out would flatten all the others.
    low, high = np.nanquantile(upward, [0.002, 0.998])
    low = min(low, np.nanmin(mean - spread), 0.0)
    high = max(high, np.nanmax(mean + spread), 0.0)
    room = 0.05 * (high - low)
    axes.set(
        xlabel="posterior difference P(+1|s) − P(−1|s)",
        ylabel=name,
        ylim=(low - room, high + room),
    )
    axes.locator_params(axis="x", nbins=5)
    outside = np.sum((upward < low - room) | (upward > high + room))
    if outside:
        words = "word" if outside == 1 else "words"
        axes.set_title(f"{outside} {words} outside", fontsize="small", loc="right")
