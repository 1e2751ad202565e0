"""Findings of the studies of the theory, in sentences and tables."""

from experiments.report.folders import Found
from experiments.report.numbers import num, percent
from experiments.report.sections import Part, Shown, Topic
from experiments.report.theory_claims import as_good_as_grid


def rates(found: Found) -> Shown:
    """Exponents of the direction error, and its constant."""
    results = found.results
    return Shown(
        [
            f"Over {results['seeds']} draws the direction error falls with exponent "
            f"{num(results['exponent_norm'], 6)} in ‖p‖ and "
            f"{num(results['exponent_log_time'], 5)} in log t; its constant deviates "
            f"from the prediction by {num(results['constant_largest_deviation'])} "
            "at most."
        ]
    )


def step_size(found: Found) -> Shown:
    """The best η₀ that descent and a grid find, at every d."""
    optima = found.results["optima"]
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
            "its cost. Where some draw passes too suddenly to say when, in a share of "
            f"{num(found.results.get('unknown_share'))} of the grid, η₀ is left out."
        ],
        rows,
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
    return Shown(["Edges were bisected on shapes that the theory never saw."], rows)


def influence(found: Found) -> Shown:
    """How well the derivative says how p_mm turns as a token fades."""
    rank = found.results["token_0.1"]["rank_correlation"]
    return Shown(
        [
            "A tenth of a token taken away turns p_mm as its derivative says: rank "
            f"correlation {num(rank)} over {len(found.arrays['token_turn'])} tokens."
        ]
    )


def discrete(found: Found) -> Shown:
    """How far gradient descent is from the flow, below its limit and at it."""
    row = found.results["descent"]
    return Shown(
        [
            "Below the step h = 2/λ, λ the largest curvature on the way, discrete "
            f"steps stay with the flow, at {num(row['deviation_at_a_tenth'])} ‖p‖ from "
            f"it for a tenth of that; at the limit they are off by "
            f"{num(row['deviation_at_the_limit'])}."
        ]
    )


def joint(found: Found) -> Shown:
    """Which tokens are selected with nothing frozen, and where p heads beside v."""
    results, said = found.results, []
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
    return Shown(said)


def embedding_steps(found: Found) -> Shown:
    """Results of p after k steps on E: means over draws beside the two variables."""
    columns = ("alignment", "rest", "cosine", "margin_norm")
    rows = [["steps", "γ", "weight off before p trains", "cos(p_mm, p_0)", "‖p_mm‖"]]
    for row in found.results["steps"]:
        both = [(row[name]["mean"], row[name]["predicted"]) for name in columns]
        shown = [f"{num(mean)} ({num(law)})" for mean, law in both]
        rows.append([str(row["number"]), *shown])
    return Shown(["Means over draws; in brackets, by two variables alone."], rows)


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
    return Shown(["Labels by the first token of a list that is present."], rows)


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
    return Shown([f"In the flow b_s − b_r tends to {num(limit)}."], rows)


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
