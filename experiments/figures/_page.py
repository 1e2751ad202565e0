"""What figures share: the command line, the file, words over posterior difference."""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.common.console import one_line, refuse_empty, say
from experiments.common.results import Finished, read
from experiments.common.statistics import binned
from jaxselect.errors import BadInput
from jaxselect.files import replacing

FORMATS = ("png", "pdf", "svg")
FORMAT: dict[str, Any] = {
    "nargs": "+",
    "choices": FORMATS,
    "default": ["png"],
    "help": "of the files; png for screens, pdf or svg for papers",
}
"""The flag that says in which of them a figure is wanted."""


def command(draw: Callable[[Finished], Figure], module: str, about: str) -> None:
    """Draw the finished folder named on the command line, into that folder.

    Args:
        draw: makes the figure of what a study left.
        module: of the figure, which is its file's name too.
        about: for `--help`.

    Raises:
        SystemExit: 0, or 2 for a folder without results, with damaged ones, or one
            that cannot be written.
    """
    parser = argparse.ArgumentParser(
        f"python -m experiments.figures.{module}", description=about
    )
    parser.add_argument("folder", type=Path, help="results of the study")
    parser.add_argument("--format", **FORMAT)
    try:
        refuse_empty(sys.argv[1:])
        asked = parser.parse_args()
        figure = draw(read(asked.folder))
        for target in save(figure, asked.folder / module, asked.format):
            say(str(target))
    except (BadInput, OSError) as error:
        say(f"error: {one_line(str(error))}")
        raise SystemExit(2) from None
    raise SystemExit(0)


def save(figure: Figure, target: Path, formats: Sequence[str]) -> list[Path]:
    """Write a figure, all of it or nothing, once for each format.

    Args:
        figure: what was drawn.
        target: its file, without the ending.
        formats: of `FORMATS`.

    Returns:
        The files.
    """
    files = [target.with_name(f"{target.name}.{kind}") for kind in formats]
    for file in files:
        with replacing(file) as aside:
            figure.savefig(aside)
    pyplot.close(figure)
    return files


def power(value: float) -> str:
    """A number with its power of ten, for a label.

    Example:
        >>> power(1e4), power(31600.0)
        ('$10^{4}$', '3.16·$10^{4}$')
    """
    mantissa, exponent = f"{value:.2e}".split("e")
    front = "" if float(mantissa) == 1 else f"{float(mantissa):g}·"
    return f"{front}$10^{{{int(exponent)}}}$"


def cloud(axes: Axes, across: np.ndarray, upward: np.ndarray, name: str) -> None:
    """One dot per word, and the mean ± one standard deviation of each bin."""
    axes.plot(across, upward, ".", markersize=2, alpha=0.25, color="tab:grey")
    positions, mean, spread, _ = binned(across, upward)
    axes.errorbar(positions, mean, spread, fmt="o-", markersize=4, capsize=2)
    axes.axhline(0, color="black", linewidth=0.5)
    # A handful of words far out would flatten all the others.
    low, high = np.quantile(upward, [0.002, 0.998])
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
