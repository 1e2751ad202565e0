"""The sections of the page after the phase diagram, a block for each study."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from markupsafe import Markup

from experiments.common.results import Finished
from experiments.report.folders import ILL_FORMED, Found, best

NOT_RUN = "not run here"


class Shown(NamedTuple):
    """Sentences and table of a study.

    Attributes:
        sentences: for people, in reading order.
        table: rows of text, the first one the heads; none by default.
        words: a model's words, scores and values, to try sentences on.
    """

    sentences: list[str]
    table: Sequence[Sequence[str]] = ()
    words: Mapping[str, Any] = MappingProxyType({})


class Part(NamedTuple):
    """A study in a section.

    Attributes:
        study: its name.
        title: of its block.
        command: makes its results.
        show: from a folder of these.
    """

    study: str
    title: str
    command: str
    show: Callable[[Found], Shown]


class Topic(NamedTuple):
    """A section before it meets results."""

    name: str
    title: str
    about: str
    parts: tuple[Part, ...]


class Block(NamedTuple):
    """A part with what was found for it.

    Attributes:
        part: of the section.
        shown: what it has to show.
        folder: of its results.
        missing: why there is nothing to show.
        figure: as an SVG element, or empty.
        caption: of the figure.
    """

    part: Part
    shown: Shown = Shown([])
    folder: str = ""
    missing: str = ""
    figure: Markup = Markup()
    caption: str = ""


class Section(NamedTuple):
    """A section with its blocks."""

    topic: Topic
    blocks: list[Block]

    @property
    def shown(self) -> list[Block]:
        """The blocks of studies that were run, damaged ones among them."""
        return [block for block in self.blocks if block.missing != NOT_RUN]


def section(topic: Topic, found: list[Found]) -> Section:
    """Fill a section from what is on disk.

    Returns:
        Its blocks, in their order.
    """
    return Section(
        topic, [_block(part, best(found, part.study)) for part in topic.parts]
    )


def _block(part: Part, results: Found | None) -> Block:
    if results is None:
        return Block(part, missing=NOT_RUN)
    folder = str(results.folder)
    try:
        shown, figure, caption = part.show(results), "", ""
        if isinstance(results.content, Finished) and results.content.figure:
            # Not above: figures load pyplot.
            from experiments.figures.studies import embedded

            name = part.study.replace(".", "-")
            figure, caption = embedded(results.content, name, part.title)
    except ILL_FORMED as error:
        missing = f"these results cannot be shown ({type(error).__name__})"
        return Block(part, folder=folder, missing=missing)
    return Block(part, shown, folder, "", Markup(figure), caption)
