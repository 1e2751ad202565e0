"""A picture of a solved problem: weights, scores and the direction over log-time."""

from typing import TYPE_CHECKING

import jax
import numpy as np

from .checks import BadInput, of_kind, whole
from .flow.cls import direction_error
from .report import in_words
from .stages import Solved

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SERIES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#6b6b6b")
"""Colours of curves without a status, in order: those of Okabe and Ito."""


def plot(solved: Solved, first: int = 20) -> "Figure":
    """Draw weights, scores and the error of the direction over log(1+t).

    The error ‖p/‖p‖ − p_mm/‖p_mm‖‖ is drawn beside its late law, `error_constant`/‖p‖.

    Args:
        solved: with a path, `solve(problem, at=log_times)`.
        first: number of sequences whose entries are drawn.

    Returns:
        The figure, as of `pyplot`: `plot(solved).savefig("solved.png")`.

    Raises:
        BadInput: a solved problem without a path.
        ModuleNotFoundError: Matplotlib is not there: `pip install 'jaxselect[plot]'`.
    """
    of_kind("solved", solved, Solved)
    whole("first", first)
    path = solved.path
    if not len(path.log_times):
        raise BadInput(
            "solved passed no log-times: wanted some, solve(problem, at=log_times)"
        )
    import matplotlib.pyplot as plt

    problem, times = solved.problem, np.asarray(path.log_times)
    figure, axes = plt.subplots(1, 3, figsize=(12, 3.6), layout="constrained")
    there = np.asarray(problem.corpus.filled)[:first]
    chosen = np.asarray(solved.selected_mask)[:first] & there
    one = in_words(problem, "token")
    for panel, entries in zip(axes, (path.weights, path.scores), strict=False):
        curves = np.asarray(entries)[:, :first]
        panel.plot(times, curves[:, there & ~chosen], color=SERIES[-1], lw=0.7)
        panel.plot(times, curves[:, chosen], color=SERIES[0], lw=1.2)
        panel.plot([], [], color=SERIES[0], label=f"selected {one}s")
        panel.plot([], [], color=SERIES[-1], label=f"other {one}s")
    bags = f"{len(there)} of {len(problem.values)} {in_words(problem, 'sequences')}"
    axes[0].set(title=f"attention weights, {bags}")
    axes[1].set(title="scores")
    axes[0].legend(loc="upper left")
    trained, end = in_words(problem, "p"), in_words(problem, "p_mm")
    queries = solved.flow.path_query[np.isfinite(solved.flow.path_log_times)]
    errors = jax.vmap(direction_error, (0, None))(queries, solved.margin.direction)
    norms = np.linalg.norm(queries, axis=1)
    late = float(solved.error_constant) / np.where(norms > 0, norms, np.nan)
    # No two directions differ by more.
    late = np.where(late <= 2, late, np.nan)
    axes[2].plot(times, errors, "o", color=SERIES[0], ms=4, label="measured")
    label = f"error constant / ‖{trained}‖"
    axes[2].plot(times, late, "--", color=SERIES[1], label=label)
    axes[2].set(title=f"error of the direction of {trained} beside {end}")
    axes[2].set_yscale("log")
    axes[2].legend(loc="lower left")
    for panel in axes:
        panel.set_xlabel("log(1 + t)")
        panel.spines[["top", "right"]].set_visible(False)
        if times[0] > 0 and times[-1] > 30 * times[0]:
            panel.set_xscale("log")
            axes[1].set_yscale("symlog", linthresh=1.0)
    return figure
