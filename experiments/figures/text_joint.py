"""Figure of `experiments.text.joint`: attention and E·v as the loss falls."""

import numpy as np
from matplotlib import pyplot
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from experiments.common.results import Finished
from experiments.figures._page import cloud


def draw(finished: Finished) -> Figure:
    """Weight off the first word, the tendency, and the words in the end, by rule."""
    found, rules = finished.arrays, finished.results["runs"]
    count = 2 + len(rules)
    figure, axes = pyplot.subplots(1, count, figsize=(3.8 * count, 3.8))
    for number, name in enumerate(rule for rule in rules if f"loss {rule}" in found):
        late, colour = -np.log(found[f"loss {name}"]), f"C{number}"
        axes[0].plot(late, found[f"rest {name}"], "o-", color=colour, label=name)
        short, label = found[f"shortfall {name}"], f"{name}, shortfall of the margin"
        axes[0].plot(late, short, "^-", color=colour, label=label, markersize=4)
        law = "1/(s log s), one word a review" if number == 0 else None
        axes[0].plot(late, found[f"law {name}"], "k--", label=law)
        for part, style in (("", "o-"), ("_first", "^--"), ("_others", "v:")):
            label = f"{name}{part.replace('_', ', ')}"
            column = found[f"tendency{part} {name}"]
            axes[1].plot(late, column, style, color=colour, label=label, markersize=4)
        values = found[f"values {name}"]
        cloud(axes[2 + number], found["posterior_difference"], values, f"E·v, {name}")
    axes[0].set(
        xlabel="log(1/L)", ylabel="mean weight off the first word", yscale="log"
    )
    axes[1].set(xlabel="log(1/L)", ylabel="rank correlation with posterior difference")
    for panel in axes[:2]:
        panel.set_xscale("log")
        panel.xaxis.set_minor_formatter(NullFormatter())
        panel.yaxis.set_minor_formatter(NullFormatter())
        panel.legend(fontsize="small")
    return figure
