"""Which runs depend on the tolerance of their integration: shares and spreads."""

from typing import Any

import numpy as np

from experiments.common.console import say
from experiments.common.runs import CERTIFIED
from experiments.common.statistics import binomial
from jaxselect.margin.certificate import TrialStatus


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

    Args:
        values: relative changes; NaN counts as the largest.

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
