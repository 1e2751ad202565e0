"""Figure of `experiments.benchmarks.flow`: who gets how far in what time."""

from matplotlib import pyplot
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from experiments.common.results import Finished

MARKS = "os^vD<>px*"
"""A mark for each γ, the smallest first."""
WHO = ("jaxselect", "scipy BDF", "torchdiffeq dopri5", "torch normalised GD")
PROBLEMS = {"small": "n = 200, |S| = 64", "large": "n = 1000, |S| = 256"}


def draw(finished: Finished) -> Figure:
    """Time against the direction error reached: a colour per rival, a mark per γ."""
    results = finished.results
    shown = [name for name in PROBLEMS if name in results]
    figure, axes = pyplot.subplots(
        1,
        len(shown),
        figsize=(3.6 * len(shown), 3.6),
        sharey=True,
        squeeze=False,
    )
    for panel, name in zip(axes[0], shown, strict=True):
        gammas = sorted({record["gamma"] for record in results[name]})
        for record in results[name]:
            panel.loglog(
                record["seconds"],
                record["direction_error"],
                MARKS[gammas.index(record["gamma"]) % len(MARKS)],
                color=f"C{WHO.index(record['who'])}",
                markersize=5,
            )
        panel.set(xlabel="seconds", title=PROBLEMS[name])
        handles = [
            *(
                Line2D([], [], color=f"C{place}", marker="", lw=3)
                for place in _who(results)
            ),
            *(
                Line2D([], [], color="0.3", marker=mark, lw=0)
                for _, mark in zip(gammas, MARKS, strict=False)
            ),
        ]
    names = [WHO[place] for place in _who(results)] + [f"γ = {g:g}" for g in gammas]
    figure.legend(handles, names, loc="outside lower center", ncols=4)
    axes[0, 0].set_ylabel("direction error reached")
    return figure


def _who(results: dict) -> list[int]:
    """Places in `WHO` of those that have a record."""
    there = {record["who"] for name in PROBLEMS for record in results.get(name, [])}
    return [place for place, who in enumerate(WHO) if who in there]
