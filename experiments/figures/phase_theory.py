"""The phase diagram, predicted and measured."""

from typing import Any

import numpy as np
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.common.palette import EDGES
from experiments.common.results import Finished
from experiments.figures._page import power

COLOURS = {"selection": "tab:blue", "breaking": "tab:orange", "capture": "tab:red"}
ENDS = ("breaking_lower", "breaking_upper", "capture_lower", "capture_upper")
NAMES = ("selection", *ENDS)
"""The edges, in the order of the study's columns."""
SIZES = {"length": "T", "relevant": "R", "irrelevant": "I", "sequences": "n"}


def draw(finished: Finished) -> Figure:
    """Diagram with edges; collapse; weights over time; edges against sizes."""
    figure, panels = pyplot.subplots(2, 2, figsize=(13, 9))
    _diagram(panels[0, 0], finished)
    _collapse(panels[0, 1], finished)
    _curves(panels[1, 0], finished)
    _exponents(panels[1, 1], finished)
    return figure


def _diagram(axes: Axes, finished: Finished) -> None:
    found = finished.arrays
    image = axes.pcolormesh(
        found["dims"],
        found["step_sizes"],
        (found["selected"] - found["captured"]).T,
        cmap="PiYG",
        vmin=-1,
        vmax=1,
        shading="nearest",
        alpha=0.7,
    )
    axes.figure.colorbar(image, ax=axes, label="share selected − share captured")
    for edge, name in zip(found["edges"].T, NAMES, strict=True):
        kind, _, end = name.partition("_")
        line, words = EDGES[kind]
        label = None if end == "upper" else words
        style: dict[str, Any] = {"linestyle": line, "color": COLOURS[kind]}
        axes.plot(found["edge_dims"], edge, label=label, **style)
    axes.axhline(
        float(found["critical"]),
        color="black",
        linewidth=0.7,
        label="$\\eta_0$ at $\\gamma_c$",
    )
    _measured(axes, finished)
    axes.set(
        xscale="log",
        yscale="log",
        ylim=(found["step_sizes"][0], found["step_sizes"][-1]),
        xlabel="embedding dimension d",
        ylabel="step size η₀",
        title="(a) predicted (lines) and measured (dots) edges",
    )
    axes.legend(fontsize="small", frameon=True, loc="upper right")


def _measured(axes: Axes, finished: Finished) -> None:
    first = finished.results["edges"][0]["case"]
    for row in finished.results["edges"]:
        if row["case"] == first and row["edge"] in NAMES:
            middle = row["predicted"] * row["ratio"]
            error = [
                [middle - row["predicted"] * row["low"]],
                [row["predicted"] * row["high"] - middle],
            ]
            axes.errorbar(
                row["fixed"],
                middle,
                np.maximum(error, 0.0),
                fmt="o",
                markersize=4,
                color=COLOURS[row["edge"].partition("_")[0]],
            )


def _collapse(axes: Axes, finished: Finished) -> None:
    found = finished.arrays
    for dim, share in zip(found["scaled_dims"], found["scaled_share"], strict=True):
        axes.plot(found["scaled"], share, ".-", label=f"d = {power(dim)}")
    axes.axvline(
        float(found["predicted_scaled"]),
        color="black",
        linestyle=":",
        label="predicted",
    )
    axes.set(
        xlabel="γ√d = η₀√d / 4RT",
        ylabel="share of draws that select all",
        title="(b) one curve for every d",
    )
    axes.legend(fontsize="small")


def _curves(axes: Axes, finished: Finished) -> None:
    found = finished.arrays
    times, colours = found["curve_times"], pyplot.get_cmap("viridis")
    dims, steps = found["curve_dims"], found["curve_steps"]
    for column, (step, style) in enumerate(zip(steps, ("-", "--", ":"), strict=True)):
        for row, dim in enumerate(dims):
            path = found["curves"][row, column]
            apart = path[:, 0] - path[:, 1]
            loser = path[:, int(apart[np.argmax(np.abs(apart))] > 0)]
            colour = colours(row / len(dims))
            label = f"d = {power(dim)}" if column == 0 else None
            axes.plot(times, loser + column, style, color=colour, label=label)
            back = found["curve_returns"][row, column]
            axes.plot(back, column + 0.5, "|", color=colour, markersize=14)
        there = np.isfinite(found["curves"][:, column]).any()
        axes.text(0.06, column + 0.6, f"η₀ = {step:.3g}" if there else "not computed")
    axes.set(
        xscale="log",
        xlabel="log(1+t); ticks: predicted return without noise",
        ylabel="weight in the losing class",
        yticks=[0, 1, 2, 3],
        yticklabels=["0", "1 | 0", "1 | 0", "1"],
        title="(c) a captured class comes back, or noise was there first",
    )
    axes.legend(fontsize="small", loc="lower right")


def _exponents(axes: Axes, finished: Finished) -> None:
    rows = finished.results["exponents"]
    labels = [f"{SIZES[row['size']]}, {row['edge'].replace('_', ' ')}" for row in rows]
    places = np.arange(len(rows))
    for name, mark in (("derivative", "|"), ("predicted", "o"), ("measured", "x")):
        axes.plot([row[name] for row in rows], places, mark, label=name)
    axes.set(
        yticks=places,
        xlabel="d log edge / d log size, at d = 10⁴",
        title="(d) edges against T, R, I and n",
    )
    axes.set_yticklabels(labels, fontsize="x-small")
    axes.axvline(0.0, color="black", linewidth=0.5)
    if rows:
        axes.legend(fontsize="small")
    else:
        axes.text(0.5, 0.5, "not computed", ha="center", transform=axes.transAxes)
