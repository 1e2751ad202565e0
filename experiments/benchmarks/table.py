"""Every benchmark, in its quick form, and one table: ours, the best rival, the ratio.

Each benchmark is a new process, one after the other. A ratio is the rival's time
over ours, both measured in one run; its spread is that over the benchmark's problems.
`--keep` writes tables and figure of `docs/benchmarks.md`.
"""

import dataclasses
import platform
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from experiments.common.claims import Shown
from experiments.common.console import command, say
from experiments.common.devices import cores
from experiments.common.numbers import num
from experiments.common.palette import SERIES
from experiments.common.results import Finished, read
from experiments.common.study import Experiment, Study, presets
from experiments.common.style import in_style, save, subplots
from jaxselect.checks import BadInput
from jaxselect.files import replacing

PAGE = Path(__file__).parents[2] / "docs" / "benchmarks.md"
"""Its text between two comments is replaced, and its figure beside it."""
PACKAGES = (
    *("jax", "diffrax", "optimistix", "numpy", "scipy", "torch", "torchdiffeq"),
    *("clarabel", "cvxpy", "daqp", "mpax", "osqp", "piqp", "qpax", "quadprog"),
    "scikit-learn",
)
"""Packages whose versions the page names, where they are installed."""
GAP = 1e-9
"""Relative duality gap up to which a rival has solved a max-margin problem."""


class Row(NamedTuple):
    """One comparison.

    Attributes:
        area: benchmark.
        what: was timed.
        ours: seconds, the median.
        rival: the fastest that did the same.
        theirs: seconds, the median.
        ratio: theirs over ours, the median over the problems.
        least: of the ratios; likewise `most`.
        most: see `least`.
        rivals: median ratio of every rival that did the same.
    """

    area: str
    what: str
    ours: float
    rival: str
    theirs: float
    ratio: float
    least: float
    most: float
    rivals: dict[str, float]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(Study):
    """Settings of the table.

    Attributes:
        out: folder of the table; the benchmarks leave theirs beside it.
        quick: the benchmarks in their quick form, some minutes on 2 cores.
        run: run the benchmarks; else the table is made of what lies on disk.
        keep: write them into `docs/benchmarks.md`.
        seed: not used; each benchmark has its own default.
        json: print the table as one JSON object on standard output.
    """

    out: Path = Path("results/benchmarks/table")
    quick: bool = True
    run: bool = True
    keep: bool = False


PRESETS = presets(default=Settings(), there=Settings(run=False))


def run(settings: Settings, results: dict) -> None:
    """Run the benchmarks, and put their ratios into one table."""
    seconds, failed = {}, []
    for name in ROWS if settings.run else ():
        folder = settings.out.parent / name
        say(f"{name} … (into {folder})")
        begin = time.perf_counter()
        program = [sys.executable, "-m", f"experiments.benchmarks.{name}"]
        flags = ["--quick"] if settings.quick else []
        ended = subprocess.run([*program, *flags, "--out", str(folder)], check=False)
        seconds[name] = time.perf_counter() - begin
        failed += [name] if ended.returncode else []
    rows = [row for name in ROWS for row in found(settings.out.parent / name, name)]
    if not rows:
        raise BadInput(f"{settings.out.parent} holds no benchmark; leave out --no-run")
    say(tables(rows))
    for name in failed:
        say(f"{name} did not end well; its rows, if any, are of an earlier run")
    results |= {
        "rows": [row._asdict() for row in rows],
        "seconds": seconds,
        "failed": failed,
    }
    if settings.keep:
        page = PAGE.read_text(encoding="utf-8")
        numbers = f"<!-- begin -->\n{tables(rows)}\n<!-- end -->"
        page = re.sub("<!-- begin -->.*<!-- end -->", numbers, page, flags=re.DOTALL)
        with replacing(PAGE) as aside:
            aside.write_text(page, encoding="utf-8")
        with in_style():
            figure = draw(Finished({}, results, {}, {}))
        save(figure, PAGE.with_suffix(""), ["png"])


def found(folder: Path, name: str) -> list[Row]:
    """The rows of a benchmark's folder; none where there are no results."""
    try:
        results = read(folder).results
    except BadInput as error:
        say(f"{name}: {error}")
        return []
    return list(ROWS[name](results))


def tables(rows: list[Row]) -> str:
    """The Markdown tables of the page: times and ratios, machine and versions."""
    lines = [
        "| benchmark | ours (s) | fastest rival | its time (s) | ratio | spread |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row.area}: {row.what} | {row.ours:.3g} | {row.rival} | {row.theirs:.3g} "
        f"| {row.ratio:.2g} | {row.least:.2g} … {row.most:.2g} |"
        for row in rows
    ]
    lines += ["", "| package | version |", "|---|---|"]
    lines += [f"| Python | {platform.python_version()} |"]
    for name in PACKAGES:
        try:
            lines += [f"| {name} | {version(name)} |"]
        except PackageNotFoundError:
            continue
    lines += ["", f"Measured on {platform.machine()} with {cores()} cores."]
    return "\n".join(lines)


