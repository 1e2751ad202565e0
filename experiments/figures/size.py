"""Draw what a flow costs against |S| and n.

python -m experiments.figures.size results/benchmarks/size
"""

import numpy as np
from matplotlib import pyplot
from matplotlib.figure import Figure

from experiments.common.results import Finished
from experiments.figures._page import command

AXES = {"words": "words |S|", "sequences": "sequences n"}
COSTS = {"seconds": "seconds", "steps": "steps", "seconds_per_step": "seconds a step"}


def draw(finished: Finished) -> Figure:
    """Seconds, steps and seconds a step; the fitted power where it was fitted.

    Args:
        finished: what the study left.

    Returns:
        The figure.
    """
    figure, panels = pyplot.subplots(2, 3, figsize=(11, 6), layout="constrained")
    for row, (name, label) in zip(panels, AXES.items(), strict=True):
        found = finished.results[name]
        across = np.array(found["across"], float)
        for panel, (cost, what) in zip(row, COSTS.items(), strict=True):
            values = np.array(found[cost], float)
            panel.loglog(across, values, ".", color="tab:grey")
            panel.loglog(across, np.nanmean(values, axis=1), "o-")
            if cost in found["exponents"]:
                exponent, *_ = found["exponents"][cost]
                last = across[-3:]
                middle = np.exp(np.mean(np.log(np.nanmean(values[-3:], axis=1))))
                line = middle * (last / np.exp(np.mean(np.log(last)))) ** exponent
                panel.loglog(last, line, "--", color="black", label=f"{exponent:.2f}")
                panel.legend(title="exponent")
            panel.set_xticks(across, [f"{size:g}" for size in across])
            panel.set_xticks([], minor=True)
            panel.set(xlabel=label, ylabel=what)
    return figure


if __name__ == "__main__":
    command(draw, "size", __doc__ or "")
