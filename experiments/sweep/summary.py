"""Summary of a finished sweep: counts, shares with intervals, fitted exponents.

Reads labelled results and NumPy only; nothing here runs a trial.
"""

from typing import Any

import numpy as np
import xarray as xr

from experiments.common.runs import (
    CERTIFIED,
    by_history,
    lemma_fit,
    with_status,
)
from experiments.common.statistics import bootstrap


def summarise(results: xr.Dataset) -> dict[str, Any]:
    """Counts of every status, and the paper's claims in numbers.

    Returns:
        Plain numbers, ready for JSON; entries without data are None. Shares are of all
        runs that are there: `ends_by_step_size` holds, for each η₀, their number
        `runs`, the share that is certified to select every important token
        (`selected_all`, with its interval from `low` to `high`), the share that is
        certified to end otherwise, and that which is `undecided`.
    """
    status = results.status.values.ravel()
    counts = {
        name.lower(): int((status == code).sum())
        for name, code in results.attrs["statuses"].items()
    }
    counts["missing"] = int((status < 0).sum())
    certified = with_status(results, *CERTIFIED)
    summary: dict[str, Any] = {"runs": int(status.size), "statuses": counts}
    there = int((status >= 0).sum())
    summary["certified_share"] = int(certified.sum()) / there if there else None
    everything = with_status(results, "SELECTED_ALL")
    summary["ends_by_step_size"] = {
        f"{eta:g}": _ends(
            everything.sel(step_size=eta).values,
            certified.sel(step_size=eta).values,
            results.status.sel(step_size=eta).values >= 0,
        )
        for eta in results.step_size.values
    }
    if results.sizes["dim"] > 2 and (law := lemma_fit(results)) is not None:
        summary["alignment_error_exponent"] = {
            "exponent": law.exponent,
            "low": law.low,
            "high": law.high,
            "dims": [float(law.dims[0]), float(law.dims[-1])],
        }
    constant = results.direction_error * results.cls_norm / results.error_constant
    for name, among in by_history(results).items():
        off = abs(constant - 1)
        summary[f"direction_constant_deviation_{name}"] = _quantiles(
            off, certified & among
        )
        summary[f"certified_{name}"] = int((certified & among).sum())
    summary["duality_gap"] = _quantiles(results.duality_gap, certified)
    return summary


def describe(summary: dict[str, Any]) -> str:
    """The summary as lines for people."""
    lines = [f"{summary['runs']} runs"]
    if summary["certified_share"] is not None:
        lines[0] += f", {summary['certified_share']:.1%} certified"
    decided = {name.lower() for name in CERTIFIED} | {"missing"}
    for name, count in summary["statuses"].items():
        if count:
            note = "" if name in decided else "   not certified"
            share = f"{count / summary['runs']:>8.1%}"
            lines.append(f"  {name.replace('_', ' '):<20}{count:>8}{share}{note}")
    lines.append(
        "share that  selects all  [95 % interval]   ends otherwise   is undecided"
    )
    for eta, row in summary["ends_by_step_size"].items():
        if row["runs"]:
            shares = f"{row['other']:>14.3f}   {row['undecided']:>12.3f}"
            lines.append(f"  η₀ = {eta:<8}{_interval(row):30}{shares}")
    fit = summary.get("alignment_error_exponent")
    if fit:
        interval = f" (95 % interval {fit['low']:.4f} … {fit['high']:.4f})"
        interval = "" if np.isnan(fit["low"]) else interval
        lines.append(
            f"error of Lemma 4.1 ∝ d^({fit['exponent']:.3f}){interval} "
            f"for d from {fit['dims'][0]:,.0f} to {fit['dims'][1]:,.0f}"
        )
    for name, title in (
        (
            "direction_constant_deviation_predicted",
            "‖p‖ · (direction error), off its limit predicted without integrating "
            f"({summary['certified_predicted']:,} runs)",
        ),
        (
            "direction_constant_deviation_with_path",
            "the same where a part of ρ depends on the path of p "
            f"({summary['certified_with_path']:,} runs)",
        ),
        ("duality_gap", "duality gap of the max-margin solution"),
    ):
        if summary[name]:
            middle, high = summary[name]
            lines.append(f"{title}: median {middle:.1e}, 99 % below {high:.1e}")
    return "\n".join(lines)


def _ends(all_of_them: np.ndarray, certified: np.ndarray, there: np.ndarray) -> dict:
    """Shares of the runs that are there, which add up to one."""
    values = all_of_them[there].astype(float)
    runs, decided = len(values), float(certified[there].mean()) if len(values) else None
    if decided is None:
        names = ("selected_all", "low", "high", "other", "undecided")
        return dict.fromkeys(names) | {"runs": 0}
    low, high = bootstrap(values)
    share = float(values.mean())
    rest = {"other": decided - share, "undecided": 1 - decided, "runs": runs}
    return {"selected_all": share, "low": low, "high": high, **rest}


def _interval(row: dict[str, Any]) -> str:
    if not np.isfinite(row["low"]):
        return f"{row['selected_all']:>8.3f}"
    return f"{row['selected_all']:>8.3f}  [{row['low']:.3f}, {row['high']:.3f}]"


def _quantiles(values: xr.DataArray, mask: xr.DataArray) -> tuple[float, float] | None:
    """Median and 99 % quantile of the finite values under a mask."""
    chosen = values.values[mask.values]
    chosen = chosen[np.isfinite(chosen)]
    if not chosen.size:
        return None
    middle, high = np.quantile(chosen, [0.5, 0.99])
    return float(middle), float(high)