def row(area: str, what: str, pairs: dict[str, list[tuple[float, float]]]) -> Row:
    """Ours beside the fastest rival.

    Args:
        area: benchmark.
        what: was timed.
        pairs: for each rival its times and ours, problem by problem.

    Returns:
        The row of the rival with the smallest median ratio.
    """

    def ratio(times: list[tuple[float, float]]) -> float:
        return statistics.median(theirs / ours for theirs, ours in times)

    rival = min(pairs, key=lambda name: ratio(pairs[name]))
    ratios = [theirs / ours for theirs, ours in pairs[rival]]
    return Row(
        rivals={name: ratio(times) for name, times in pairs.items()},
        area=area,
        what=what,
        ours=statistics.median(ours for _, ours in pairs[rival]),
        rival=rival,
        theirs=statistics.median(theirs for theirs, _ in pairs[rival]),
        ratio=ratio(pairs[rival]),
        least=min(ratios),
        most=max(ratios),
    )


def flow(results: dict[str, Any]) -> Iterator[Row]:
    """Rivals that went all the way, in every regime."""
    for size in ("small", "large"):
        records = results.get(size, [])
        ours = {r["gamma"]: r["seconds"] for r in records if r["solver"] == "jaxselect"}
        pairs: dict[str, list[tuple[float, float]]] = {}
        for record in records:
            if "slower_than_ours" in record and record["cls_norm"] > 0.99e6:
                times = record["seconds"], ours[record["gamma"]]
                pairs.setdefault(record["solver"], []).append(times)
        whole = {
            name: times for name, times in pairs.items() if len(times) == len(ours)
        }
        if whole:
            yield row("flow", f"to ‖p‖ = 10⁶, {size}, {len(ours)} regimes", whole)


def max_margin(results: dict[str, Any]) -> Iterator[Row]:
    """Rivals that solve the problem, alone and one after the other, over the sizes."""
    records = results["records"]
    for family in sorted({record["family"] for record in records}):
        for what, kind in (("alone", "seconds"), ("in a batch", "seconds_per_lane")):
            pairs: dict[str, list[tuple[float, float]]] = {}
            same = [record for record in records if record["family"] == family]
            ours = {r["size"]: r[kind] for r in same if r["solver"] == "ours"}
            for record in same:
                if record["solver"] != "ours" and record["largest_gap"] <= GAP:
                    times = record[kind], ours[record["size"]]
                    pairs.setdefault(record["solver"], []).append(times)
            if pairs:
                yield row("max_margin", f"{family}, {what}", pairs)


def text(results: dict[str, Any]) -> Iterator[Row]:
    """Rivals on all of a step."""
    ours = results["ours"]["step"]
    rivals = ("gathered", "scalars", "csr")
    pairs = {one: [(results[one]["step"], ours)] for one in rivals if one in results}
    if pairs:
        yield row("text", "a gradient step on E, p and v", pairs)


def networks(results: dict[str, Any]) -> Iterator[Row]:
    """PyTorch in random minibatches, and in sorted ones."""
    kinds = ("random", "sorted")
    pairs = {
        f"PyTorch, {kind}": [(results[kind]["seconds"], results["seconds"])]
        for kind in kinds
        if kind in results
    }
    if pairs:
        yield row("networks", "a gradient of two layers", pairs)


ROWS = {"flow": flow, "max_margin": max_margin, "text": text, "networks": networks}


def show(found: Finished) -> Shown:
    """Ours beside the best rival, by area."""
    rows = [["area", "what", "best rival", "ratio", "spread"]]
    rows += [
        [
            row["area"],
            row["what"],
            row["rival"],
            num(row["ratio"]),
            f"{num(row['least'])} … {num(row['most'])}",
        ]
        for row in found.results["rows"]
    ]
    return Shown(["Their time over ours, measured in one run."], rows)


MARKERS = "osD^v<>P"


def draw(finished: Finished) -> Figure:
    """Median time of every rival over ours: a line per rival, a mark per problem."""
    rows = finished.results["rows"]
    rivals = list(
        dict.fromkeys((row["area"], name) for row in rows for name in row["rivals"])
    )[::-1]
    figure, axes = subplots(figsize=(6.4, 1.4 + 0.2 * len(rivals) + 0.18 * len(rows)))
    for place, row in enumerate(rows):
        axes.semilogx(
            list(row["rivals"].values()),
            [rivals.index((row["area"], name)) for name in row["rivals"]],
            MARKERS[place % len(MARKERS)],
            color=SERIES[place % len(SERIES)],
            label=f"{row['area']}: {row['what']}",
        )
    axes.axvline(1.0, color="black", lw=0.8)
    axes.set_yticks(range(len(rivals)), [f"{name} ({area})" for area, name in rivals])
    axes.set_ylim(-0.7, len(rivals) - 0.3)
    axes.set_xlabel("time of the rival / time of jaxselect")
    axes.grid(axis="y", lw=0.3)
    figure.legend(loc="outside lower center", ncols=1)
    return figure


main = Experiment(run, draw=draw, show=show, title="Ours beside the best rival")


if __name__ == "__main__":
    command(main, PRESETS)
