"""Figure of `experiments.benchmarks.flow`: how far each solver gets in what time."""

from matplotlib import pyplot
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from experiments.common.results import Finished

MARKS = "os^vD<>px*"
"""A mark for each γ, the smallest first."""
PROBLEMS = {"small": "n = 200, |S| = 64", "large": "n = 1000, |S| = 256"}


def draw(finished: Finished) -> Figure:
    """Time against the direction error reached: a colour per solver, a mark per γ."""
    results = {
        name: finished.results[name] for name in PROBLEMS if name in finished.results
    }
    records = [record for part in results.values() for record in part]
    solvers = list(dict.fromkeys(record["solver"] for record in records))
    gammas = sorted({record["gamma"] for record in records})
    marks = dict(zip(gammas, MARKS, strict=False))
    size = 3.6 * len(results), 3.6
    figure, axes = pyplot.subplots(
        1, len(results), figsize=size, sharey=True, squeeze=False
    )
    for panel, (name, part) in zip(axes[0], results.items(), strict=True):
        for record in part:
            panel.loglog(
                record["seconds"],
                record["direction_error"],
                marks[record["gamma"]],
                color=f"C{solvers.index(record['solver'])}",
                markersize=5,
            )
        panel.set(xlabel="seconds", title=PROBLEMS[name])
    handles = [
        Line2D([], [], color=f"C{place}", marker="", lw=3, label=solver)
        for place, solver in enumerate(solvers)
    ]
    handles += [
        Line2D([], [], color="0.3", marker=mark, lw=0, label=f"γ = {gamma:g}")
        for gamma, mark in marks.items()
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=4)
    axes[0, 0].set_ylabel("direction error reached")
    return figure
