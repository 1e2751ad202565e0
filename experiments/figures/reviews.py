"""Figure of `experiments.reviews`: words against posterior difference."""

import numpy as np
from matplotlib import pyplot
from matplotlib.figure import Figure

from experiments.common.results import Finished
from experiments.figures._page import cloud


def draw(finished: Finished) -> Figure:
    """Four panels: the step, E_sᵀv, E_sᵀp, and the course of training."""
    step_size = finished.settings["step_size"]
    columns = finished.arrays
    figure, panels = pyplot.subplots(2, 2, figsize=(7.0, 5.6))
    axes = panels.ravel()

    alpha, aligned = columns["importance"], columns["values_step"]
    ends = np.array([alpha.min(), alpha.max()])
    axes[0].plot(alpha, aligned, ".", markersize=2, alpha=0.4, rasterized=True)
    axes[0].plot(ends, 0.5 * step_size * ends, "k--", label="(η₀/2) α")
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
    axes[3].axvline(finished.results["stopped"]["step"], color="grey", linewidth=1)
    axes[3].set(xlabel="step", ylim=(0, 1.05))
    axes[3].legend()

    return figure
