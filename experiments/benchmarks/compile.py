"""The cost of compiling: seconds, size of code and memory, for CPU, TPUs and CUDA.

A run, a sweep's chunk, the gradient of rates and a step on text are traced, lowered and
compiled, each in a new process and without the cache of programs. Seconds are of
CPU, all threads added up. No device but the CPU has to be here: a TPU's compiler comes
with libtpu, and for CUDA programs are lowered only.
"""

import dataclasses
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.table import Table

from experiments.benchmarks._ahead import TARGETS, isolated, missing
from experiments.common.console import command, say
from experiments.common.study import Study, presets, study

COLUMNS = {
    "trace": ("trace", 1, ".2f"),
    "lower": ("lower", 1, ".2f"),
    "compile": ("compile", 1, ".1f"),
    "lines": ("lines", 1, ",d"),
    "code": ("code", 2**20, ".1f"),
    "arguments": ("args", 2**20, ".1f"),
    "temporaries": ("temps", 2**20, ".1f"),
    "outputs": ("outs", 2**20, ".1f"),
}
"""Measured quantities: heading, unit and digits; lines are of StableHLO."""
MANNERS = {
    "run fast": ("cpu",),
    "chunk fast": ("cpu", "tpu"),
    "chunk sharded": ("tpu",),
}
"""Programs that are compiled in a special manner, and the kinds they are for: with
the options of `experiments.run` and of small sweeps, which optimise little; for lanes
on all chips."""

ProgramName = Literal[
    "run",
    "run fast",
    "chunk",
    "chunk fast",
    "chunk sharded",
    "rates",
    "text",
]
Target = Literal["cpu", "v5e", "v6e", "cuda"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(Study):
    """Programs and targets to compile for.

    Attributes:
        preset: full, or quick: a run and a step on text for the CPU, under a minute;
            or smoke: a step on text.
        quick: the same as `--preset quick`.
        programs: to compile; `quickly` with the options that optimise little,
            `sharded` over the four chips of a TPU's machine.
        targets: to compile for.
        seed: of nothing; no program is run.
    """

    quick: bool = False
    programs: tuple[ProgramName, ...] = (
        "run",
        "run fast",
        "chunk",
        "chunk fast",
        "chunk sharded",
        "rates",
        "text",
    )
    targets: tuple[Target, ...] = ("cpu", "v5e", "v6e", "cuda")
    out: Path = Path("results/benchmarks/compile")


PRESETS = presets(
    full=Settings(),
    quick=Settings(programs=("run", "run fast", "text"), targets=("cpu",)),
    smoke=Settings(programs=("text",), targets=("cpu",)),
)


@study()
def main(settings: Settings, results: dict) -> None:
    """Compile every program for every target, one after the other."""
    rows: list[dict[str, Any]] = []
    absent: dict[str, str] = {}
    results |= {"rows": rows, "absent": absent}
    for target in settings.targets:
        lacking = missing(target)
        if lacking:
            say(f"{target}: {lacking}")
            absent[target] = lacking
            continue
        for name in settings.programs:
            kind = TARGETS[target]
            if kind not in MANNERS.get(name, (kind,)):
                continue
            say(f"{name} for {target} …")
            rows.append({"program": name, "target": target})
            rows[-1] |= isolated(name, target)
            if "refused" in rows[-1]:
                say(f"not compiled: {rows[-1]['refused']}")
    show(rows)


def show(rows: list[dict[str, Any]]) -> None:
    """The table, on standard error."""
    headings = (heading for heading, *_ in COLUMNS.values())
    table = Table("program", "for", *headings, caption="seconds of CPU, lines, MB")
    for row in rows:
        cells = (
            f"{row[name] / unit if unit > 1 else row[name]:{digits}}"
            if name in row
            else "–"
            for name, (_, unit, digits) in COLUMNS.items()
        )
        table.add_row(row["program"], row["target"], *cells)
    Console(stderr=True).print(table)


if __name__ == "__main__":
    command(main, PRESETS)
