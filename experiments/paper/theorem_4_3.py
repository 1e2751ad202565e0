"""Theorem 4.3: where p converges in direction, to the max-margin direction p_mm.

Read from the runs of `make sweep`, which this program completes where they are not
there. The certificate of a run shows the convergence that the theorem assumes.

    python -m experiments.paper.theorem_4_3
"""

import dataclasses
from pathlib import Path

from matplotlib.figure import Figure

from experiments.common.claims import Claim, Measured
from experiments.common.console import command
from experiments.common.results import Finished
from experiments.common.study import Experiment, presets
from experiments.paper import _runs
from experiments.sweep.claims import direction
from experiments.sweep.figures import draw_direction
from jaxselect.checks import BadInput


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(_runs.Settings):
    """Where the runs are."""

    out: Path = Path("results/paper/theorem_4_3")


PRESETS = presets(full=Settings(), smoke=_runs.smoke(Settings()))


def run(settings: Settings, results: dict) -> None:
    """Complete the sweep."""
    _runs.run(settings, results)


def draw(finished: Finished) -> Figure:
    """Direction error of a few runs, its predicted limit dashed."""
    figure = draw_direction(_runs.runs(finished))
    if figure is None:
        raise BadInput("the sweep kept no paths: run it with --path-points 180")
    return figure


def to_max_margin(found: Finished) -> Measured:
    """The direction of p against p_mm, in every certified run that selects."""
    return direction(_runs.runs(found))


CLAIMS = (
    Claim(
        "If p_t/‖p_t‖ converges, then to the direction of p_mm = argmin ‖p‖ such that "
        "pᵀ(E_s − E_r) ≥ 1 for s selected and r not, in every sequence.",
        to_max_margin,
        "Theorem 4.3, under Assumption 1",
    ),
)

main = Experiment(run, draw=draw, claims=CLAIMS, title="Theorem 4.3")


if __name__ == "__main__":
    command(main, PRESETS)
