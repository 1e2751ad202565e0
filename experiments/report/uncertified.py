"""The runs of a sweep without a certificate: why there is none, and each one again."""

import shlex
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from experiments.common.edges import ASSUMPTION_ONE, SIZES
from experiments.common.flags import to_flags
from experiments.common.numbers import num
from experiments.common.runs import CERTIFIED
from jaxselect.margin.certificate import TrialStatus
from jaxselect.status import Reason

SHOWN = 8
"""Runs of a status that are listed, the first ones of the grid."""
NUMBERS = {
    "LINE": "late_flow_residual",
    "PERTURBATIONS": "perturbation_bound",
    "HISTORY": "history_change",
}
"""What exceeds the tolerance, by reason."""


class Run(NamedTuple):
    """One run: its coordinates, the numbers that it ended with, and its command."""

    place: str
    numbers: str
    command: str


class Uncertified(NamedTuple):
    """A status without a certificate.

    Attributes:
        status: its name.
        number: of runs.
        reason: in a sentence.
        runs: the first of them.
    """

    status: str
    number: int
    reason: str
    runs: list[Run]


def uncertified(results: xr.Dataset) -> list[Uncertified]:
    """Every status without a certificate that a run of a sweep has.

    Returns:
        With the runs, in the order of the grid; missing runs have no status.
    """
    found = []
    for name, code in results.attrs["statuses"].items():
        places = np.argwhere(results.status.values == code)
        if name in CERTIFIED or not len(places):
            continue
        runs = [
            _run(results.isel(dict(zip(results.status.dims, place, strict=True))), name)
            for place in places[:SHOWN]
        ]
        found.append(Uncertified(name, len(places), TrialStatus[name].sentence, runs))
    return found


def _run(run: xr.Dataset, status: str) -> Run:
    where = {name: run[name].item() for name in run.attrs["axes"]}
    long = [name for name, values in run.attrs["axes"].items() if len(values) > 1]
    symbols = {"dim": "d", "step_size": "η₀"}
    shown = dict.fromkeys((*long, "dim", "step_size", "seed"))
    return Run(
        ", ".join(
            f"{symbols.get(name, name.replace('_', ' '))} = {num(where[name], 4)}"
            for name in shown
        ),
        _cause(run, status),
        command(run.attrs["grid"], where),
    )


def _cause(run: xr.Dataset, status: str) -> str:
    """The hypothesis that a certificate was refused for, and where the run ended."""
    end = (
        f"‖p‖ = {num(run.cls_norm.item())} at log t = {num(run.log_time.item())} "
        f"after {run.num_steps.item():,} steps"
    )
    if status != "UNRESOLVED":
        return end
    names = {code: name for name, code in run.attrs["reasons"].items()}
    name = names[run.reason.item()]
    size = f" {num(run[NUMBERS[name]].item())}" if name in NUMBERS else ""
    # A sweep of another version may have reasons of its own.
    known = Reason.__members__.get(name)
    said = name if known is None else known.sentence.rstrip(".").replace("`", "")
    return f"{said}{size}; {end}"


def command(grid: dict[str, Any], where: dict[str, Any]) -> str:
    """The command that repeats one run of a sweep.

    Returns:
        A single run where the family is that of `experiments.run`, else a sweep of one.

    Example:
        >>> sizes = {"sequences": 20, "length": 4, "relevant": 2, "irrelevant": 8}
        >>> where = sizes | {"dim": 64.0, "step_size": 10.0, "seed": 3}
        >>> grid = {"family": "exact", "until_norm": 1e3, "precision": "float64"}
        >>> command(grid, where)
        'python -m experiments.run --sequences 20 --length 4 --relevant 2 ...'
    """
    embed = grid.get("embed", ASSUMPTION_ONE["embed"])
    here = grid | {name: [value] for name, value in where.items()}
    single = {*ASSUMPTION_ONE, *SIZES, "dim", "step_size", "seed"}
    alone = where.keys() <= single and all(
        here.get(name, value) == value for name, value in ASSUMPTION_ONE.items()
    )
    shared = {name: grid[name] for name in ("until_norm", "precision")}
    if alone:
        named = {name: where[name] for name in (*SIZES, "dim", "step_size", "seed")}
        words = ["experiments.run", *to_flags(named | shared, {})]
    else:
        family = {"family": grid["family"], "out": "results/one"}
        family |= {} if embed == ASSUMPTION_ONE["embed"] else {"embed": embed}
        words = ["experiments.sweep", *to_flags(where | shared | family, {})]
    return shlex.join(["python", "-m", *words])
