"""Every edge of the phase diagram, predicted and measured.

On shapes that the theory never saw, each edge is bisected over η₀ for each seed and d;
the study then asks for the collapse of the lower line, for the log-time at which a
captured class comes back, and which statuses change from ‖p‖ = 10⁶ to 10⁹. Rounds are
kept as they finish: the same command goes on where it was stopped.
"""

import dataclasses
import itertools
import threading
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from experiments.common.console import command, say, say_each
from experiments.common.study import Count, Several, Study, presets, study
from experiments.theory import _phase_brackets as ask
from experiments.theory._kept import resumed
from experiments.theory._phase_brackets import Case
from experiments.theory._phase_lanes import Shape
from experiments.theory._phase_ratios import (
    compare,
    exponents,
    inside,
    share_within,
    summary,
)
from experiments.theory._phase_runs import (
    collapse,
    curves,
    diagram,
    later_statuses,
    returns,
)
from jaxselect.checks import BadInput

DIMS = (1e4, 1e5, 1e7, 1e9)
SHAPES = (
    (96, 8, 12, 40),
    (96, 10, 12, 40),
    (96, 8, 16, 40),
    (96, 8, 12, 80),
    (192, 8, 12, 40),
    (120, 12, 4, 40),
    (96, 12, 8, 24),
    (160, 6, 20, 60),
)
"""n, T, R and I: the first, one change of each of T, R, I and n, and three others; of
those that the theory sees captured for good at some d, none had a part in it."""
TIMES_WITHIN = 1.15


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(Study):
    """Settings of the study.

    Attributes:
        shapes: n, T, R and I of each.
        beyond: also measure where the theory ends: small d, impure and independent
            tokens, uneven counts.
        seeds: draws per edge.
        rounds: of bisection.
        diagram: values of η₀ in the measured diagram.
        until_norm: ‖p‖ at which a run ends.
        later_norm: ‖p‖ to which statuses are carried on.
        workers: processes that run shapes side by side.
    """

    shapes: tuple[tuple[Count, Count, Count, Count], ...] = SHAPES
    beyond: bool = True
    seeds: Several = 16
    rounds: Count = 4
    diagram: Several = 20
    until_norm: float = 1e6
    later_norm: float = 1e9
    workers: Count = 2
    out: Path = Path("results/phases")

    def check(self) -> None:
        """Refuse norms that are not in order."""
        if not 1e3 <= self.until_norm <= self.later_norm <= 1e12:
            raise BadInput(
                f"until norm {self.until_norm}, later norm {self.later_norm}: wanted "
                "10³ … 10¹² in this order"
            )

    def cases(self) -> list[Case]:
        """The shapes, then cases beyond the theory."""
        found = [
            Case(f"n{n} T{t} R{r} I{i}", Shape(n, t, r, i), DIMS)
            for n, t, r, i in self.shapes
        ]
        if self.beyond:
            first = Shape(*self.shapes[0])
            all_but_one = 1.0 - 1.0 / (2 * first.relevant + first.irrelevant)
            found += [
                Case("d ≤ 10³", first, (100.0, 1000.0)),
                Case("purity 0.9", first, (1e4, 1e7), purity=0.9),
                Case("independent 0.8", first, (1e4, 1e7), irrelevant_share=0.8),
                # All of the share: Assumption 1, but for each token's count.
                Case("uneven counts", first, (1e4, 1e7), irrelevant_share=all_but_one),
            ]
        return found


PRESETS = presets(
    full=Settings(),
    smoke=Settings(
        shapes=((8, 4, 2, 6),),
        beyond=False,
        seeds=2,
        rounds=1,
        diagram=3,
        until_norm=1e4,
        later_norm=1e6,
    ),
)


@study(figure="phase_theory")
def main(settings: Settings, results: dict) -> dict[str, np.ndarray]:
    """Predict, measure, and hold one against the other."""
    cases = settings.cases()
    names = [case.name for case in cases]
    work = partial(measure, settings)
    found = resumed(settings, work, cases, "shapes", study="phases", cases=names)
    first = cases[0], found[0]["prediction"]
    few = settings.seed + np.arange(min(settings.seeds, 4))
    norms = settings.until_norm, settings.later_norm
    statuses, arrays = later_statuses(*first, few, settings.diagram, norms)
    arrays |= curves(*first, settings.seed, settings.until_norm)
    arrays |= found[0]["arrays"]
    rows = [row for case in found for row in case["edges"]]
    returned = [row for case in found for row in case["recovery"]]
    results |= {
        "edges": rows,
        "summary": {name: summary(rows, name) for name in ask.NAMES},
        "recovery": returned,
        "recovery_within": share_within(
            [row["ratio"] for row in returned if inside(row)], TIMES_WITHIN
        ),
        "exponents": exponents(rows, cases, DIMS[0])
        if settings.shapes == SHAPES
        else [],
        "collapse": found[0]["collapse"],
        "statuses": statuses,
    }
    say_each(results["summary"])
    say_each({x: results[x] for x in ("recovery_within", "collapse", "statuses")})
    return arrays


def measure(
    settings: Settings,
    folder: Path,
    whole: set[int],
    stop: threading.Event,
    number: int,
    case: Case,
) -> dict[str, Any]:
    """Edges, returns and, for the first case, the diagram of a case."""
    seeds = settings.seed + np.arange(settings.seeds)
    prediction = ask.predict(case, case.dims)
    run = case.run(settings.until_norm)
    # Files of a case: its rounds, then up to three blocks of other runs.
    files = itertools.count(number * (settings.rounds + 3))

    def answer(seed: np.ndarray, dim: np.ndarray, step_size: np.ndarray) -> ask.Run:
        if stop.is_set():
            raise KeyboardInterrupt
        made = partial(run, seed, dim, step_size)
        return ask.kept(folder, next(files), whole, made)

    asked = ask.brackets(case, prediction, seeds)
    ended = ask.bisect(asked, settings.rounds, answer)
    found: dict[str, Any] = {
        "edges": compare(case, asked, ended),
        "prediction": prediction,
        "recovery": returns(case, prediction, seeds, answer),
    }
    if number == 0:
        few, points = seeds[: max(settings.seeds // 4, 2)], settings.diagram
        found["arrays"] = diagram(case, prediction, few, answer, points)
        found["collapse"], arrays = collapse(
            case, prediction, seeds, answer, points // 2 + 1
        )
        found["arrays"] |= arrays
    say(f"{case.name}: {len(found['edges'])} edges of {settings.seeds} draws each")
    return found


if __name__ == "__main__":
    command(main, PRESETS)
