"""Give every bad input, and list those that were not refused in one line."""

import collections
import time

from tests.bad_inputs.calls import calls
from tests.bad_inputs.findings import FINE, of_call, of_line
from tests.bad_inputs.folders import folder_lines, reviews_calls
from tests.bad_inputs.lines import Line, lines


def _named(line: Line) -> str:
    return f"{line.module} {' '.join(map(ascii, line.arguments))}"


def main() -> int:
    """Number of inputs by what became of them; exit code 1 if any was not refused."""
    begun = time.perf_counter()
    outcomes = [(_named(line), of_line(line)) for line in lines()]
    for name, call in (*calls().items(), *reviews_calls()):
        outcomes.append((name, of_call(call)))
    outcomes += [(name, of_line(line)) for name, line in folder_lines()]
    counts = collections.Counter(became.split()[0] for _, became in outcomes)
    for name, became in outcomes:
        if became != FINE:
            print(f"{name[:160]}\n    {became[:200]}")
    print(dict(counts), f"{time.perf_counter() - begun:.0f} s")
    return int(set(counts) != {FINE})


if __name__ == "__main__":
    raise SystemExit(main())
