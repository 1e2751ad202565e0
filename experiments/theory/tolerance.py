"""How often does a run's selection depend on the tolerance of its integration?

A stated sample of the cells of sweeps, drawn from a seed, is integrated at the sweep's
tolerance and at a hundredth of it. The study gives the share of runs whose selection or
status changes, by status and by η₀/d, and how far the error constant moves where the
selection stays. Finished chunks are kept, so the same command resumes a stopped study.
"""

import dataclasses
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import jax
import numpy as np

from experiments.common.console import command, say
from experiments.common.grids import GRIDS
from experiments.common.kept import resumed
from experiments.common.programs import ready
from experiments.common.runs import CERTIFIED
from experiments.common.statistics import binomial
from experiments.common.study import Count, Experiment, Study, presets
from jaxselect.checks import BadInput
from jaxselect.compilation import compile_options
from jaxselect.convergence import ToleranceCheck, tolerance_check
from jaxselect.flow.cls import FlowSettings, cls_flow
from jaxselect.margin.certificate import TrialStatus
from jaxselect.problem import attention
from jaxselect.sweep import store
from jaxselect.sweep.description import versions
from jaxselect.sweep.grid import Grid, Shape, lane_values
from jaxselect.sweep.run import Chunk, lane_kinds, plan, run_lanes, start, table

CHUNK_SIZE = 10
"""Runs per file: some seconds of work for a core."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(Study):
    """Settings of the study.

    Attributes:
        sweeps: presets of `experiments.sweep` whose cells are sampled.
        cells: runs drawn from each, without replacement.
        atol: tolerance of a step in scores, of which a hundredth is taken, too.
        workers: processes that run chunks side by side.
        seed: random seed of the sample.
    """

    sweeps: tuple[Literal["default", "smoke", "paper", "phase"], ...] = (
        "default",
        "phase",
    )
    cells: Count = 200
    atol: float = FlowSettings().atol
    workers: Count = 2
    out: Path = Path("results/tolerance")

    def check(self) -> None:
        """Refuse more cells than there are, and a sweep twice."""
        FlowSettings(atol=self.atol)
        if not self.sweeps or len(set(self.sweeps)) < len(self.sweeps):
            raise BadInput(f"sweeps {self.sweeps}: wanted one or more, all different")
        for name in self.sweeps:
            if self.cells > GRIDS[name].size:
                raise BadInput(
                    f"cells {self.cells}: the sweep {name} has {GRIDS[name].size}"
                )


PRESETS = presets(
    full=Settings(), smoke=Settings(sweeps=("smoke",), cells=6, workers=1)
)


def summary(columns: dict[str, np.ndarray]) -> dict[str, Any]:
    """Shares and spreads of what changes between the tolerances.

    Args:
        columns: fields of `ToleranceCheck`, and `dim`, `step_size` and `seed`, by name.

    Returns:
        Shares over all cells, over the certified, by status and by decade of η₀/d; the
        relative change of the error constant of cells that are certified at both
        tolerances with one selection, where `history_dim` is zero and where it is not;
        and every cell that changes.
    """
    names = np.array([TrialStatus(code).name for code in columns["status"]])
    closer = np.array([TrialStatus(code).name for code in columns["closer_status"]])
    selection, status = ~columns["same_selection"], names != closer
    certified = np.isin(names, CERTIFIED)

    def shares(mask: np.ndarray) -> dict[str, Any]:
        return {
            "selection_changes": binomial(selection[mask])._asdict(),
            "status_changes": binomial(status[mask])._asdict(),
        }

    decade = np.floor(np.log10(columns["step_size"] / columns["dim"])).astype(int)
    stays = certified & np.isin(closer, CERTIFIED) & ~selection
    history = columns["history_dim"] > 0
    return {
        "all": shares(np.ones(len(names), bool)),
        "certified": shares(certified),
        "by_status": {name: shares(names == name) for name in sorted(set(names))},
        "by_decade_of_step_size_over_dim": {
            f"1e{power}": shares(decade == power) for power in sorted(set(decade))
        },
        "error_constant": {
            "history_dim_zero": spread(columns["constant_change"][stays & ~history]),
            "history_dim_positive": spread(columns["constant_change"][stays & history]),
        },
        "norm": spread(columns["norm_change"][stays]),
        "changes": [
            {
                "dim": float(columns["dim"][cell]),
                "step_size": float(columns["step_size"][cell]),
                "seed": int(columns["seed"][cell]),
                "status": names[cell],
                "closer_status": closer[cell],
                "same_selection": bool(columns["same_selection"][cell]),
            }
            for cell in np.flatnonzero(selection | status)
        ],
    }


def spread(values: np.ndarray) -> dict[str, Any]:
    """Number, median, 90 % quantile and largest of some changes.

    Returns:
        The numbers; NaN where there is no value.

    Example:
        >>> spread(np.array([1.0, 2.0, 4.0]))["median"]
        2.0
    """
    if not len(values):
        return {"cells": 0, "median": np.nan, "quantile_90": np.nan, "largest": np.nan}
    return {
        "cells": len(values),
        "median": float(np.median(values)),
        "quantile_90": float(np.quantile(values, 0.9)),
        "largest": float(np.max(values)),
    }


def say_shares(sweep: str, found: dict[str, Any]) -> None:
    """The shares of one sweep, a line each."""
    rows = {"all": found["all"], "certified": found["certified"], **found["by_status"]}
    rows |= {
        f"η₀/d from {power}": row
        for power, row in found["by_decade_of_step_size_over_dim"].items()
    }
    say(f"\n{sweep}: share whose selection, and whose status, changes (95 % interval)")
    for name, row in rows.items():
        texts = [
            f"{one['number']:3d} of {one['of']:3d}  {one['share']:6.2%} "
            f"({one['low']:.2%} … {one['high']:.2%})"
            for one in row.values()
        ]
        say(f"  {name.lower().replace('_', ' '):20} " + "   ".join(texts))
    for name, row in found["error_constant"].items():
        say(f"  error constant, {name.replace('_', ' ')}: relative change {row}")
    for row in found["changes"]:
        say(f"  changes: {row}")


def run(settings: Settings, results: dict) -> dict[str, np.ndarray]:
    """Draw the sample, run it at both tolerances, and count what changes."""
    work = [
        (name, chunk)
        for name in settings.sweeps
        for chunk in sample(GRIDS[name], settings.cells, settings.seed)
    ]
    tables = resumed(
        settings,
        partial(measured, settings.atol),
        work,
        "chunks",
        ignored=("preset",),
        lanes=[chunk.lanes for _, chunk in work],
        study="tolerance",
        versions=versions(),
    )
    arrays: dict[str, np.ndarray] = {}
    for sweep in settings.sweeps:
        here = [
            rows for rows, (name, _) in zip(tables, work, strict=True) if name == sweep
        ]
        columns = _columns(GRIDS[sweep], np.concatenate(here))
        results[sweep] = summary(columns)
        arrays |= {f"{sweep}_{name}": column for name, column in columns.items()}
        say_shares(sweep, results[sweep])
    return arrays


def sample(grid: Grid, cells: int, seed: int) -> list[Chunk]:
    """Chunks of cells of a grid, drawn without replacement.

    Args:
        grid: of trials.
        cells: number to draw.
        seed: random seed; it and the grid's size alone determine the sample.

    Returns:
        The chunks, the cells that should take longest first.

    Example:
        >>> chunks = sample(Grid(seed=tuple(range(30))), 12, seed=0)
        >>> [len(chunk.lanes) for chunk in chunks]
        [10, 2]
    """
    drawn = np.random.default_rng(seed).choice(grid.size, cells, replace=False)
    found = []
    for shape, lanes in plan(grid, grid.size):
        lanes = lanes[np.isin(lanes, drawn)]
        cuts = range(0, len(lanes), CHUNK_SIZE)
        found += [Chunk(shape, lanes[cut : cut + CHUNK_SIZE]) for cut in cuts]
    return found


def measured(
    atol: float,
    folder: Path,
    whole: set[int],
    stop: threading.Event,
    number: int,
    case: tuple[str, Chunk],
) -> np.ndarray:
    """A chunk's rows from disk, or made now and written there."""
    if stop.is_set():
        raise KeyboardInterrupt
    if number not in whole:
        sweep, chunk = case
        grid = GRIDS[sweep]
        kinds = lane_kinds(grid, chunk.shape)
        # The numbers of a cell alone: this flow has one stage.
        typed = zip(lane_values(grid, chunk.lanes).values(), kinds, strict=False)
        columns = [np.asarray(column, kind.dtype) for column, kind in typed]
        found = run_lanes(program(atol, grid, chunk.shape), columns, None)
        rows = table(chunk.lanes, found)
        store.write_chunk(folder, number, rows)
    return store.read_chunk(folder, number)


