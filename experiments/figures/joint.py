"""Figure of `experiments.theory.joint`: where attention goes when E is trained."""

import numpy as np
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.common.results import Finished
from experiments.figures._page import power

COLOURS = {"p": "#0072B2", "p, v": "#E69F00", "E, p": "#009E73", "E, p, v": "#D55E00"}
"""Colours that the colour-blind distinguish (M. Okabe and K. Ito), by subset."""
ENDS = ("#009E73", "#0072B2", "#E69F00", "#999999")
"""Colours of ends: all important tokens, one class's, the other's, none."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X")


def draw(finished: Finished) -> Figure:
    """Four panels of the study; one for each rate of E where it is a phase diagram."""
    if "phases_shares" in finished.arrays:
        return _phases(finished)
    panels = {
        "laws": _laws,
        "frequency": _frequency,
        "crossover": _crossover,
        "selection": _selection,
    }
    there = [name for name in panels if name in finished.results]
    figure, axes = pyplot.subplots(2, 2, figsize=(10, 8))
    for panel, name in zip(axes.flat, there, strict=False):
        panels[name](panel, finished)
    for panel in axes.flat[len(there) :]:
        panel.set_axis_off()
    return figure


def _laws(panel: Axes, finished: Finished) -> None:
    """1 − q against log t, measured and by law, at the largest d."""
    found, time = finished.arrays, finished.arrays["log_times"]
    rows = finished.results["laws"]
    names = list(dict.fromkeys(row["trained"] for row in rows))
    for name, colour in COLOURS.items():
        place = names.index(name)
        off = found["laws_off"][place, -1]
        panel.loglog(time, off.T, color=colour, alpha=0.4, linewidth=1)
        panel.plot([], [], color=colour, label=f"{name} trained")
        panel.loglog(time, found["laws_law"][place], "k--", linewidth=1)
    panel.plot([], [], "k--", linewidth=1, label="law")
    panel.set(
        ylim=(1e-14, 1),
        xlabel="log t",
        ylabel="1 − q, weight off the important token",
        title="Hard selection is a property of frozen embeddings",
    )
    panel.legend(loc="upper right", fontsize="small")


def _frequency(panel: Axes, finished: Finished) -> None:
    """b_s − b_r along log t, and log(π_s/π_r), at η = 1."""
    found, time = finished.arrays, finished.arrays["log_times"]
    place = [row["eta"] for row in finished.results["frequency"]].index(1.0)
    lead, wanted = found["frequency_lead"][place], found["frequency_wanted"][place]
    for token in range(1, lead.shape[-1]):
        colour = f"C{token - 1}"
        panel.semilogx(time, lead[:, :, token].T, color=colour, alpha=0.5, linewidth=1)
        panel.axhline(wanted[0, token], color="k", linestyle="--", linewidth=1)
        share = np.exp(wanted[0, token])
        panel.plot([], [], color=colour, label=f"π_s/π_r = {share:.2f}")
    panel.plot([], [], "k--", linewidth=1, label="log(π_s/π_r)")
    panel.set(
        xlabel="log t",
        ylabel="b_s − b_r",
        title="Values forget frequency, but for a constant",
    )
    panel.legend()


def _crossover(panel: Axes, finished: Finished) -> None:
    """1 − q over the rate of E at several log t, with two variables and the law."""
    found, time = finished.arrays, finished.arrays["log_times"]
    etas = [row["eta"] for row in finished.results["crossover"]]
    some = [int(np.abs(time - wanted).argmin()) for wanted in (1e2, 1e4, 1e6)]
    for colour, mark in enumerate(dict.fromkeys(some)):
        off = found["crossover_off"][:, :, mark].mean(axis=1)
        panel.loglog(
            etas, off, "o", color=f"C{colour}", label=f"log t = {power(time[mark])}"
        )
        panel.loglog(etas, found["crossover_reduced"][:, mark], color=f"C{colour}")
        law = found["crossover_law"][:, mark]
        panel.loglog(etas, law, "--", color=f"C{colour}", linewidth=1)
    panel.plot([], [], "k", marker="", label="two variables")
    panel.plot([], [], "k--", linewidth=1, label="law")
    panel.set(
        xlabel="η, rate of E over that of p and v",
        ylabel="1 − q",
        title="Crossover: E, p and v trained",
    )
    panel.legend(loc=(0.36, 0.55), fontsize="small")


def _selection(panel: Axes, finished: Finished) -> None:
    """Mean number of selected tokens over η, by classes, after the middle step on E."""
    rows = finished.results["selection"]
    sizes = list(dict.fromkeys(row["alignment"] for row in rows))
    size = sizes[len(sizes) // 2]
    pairs = list(dict.fromkeys((row["positive"], row["negative"]) for row in rows))
    for place, pair in enumerate(pairs):
        here = [
            row
            for row in rows
            if (row["positive"], row["negative"]) == pair and row["alignment"] == size
        ]
        number = [row["tokens"]["mean"] for row in here]
        share = [one / sum(pair) for one in number]
        panel.semilogx(
            [row["eta"] for row in here],
            share,
            marker=MARKERS[place % len(MARKERS)],
            label=f"R₊, R₋ = {pair[0]}, {pair[1]}: {min(number):g} … {max(number):g}",
        )
    panel.axhline(1.0, color="k", linestyle="--", linewidth=1)
    panel.set(
        xlabel="η, rate of E over that of p and v",
        ylabel="|b_mm|² / number of important tokens",
        title=f"How many tokens are selected, γ = {size:g}",
    )
    panel.legend(loc="upper center", bbox_to_anchor=(0.48, 0.93), fontsize="small")


def _phases(finished: Finished) -> Figure:
    """Ends over (d, η₀), one panel for each rate of E."""
    shares = finished.arrays["phases_shares"]
    names = list(dict.fromkeys(row["rates"] for row in finished.results["phases"]))
    dims, steps = (finished.settings[name] for name in ("dims", "step_sizes"))
    figure, axes = pyplot.subplots(
        1,
        len(names),
        figsize=(3.4 * len(names), 4),
        squeeze=False,
    )
    palette = np.array([[int(c[i : i + 2], 16) for i in (1, 3, 5)] for c in ENDS]) / 255
    for panel, name, share in zip(axes.flat, names, shares, strict=True):
        panel.imshow(
            np.clip(share.transpose(1, 0, 2) @ palette, 0, 1),
            origin="lower",
            aspect="auto",
            interpolation="nearest",
        )
        panel.set(
            title=name,
            xlabel="d",
            xticks=range(len(dims)),
            xticklabels=[power(dim) for dim in dims],
            yticks=range(len(steps)),
            yticklabels=[power(step) for step in steps],
        )
    axes[0, 0].set_ylabel("η₀, step on E before the flow")
    named = ("all important", "positive only", "negative only", "other")
    for colour, end in zip(ENDS, named, strict=True):
        axes[0, -1].plot([], [], "s", color=colour, label=end)
    axes[0, -1].legend(
        loc="upper left", fontsize="small", frameon=True, facecolor="white"
    )
    return figure
