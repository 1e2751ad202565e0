"""What figures share: the command line, the file, words over posterior difference."""

import sys
from collections.abc import Callable
from pathlib import Path

import matplotlib
import numpy as np

matplotlib.use("Agg")
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.common.console import say
from experiments.common.results import Finished, read
from experiments.common.statistics import binned
from jaxselect.errors import BadInput
from jaxselect.files import replacing


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
    arguments = sys.argv[1:]
    if len(arguments) != 1 or arguments[0] in ("-h", "--help"):
        say(about)
        raise SystemExit(0 if arguments[:1] in (["-h"], ["--help"]) else 2)
    folder = Path(arguments[0])
    try:
        say(str(save(draw(read(folder)), folder / f"{module}.png")))
    except (BadInput, OSError) as error:
        say(f"error: {error}")
        raise SystemExit(2) from None
    raise SystemExit(0)


def save(figure: Figure, target: Path) -> Path:
    """Write a figure, all of it or nothing.

    Args:
        figure: what was drawn.
        target: its file.

    Returns:
        The same file.
    """
    with replacing(target) as aside:
        figure.savefig(aside, dpi=120)
    pyplot.close(figure)
    return target


def cloud(axes: Axes, across: np.ndarray, upward: np.ndarray, name: str) -> None:
    """One dot per word, and the mean ± one standard deviation of each bin."""
    axes.plot(across, upward, ".", markersize=2, alpha=0.25, color="tab:grey")
    centres, mean, spread, _ = binned(across, upward)
    axes.errorbar(centres, mean, spread, fmt="o-", markersize=4, capsize=2)
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
        axes.set_title(f"{outside} words lie outside", fontsize="small", loc="right")