def program(atol: float, grid: Grid, shape: Shape) -> Callable[..., SimpleNamespace]:
    """The check of one lane, compiled by any process before this one."""

    def run(*values: jax.Array) -> SimpleNamespace:
        options = compile_options()
        return ready(lane, (atol, grid, shape), values, options=options).run(*values)

    return run


def lane(atol: float, grid: Grid, shape: Shape) -> Callable[..., ToleranceCheck]:
    """The flow of the sweep's trial, and its check."""
    settings, norm = FlowSettings(atol=atol), grid.until_norm

    def checked(*numbers: jax.Array) -> ToleranceCheck:
        _, after, corpus, _ = start(grid, shape, *numbers)
        problem = attention(after, corpus)
        flow = cls_flow(problem, until_norm=norm, settings=settings)
        return tolerance_check(problem, flow, until_norm=norm, settings=settings)

    return checked


def _columns(grid: Grid, rows: np.ndarray) -> dict[str, np.ndarray]:
    """Rows by name, with d, η₀ and seed of each lane."""
    cells = lane_values(grid, rows["lane"])
    columns = {name: cells[name] for name in ("dim", "step_size", "seed")}
    return columns | {name: rows[name] for name in rows.dtype.fields or ()}


main = Experiment(run)


if __name__ == "__main__":
    command(main, PRESETS)
