"""Rates, their derivatives, and what else the theory's studies found, as charts."""

import numpy as np

from experiments.report.charts import axis, chart, series
from experiments.report.folders import Found
from experiments.report.numbers import num, percent
from experiments.report.sections import Part, Shown, Topic
from experiments.report.step_size_part import step_size

LINES = 24
"""Draws of a study whose curves travel with the page."""
SHOWN = ("p", "p, v", "E, p", "E, p, v")
"""What is trained in the curves of the joint study."""
FAINTEST = 1e-16
"""Weight below which a curve leaves the chart."""


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
            f"{num(results['exponent_norm'], 6)} in ‖p‖ and "
            f"{num(results['exponent_log_time'], 5)} in log t; its constant deviates "
            f"from the prediction by {num(results['constant_largest_deviation'])} "
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


def phases(found: Found) -> Shown:
    """Measured edges of the phase diagram over predicted ones."""
    rows = [["edge", "number", "as predicted", "median ratio", "range"]]
    rows += [
        [
            name.replace("_", " "),
            str(part["edges"]),
            percent(part["within"], 1),
            num(part["median_ratio"]),
            f"{num(part['least'])} … {num(part['most'])}",
        ]
        for name, part in found.results["summary"].items()
    ]
    edges = [row for row in found.results["edges"] if row["edge"] != "largest_dim"]
    names = list(dict.fromkeys(row["edge"] for row in edges))
    ends = np.array(
        [min(row["predicted"] for row in edges), max(row["predicted"] for row in edges)]
    )
    drawn = [series("as predicted", ends, ends, kind="dash", colour=6)]
    for place, name in enumerate(names):
        here = [row for row in edges if row["edge"] == name]
        predicted = np.array([row["predicted"] for row in here])
        ratio = np.array([row["ratio"] for row in here])
        drawn.append(
            series(
                name.replace("_", " "),
                predicted,
                predicted * ratio,
                kind="dots",
                colour=place,
                text=[row["case"] for row in here],
            )
        )
    return Shown(
        ["Edges were bisected on shapes that the theory never saw."],
        [
            chart(
                "phases-edges",
                "Edges of the phase diagram",
                "A dot for each edge, shape and dimension.",
                axis("predicted η₀", log=True),
                axis("measured η₀", log=True),
                drawn,
            )
        ],
        rows,
    )


def influence(found: Found) -> Shown:
    """How far p_mm turns as a token fades: derivative beside the truth."""
    arrays, results = found.arrays, found.results
    order = np.argsort(-arrays["token_turn"])
    rank = np.arange(len(order)) + 1
    return Shown(
        [
            "A tenth of a token taken away turns p_mm as its derivative says: rank "
            f"correlation {num(results['token_0.1']['rank_correlation'])} over "
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
    """Weight off the important token by what is trained; selection; p beside v."""
    arrays, results = found.arrays, found.results
    said, charts = [], []
    if "laws" in results:
        rows = results["laws"]
        names = list(dict.fromkeys(row["trained"] for row in rows))
        lines = []
        for colour, name in enumerate(SHOWN):
            place = names.index(name)
            for which, off in enumerate(arrays["laws_off"][place, -1]):
                lines.append(
                    series(
                        f"{name} trained",
                        arrays["log_times"],
                        np.where(off > FAINTEST, off, np.nan),
                        colour=colour,
                        legend=not which,
                    )
                )
            law = arrays["laws_law"][place]
            law = np.where(law > FAINTEST, law, np.nan)
            lines.append(
                series(
                    "law",
                    arrays["log_times"],
                    law,
                    kind="dash",
                    colour=6,
                    legend=not colour,
                )
            )
        charts.append(
            chart(
                "joint",
                "Hard selection is a property of frozen embeddings",
                "Weight off the important token by what is trained, and its law.",
                axis("log t", log=True),
                axis("1 − q", log=True),
                lines,
            )
        )
    if "selection" in results:
        rows = results["selection"]
        runs = sum(row["draws"] for row in rows)
        few = runs - sum(row["all_important"] for row in rows)
        said.append(
            f"{few} of {runs} runs with E, p and v trained "
            "end on other tokens than all important ones."
        )
    said += [
        f"{name.capitalize()} frequencies, E fixed, p beside v: "
        + ", ".join(
            f"{number} {status.lower().replace('_', ' ')}"
            for status, number in results[name]["status"].items()
            if number
        )
        + "."
        for name in ("equal", "unequal")
        if name in results
    ]
    return Shown(said, charts)


def embedding_steps(found: Found) -> Shown:
    """What k steps on E leave to p: means over draws beside the two variables."""
    columns = ("alignment", "rest", "cosine", "margin_norm")
    rows = [["steps", "γ", "weight off before p trains", "cos(p_mm, p_0)", "‖p_mm‖"]]
    for row in found.results["steps"]:
        both = [(row[name]["mean"], row[name]["predicted"]) for name in columns]
        shown = [f"{num(mean)} ({num(law)})" for mean, law in both]
        rows.append([str(row["number"]), *shown])
    return Shown(["Means over draws; in brackets, by two variables alone."], [], rows)


def lists(found: Found) -> Shown:
    """Share of runs that end at the decision list, by data and way."""
    rows = [["data", "way", "runs that count", "same list", "same labels", "lead > 0"]]
    for row in found.results["rows"]:
        shares = (row["same_list"], row["same_labels"])
        rows.append(
            [row["data"], row["way"], f"{row['sound']} of {row['runs']}"]
            + ["none" if share is None else f"{share:.3f}" for share in shares]
            + [str(row["positive_lead"])]
        )
    return Shown(["Labels by the first token of a list that is present."], [], rows)


def optimizers(found: Found) -> Shown:
    """Which laws every rule keeps; the end under decay beside its closed form."""
    rows = [["rule", "log(1/L)", "1 − q", "over the flow at that loss", "b_s − b_r"]]
    for name, row in found.results["rules"].items():
        keys = ("log_inverse_loss", "rest", "over_flow_at_loss", "difference")
        rows.append([name, *(f"{row[key]:.4g}" for key in keys)])
    for row in found.results["decay"]:
        ratio = f"{row['rest'] / row['rest_predicted']:.4g} (closed form)"
        rows.append([f"decay {row['decay']:g}", "", f"{row['rest']:.4g}", ratio, ""])
    limit = next(iter(found.results["rules"].values()))["difference_limit"]
    return Shown([f"In the flow b_s − b_r tends to {num(limit)}."], [], rows)


SECTION = Topic(
    "rates",
    "Rates",
    "How fast the direction of p converges, what that depends on, and how the theory "
    "carries over to steps, to a trained head and to a matrix before p.",
    tuple(
        Part(f"theory.{name}", title, f"python -m experiments.theory.{name}", show)
        for name, title, show in (
            ("rates", "Error constant and exponents", rates),
            ("step_size", "Derivatives in η₀, and the best η₀", step_size),
            ("phases", "Edges of the phase diagram", phases),
            ("influence", "Which token matters", influence),
            ("discrete", "Steps in place of the flow", discrete),
            ("joint", "E, p and v trained together", joint),
            ("embedding_steps", "More than one step on E", embedding_steps),
            ("lists", "Labels by decision lists", lists),
            ("optimizers", "Adam, minibatches, decay", optimizers),
        )
    ),
)
