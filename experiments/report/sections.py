"""Sections of the page: parts with their sentences, tables and figures."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import xarray as xr
from markupsafe import Markup

from experiments.common.claims import Shown
from experiments.common.numbers import num
from experiments.common.palette import STATUS
from experiments.common.results import Finished
from experiments.common.runs import with_status
from experiments.common.style import draw_in_style, to_svg
from experiments.report.folders import ILL_FORMED, ResultFolder
from experiments.report.rows import Part, data_of, study
from experiments.report.uncertified import Uncertified, uncertified
from experiments.sweep.figures import FIGURES

TOPICS = {
    "paper": "The paper, item by item",
    "beyond": "Beyond the paper",
    "text": "Real text",
    "networks": "Networks",
    "benchmarks": "Benchmarks",
}
"""Titles by the first part of a study's name."""
SAID = {
    "dim": "d = {}",
    "sequences": "{} sequences",
    "draws": "{} draws",
    "seeds": "{} seeds",
    "steps": "{} training steps",
    "learning_rate": "learning rate {}",
    "query_rate": "{} for p",
    "head_rate": "{} for v",
    "matrix_rate": "{} for matrices",
    "query_length": "‖p‖ = {} at the start",
    "head_length": "‖v‖ = {} at the start",
    "batch": "minibatches of {}",
}
"""Settings of a run that are shown beside its figure."""


CALLED = {"": "Synthetic data", "imdb_reviews": "IMDB"}
"""Sets of data, for people."""


class Figure(NamedTuple):
    """A figure of the page.

    Attributes:
        svg: the element; empty where it could not be drawn.
        caption: what it shows.
        made: the settings of its run.
        missing: why there is none.
    """

    svg: Markup
    caption: str
    made: str = ""
    missing: str = ""


class Map(NamedTuple):
    """A sweep on the page.

    Attributes:
        name: of its folder.
        runs: that are there.
        expected: runs of the grid.
        heads: of the table: statuses that occur, with their number of runs.
        table: for each η₀, the largest first, the runs of each status.
        figures: the map first.
        uncertified: statuses without a certificate, with causes and commands.
    """

    name: str
    runs: int
    expected: int
    heads: list[tuple[str, int]]
    table: list[tuple[str, list[int]]]
    figures: list[Figure]
    uncertified: list[Uncertified]


def topic(part: Part) -> str:
    """The section that a study is shown in."""
    return TOPICS[part.name.partition(".")[0].replace("reviews", "text")]


def shown(part: Part) -> Iterator[Shown]:
    """Sentences and tables of a study, for each set of data."""
    for results in part.results:
        try:
            show = study(part.name).show
            if show is not None and isinstance(results.content, Finished):
                yield show(results.content)
        except ILL_FORMED as error:
            yield Shown([f"These results cannot be shown ({type(error).__name__})."])


def figures(part: Part) -> Iterator[Figure]:
    """The figure of a study, for each set of data."""
    for number, results in enumerate(part.results):
        main = study(part.name)
        if main.draw is None or not isinstance(results.content, Finished):
            continue
        try:
            picture = draw_in_style(main.draw, results.content)
            assert picture is not None
        except ILL_FORMED as error:
            missing = f"This figure cannot be drawn ({type(error).__name__})."
            yield Figure(Markup(), "", missing=missing)
            continue
        caption = caption_of(main.draw)
        place = f"{part.name.replace('.', '-')}-{number}"
        svg = Markup(to_svg(picture, place, f"{part.title}: {caption}"))
        yield Figure(svg, caption, made(results))


def caption_of(draw: Callable) -> str:
    """What a function draws: its docstring without the sections.

    Example:
        >>> caption_of(FIGURES["growth"])[:33]
        '‖p‖ of a few runs over log-time, '
    """
    text = (draw.__doc__ or "").partition("Returns:")[0]
    return " ".join(text.split())


def made(results: ResultFolder) -> str:
    """The data and the settings of a run, for people.

    Example:
        >>> settings = {"dim": 2048, "steps": 150, "query_rate": None, "batch": 0}
        >>> made(ResultFolder(None, "", Finished(settings, {}, {}, {}), "", ""))
        'Synthetic data, d = 2,048, 150 training steps'
    """
    settings = dict(results.settings)
    if "sweep" in settings:
        return "The runs of make sweep"
    data = data_of(results)
    said = [CALLED.get(data, data)]
    if dims := settings.get("dims"):
        said.append(f"d from {num(min(dims), 6)} to {num(max(dims), 6)}")
        if not data:
            # Of a network, which is trained on reviews alone.
            settings = {name: settings.get(name) for name in ("draws", "seeds")}
    for name, words in SAID.items():
        value = settings.get(name)
        if isinstance(value, int | float) and (value or name != "batch"):
            said.append(words.format(num(value, 6)) if np.isfinite(value) else "")
    return ", ".join(filter(None, said))


def maps(found: list[ResultFolder]) -> list[Map]:
    """Every sweep on disk, the largest first."""
    drawn = [
        _map(one.content, str(one.folder), number)
        for number, one in enumerate(found)
        if isinstance(one.content, xr.Dataset)
    ]
    return sorted(drawn, key=lambda one: -one.runs)


def _map(results: xr.Dataset, name: str, number: int) -> Map:
    counts = {
        status: results.status < 0
        if status == "MISSING"
        else with_status(results, status)
        for status in STATUS
    }
    there = {status: hit for status, hit in counts.items() if bool(hit.any())}
    steps = results.step_size.values[::-1]
    return Map(
        name,
        int((results.status >= 0).sum()),
        results.status.size,
        [(status, int(hit.sum())) for status, hit in there.items()],
        [
            (num(step), [int(hit.sel(step_size=step).sum()) for hit in there.values()])
            for step in steps
        ],
        list(_of_sweep(results, number)),
        uncertified(results),
    )


def _of_sweep(results: xr.Dataset, number: int) -> Iterator[Figure]:
    """The map, the error of the step, growth and direction."""
    order = ("phases", *(name for name in FIGURES if name != "phases"))
    for name in order:
        caption = caption_of(FIGURES[name])
        try:
            picture = draw_in_style(FIGURES[name], results)
        except ILL_FORMED as error:
            missing = f"This figure cannot be drawn ({type(error).__name__})."
            yield Figure(Markup(), "", missing=missing)
            continue
        if picture is not None:
            svg = to_svg(picture, f"sweep-{number}-{name}", caption)
            yield Figure(Markup(svg), caption)
