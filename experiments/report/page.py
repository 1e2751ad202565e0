"""The page: results laid out, its figures and its program inlined."""

import base64
import hashlib
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup, escape

from experiments.common import palette
from experiments.common.claims import Verdict
from experiments.common.numbers import counted
from experiments.common.runs import CERTIFIED
from experiments.report.folders import ILL_FORMED, ResultFolder
from experiments.report.phases import Diagram, diagram
from experiments.report.provenance import provenance
from experiments.report.sections import Row, absent, rows, sections

ASSETS = Path(__file__).parent / "assets"


def page(found: list[ResultFolder]) -> str:
    """The report, whole.

    Returns:
        HTML that needs no other file.
    """
    claims, parts = rows(found), sections(found)
    diagrams, broken = _diagrams(found)
    data = {
        "palette": {name: look._asdict() for name, look in palette.STATUS.items()},
        "certified": CERTIFIED,
        "phases": [one.data for one in diagrams],
        "sentences": [
            block.shown.words
            for one in parts
            for block in one.blocks
            if block.shown.words
        ],
    }
    return template(ASSETS).render(
        claims=claims,
        verdicts=_verdicts(claims),
        absent=absent(found),
        diagrams=diagrams,
        broken=broken,
        sections=parts,
        provenance=provenance(found),
        troubles=[one for one in found if one.trouble],
        look=palette.STATUS,
        edges=palette.EDGES,
        programs=[_asset(name) for name in ("page.js", "phases.js")],
        data=embedded(data),
    )


def template(folder: Path) -> jinja2.Template:
    """The page.html of a folder; its head, with the style, is that of every page.

    The head forbids connections, and programs but those that are rendered with it.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([folder, ASSETS]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for use in (math, breakable, counted, digest):
        environment.filters[use.__name__] = use
    environment.globals["style"] = _asset("page.css")
    return environment.get_template("page.html")


def _verdicts(claims: list[Row]) -> list[tuple[Verdict, int]]:
    """How many claims have which verdict, in the order of the enumeration."""
    counts = Counter(row.measured.verdict for row in claims)
    return [(verdict, counts[verdict]) for verdict in Verdict if counts[verdict]]


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


def embedded(data: Any) -> Markup:
    """Data as JSON that no text in it can end: `<`, `>` and `&` are spelled out.

    Example:
        >>> print(embedded({"word": "</b>"}).replace(chr(92), "/"))
        {"word":"/u003c/b/u003e"}
    """
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    for letter in "<>&":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return Markup(text)


def digest(program: str) -> str:
    """SHA-256 of a program, as a policy of content names it.

    Example:
        >>> digest("")
        'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='
    """
    found = hashlib.sha256(program.encode()).digest()
    return "sha256-" + base64.b64encode(found).decode()


def _asset(name: str) -> Markup:
    """A file of ours, as it is."""
    return Markup((ASSETS / name).read_text(encoding="utf-8"))


def _diagrams(found: list[ResultFolder]) -> tuple[list[Diagram], list[tuple[str, str]]]:
    """Phase diagrams, the largest first, and what could not be laid out."""
    drawn, broken = [], []
    for one in found:
        if one.study == "sweep" and one.content is not None:
            try:
                drawn.append(diagram(one))
            except ILL_FORMED as error:
                broken.append((str(one.folder), f"{type(error).__name__}: {error}"))
    return sorted(drawn, key=lambda one: -one.runs), broken
