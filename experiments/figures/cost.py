"""Draw the cost of a run against d, from the benchmark of sweeps.

python -m experiments.figures.cost results/benchmarks/sweep
"""

from matplotlib import pyplot
from matplotlib.figure import Figure

from experiments.common.results import Finished
from experiments.figures._page import command


def draw(finished: Finished) -> Figure:
    """Seconds per run and per step of the solver, over d.

    Args:
        finished: what the study left.

    Returns:
        The figure.
    """
    found = finished.results["dim"]
    figure, (runs, steps) = pyplot.subplots(
        1, 2, figsize=(9, 3.8), layout="constrained"
    )
    runs.loglog(found["dim"], found["seconds_per_run"], "o-")
    runs.set(ylabel="seconds per run", title=f"η₀ = {found['step_size']:g}")
    steps.loglog(found["dim"], found["seconds_per_step"], "o-")
    title = f"{found['programs']} compiled program, {found['precision']}"
    steps.set(ylabel="seconds per step of the solver", title=title)
    for panel, name in ((runs, "seconds_per_run"), (steps, "seconds_per_step")):
        # Two decades tall, as the axis of d is seven wide: flat is seen to be flat.
        middle = (min(found[name]) * max(found[name])) ** 0.5
        panel.set(xlabel="embedding dimension d", ylim=(middle / 10, middle * 10))
    return figure


if __name__ == "__main__":
    command(draw, "cost", __doc__ or "")
