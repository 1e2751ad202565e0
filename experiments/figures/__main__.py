"""Draw every figure of a finished sweep or study from its folder alone.

python -m experiments.figures results/default [--into FOLDER] [--only phases]
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from experiments.common.console import one_line, refuse_empty, say
from experiments.common.devices import configure
from experiments.common.results import read
from experiments.common.runs import require_known_statuses
from experiments.common.study import study_of
from experiments.common.style import FORMATS, draw_in_style, save
from experiments.sweep.figures import FIGURES
from jaxselect.checks import BadInput
from jaxselect.sweep.store import load_all


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
    parser.add_argument("--only", choices=FIGURES, help="draw one figure of a sweep")
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
        for file in (_of_study if study else _of_sweep)(asked):
            say(str(file))
    except (BadInput, OSError) as error:
        say(f"error: {one_line(str(error))}")
        return 2
    return 0


def _of_study(asked: argparse.Namespace) -> list[Path]:
    """The one figure of a study that is no sweep, in every format."""
    finished = read(asked.folder)
    study = study_of(finished)
    if study.draw is None or asked.only:
        raise BadInput(
            f"{asked.folder} holds no sweep but results of {finished.study}: wanted "
            + ("no --only" if study.draw else "results that a figure shows")
        )
    return study.picture(finished, asked.into or asked.folder, asked.format)


def _of_sweep(asked: argparse.Namespace) -> Iterator[Path]:
    """The figures of a sweep, likewise."""
    results = load_all(asked.folder)
    if lacking := {"grid", "statuses"} - results.attrs.keys():
        raise BadInput(f"{asked.folder}/settings.json lacks {', '.join(lacking)}")
    require_known_statuses(results)
    configure("float64")
    for name in [asked.only] if asked.only else FIGURES:
        figure = draw_in_style(FIGURES[name], results)
        if figure is None:
            say(f"{name}: this sweep has nothing to show for it")
        else:
            yield from save(figure, (asked.into or asked.folder) / name, asked.format)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
