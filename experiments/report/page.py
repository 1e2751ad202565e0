"""The page: the map, the items of the paper, then our own studies, in one file."""

import re
from collections import Counter
from itertools import groupby
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup, escape

from experiments.common import palette
from experiments.common.claims import Verdict
from experiments.common.numbers import counted
from experiments.report import sections
from experiments.report.folders import ResultFolder
from experiments.report.provenance import provenance
from experiments.report.rows import Part, Row, items, of_sweep, studies

ASSETS = Path(__file__).parent / "assets"


def page(found: list[ResultFolder]) -> str:
    """The report, whole.

    Returns:
        HTML that needs no other file, no script and no network.
    """
    paper = list(items(found))
    parts = [*paper, *studies(found)]
    sweep = of_sweep(found, paper)
    rows = [*sweep, *(row for part in parts for row in part.rows)]
    topics = groupby(map(_laid_out, parts), key=lambda one: one["topic"])
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(ASSETS),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"math": math, "breakable": breakable, "counted": counted}
    return environment.get_template("page.html").render(
        style=Markup((ASSETS / "page.css").read_text(encoding="utf-8")),
        counts=_counts(rows),
        maps=sections.maps(found),
        sweep=sweep,
        topics=[(title, list(some)) for title, some in topics],
        provenance=provenance(found),
        troubles=[one for one in found if one.trouble],
        look=palette.STATUS,
    )


def _counts(rows: list[Row]) -> list[tuple[str, str, int]]:
    """Name of the style, words and number of rows of each verdict that occurs."""
    counts = Counter(row.verdict.words for row in rows)
    named = {one.words: one.name for one in Verdict}
    return [(named[words], words, counts[words]) for words in named if counts[words]]


def _laid_out(part: Part) -> dict[str, Any]:
    """A part as the template reads it."""
    return {
        "topic": sections.topic(part),
        "place": part.name.replace(".", "-"),
        "part": part,
        "shown": list(sections.shown(part)),
        "figures": list(sections.figures(part)),
    }


def math(text: str) -> Markup:
    """A sentence of ours with its indices below and its exponents above the line.

    Example:
        >>> math("E_s ∝ d^(−1/2) < 1")
        Markup('E<sub>s</sub> ∝ d<sup>−1/2</sup> &lt; 1')
    """
    safe = re.sub(r"\^\(([^)]*)\)", r"<sup>\1</sup>", str(escape(text)))
    return Markup(re.sub(r"\b(\w)_(mm|[a-z])(?![A-Za-z])", r"\1<sub>\2</sub>", safe))


def breakable(command: str) -> Markup:
    """A command that may be broken after its dots and slashes.

    Example:
        >>> breakable("a.b")
        Markup('a.<wbr>b')
    """
    return Markup(re.sub(r"([./])", r"\1<wbr>", str(escape(command))))
