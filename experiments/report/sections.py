"""Claims and parts of the page: a loop over the studies whose results are on disk."""

from collections.abc import Iterator
from typing import NamedTuple

import xarray as xr
from markupsafe import Markup

from experiments import STUDIES
from experiments.common.claims import Claim, Measured, Shown, Verdict
from experiments.common.results import Finished
from experiments.common.study import study_of
from experiments.common.style import draw_in_style, to_svg
from experiments.report.folders import ILL_FORMED, ResultFolder, best
from experiments.sweep.claims import CLAIMS
from jaxselect.checks import BadInput

FEWEST = 100
"""Runs from which a sweep decides: among 100, contradictions with a share of 3 % would
have shown with a probability of 95 %."""
LEAVE_NOTHING = {"run", "figures", "report", "paper"}
"""Programs without results on disk."""


class Topic(NamedTuple):
    """A section of the page.

    Attributes:
        name: of its place in the page.
        title: its heading.
        about: a sentence under it.
    """

    name: str
    title: str
    about: str


TOPICS = {
    "paper": Topic(
        "paper",
        "The paper, item by item",
        "Figures of each item; make paper makes a page of its statements, one by one.",
    ),
    "beyond": Topic(
        "beyond",
        "Beyond the paper",
        "Where the edges of the map lie, what is left of the theory with nothing "
        "frozen or with finite steps, and numbers that others published.",
    ),
    "text": Topic(
        "text",
        "Real text",
        "The same step and the same attention on reviews, where no word belongs to one "
        "class alone.",
    ),
    "networks": Topic(
        "networks",
        "Networks",
        "How the authors may have trained two layers with key-query matrices.",
    ),
    "benchmarks": Topic(
        "benchmarks",
        "Benchmarks",
        "Times as ratios to ours, measured on one machine.",
    ),
}
"""By the first part of a study's name."""


class Row(NamedTuple):
    """A claim beside what was measured of it, and the command that measures it."""

    claim: Claim
    command: str
    measured: Measured


class Block(NamedTuple):
    """What the page shows of a study.

    Attributes:
        title: of the block.
        command: makes its results.
        shown: sentences and a table.
        missing: why there is nothing to show; empty where there is.
        figure: as an SVG element, or empty.
        caption: of the figure.
    """

    title: str
    command: str
    shown: Shown = Shown([])
    missing: str = ""
    figure: Markup = Markup()
    caption: str = ""


class Section(NamedTuple):
    """A topic with the blocks of its studies."""

    topic: Topic
    blocks: list[Block]


def rows(found: list[ResultFolder]) -> list[Row]:
    """Every claim of a study on disk, measured on the best results there are.

    Returns:
        One row each, in the order of the studies; what a sweep shows of a statement of
        the paper, the item that reads the same runs does not show again.
    """
    listed: list[Row] = []
    shown: set[str] = set()
    for name, results in _best(found):
        try:
            claims = CLAIMS if name == "sweep" else study_of(_finished(results)).claims
        except ILL_FORMED:
            continue
        if name == "sweep":
            shown = {_place(claim) for claim in claims if claim.source}
        listed += [
            Row(claim, command(name), measured(claim, results))
            for claim in claims
            if not (name.startswith("paper.") and _place(claim) in shown)
        ]
    return listed


def _place(claim: Claim) -> str:
    """The lemma, theorem or reply of a claim, without what is said of it."""
    return claim.source.replace(";", ",").partition(",")[0]


def sections(found: list[ResultFolder]) -> list[Section]:
    """Every section that has something to show.

    Returns:
        Its blocks are in the order of the studies.
    """
    blocks: dict[str, list[Block]] = {name: [] for name in TOPICS}
    for name, results in _best(found):
        topic = name.partition(".")[0].replace("reviews", "text")
        if topic in TOPICS and (part := block(name, results)):
            blocks[topic].append(part)
    return [Section(TOPICS[name], parts) for name, parts in blocks.items() if parts]


def absent(found: list[ResultFolder]) -> int:
    """How many studies have no results."""
    there = {one.study for one in found if one.content is not None}
    return len({*STUDIES} - there - LEAVE_NOTHING)


def command(name: str) -> str:
    """The command that makes the results of a study."""
    quick = " --quick" if name.startswith("benchmarks.") else ""
    return "make sweep" if name == "sweep" else f"python -m experiments.{name}{quick}"


def too_small(results: ResultFolder) -> str:
    """Why results decide nothing; empty where they do.

    Returns:
        A few words: a study's preset `smoke`, or a sweep's number of runs.
    """
    if isinstance(results.content, xr.Dataset):
        runs = int((results.content.status >= 0).sum())
        return f"decides from {FEWEST} runs on" if runs < FEWEST else ""
    return "smoke" if results.settings.get("preset") == "smoke" else ""


def _best(found: list[ResultFolder]) -> Iterator[tuple[str, ResultFolder]]:
    """Each study with results, and those to draw conclusions from."""
    for name in STUDIES:
        if results := best(found, name):
            yield name, results


def _finished(results: ResultFolder) -> Finished:
    assert isinstance(results.content, Finished)
    return results.content


def measured(claim: Claim, results: ResultFolder) -> Measured:
    """A claim held against one folder; open where that is too small, or damaged."""
    try:
        found = claim.measure(results.content)
    except BadInput as error:
        return Measured(Verdict.OPEN, str(error))
    except ILL_FORMED as error:
        words = f"these results cannot be read ({type(error).__name__})"
        return Measured(Verdict.OPEN, words)
    if small := too_small(results):
        sample = f"{found.sample} ({small})"
        found = found._replace(verdict=Verdict.OPEN, sample=sample)
    return found


def block(name: str, results: ResultFolder) -> Block | None:
    """What a study shows and draws; None of one that does neither."""
    title = name
    try:
        finished = _finished(results)
        study = study_of(finished)
        title = study.title or name
        if study.show is None and study.draw is None:
            return None
        shown = study.show(finished) if study.show else Shown([])
        figure, caption = "", ""
        if study.draw is not None:
            caption = (study.draw.__doc__ or "").partition("\n")[0]
            picture = draw_in_style(study.draw, finished)
            assert picture is not None
            place = name.replace(".", "-")
            figure = to_svg(picture, place, f"{title}: {caption}")
    except ILL_FORMED as error:
        missing = f"these results cannot be shown ({type(error).__name__})"
        return Block(title, command(name), missing=missing)
    return Block(title, command(name), shown, "", Markup(figure), caption)
