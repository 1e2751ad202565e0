"""A claim, what would measure it, and what was measured."""

import enum
from collections.abc import Callable, Iterable
from typing import NamedTuple

from experiments.report.folders import ILL_FORMED, Found, best


class Verdict(enum.Enum):
    """What the results on disk say of a claim: a mark, and words for people.

    `HOLDS` is said of claims alone that every run in question has a certificate for;
    numbers that come out as claimed, without one, agree.
    """

    HOLDS = "✓", "certified"
    AGREES = "≈", "agrees"
    IN_PART = "◐", "holds in part"
    FAILS = "✗", "fails"
    OPEN = "·", "not decided"
    MISSING = "○", "not run here"

    @property
    def mark(self) -> str:
        """A single character."""
        return self.value[0]

    @property
    def words(self) -> str:
        """For people."""
        return self.value[1]


class Measured(NamedTuple):
    """What results say of a claim.

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
        measure: from a folder of these.
    """

    statement: str
    source: str
    study: str
    command: str
    measure: Callable[[Found], Measured]


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

    Args:
        claims: which.
        found: of `folders.search`.

    Returns:
        One row each, in their order.
    """
    return [_row(claim, best(found, claim.study)) for claim in claims]


def _row(claim: Claim, results: Found | None) -> Row:
    if results is None:
        return Row(claim, Measured(Verdict.MISSING))
    try:
        measured = claim.measure(results)
        if results.settings.get("preset") == "smoke":
            # Too small to decide anything.
            small = f"{measured.sample} (smoke)"
            measured = measured._replace(verdict=Verdict.OPEN, sample=small)
    except ILL_FORMED as error:
        told = f"these results cannot be read ({type(error).__name__})"
        measured = Measured(Verdict.OPEN, told)
    return Row(claim, measured)


def of_cases(hits: int, total: int, all_of_them: Verdict = Verdict.AGREES) -> Verdict:
    """The verdict on cases that each show a claim or contradict it.

    Args:
        hits: cases that show it.
        total: of all cases.
        all_of_them: what is said where every one does.

    Returns:
        A verdict; open where there is no case.

    Example:
        >>> of_cases(2, 3).name, of_cases(0, 3).name, of_cases(0, 0).name
        ('IN_PART', 'FAILS', 'OPEN')
    """
    if not total:
        return Verdict.OPEN
    if hits == total:
        return all_of_them
    return Verdict.IN_PART if hits else Verdict.FAILS
