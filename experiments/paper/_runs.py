"""The runs of `make sweep`, of which several items of the paper speak."""

import dataclasses
from pathlib import Path

import xarray as xr

from experiments.common.results import Finished
from experiments.common.study import Study
from experiments.sweep.settings import PRESETS
from experiments.sweep.study import sweep
from jaxselect.sweep.grid import Grid
from jaxselect.sweep.store import load_all


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(Study):
    """Where the runs are.

    Attributes:
        sweep: folder of the runs of `make sweep`; those that are missing are run.
        preset: full, or smoke (the smallest sweep).
    """

    sweep: Path = Path("results/default")


def smoke(settings: Settings) -> Settings:
    """The same of the smallest sweep."""
    return dataclasses.replace(settings, sweep=Path("results/smoke"))


def run(settings: Settings, results: dict) -> None:
    """Run what is missing of the sweep."""
    chosen = PRESETS["smoke" if settings.preset == "smoke" else "default"]
    if not complete(settings.sweep, chosen.grid):
        sweep(dataclasses.replace(chosen, out=settings.sweep))
    results["runs"] = load_all(settings.sweep).status.size


def complete(folder: Path, grid: Grid) -> bool:
    """Whether a folder holds every run of a grid."""
    if not (folder / "settings.json").exists():
        return False
    there = load_all(folder)
    same = there.attrs["grid"] == grid.described()
    return same and "status" in there and bool((there.status >= 0).all())


def runs(found: Finished) -> xr.Dataset:
    """The runs that results on disk are of.

    Raises:
        BadInput: they are no longer there.
    """
    return load_all(Path(found.settings["sweep"]))
