"""Figure of `experiments.text.flow`: the flow of p on reviews."""

import numpy as np
from matplotlib import pyplot
from matplotlib.figure import Figure

from experiments.common.palette import SERIES
from experiments.common.results import Finished
from experiments.figures._page import cloud


def draw(finished: Finished) -> Figure:
    """Four panels: ‖p‖, reviews decided and right, E·v, and E·p with the tied words."""
    columns, results = finished.arrays, finished.results
    figure, panels = pyplot.subplots(2, 2, figsize=(7.0, 5.6))
    axes = panels.ravel()
    times, norms = columns["log_times"], columns["norms"]
    axes[0].plot(times, norms, color=SERIES[0], label="‖p‖")
    if results["growth"]:
        since = max([times[-1] / 2, *results.get("returns", [])])
        late = times >= min(since, times[-1])
        line = norms[-1] + results["growth"] * (times[late] - times[-1])
        axes[0].plot(times[late], line, "k--", label="slope ‖p_mm‖")
    for place, log_time in enumerate(results.get("returns", [])):
        once = "" if place else "a word comes back"
        axes[0].axvline(log_time, color="0.6", linestyle=":", label=once or None)
    axes[0].set(xlabel="log t", ylabel="‖p‖ (1/‖E‖)")
    axes[0].legend(loc="upper left")

    names = {"decided": "decided", "train_accuracy": "right, seen"}
    names["test_accuracy"] = "right, test"
    for colour, (name, label) in zip(SERIES, names.items(), strict=False):
        axes[1].plot(times, columns[name], color=colour, label=label)
    axes[1].set(xlabel="log t", ylabel="share of reviews", ylim=(-0.02, 1.02))
    axes[1].legend(loc="lower right")

    posterior = columns["posterior_difference"]
    cloud(axes[2], posterior, columns["values"], "E·v after one step")
    cloud(axes[3], posterior, columns["scores"], "E·p at the end")
    tied = np.asarray(columns["tied"], int)
    if tied.size:
        axes[3].plot(
            posterior[tied],
            columns["scores"][tied],
            "D",
            color=SERIES[1],
            markersize=4,
            label="tied",
        )
        axes[3].legend(loc="lower right")
    return figure
