"""The sections of the page behind the phase diagram, a block for each study."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from experiments.report.charts import Chart
from experiments.report.folders import ILL_FORMED, Found, best

NOT_RUN = "not run here"


class Shown(NamedTuple):
    """What a study has to show.

    Attributes:
        sentences: for people, in reading order.
        charts: of it.
        table: rows of text, the first one the heads; none by default.
        words: a model's words, scores and values, to try sentences on.
    """

    sentences: list[str]
    charts: list[Chart]
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
    """A part with what was found for it; `missing` says why there is nothing."""

    part: Part
    folder: str
    missing: str
    sentences: list[str]
    charts: list[Chart]
    table: Sequence[Sequence[str]]
    words: Mapping[str, Any]


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

    Args:
        topic: of the section.
        found: of `folders.search`.

    Returns:
        Its blocks, in their order.
    """
    return Section(
        topic, [_block(part, best(found, part.study)) for part in topic.parts]
    )


def _block(part: Part, results: Found | None) -> Block:
    empty = Block(part, "", "", [], [], [], {})
    if results is None:
        return empty._replace(missing=NOT_RUN)
    folder = str(results.folder)
    try:
        shown = part.show(results)
    except ILL_FORMED as error:
        missing = f"these results cannot be shown ({type(error).__name__})"
        return empty._replace(folder=folder, missing=missing)
    return Block(part, folder, "", *shown)
