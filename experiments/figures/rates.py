"""Figure of `experiments.theory.rates`: direction error and its exponents."""

import numpy as np
from matplotlib import pyplot
from matplotlib.figure import Figure

from experiments.common.results import Finished


def draw(finished: Finished) -> Figure:
    """Error against ‖p‖ and log t beside the prediction; local exponents."""
    found = finished.arrays
    figure, axes = pyplot.subplots(1, 3, figsize=(12, 3.8))
    constant, growth = found["constant"][:, None], found["growth"][:, None]
    for panel, across, scale, label in (
        (axes[0], found["norms"], constant, "‖p‖"),
        (axes[1], found["log_times"], constant / growth, "log t"),
    ):
        panel.loglog(across.T, (found["errors"] / scale).T, color="C0", alpha=0.4)
        ends = np.array([across[across > 0].min(), across.max()])
        panel.loglog(ends, 1 / ends, "k--", label="predicted, exponent −1")
        panel.set(xlabel=label, ylabel="direction error / predicted constant")
        panel.legend()
    axes[2].semilogx(found["log_times"].T, found["exponents_norm"].T, "C0", alpha=0.4)
    axes[2].semilogx(
        found["log_times"].T, found["exponents_log_time"].T, "C1", alpha=0.4
    )
    axes[2].plot([], [], "C0", label="d log error / d log ‖p‖")
    axes[2].plot([], [], "C1", label="d log error / d log log t")
    axes[2].axhline(-1, color="k", linestyle="--")
    axes[2].set(xlabel="log t", ylabel="local exponent", ylim=(-3, 1))
    axes[2].legend()
    return figure
