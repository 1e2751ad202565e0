"""The figure of a finished study, by the name that its results give."""

import importlib
from collections.abc import Callable
from pathlib import Path

from matplotlib.figure import Figure

from experiments.common.results import Finished
from experiments.figures._page import element
from jaxselect.checks import BadInput

KNOWN = {path.stem for path in Path(__file__).parent.glob("[!_]*.py")}


def drawing(finished: Finished) -> Callable[[Finished], Figure]:
    """The function that draws a study.

    Args:
        finished: what the study left, with the name of its figure.

    Returns:
        `draw` of the module of that name.

    Raises:
        BadInput: there is none of that name.
    """
    if finished.figure not in KNOWN:
        raise BadInput(f"figure {finished.figure}: wanted one of another version")
    return importlib.import_module(f"experiments.figures.{finished.figure}").draw


def embedded(finished: Finished, name: str, title: str) -> tuple[str, str]:
    """The figure of a study as markup, and what it shows in a sentence.

    Args:
        finished: see `drawing`.
        name: that no other figure of the page has.
        title: of the study.

    Returns:
        An SVG element, and its caption.
    """
    draw = drawing(finished)
    caption = (draw.__doc__ or "").partition("\n")[0]
    return element(draw(finished), name, f"{title}: {caption}"), caption
