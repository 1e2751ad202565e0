"""Claims, their verdicts, and what else the report shows of a study.

Verdicts are functions of counts and of numbers alone.

A number that is not known decides nothing, a run that is missing counts as one that
shows nothing, and a status that is not known here is an error.
"""

import enum
import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from jaxselect.checks import BadInput


class Verdict(enum.Enum):
    """A mark and words for what results on disk say of a claim.

    `HOLDS` is reserved for claims of which every run in question has a certificate;
    numbers that come out as claimed, without one, agree.
    """

    HOLDS = "✓", "certified"
    AGREES = "≈", "agrees"
    IN_PART = "◐", "holds in part"
    FAILS = "✗", "fails"
    OPEN = "·", "not decided"

    @property
    def mark(self) -> str:
        """A single character."""
        return self.value[0]

    @property
    def words(self) -> str:
        """Verdict as words in the table of the page."""
        return self.value[1]


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
        measure: a pure function of a study's results on disk.
        source: where it is from; empty for what was first seen here.
    """

    statement: str
    measure: Callable[[Any], Measured]
    source: str = ""


class Shown(NamedTuple):
    """Sentences and table that the report shows of a study.

    Attributes:
        sentences: for people, in reading order.
        table: rows of text, the first one the heads; none by default.
        words: a model's words, scores and values, to try sentences on.
    """

    sentences: list[str]
    table: Sequence[Sequence[str]] = ()
    words: Mapping[str, Any] = MappingProxyType({})


def of_cases(hits: int, total: int, all_of_them: Verdict = Verdict.AGREES) -> Verdict:
    """The verdict on cases that each show a claim or contradict it.

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


def of_runs(hits: int, misses: int, total: int) -> Verdict:
    """The verdict on certified runs of which some may be undecided or missing.

    Args:
        hits: runs whose certificate shows the claim.
        misses: runs that contradict it.
        total: runs in question, the missing ones among them.

    Returns:
        `HOLDS` only where every run in question is a hit.

    Example:
        >>> of_runs(3, 0, 3).name, of_runs(2, 0, 3).name, of_runs(2, 1, 3).name
        ('HOLDS', 'OPEN', 'IN_PART')
    """
    if misses:
        return Verdict.IN_PART if hits else Verdict.FAILS
    return Verdict.HOLDS if hits == total and hits else Verdict.OPEN


def at_most(value: float, bound: float) -> Verdict:
    """Agrees for a number up to its bound, open for NaN.

    Example:
        >>> at_most(1.0, 1.0).name, at_most(1.1, 1.0).name, at_most(math.nan, 1.0).name
        ('AGREES', 'FAILS', 'OPEN')
    """
    if math.isnan(value):
        return Verdict.OPEN
    return Verdict.AGREES if value <= bound else Verdict.FAILS


def at_least(value: float, bound: float) -> Verdict:
    """Agrees for a number from its bound on, open for NaN.

    Example:
        >>> at_least(0.9, 0.9).name, at_least(0.8, 0.9).name
        ('AGREES', 'FAILS')
    """
    return at_most(-value, -bound)


def of_interval(low: float, high: float, value: float, within: float) -> Verdict:
    """The verdict on a predicted value, from a 95 % interval for it.

    Args:
        low: lower end; NaN where it is not known.
        high: upper end, likewise.
        value: predicted.
        within: largest distance of either end that counts as agreement.

    Returns:
        `AGREES` where both ends are near, `FAILS` where all of the interval is far,
        `OPEN` where it is wide or not known.

    Example:
        >>> [of_interval(a, b, 0.0, 1.0).name for a, b in ((-1, 1), (-1, 2), (2, 3))]
        ['AGREES', 'OPEN', 'FAILS']
    """
    if max(abs(low - value), abs(high - value)) <= within:
        return Verdict.AGREES
    far = low > value + within or high < value - within
    return Verdict.FAILS if far else Verdict.OPEN


def of_status(status: str, known: Mapping[str, Verdict]) -> Verdict:
    """The verdict that stands for a status.

    Raises:
        BadInput: the status is not known, so that nothing can be said.

    Example:
        >>> of_status("LOST", {"FOUND": Verdict.HOLDS})
        Traceback (most recent call last):
        jaxselect.checks.BadInput: status LOST: wanted one of FOUND; run the study again
    """
    if status not in known:
        raise BadInput(
            f"status {status}: wanted one of {', '.join(known)}; run the study again"
        )
    return known[status]
