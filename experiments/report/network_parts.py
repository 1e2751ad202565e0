"""Richer networks, and benchmarks: ours beside others, in tables."""

from typing import Any

from experiments.report.folders import Found
from experiments.report.numbers import num
from experiments.report.sections import Part, Shown, Topic

MIB = 2**20


def networks(found: Found) -> Shown:
    """Size, first step and accuracy of a network, and its bins beside the published."""
    results = found.results
    step, size = results["one_step"], sum(results["parameters"].values())
    rows = [["column", "rank correlation with the published bins"]]
    rows += [
        [name, num(table["rank_correlation"])]
        for name, table in results["published"].items()
    ]
    return Shown(
        [
            f"{size:,} parameters. The first step is the predicted one up to a "
            f"residual of {num(step['residual'])}; after training "
            f"{results['test_accuracy']:.1%} of the test sequences are right."
        ],
        rows if rows[1:] else (),
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
    return Shown([f"{found.results['lanes']} runs in one program."], rows)


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
    """Time of every rival over ours, and the direction error it reaches."""
    rows = [["problem", "γ", "rival", "rival / ours", "its direction error"]]
    rows += [
        [
            name,
            f"{record['gamma']:g}",
            record["solver"],
            num(record["slower_than_ours"]),
            num(record["direction_error"]),
        ]
        for name in ("small", "large")
        for record in found.results.get(name, [])
        if "slower_than_ours" in record
    ]
    return Shown([], rows)


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
    return Shown(["Each solver's time over ours, on the same problems."], rows)


def ratios(found: Found) -> Shown:
    """Every number of a benchmark whose name says that it is a ratio."""
    rows = [["ratio", "value"]]
    rows += [
        [name, num(value)]
        for name, value in _leaves(found.results)
        if "_over_" in name or "ratio" in name or "spread" in name
    ]
    return Shown([], rows)


def against_rivals(found: Found) -> Shown:
    """Ours beside the best rival, by area; what is slower is marked."""
    rows = [["area", "what", "best rival", "ratio", "spread", "mark"]]
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
    return Shown(["Their time over ours, measured in one run."], rows)


def compiling(found: Found) -> Shown:
    """Seconds, lines and memory of every program for every device."""
    rows = [["program", "for", "trace s", "lower s", "compile s", "lines"]]
    rows[0] += ["code MB", "temporaries MB"]
    for row in found.results["rows"]:
        cells = [num(row.get(name)) for name in ("trace", "lower", "compile", "lines")]
        cells += [num(_megabytes(row.get(name))) for name in ("code", "temporaries")]
        rows.append([row["program"], row["target"], *cells])
    absent = found.results["absent"].items()
    return Shown(
        [
            "Seconds of CPU, all threads added up; lines of StableHLO.",
            *(f"{target}: {lacking}." for target, lacking in absent),
        ],
        rows,
    )


def _megabytes(size: float | None) -> float | None:
    return None if size is None else size / MIB


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
