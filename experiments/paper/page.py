"""The page of the paper: its table, and each item with its figure, in one file."""

from pathlib import Path

import jinja2
from markupsafe import Markup

from experiments.common.claims import Shown
from experiments.paper.rows import Item
from experiments.report.page import ASSETS, breakable, math
from experiments.report.sections import Block, block

HERE = Path(__file__).parent


def page(items: list[Item]) -> str:
    """The paper, item by item.

    Returns:
        HTML that needs no other file.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"math": math, "breakable": breakable}
    style = (ASSETS / "page.css").read_text(encoding="utf-8")
    return environment.get_template("page.html").render(
        items=items, figures=_figures(items), style=Markup(style)
    )


def _figures(items: list[Item]) -> dict[str, list[Block]]:
    """Figures of every item, one for each set of data."""
    return {
        item.name: [
            block(f"paper.{item.name}", results) or Block(item.title, "", Shown([]))
            for results in item.results
        ]
        for item in items
    }
