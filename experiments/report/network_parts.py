"""Richer networks, and benchmarks: ours beside others, with their spread."""

from typing import Any

import numpy as np

from experiments.report.charts import Chart, axis, chart, series
from experiments.report.compile_part import compiling
from experiments.report.folders import Found
from experiments.report.numbers import num
from experiments.report.sections import Part, Shown, Topic
from experiments.report.text_parts import cloud


def networks(found: Found) -> Shown:
    """Words of a network, and its bins beside the published."""
    results, arrays = found.results, found.arrays
    words = arrays["words"]
    charts: list[Chart] = []
    for place, (name, table) in enumerate(results["published"].items()):
        charts.append(
            chart(
                f"networks-published-{place}",
                f"{name}: ours beside the published",
                f"Rank correlation {num(table['rank_correlation'])}.",
                axis("bin"),
                axis("mean / its deviation"),
                [
                    series(
                        who,
                        table["x"],
                        np.array(rows) / np.nanstd(rows),
                        kind=kind,
                        colour=colour,
                    )
                    for who, rows, kind, colour in (
                        ("ours", table["ours"], "points", 0),
                        ("published", table["theirs"], "dash", 6),
                    )
                ],
            )
        )
    names = [name.removeprefix("x ") for name in arrays if name.startswith("x ")]
    for place, name in enumerate(names[:4]):
        charts.append(
            cloud(
                f"networks-words-{place}",
                name,
                arrays[f"x {name}"],
                arrays[name],
                words,
            )
        )
    step, size = results["one_step"], sum(results["parameters"].values())
    return Shown(
        [
            f"{size:,} parameters. The first step is the predicted one up to a "
            f"residual of {num(step['residual'])}; after training "
            f"{results['test_accuracy']:.1%} of the test sequences are right."
        ],
        charts,
    )


def network_sweep(found: Found) -> Shown:
    """Exponents of the first step, and how lanes ended."""
    rows = [["η₀", "error ∝ d^", "95 % interval", "loss", "endings"]]
    for name, row in found.results.items():
        if not name.startswith("step size"):
            continue
        endings = ", ".join(
            f"{number} {status.lower().replace('_', ' ')}"
            for status, number in row["statuses"].items()
            if number
        )
        interval = f"{num(row['low'])} … {num(row['high'])}"
        rows.append(
            [
                name.removeprefix("step size "),
                num(row["exponent"]),
                interval,
                num(row["loss"]),
                endings,
            ]
        )
    return Shown([f"{found.results['lanes']} runs in one program."], [], rows)


SECTION = Topic(
    "networks",
    "Networks",
    "Two layers, key-query matrices, an MLP, many classes.",
    (
        Part(
            "networks",
            "Words of a richer network",
            "python -m experiments.networks",
            networks,
        ),
        Part(
            "networks.sweep",
            "Over seeds, d and η₀",
            "python -m experiments.networks.sweep",
            network_sweep,
        ),
    ),
)


def flow(found: Found) -> Shown:
    """Time against the direction error reached."""
    charts, rows = (
        [],
        [["problem", "γ", "rival", "rival / ours", "its direction error"]],
    )
    for name in ("small", "large"):
        records = found.results.get(name, [])
        who = list(dict.fromkeys(record["who"] for record in records))
        if not records:
            continue
        charts.append(
            chart(
                f"bench-flow-{name}",
                f"Flow, {name} problem",
                "Lower and further left is better.",
                axis("seconds", log=True),
                axis("direction error reached", log=True),
                [
                    series(
                        one,
                        [
                            record["seconds"]
                            for record in records
                            if record["who"] == one
                        ],
                        [
                            record["direction_error"]
                            for record in records
                            if record["who"] == one
                        ],
                        kind="dots",
                        colour=place,
                        text=[
                            f"γ = {record['gamma']:g}"
                            for record in records
                            if record["who"] == one
                        ],
                    )
                    for place, one in enumerate(who)
                ],
            )
        )
        rows += [
            [
                name,
                f"{record['gamma']:g}",
                record["who"],
                num(record["slower_than_ours"]),
                num(record["direction_error"]),
            ]
            for record in records
            if "slower_than_ours" in record
        ]
    return Shown([], charts, rows)


def max_margin(found: Found) -> Shown:
    """Time per problem of every solver, as a ratio to ours."""
    records = found.results["records"]
    rows = [["family", "|S|", "solver", "seconds per problem", "ratio to ours", "gap"]]
    for record in records:
        same = [
            other
            for other in records
            if (other["family"], other["size"]) == (record["family"], record["size"])
        ]
        ours = next(
            other["seconds_per_lane"] for other in same if other["solver"] == "ours"
        )
        rows.append(
            [
                record["family"],
                str(record["size"]),
                record["solver"],
                num(record["seconds_per_lane"]),
                num(record["seconds_per_lane"] / ours),
                num(record["largest_gap"]),
            ]
        )
    return Shown(["Each solver's time over ours, on the same problems."], [], rows)


def ratios(found: Found) -> Shown:
    """Every number of a benchmark whose name says that it is a ratio."""
    rows = [["ratio", "value"]]
    rows += [
        [name, num(value)]
        for name, value in _leaves(found.results)
        if "_over_" in name or "ratio" in name or "spread" in name
    ]
    return Shown([], [], rows)


def against_rivals(found: Found) -> Shown:
    """Ours beside the best rival, by area; what fell behind is marked."""
    rows = [["area", "what", "best rival", "ratio", "spread", "behind"]]
    rows += [
        [
            row["area"],
            row["what"],
            row["rival"],
            num(row["ratio"]),
            f"{num(row['least'])} … {num(row['most'])}",
            row["mark"],
        ]
        for row in found.results["rows"]
    ]
    return Shown(["Their time over ours, measured in one run."], [], rows)


def _leaves(values: Any, name: str = "") -> list[tuple[str, float]]:
    if isinstance(values, dict):
        return [
            leaf
            for key, value in values.items()
            for leaf in _leaves(value, f"{name} {key}".strip())
        ]
    return [(name, values)] if isinstance(values, int | float) else []


BENCHMARKS = Topic(
    "benchmarks",
    "Benchmarks",
    "Times as ratios to ours, measured on one machine.",
    tuple(
        Part(
            f"benchmarks.{name}",
            title,
            f"python -m experiments.benchmarks.{name} --quick",
            show,
        )
        for name, title, show in (
            ("table", "Ours beside the best rival", against_rivals),
            ("flow", "The flow of p", flow),
            ("max_margin", "Max-margin problems", max_margin),
            ("text", "A step on text", ratios),
            ("networks", "A step of networks", ratios),
            ("compile", "Compiling", compiling),
        )
    ),
)
