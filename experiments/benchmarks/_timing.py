"""Times of calls that are to be compared: medians, taken in turn."""

import statistics
import time
from collections.abc import Callable
from typing import Any

from experiments.common.claims import Shown
from experiments.common.numbers import num
from experiments.common.results import Finished

# Calls of one kind in a row, before another kind has its turn.
STRETCH = 5


def seconds(work: Callable[[], object], repeats: int) -> float:
    """Median time of a call, after one that does not count."""
    return in_turn((work,), repeats)[0]


def in_turn(works: tuple[Callable[[], object], ...], repeats: int) -> tuple[float, ...]:
    """Median times of calls made in turn, a few of each at a stretch.

    A moment in which the machine is slow then slows all of them.
    """
    taken: list[list[float]] = [[] for _ in works]
    for work in works:
        work()
    stretch = min(STRETCH, repeats)
    for _ in range(-(-repeats // stretch)):
        for work, times in zip(works, taken, strict=True):
            for _ in range(stretch):
                begun = time.perf_counter()
                work()
                times.append(time.perf_counter() - begun)
    return tuple(map(statistics.median, taken))


def ratios(found: Finished) -> Shown:
    """Every number of a benchmark whose name says that it is a ratio."""
    rows = [["ratio", "value"]]
    rows += [
        [name, num(value)]
        for name, value in _leaves(found.results)
        if "_over_" in name or "ratio" in name or "spread" in name
    ]
    return Shown([], rows)


def _leaves(values: Any, name: str = "") -> list[tuple[str, float]]:
    if isinstance(values, dict):
        return [
            leaf
            for key, value in values.items()
            for leaf in _leaves(value, f"{name} {key}".strip())
        ]
    return [(name, values)] if isinstance(values, int | float) else []
