"""Draw a finished run of `experiments.reviews`: words against posterior difference.

python -m experiments.figures.reviews results/reviews
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import matplotlib
import numpy as np

matplotlib.use("Agg")
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure

EDGES = np.linspace(-1, 1, 21)


def binned(
    across: np.ndarray, upward: np.ndarray, edges: np.ndarray = EDGES
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Mean and standard deviation of one quantity in bins of another.

    Args:
        across: what the bins are of; NaN belongs to none.
        upward: what is averaged.
        edges: of the bins, ascending; the last bin holds its upper edge.

    Returns:
        Centres, means, standard deviations and numbers; NaN where a bin is empty.

    Example:
        >>> x, y = np.array([-1.0, 0.2, 1.0]), np.array([1.0, 2.0, 4.0])
        >>> binned(x, y, np.array([-1, 0, 1]))[1].tolist()
        [1.0, 3.0]
    """
    centres = 0.5 * (edges[1:] + edges[:-1])
    kept = ~np.isnan(across)
    place = np.searchsorted(edges, across[kept], side="right") - 1
    place = np.where(across[kept] == edges[-1], len(centres) - 1, place)
    groups = [upward[kept][place == number] for number in range(len(centres))]
    mean = [group.mean() if group.size else np.nan for group in groups]
    spread = [group.std() if group.size else np.nan for group in groups]
    number = [group.size for group in groups]
    return centres, np.array(mean), np.array(spread), np.array(number)


def draw(folder: Path) -> Path:
    """Four panels: the step, E_sᵀv, E_sᵀp, and the course of training.

    Args:
        folder: of results.

    Returns:
        The figure's file.

    Raises:
        FileNotFoundError: no results in the folder.
    """
    described = json.loads((folder / "results.json").read_text())
    with np.load(folder / "words.npz") as kept:
        columns = dict(kept)
    figure, axes = pyplot.subplots(1, 4, figsize=(19, 4.2), layout="constrained")

    alpha, aligned = columns["importance"], columns["values_step"]
    ends = np.array([alpha.min(), alpha.max()])
    axes[0].plot(alpha, aligned, ".", markersize=2, alpha=0.4)
    axes[0].plot(ends, 0.5 * described["step_size"] * ends, "k--", label="(η₀/2) α")
    axes[0].set(xlabel="importance α", ylabel="E·v after one step")
    axes[0].ticklabel_format(axis="x", scilimits=(0, 0))
    axes[0].legend()

    posterior = columns["posterior_difference"]
    cloud(axes[1], posterior, columns["values_last"], "E·v after training")
    cloud(axes[2], posterior, columns["scores_last"], "E·p after training")

    step, train_loss, train_accuracy, held_loss, held_accuracy = columns["history"].T
    for name, curve in (("train", train_loss), ("held out", held_loss)):
        axes[3].plot(step, curve, label=f"loss, {name}")
    for name, curve in (("train", train_accuracy), ("held out", held_accuracy)):
        axes[3].plot(step, curve, "--", label=f"accuracy, {name}")
    axes[3].axvline(described["results"]["stopped"]["step"], color="grey", linewidth=1)
    axes[3].set(xlabel="step", ylim=(0, 1.05))
    axes[3].legend()

    return save(figure, folder / "reviews.png")


def save(figure: Figure, target: Path) -> Path:
    """Write a figure under a temporary name, then move it into place.

    Args:
        figure: what was drawn.
        target: its file.

    Returns:
        The same file.
    """
    part = target.with_suffix(".part.png")
    figure.savefig(part, dpi=120)
    pyplot.close(figure)
    return part.replace(target)


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


def command(
    draw: Callable[[Path], Path], arguments: list[str], description: str
) -> int:
    """Draw the folder named on the command line.

    Args:
        draw: makes the figure of a folder.
        arguments: the command line without the program's name.
        description: for `--help`.

    Returns:
        Exit code: 0, or 2 for a folder without results.
    """
    if len(arguments) != 1 or arguments[0] in ("-h", "--help"):
        print(description, file=sys.stderr)
        return 0 if arguments[:1] in (["-h"], ["--help"]) else 2
    try:
        print(draw(Path(arguments[0])), file=sys.stderr)
    except FileNotFoundError as error:
        print(f"error: {error.filename} is missing: no finished run", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(command(draw, sys.argv[1:], __doc__ or ""))
