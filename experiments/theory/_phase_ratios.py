"""Measured over predicted edges: ratios, shares, exponents."""

import jax
import jax.numpy as jnp
import numpy as np

from experiments.common.statistics import bootstrap
from experiments.theory import _phase_brackets as ask
from experiments.theory._phase_brackets import Case
from experiments.theory._phase_lanes import Shape

WITHIN = {
    "selection": 1.2,
    "breaking_lower": 1.1,
    "breaking_upper": 1.1,
    "capture_lower": 1.25,
    "capture_upper": 1.25,
    "largest_dim": 3.0,
}
"""Largest ratio of measured to predicted edge, or its inverse, that counts."""
SIZES = ("length", "relevant", "irrelevant", "sequences")
"""The size that each of the second to fifth shape changes."""


def compare(case: Case, asked: ask.Brackets, ended: ask.Brackets) -> list[dict]:
    """Measured over predicted, the geometric mean over draws with its interval."""
    measured = np.sqrt(ended.low * ended.high)
    at_end = (ended.low == asked.low) | (ended.high == asked.high)
    rows = []
    for edge, fixed in dict.fromkeys(zip(asked.edge, asked.fixed, strict=True)):
        here = (asked.edge == edge) & (asked.fixed == fixed)
        ratio = np.log(measured[here] / asked.predicted[here])
        low, high = bootstrap(ratio)
        rows.append(
            {
                "case": case.name,
                "edge": ask.NAMES[edge],
                "fixed": fixed,
                "predicted": asked.predicted[here][0],
                "ratio": np.exp(ratio.mean()),
                "low": np.exp(low),
                "high": np.exp(high),
                "at_an_end": at_end[here].mean(),
            }
        )
    return rows


def share_within(ratios: list[float], bound: float) -> float:
    """Share of ratios between 1/bound and bound."""
    logs = np.abs(np.log(ratios))
    return float(np.mean(logs <= np.log(bound))) if len(logs) else float("nan")


def summary(rows: list[dict], name: str) -> dict[str, float]:
    """Accuracy of the prediction of one edge on shapes within the theory."""
    here = [row for row in rows if row["edge"] == name and inside(row)]
    ratios = [row["ratio"] for row in here]
    return {
        "edges": len(here),
        "within": share_within(ratios, WITHIN[name]),
        "median_ratio": float(np.median(ratios)) if here else float("nan"),
        "least": min(ratios, default=float("nan")),
        "most": max(ratios, default=float("nan")),
    }


def exponents(rows: list[dict], cases: list[Case], dim: float) -> list[dict]:
    """Exponents of the edges in each size: derivative, predicted, measured."""
    at = {(row["case"], row["edge"], row["fixed"]): row for row in rows}
    ensemble = jax.tree.map(jnp.asarray, cases[0].ensemble)
    slopes = np.asarray(ask.exponents(ensemble, jnp.asarray(dim)))
    found = []
    for size, case in zip(SIZES, cases[1:5], strict=True):
        order = Shape._fields.index(size)
        grown = np.log(case.shape[order] / cases[0].shape[order])
        for place, name in enumerate(ask.NAMES[:5]):
            key = name, dim
            if not ((case.name, *key) in at and (cases[0].name, *key) in at):
                continue
            there, here = at[case.name, *key], at[cases[0].name, *key]
            change = np.log(there["predicted"] / here["predicted"])
            seen = change + np.log(there["ratio"] / here["ratio"])
            found.append(
                {
                    "size": size,
                    "edge": name,
                    "derivative": float(slopes[place, order]),
                    "predicted": float(change / grown),
                    "measured": float(seen / grown),
                }
            )
    return found


def inside(row: dict) -> bool:
    """Whether a row is of a shape within the theory."""
    return row["case"].startswith("n")
