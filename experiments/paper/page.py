"""The page of the paper: its table, and each item with its figure, in one file."""

from pathlib import Path

from experiments.common.claims import Shown
from experiments.paper.rows import Item
from experiments.report.page import template
from experiments.report.sections import Block, block

HERE = Path(__file__).parent


def page(items: list[Item]) -> str:
    """The paper, item by item.

    Returns:
        HTML that needs no other file.
    """
    return template(HERE).render(items=items, figures=_figures(items))


def _figures(items: list[Item]) -> dict[str, list[Block]]:
    """Figures of every item, one for each set of data."""
    return {
        item.name: [
            block(f"paper.{item.name}", results) or Block(item.title, "", Shown([]))
            for results in item.results
        ]
        for item in items
    }
