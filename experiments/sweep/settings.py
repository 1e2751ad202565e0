"""Settings of a sweep, and the presets that `make sweep` knows by name."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from experiments.common.study import Count, Program, presets
from experiments.sweep.grids import GRIDS
from jaxselect.sweep.grid import Grid


@dataclass(frozen=True, kw_only=True)
class Settings(Program):
    """Settings of a sweep: the grid, and how to run it.

    Attributes:
        grid: what to run.
        out: folder for the results; by default results/PRESET.
        resume: go on where an earlier sweep stopped; else its chunks are removed.
        launcher: processes or devices of this machine, or the Ray cluster that
            `RAY_ADDRESS` names; its ports must be closed to all but its machines.
        workers: processes or devices to use; by default all, for up to 64 runs one.
        chunk_size: runs per file, and per call where they are in step; by default
            what suits the device, and what its memory holds.
        vmapped: runs of a chunk in step, or one after the other; by default in step
            on accelerators.
        quiet: no progress.
    """

    grid: Grid = field(default_factory=Grid)
    out: Path | None = None
    resume: bool = True
    launcher: Literal["local", "ray"] = "local"
    workers: Count | None = None
    chunk_size: int | None = None
    vmapped: bool | None = None
    quiet: bool = False


PRESETS = presets(**{name: Settings(grid=grid) for name, grid in GRIDS.items()})
