"""Settings of a sweep, and the presets that `make sweep` knows by name."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np

from jaxselect.sweep.grid import Grid

CHUNK_SIZE = {"cpu": 8, "gpu": 256, "tpu": 64}
"""Lanes per chunk and device, at most: a second of work for a core, enough for an
accelerator to fill. Lanes in step wait for the slowest: on the default grid 64 take 2.8
times the steps they need, and 256 five times. A TPU's compiler unrolls over them, too:
of 256 the program is nearly twice as large, for a fifth less of its estimated cycles in
each step and lane."""


@dataclass(frozen=True)
class Settings:
    """Settings of a sweep: the grid, and how to run it.

    Attributes:
        preset: where the defaults come from.
        grid: what to run.
        out: folder for the results; by default results/PRESET.
        resume: go on where an earlier sweep stopped; else its chunks are removed.
        launcher: processes or devices of this machine, all of its devices on each
            chunk, a cluster of jax processes, or Ray.
        workers: processes or devices to use; by default all, for up to 64 runs one.
        chunk_size: lanes per file, and per call where they are in step; by default
            what suits the device, and what its memory holds.
        together: lanes of a chunk in step, or one after the other; by default in step
            on accelerators, and where they are sharded.
        quiet: no progress.
        json: print the summary as one JSON object on standard output.
    """

    preset: str = "default"
    grid: Grid = field(default_factory=Grid)
    out: Path | None = None
    resume: bool = True
    launcher: Literal["local", "sharded", "jax", "ray"] = "local"
    workers: int | None = None
    chunk_size: int | None = None
    together: bool | None = None
    quiet: bool = False
    json: bool = False


def _decades(first: float, last: float, per_decade: int) -> tuple[float, ...]:
    number = round((last - first) * per_decade) + 1
    return tuple(float(f"{x:.4g}") for x in np.logspace(first, last, number))


def _whole(values: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(float(round(value)) for value in values)


PRESETS = {
    "default": Settings(
        grid=Grid(
            dim=_whole((32, *_decades(2, 6, 2))),
            step_size=_decades(-1, 5, 2),
            seed=tuple(range(8)),
            path_points=60,
        )
    ),
    "smoke": Settings(
        grid=Grid(
            sequences=(20,),
            length=(4,),
            relevant=(2,),
            irrelevant=(8,),
            dim=(64.0, 1e4, 1e6),
            step_size=(1.0, 100.0),
            seed=tuple(range(4)),
            until_norm=1e3,
            path_points=30,
        )
    ),
    "paper": Settings(
        grid=Grid(
            sequences=(200, 1000),
            length=(8, 32),
            dim=_whole((128, 2048, *_decades(4, 6, 1))),
            step_size=_decades(-1, 5, 1),
            seed=tuple(range(16)),
            path_points=60,
        )
    ),
    "phase": Settings(
        grid=Grid(
            dim=_whole((16, *_decades(1.5, 9, 4))),
            step_size=_decades(-1, 5, 8),
            seed=tuple(range(64)),
        )
    ),
    "tpu": Settings(
        grid=Grid(
            dim=_whole((16, *_decades(1.5, 9, 4))),
            step_size=_decades(-1, 5, 2),
            seed=tuple(range(64)),
            until_norm=1e4,
            precision="float32",
        )
    ),
}
