"""Rates, their derivatives, and what else the theory's studies found, as charts."""

import numpy as np

from experiments.report.charts import Chart, axis, chart, series
from experiments.report.folders import Found
from experiments.report.numbers import told
from experiments.report.sections import Part, Shown, Told

LINES = 24
"""Draws of a study whose curves travel with the page."""


def rates(found: Found) -> Shown:
    """Error over prediction against ‖p‖; local exponents."""
    results, arrays = found.results, found.arrays
    norms, errors = arrays["norms"], arrays["errors"]
    over = errors / arrays["constant"][:, None]
    ends = np.array([norms[norms > 1].min(), norms.max()])
    lines = [
        series("measured", x, y, legend=not place)
        for place, (x, y) in enumerate(zip(norms[:LINES], over[:LINES], strict=True))
    ]
    lines.append(series("predicted: 1/‖p‖", ends, 1 / ends, kind="dash", colour=1))
    times = arrays["log_times"]
    slopes = [
        series(name, x, y, colour=colour, legend=not place)
        for colour, (key, name) in enumerate(
            (
                ("exponents_norm", "in ‖p‖"),
                ("exponents_log_time", "in log t"),
            )
        )
        for place, (x, y) in enumerate(
            zip(times[:LINES], arrays[key][:LINES], strict=True)
        )
    ]
    return Shown(
        [
            f"Over {results['seeds']} draws the direction error falls with exponent "
            f"{told(results['exponent_norm'], 6)} in ‖p‖ and "
            f"{told(results['exponent_log_time'], 5)} in log t; its constant deviates "
            f"from the prediction by {told(results['constant_largest_deviation'])} "
            "at most."
        ],
        [
            chart(
                "rates-error",
                "Direction error over its predicted constant",
                "Every draw joins the line 1/‖p‖.",
                axis("‖p‖", log=True),
                axis("error / constant", log=True),
                lines,
            ),
            chart(
                "rates-exponents",
                "Local exponents of the direction error",
                "Both tend to −1.",
                axis("log t", log=True),
                axis("exponent", range=[-3, 1]),
                slopes,
            ),
        ],
    )


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
            told(cell["dim"]),
            told(cell["step_size_descent"]),
            told(cell["step_size_grid"]),
            told(cell["log_time_descent"], 4),
            told(cell["log_time_grid"], 4),
            told(cell["cost_share"]),
        ]
        for cell in optima
    ]
    return Shown(
        [
            f"Descent does as well as the grid in {found.results['as_good_as_grid']} "
            f"of {len(optima)} dimensions, at {told(found.results['cost_share'])} of "
            "its cost."
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
                        f"d = {told(dim)}",
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


def influence(found: Found) -> Shown:
    """How far p_mm turns as a token fades: derivative beside the truth."""
    arrays, results = found.arrays, found.results
    order = np.argsort(-arrays["token_turn"])
    rank = np.arange(len(order)) + 1
    return Shown(
        [
            "A tenth of a token taken away turns p_mm as its derivative says: rank "
            f"correlation {told(results['token_0.1']['rank_correlation'])} over "
            f"{len(order)} tokens."
        ],
        [
            chart(
                "influence-token",
                "Turn of p_mm per share of a token",
                "Tokens in the order of their influence.",
                axis("rank of the token"),
                axis("turn of p_mm/‖p_mm‖", log=True),
                [
                    series(
                        "derivative", rank, arrays["token_turn"][order], kind="points"
                    ),
                    series(
                        "a tenth removed",
                        rank,
                        arrays["token_removed_0.1"][order] / 0.1,
                        kind="dots",
                        colour=1,
                    ),
                ],
            )
        ],
    )


def discrete(found: Found) -> Shown:
    """Distance of gradient descent to the flow, over its step size."""
    arrays = found.arrays
    lines = [
        series(
            name, arrays["shares"], row, kind="points", colour=colour, legend=not place
        )
        for colour, (name, rows) in enumerate(
            zip(("gradient descent", "normalised"), arrays["deviations"], strict=True)
        )
        for place, row in enumerate(rows[:LINES])
    ]
    return Shown(
        [
            "Below the step h = 2/λ, λ the largest curvature on the way, discrete "
            "steps stay with the flow; beyond it they leave."
        ],
        [
            chart(
                "discrete",
                "Steps in place of the flow",
                "The predicted limit is at 1.",
                axis("h / predicted limit", log=True),
                axis("largest distance to the flow / ‖p‖", log=True),
                lines,
            )
        ],
    )


def joint(found: Found) -> Shown:
    """How far p heads from p_mm where v is trained besides."""
    arrays, results = found.arrays, found.results
    lines = []
    for colour, name in enumerate(("equal", "unequal")):
        # The last axis is time; of both flows the second has v trained.
        for place, row in enumerate(arrays[f"{name}_off"][:LINES, 1]):
            lines.append(
                series(
                    f"{name} classes",
                    arrays["log_times"],
                    row,
                    colour=colour,
                    legend=not place,
                )
            )
    counts = {name: results[name]["status"] for name in ("equal", "unequal")}
    return Shown(
        [
            f"{name.capitalize()} classes: "
            + ", ".join(
                f"{number} {status.lower().replace('_', ' ')}"
                for status, number in count.items()
                if number
            )
            + "."
            for name, count in counts.items()
        ],
        [
            chart(
                "joint",
                "Where p heads beside a trained v",
                "Distance of dp/dτ from p_mm over ‖p_mm‖; what stays above has turned.",
                axis("log t", log=True),
                axis("‖dp/dτ − p_mm‖ / ‖p_mm‖", log=True),
                lines,
            )
        ],
    )


SECTION = Told(
    "rates",
    "Rates",
    "How fast the direction of p converges, what that depends on, and how the theory "
    "carries over to steps, to a trained head and to a matrix before p.",
    tuple(
        Part(f"theory.{name}", title, f"python -m experiments.theory.{name}", show)
        for name, title, show in (
            ("rates", "Error constant and exponents", rates),
            ("step_size", "Derivatives in η₀, and the best η₀", step_size),
            ("influence", "Which token matters", influence),
            ("discrete", "Steps in place of the flow", discrete),
            ("joint", "A trained head, a matrix before p", joint),
        )
    ),
)
