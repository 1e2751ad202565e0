"""How the time of `solve` grows with sequences, words and dimensions.

Text-like problems: words with frequencies of Zipf's law and a leaning to one label,
after one step on E. One size changes at a time. The second call is timed, with its
certificate, by all cores of this machine; the exponent is the slope of log seconds.
"""

import dataclasses
import resource
import time
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from experiments.benchmarks.flow import zipf
from experiments.common.claims import Shown
from experiments.common.console import command, say
from experiments.common.numbers import num
from experiments.common.results import Finished
from experiments.common.statistics import exponent
from experiments.common.study import Count, Experiment, Study, presets
from experiments.common.style import subplots

SIZES = {"sequences": 400, "words": 600, "dim": 128}
"""The problem in the middle: what is not changed."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(Study):
    """Settings of the measurement.

    Attributes:
        preset: full, or quick (without the largest of each size).
        quick: the same as `--preset quick`.
        doublings: sizes beyond the smallest, each twice the one before.
        seed: random seed of the problems.
    """

    quick: bool = False
    doublings: Count = 4
    out: Path = Path("results/benchmarks/growth")


PRESETS = presets(full=Settings(), quick=Settings(doublings=2))


def run(settings: Settings, results: dict) -> None:
    """Time the problems, from a quarter of each size on."""
    import jax

    results["points"] = points = []
    for name, middle in SIZES.items():
        for doubled in range(settings.doublings + 1):
            size = middle * 2**doubled // 4
            problem = zipf(settings.seed, **{**SIZES, name: size})
            # A dozen of such shapes fill a process, which would drop one in between.
            jax.clear_caches()
            points.append({"size": name, "is": size, **seconds_of(problem)})
            one = points[-1]
            say(
                f"{size:6} {name:10} {one['first']:8.2f} s, {one['seconds']:8.2f} s "
                f"again {one['steps']:6} steps  {one['status']:16} "
                f"{one['memory']:.2f} GB"
            )


def seconds_of(problem: Any) -> dict[str, Any]:
    """Seconds of a first call and of the next, and what it found.

    The memory is the most that this process has held so far.
    """
    from jaxselect import solve

    def timed() -> tuple[Any, float]:
        begun = time.monotonic()
        return solve(problem), time.monotonic() - begun

    (_, first), (found, seconds) = timed(), timed()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {
        "first": first,
        "seconds": seconds,
        "steps": int(found.flow.num_steps),
        "status": found.status.name,
        "memory": memory,
    }


def of_size(points: list[dict], name: str) -> tuple[list[float], list[float]]:
    """The sizes of one kind, and their seconds."""
    here = [point for point in points if point["size"] == name]
    return [one["is"] for one in here], [one["seconds"] for one in here]


def draw(finished: Finished) -> Figure:
    """Seconds over each size, with the slope."""
    points = finished.results["points"]
    figure, panels = subplots(1, 3, figsize=(9.0, 3.0), sharey=True)
    for panel, name in zip(panels, SIZES, strict=True):
        sizes, seconds = of_size(points, name)
        power = exponent(sizes, seconds)
        middle = np.exp(np.mean(np.log(seconds)))
        line = middle * (np.array(sizes) / np.exp(np.mean(np.log(sizes)))) ** power
        panel.loglog(sizes, seconds, "o", color="C0")
        panel.loglog(sizes, line, "--", color="C1", label=f"exponent {power:.2f}")
        panel.set(xlabel={"dim": "dimension d"}.get(name, f"number of {name}"))
        panel.set_xticks(sizes, [f"{size:g}" for size in sizes])
        panel.minorticks_off()
        panel.legend(loc="upper left")
    panels[0].set_ylabel("seconds of a second call")
    return figure


def show(found: Finished) -> Shown:
    """Seconds, steps and statuses, and the exponent of each size."""
    from jaxselect.margin.certificate import CERTIFIED

    points, ends = found.results["points"], {status.name for status in CERTIFIED}
    rows = [["", "exponent", "seconds", "steps", "certified"]]
    for name in SIZES:
        here = [point for point in points if point["size"] == name]
        sizes, seconds = of_size(points, name)
        rows.append(
            [
                f"{name} {sizes[0]:g} … {sizes[-1]:g}",
                f"{exponent(sizes, seconds):.2f}",
                f"{num(seconds[0])} … {num(seconds[-1])}",
                f"{here[0]['steps']} … {here[-1]['steps']}",
                f"{sum(one['status'] in ends for one in here)} of {len(here)}",
            ]
        )
    return Shown([], rows)


main = Experiment(run, draw=draw, show=show, title="Growth of the time of a flow")


if __name__ == "__main__":
    command(main, PRESETS)
