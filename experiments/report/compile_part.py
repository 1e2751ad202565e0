"""What compiling costs, program by program."""

from experiments.report.folders import Found
from experiments.report.numbers import num
from experiments.report.sections import Shown

MIB = 2**20


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
        [],
        rows,
    )


def _megabytes(size: float | None) -> float | None:
    return None if size is None else size / MIB
