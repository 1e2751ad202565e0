"""Figure of `experiments.theory.embedding_steps`: k steps on E before p trains."""

import numpy as np
from matplotlib import pyplot
from matplotlib.figure import Figure

from experiments.common.results import Finished

PANELS = {
    "alignment": "γ, mean |E_sᵀv| of important tokens",
    "rest": "weight off the important tokens at p = p_0",
    "cosine": "cos(p_mm, p_0)",
    "margin_norm": "‖p_mm‖",
}


def draw(finished: Finished) -> Figure:
    """The four quantities against k: draws, their mean, and the two variables."""
    found, across = finished.arrays, finished.arrays["numbers"]
    figure, axes = pyplot.subplots(1, 4, figsize=(14, 3.6))
    for panel, (name, title) in zip(axes, PANELS.items(), strict=True):
        panel.plot(across, found[name], ".", color="C0", alpha=0.4, markersize=4)
        means = np.ma.masked_invalid(found[name]).mean(axis=1)
        panel.plot(across, means, "o-", color="C0", label="mean over draws")
        panel.plot(across, found[f"predicted_{name}"], "k--", label="two variables")
        panel.set(xscale="log", xlabel="steps on E", title=title)
        panel.set_xscale("log", base=2)
    axes[1].plot(across[2:], found["predicted_late_rest"][2:], "C1:", label="2/(κ²β²)")
    for panel in (axes[0], axes[1], axes[3]):
        panel.set_yscale("log")
    axes[1].legend()
    return figure
