"""Times to select and their derivatives in η₀, and the best step size."""

import numpy as np

from experiments.report.charts import Chart, axis, chart, series
from experiments.report.folders import Found
from experiments.report.numbers import num
from experiments.report.sections import Shown
from experiments.report.theory_claims import as_good_as_grid


def step_size(found: Found) -> Shown:
    """Times and their derivatives in η₀, and the best η₀ found."""
    arrays, optima = found.arrays, found.results["optima"]
    charts: list[Chart] = []
    for name, title in (
        ("selection_log_time", "log t to selection"),
        ("log_time_to_error", "log t to direction error 10⁻⁴"),
        ("error_constant", "constant of the direction error"),
    ):
        charts += _with_slope(arrays, name, title)
    dims = [cell["dim"] for cell in optima]
    charts.append(
        chart(
            "step-best",
            "The step size that selects soonest",
            "What descent through the flow finds, beside a fine grid.",
            axis("embedding dimension d", log=True),
            axis("best η₀", log=True),
            [
                series(
                    who,
                    dims,
                    [cell[f"step_size_{key}"] for cell in optima],
                    kind="points",
                    colour=colour,
                )
                for colour, (who, key) in enumerate(
                    (("descent", "descent"), ("grid", "grid"))
                )
            ],
        )
    )
    rows = [["d", "η₀ by descent", "by grid", "log t by descent", "by grid", "cost"]]
    rows += [
        [
            num(cell["dim"]),
            num(cell["step_size_descent"]),
            num(cell["step_size_grid"]),
            num(cell["log_time_descent"], 4),
            num(cell["log_time_grid"], 4),
            num(cell["cost_share"]),
        ]
        for cell in optima
    ]
    return Shown(
        [
            f"Descent does as well as the grid in {as_good_as_grid(optima)} "
            f"of {len(optima)} dimensions, at {num(found.results['cost_share'])} of "
            "its cost. Where some draw passes too suddenly to tell when, in a share of "
            f"{num(found.results.get('not_told_share'))} of the grid, η₀ is left out."
        ],
        charts,
        rows,
    )


def _with_slope(arrays: dict, name: str, title: str) -> list[Chart]:
    """A rate over η₀ and its derivative, means over the draws that are predicted."""
    if name not in arrays or f"{name}_slope" not in arrays:
        return []
    drawn = []
    for key, label in ((name, title), (f"{name}_slope", f"∂ / ∂ log η₀ of {title}")):
        kept = arrays["predicted"] & np.isfinite(arrays[key])
        number = kept.sum(axis=2)
        total = np.where(kept, arrays[key], 0).sum(axis=2)
        mean = np.where(number > 0, total / np.maximum(number, 1), np.nan)
        drawn.append(
            chart(
                f"step-{key.replace('_', '-')}",
                label[0].upper() + label[1:],
                "Mean over the draws whose late flow is predicted, one curve per d.",
                axis("η₀", log=True),
                axis(label, log=key == name),
                [
                    series(
                        f"d = {num(dim)}",
                        arrays["step_sizes"],
                        row,
                        kind="points",
                        colour=place,
                    )
                    for place, (dim, row) in enumerate(
                        zip(arrays["dims"], mean, strict=True)
                    )
                ],
            )
        )
    return drawn
