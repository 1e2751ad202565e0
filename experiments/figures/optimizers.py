"""Figure of `experiments.theory.optimizers`: laws under rules other than a flow."""

import numpy as np
from matplotlib import pyplot
from matplotlib.figure import Figure

from experiments.common.results import Finished


def draw(finished: Finished) -> Figure:
    """Weight off the important tokens, the effect of frequency, the end under decay."""
    found, rules = finished.arrays, finished.results["rules"]
    figure, axes = pyplot.subplots(1, 3, figsize=(12, 3.8))
    for number, name in enumerate(rules):
        late = -found[f"log_loss {name}, equal"].mean(axis=1)
        rest = found[f"rest {name}, equal"].mean(axis=1)
        axes[0].plot(late, rest, "o-", color=f"C{number}", markersize=4, label=name)
        values = found[f"values {name}, unequal"]
        apart = (values[..., ::2] - values[..., 1::2]).mean(axis=(1, 2))
        late = -found[f"log_loss {name}, unequal"].mean(axis=1)
        axes[1].plot(late, apart, "o-", color=f"C{number}", markersize=4, label=name)
    shown = found["flow_log_loss"] > min(
        found[f"log_loss {name}, equal"].min() for name in rules
    )
    late, rest = -found["flow_log_loss"][shown], found["flow_rest"][shown]
    axes[0].plot(late, rest, "k--", label="flow, two variables")
    limit = next(iter(rules.values()))["difference_limit"]
    axes[1].axhline(limit, color="k", linestyle="--", label="log of the ratio")
    rows = finished.results["decay"]
    decays = np.array([row["decay"] for row in rows])
    axes[2].loglog(decays, [row["rest"] for row in rows], "o", label="trained")
    axes[2].plot(
        decays, [row["rest_predicted"] for row in rows], "k--", label="closed form"
    )
    axes[0].set(xlabel="log(1/L)", ylabel="1 − q", yscale="log")
    axes[1].set(xlabel="log(1/L)", ylabel="b_s − b_r, unequally frequent tokens")
    axes[2].set(xlabel="weight decay λ", ylabel="1 − q at the end")
    for panel in axes:
        panel.legend(fontsize="small")
    return figure
