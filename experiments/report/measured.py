"""A claim, what would measure it, and what was measured."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import xarray as xr

from experiments.report.folders import ILL_FORMED, Found, best
from experiments.report.verdicts import Verdict
from jaxselect.checks import BadInput

FEWEST = 100
"""Runs from which a sweep decides: among 100, contradictions with a share of 3 % would
have shown with a probability of 95 %."""


class Measured(NamedTuple):
    """A claim held against results.

    Attributes:
        verdict: see `Verdict`.
        value: what was measured, in words.
        sample: number of runs, words or draws, with their name.
        fails: share of these that contradict the claim.
        certificate: what decides.
    """

    verdict: Verdict
    value: str = ""
    sample: str = ""
    fails: str = ""
    certificate: str = ""


class Claim(NamedTuple):
    """A claim, and how to measure it.

    Attributes:
        statement: one sentence.
        source: where it is from; empty for what was first seen here.
        study: whose results decide.
        command: makes them.
        measure: a pure function of these: a sweep's data set, or what a study left.
    """

    statement: str
    source: str
    study: str
    command: str
    measure: Callable[[Any], Measured]


class Row(NamedTuple):
    """A claim beside what was measured of it."""

    claim: Claim
    measured: Measured

    @property
    def missing(self) -> bool:
        """Whether there is nothing that measures it."""
        return self.measured.verdict is Verdict.MISSING


def rows(claims: Iterable[Claim], found: list[Found]) -> list[Row]:
    """Measure every claim on the best results there are.

    Returns:
        One row each, in their order.
    """
    return [_row(claim, best(found, claim.study)) for claim in claims]


def _row(claim: Claim, results: Found | None) -> Row:
    if results is None:
        return Row(claim, Measured(Verdict.MISSING))
    try:
        measured = claim.measure(results.content)
    except BadInput as error:
        return Row(claim, Measured(Verdict.OPEN, str(error)))
    except ILL_FORMED as error:
        words = f"these results cannot be read ({type(error).__name__})"
        return Row(claim, Measured(Verdict.OPEN, words))
    if small := too_small(results):
        sample = f"{measured.sample} ({small})"
        measured = measured._replace(verdict=Verdict.OPEN, sample=sample)
    return Row(claim, measured)


def too_small(results: Found) -> str:
    """Why results decide nothing; empty where they do.

    Returns:
        A few words: a study's preset `smoke`, or a sweep's number of runs.
    """
    if isinstance(results.content, xr.Dataset):
        runs = int((results.content.status >= 0).sum())
        return f"decides from {FEWEST} runs on" if runs < FEWEST else ""
    return "smoke" if results.settings.get("preset") == "smoke" else ""
