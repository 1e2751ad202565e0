"""The rows of the paper's table: each statement of an item beside what was found."""

import importlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from experiments import about
from experiments.common.claims import Claim, Measured, Verdict
from experiments.common.results import Finished
from experiments.common.study import Experiment
from experiments.paper import ITEMS
from experiments.report.folders import ResultFolder
from experiments.report.sections import measured, too_small

WORDS = {
    Verdict.HOLDS: "reproduced",
    Verdict.AGREES: "reproduced",
    Verdict.IN_PART: "in part",
    Verdict.FAILS: "refuted",
    Verdict.OPEN: "not decided",
    None: "not run",
}
"""The verdicts of the paper's table."""
REVIEWS = {
    "figure_1",
    "figure_3",
    "key_query",
    "mlp",
    "random_embeddings",
    "one_step_spread",
}
"""Items that are of reviews alone."""


class Row(NamedTuple):
    """A statement of the paper beside ours.

    Attributes:
        item: name of its file.
        data: name of the reviews that ours is of; empty for what is invented.
        claim: the statement, and its place in the paper.
        found: ours; None where the item was not run, or is damaged.
        command: that runs it.
        trouble: what is wrong with the results on disk; empty where nothing is.
    """

    item: str
    data: str
    claim: Claim
    found: Measured | None
    command: str
    trouble: str = ""

    @property
    def verdict(self) -> str:
        """The verdict in words."""
        if self.trouble:
            return "damaged"
        return WORDS[self.found.verdict if self.found else None]


class Item(NamedTuple):
    """An item of the paper with what is on disk of it.

    Attributes:
        name: of its file.
        title: for people.
        rows: one for each statement, of each set of data.
        results: of each set of data, those that can be read.
    """

    name: str
    title: str
    rows: list[Row]
    results: list[ResultFolder]


def study(name: str) -> Experiment:
    """The program of an item."""
    found: Experiment = importlib.import_module(f"experiments.paper.{name}").main
    return found


def presets_of(name: str) -> Mapping[str, Any]:
    """The presets of an item."""
    found: Mapping[str, Any] = importlib.import_module(
        f"experiments.paper.{name}"
    ).PRESETS
    return found


def needs_reviews(name: str) -> bool:
    """Whether an item is of reviews alone."""
    return name in REVIEWS


def data_of(results: ResultFolder) -> str:
    """Name of the reviews that results are of; empty for what is invented."""
    source = results.settings.get("source") or {}
    if source.get("dataset"):
        return str(source["dataset"])
    if source.get("train") is None:
        return ""
    return str(source.get("named") or Path(source["train"]).name)


def command(name: str) -> str:
    """The command that runs an item."""
    text = " --dataset imdb_reviews" if needs_reviews(name) else ""
    if name == "classes":
        text = " --train FILE --test FILE --named yelp_review_full --drop 2"
    return f"python -m experiments.paper.{name}{text}"


def items(found: list[ResultFolder]) -> Iterator[Item]:
    """Every item in the paper's order, with the results that are on disk.

    Of several results of one set of data the latest counts, a smoke run only where
    there is nothing else, and damaged ones where there are no others.
    """
    for name in ITEMS:
        there: dict[str, ResultFolder] = {}
        for one in found:
            # A damaged file does not say its study; `study.settings_of` names folders.
            folder, _, data = one.folder.name.partition("-")
            if isinstance(one.content, Finished) and one.study == f"paper.{name}":
                data = data_of(one)
            elif one.content is not None or one.study or folder != name:
                continue
            if data not in there or _rank(one) > _rank(there[data]):
                there[data] = one
        main = study(name)
        each: dict[str, ResultFolder | None] = {**there} or {"": None}
        rows = [
            row(name, data, claim, each[data])
            for data in sorted(each)
            for claim in main.claims
        ]
        said = {one.claim for one in rows if one.verdict != WORDS[None]}
        rows = [
            one for one in rows if one.verdict != WORDS[None] or one.claim not in said
        ]
        title = main.title or about(f"paper.{name}")
        whole = [one for one in there.values() if one.content is not None]
        yield Item(name, title, rows, whole)


def row(name: str, data: str, claim: Claim, results: ResultFolder | None) -> Row:
    """A statement beside what results show of it; nothing where they hold none."""
    if results is not None and results.content is None:
        where, said = str(results.folder), results.trouble
        trouble = said if where in said else f"{where}: {said}"
        return Row(name, data, claim, None, command(name), trouble)
    found = None if results is None else measured(claim, results)
    if results is None or found is None or not found.value:
        return Row(name, data, claim, None, command(name))
    usual = f" --preset {next(iter(presets_of(name)))}"
    return Row(name, data, claim, found, results.command.replace(usual, ""))


def _rank(results: ResultFolder) -> tuple[bool, bool, str]:
    return results.content is not None, not too_small(results), results.written
