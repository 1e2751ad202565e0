"""Draw a finished `experiments.benchmarks.flow`: who gets how far in what time.

python -m experiments.figures.flow results/benchmarks/flow
"""

from matplotlib import pyplot
from matplotlib.figure import Figure

from experiments.common.results import Finished
from experiments.figures._page import command

WHO = ("jaxselect", "scipy BDF", "torchdiffeq dopri5", "torch normalised GD")
PROBLEMS = {"small": "n = 200, |S| = 64", "large": "n = 1000, |S| = 256"}


def draw(finished: Finished) -> Figure:
    """Time against the direction error reached, a mark for every γ, and ‖p‖ there.

    Args:
        finished: what the study left.

    Returns:
        The figure.
    """
    results = finished.results
    shown = [name for name in PROBLEMS if name in results]
    figure, axes = pyplot.subplots(
        1,
        len(shown),
        figsize=(5.5 * len(shown), 4.2),
        sharey=True,
        squeeze=False,
        layout="constrained",
    )
    for panel, name in zip(axes[0], shown, strict=True):
        for colour, who in enumerate(WHO):
            records = [r for r in results[name] if r["who"] == who]
            if not records:
                continue
            panel.loglog(
                [record["seconds"] for record in records],
                [record["direction_error"] for record in records],
                "o",
                color=f"C{colour}",
                label=who,
            )
            for record in records:
                panel.annotate(
                    f"γ = {record['gamma']:g}",
                    (record["seconds"], record["direction_error"]),
                    xytext=(4, 3),
                    textcoords="offset points",
                    fontsize=7,
                )
        panel.set(xlabel="seconds", title=PROBLEMS[name])
        panel.legend()
    axes[0, 0].set_ylabel("direction error reached")
    return figure


if __name__ == "__main__":
    command(draw, "flow", __doc__ or "")
