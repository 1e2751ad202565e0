"""Which tokens a joint flow selects: unequal classes, and the plane of (d, η₀)."""

from typing import Any

import numpy as np

from experiments.theory._joint_lanes import Cell
from experiments.theory._joint_laws import interval, largest
from experiments.theory._joint_plan import Plan


def selection_cells(plan: Plan) -> list[Cell]:
    """Unequal classes, over η and the step on E."""
    return [
        plan.cell(
            seed, plan.dims[-1], eta=eta, positive=more, negative=less, alignment=size
        )
        for more, less in plan.classes
        for size in plan.alignments
        for eta in plan.selection_etas
        for seed in plan.draws
    ]


def selection(plan: Plan, rows: np.ndarray) -> tuple[Any, dict[str, np.ndarray]]:
    """Numbers of selected tokens, |b_mm|², and the residuals of the KKT point."""
    shape = (len(plan.classes), len(plan.alignments), len(plan.selection_etas))
    rows = rows.reshape(*shape, len(plan.draws))
    number = rows["selected"].sum(axis=-1)
    full = (rows["covered"] == 1).all(axis=-1)
    found = []
    for place in np.ndindex(*shape):
        here = rows[place]
        positive, negative = plan.classes[place[0]]
        found.append(
            {
                "positive": positive,
                "negative": negative,
                "alignment": plan.alignments[place[1]],
                "eta": plan.selection_etas[place[2]],
                "all_important": int(full[place].sum()),
                "tokens": interval(number[place].astype(float)),
                "square_off": largest(np.abs(here["square"] - number[place])),
                "stationarity": largest(here["stationarity"]),
                "slackness": largest(here["slackness"]),
                "balance_off": largest(np.abs(here["balance"] - 1)),
                "draws": len(here),
            }
        )
    return found, {"number": number, "all": full}


DIAGRAM_RATES = {
    "p alone": (0.0, 1.0, 0.0),
    "η = 0.01": (0.01, 1.0, 1.0),
    "η = 1": (1.0, 1.0, 1.0),
    "η = 100": (100.0, 1.0, 1.0),
}
"""Rates of the phase diagram: frozen embeddings, then nothing frozen."""
ENDS = ("all important", "positive only", "negative only", "other")
"""How a run of the phase diagram ended: sequences that attend to their own token."""


def phases_cells(plan: Plan) -> list[Cell]:
    """Rates, d and η₀."""
    return [
        plan.cell(seed, dim, eta=eta, cls_rate=p, head_rate=v, step_size=step)
        for eta, p, v in DIAGRAM_RATES.values()
        for dim in plan.dims
        for step in plan.step_sizes
        for seed in plan.draws
    ]


def phases(plan: Plan, rows: np.ndarray) -> tuple[Any, dict[str, np.ndarray]]:
    """The share of runs by end, over (d, η₀), for each rate of E."""
    shape = (len(DIAGRAM_RATES), len(plan.dims), len(plan.step_sizes), len(plan.draws))
    covered = rows["covered"].reshape(*shape, 2) == 1
    positive, negative = covered[..., 0], covered[..., 1]
    ends = [
        positive & negative,
        positive & ~negative,
        negative & ~positive,
        ~positive & ~negative,
    ]
    shares = np.stack([end.mean(axis=-1) for end in ends], axis=-1)
    found = [
        {"rates": name, "dim": dim}
        | {end: float(shares[i, j, :, k].mean()) for k, end in enumerate(ENDS)}
        for i, name in enumerate(DIAGRAM_RATES)
        for j, dim in enumerate(plan.dims)
    ]
    return found, {"shares": shares}
