"""Lemmas 4.4 and 4.5: for large d and η₀ every important token is selected.

Read from the runs of `make sweep`, which this program completes where they are not
there. The lemmas are here in the words of the authors' poster; their own text adds
that irrelevant tokens may be selected, too.

    python -m experiments.paper.selection
"""

import dataclasses
from pathlib import Path

from matplotlib.figure import Figure

from experiments.common.claims import Claim, Measured, Verdict
from experiments.common.console import command
from experiments.common.numbers import num
from experiments.common.results import Finished
from experiments.common.runs import with_status
from experiments.common.study import Experiment, presets
from experiments.paper import _runs
from experiments.sweep.claims import all_selected
from experiments.sweep.figures import draw_phases
from jaxselect.checks import BadInput


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(_runs.Settings):
    """Where the runs are."""

    out: Path = Path("results/paper/selection")


PRESETS = presets(full=Settings(), smoke=_runs.smoke(Settings()))


def run(settings: Settings, results: dict) -> None:
    """Complete the sweep."""
    _runs.run(settings, results)


def draw(finished: Finished) -> Figure:
    """How runs end over d and η₀; green cells select every important token."""
    figure = draw_phases(_runs.runs(finished))
    if figure is None:
        raise BadInput("the sweep has one d or one η₀: wanted several of each")
    return figure


def important_selected(found: Finished) -> Measured:
    """The corner of d and η₀ where every run selects all, and where runs do not."""
    results = _runs.runs(found)
    measured = all_selected(results)
    captured = with_status(results, "CAPTURED_POSITIVE", "CAPTURED_NEGATIVE")
    if measured.verdict is not Verdict.CERTIFIED or not captured.any():
        return measured
    over = [name for name in captured.dims if name != "step_size"]
    steps = results.step_size.values[captured.any(over).values]
    return measured._replace(
        value=f"{measured.value}; elsewhere {int(captured.sum()):,} runs with η₀ from "
        f"{num(steps.min())} to {num(steps.max())} select those of one class only"
    )


CLAIMS = (
    Claim(
        "For d and η₀ large enough all important tokens of every sequence are "
        "selected.",
        important_selected,
        "Lemmas 4.4 and 4.5, under Assumption 1; the poster's wording",
    ),
)

main = Experiment(run, draw=draw, claims=CLAIMS, title="Lemmas 4.4 and 4.5: selection")


if __name__ == "__main__":
    command(main, PRESETS)
