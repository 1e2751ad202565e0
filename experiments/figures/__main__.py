"""Draw every figure of a finished sweep or study from its folder alone.

python -m experiments.figures results/default [--into FOLDER] [--only phases]
"""

import argparse
import sys
from pathlib import Path

from experiments.common.console import one_line, refuse_empty, say
from experiments.common.devices import configure
from experiments.common.results import read
from experiments.common.runs import require_known_statuses
from experiments.figures import direction, growth, lemma, phases
from experiments.figures._page import FORMATS, save
from experiments.figures.studies import drawing
from jaxselect.checks import BadInput
from jaxselect.sweep.store import load

FIGURES = {"lemma": lemma, "phases": phases, "growth": growth, "direction": direction}


def main(arguments: list[str]) -> int:
    """Draw what the command line asks for.

    Returns:
        Exit code: 0, or 2 for a folder without results.
    """
    parser = argparse.ArgumentParser(
        "python -m experiments.figures", description=__doc__
    )
    parser.add_argument("folder", type=Path, help="results of a sweep or a study")
    parser.add_argument("--into", type=Path, help="where to; by default that folder")
    parser.add_argument("--only", choices=FIGURES, help="draw one figure")
    parser.add_argument(
        "--format",
        nargs="+",
        choices=FORMATS,
        default=["png"],
        help="of the files; png for screens, pdf or svg for papers",
    )
    try:
        refuse_empty(arguments)
        asked = parser.parse_args(arguments)
        study = (asked.folder / "results.json").exists()
        target = asked.into or asked.folder
        for name, draw, results in (_of_study if study else _of_sweep)(asked):
            figure = draw(results)
            if figure is None:
                say(f"{name}: this sweep has nothing to show for it")
            else:
                for file in save(figure, target / name, asked.format):
                    say(str(file))
    except (BadInput, OSError) as error:
        say(f"error: {one_line(str(error))}")
        return 2
    return 0


def _of_study(asked: argparse.Namespace) -> list[tuple]:
    """The one figure of a study that is no sweep: its name, what draws it, results."""
    finished = read(asked.folder)
    if finished.figure is None or asked.only:
        raise BadInput(
            f"{asked.folder} holds no sweep but results of {finished.study}: wanted "
            + ("no --only" if finished.figure else "results that a figure shows")
        )
    return [(finished.figure, drawing(finished), finished)]


def _of_sweep(asked: argparse.Namespace) -> list[tuple]:
    """The figures of a sweep, likewise."""
    results = load(asked.folder)
    if lacking := {"grid", "statuses"} - results.attrs.keys():
        raise BadInput(f"{asked.folder}/settings.json lacks {', '.join(lacking)}")
    require_known_statuses(results)
    configure("float64")
    names = [asked.only] if asked.only else FIGURES
    return [(name, FIGURES[name].draw, results) for name in names]


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
