"""Rows of the page and of `docs/paper.md`: a claim, what was found, its command."""

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import xarray as xr

from experiments import STUDIES, about
from experiments.common.claims import Claim, Measured, Verdict
from experiments.common.results import Finished
from experiments.common.study import Experiment, measured
from experiments.paper import ITEMS, REVIEWS
from experiments.report.folders import ILL_FORMED, ResultFolder, best
from experiments.sweep.claims import CLAIMS

FEWEST = 100
"""Runs from which a sweep decides: among 100, contradictions with a share of 3 % would
have shown with a probability of 95 %."""


class Row(NamedTuple):
    """A claim beside what was measured of it.

    Attributes:
        claim: one clause, and where it is from.
        found: ours, or what is wrong with results that are damaged; None where it
            was not run.
        command: that measures it.
        data: name of the reviews that ours is of; empty for synthetic data.
    """

    claim: Claim
    found: Measured | None
    command: str
    data: str = ""

    @property
    def verdict(self) -> Verdict:
        """The verdict; `NOT_RUN` where there are no results."""
        return self.found.verdict if self.found else Verdict.NOT_RUN


class Part(NamedTuple):
    """A study on the page.

    Attributes:
        name: without `experiments.`.
        title: for people.
        rows: one for each clause and each set of data.
        results: that are shown, of each set of data; none that are damaged.
    """

    name: str
    title: str
    rows: list[Row]
    results: list[ResultFolder]


def study(name: str) -> Experiment:
    """The program of a study."""
    found: Experiment = importlib.import_module(f"experiments.{name}").main
    return found


def items(found: list[ResultFolder]) -> Iterator[Part]:
    """Every item of the paper in its order, whether it was run or not."""
    for name in ITEMS:
        yield part(f"paper.{name}", found)


def studies(found: list[ResultFolder]) -> Iterator[Part]:
    """Every other study that has results."""
    there = {one.study for one in found}
    for name in STUDIES:
        if name in there and name != "sweep" and not name.startswith("paper."):
            yield part(name, found)


def part(name: str, found: list[ResultFolder]) -> Part:
    """A study with its rows: of each set of data the best results there are.

    Damaged results count where there are no others of the same data.
    """
    there: dict[str, ResultFolder] = {}
    for data in dict.fromkeys(map(data_of, found)):
        of_data = [one for one in found if one.study == name and data_of(one) == data]
        if of_data:
            there[data] = best(of_data, name) or of_data[-1]
    whole = [one for one in there.values() if one.content is not None]
    if not there:
        claims, title = study(name).claims, study(name).title or about(name)
        return Part(
            name, title, [Row(claim, None, command(name)) for claim in claims], []
        )
    try:
        claims, title = study(name).claims, study(name).title or about(name)
    except (*ILL_FORMED, ImportError):
        return Part(name, name, [], whole)
    rows = [
        row(claim, data, there[data], name)
        for claim in claims
        for data in sorted(there)
    ]
    said = {one.claim for one in rows if one.found}
    rows = [one for one in rows if one.found or one.claim not in said]
    return Part(name, title, rows, whole)


def row(claim: Claim, data: str, results: ResultFolder, name: str) -> Row:
    """A clause beside what results show of it; nothing where they hold none of it."""
    if results.content is None:
        where, said = str(results.folder), results.trouble
        said = said if where in said else f"{where}: {said}"
        return Row(claim, Measured(Verdict.DAMAGED, said), command(name), data)
    held = measure(claim, results)
    if not held.value:
        return Row(claim, None, command(name))
    first = next(iter(importlib.import_module(f"experiments.{name}").PRESETS))
    return Row(claim, held, results.command.replace(f" --preset {first}", ""), data)


def of_sweep(found: list[ResultFolder], shown: list[Part]) -> list[Row]:
    """What the runs of the map show, but for what an item of the paper says of them."""
    results = best(found, "sweep")
    if results is None:
        return []
    said = {
        place(row.claim)
        for part in shown
        for row in part.rows
        if row.found and any("sweep" in one.settings for one in part.results)
    }
    return [
        Row(claim, measure(claim, results), "make sweep")
        for claim in CLAIMS
        if place(claim) not in said
    ]


def place(claim: Claim) -> str:
    """The lemma, theorem or reply of a claim; its statement where it is ours."""
    source = claim.source.replace(";", ",").partition(",")[0]
    return source or claim.statement


def measure(claim: Claim, results: ResultFolder) -> Measured:
    """A claim held against one folder; not run where a sweep is too small."""
    if isinstance(results.content, Finished):
        return measured(claim, results.content)
    assert isinstance(results.content, xr.Dataset)
    held = claim.measure(results.content)
    if int((results.content.status >= 0).sum()) < FEWEST:
        sample = f"{held.sample} (decides from {FEWEST} runs on)"
        held = held._replace(verdict=Verdict.NOT_RUN, sample=sample)
    return held


def data_of(results: ResultFolder) -> str:
    """Name of the reviews that results are of; empty for synthetic data."""
    if results.content is None:
        # As `paper.study.settings_of` names folders.
        item, _, data = results.folder.name.partition("-")
        return data if results.study == f"paper.{item}" else ""
    source = results.settings.get("source") or {}
    if source.get("dataset"):
        return str(source["dataset"])
    if source.get("train") is None:
        return ""
    return str(source.get("named") or Path(source["train"]).name)


def command(name: str) -> str:
    """The command that makes the results of a study."""
    quick = " --quick" if name.startswith("benchmarks.") else ""
    flags = REVIEWS.get(name.removeprefix("paper."), "")
    return f"python -m experiments.{name}{quick}{flags}"
