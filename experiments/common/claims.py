"""Claims, their verdicts, and what else the report shows of a study.

Verdicts are functions of counts and of numbers alone.

A number that is not known decides nothing, a run that is missing counts as one that
shows nothing, and a status that is not known here is an error.
"""

import enum
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from jaxselect.checks import BadInput


class Verdict(enum.Enum):
    """What results on disk say of a claim: a mark, and words.

    `CERTIFIED` and `REPRODUCED` are one verdict; the first says besides that every run
    in question has a certificate. `REFUTED` needs a counterexample; numbers that come
    out otherwise than published are `NOT_REPRODUCED`. `NOT_RUN` includes what ran on
    too few draws to decide, `DAMAGED` what cannot be read.
    """

    CERTIFIED = "✓", "reproduced", "certified"
    REPRODUCED = "✓", "reproduced", ""
    IN_PART = "◐", "in part", ""
    NOT_REPRODUCED = "≠", "not reproduced", ""
    REFUTED = "✗", "refuted", ""
    NOT_RUN = "·", "not run", ""
    DAMAGED = "!", "damaged", ""

    @property
    def mark(self) -> str:
        """A single character."""
        return str(self.value[0])

    @property
    def words(self) -> str:
        """One of the five verdicts, or damaged."""
        return str(self.value[1])

    @property
    def beside(self) -> str:
        """`certified` where every run in question is; empty elsewhere."""
        return str(self.value[2])

    def __str__(self) -> str:
        """The verdict, and what is beside it."""
        return ", ".join(filter(None, self.value[1:]))


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
    """

    sentences: list[str]
    table: Sequence[Sequence[str]] = ()


def of_cases(
    hits: int, total: int, all_of_them: Verdict = Verdict.REPRODUCED
) -> Verdict:
    """The verdict on cases that each show a claim or contradict it.

    Returns:
        A verdict; not run where there is no case.

    Example:
        >>> of_cases(2, 3).name, of_cases(0, 3).name, of_cases(0, 0).name
        ('IN_PART', 'NOT_REPRODUCED', 'NOT_RUN')
    """
    if not total:
        return Verdict.NOT_RUN
    if hits == total:
        return all_of_them
    return Verdict.IN_PART if hits else Verdict.NOT_REPRODUCED


def of_runs(hits: int, misses: int, total: int) -> Verdict:
    """The verdict on certified runs of which some may be undecided or missing.

    Args:
        hits: runs whose certificate shows the claim.
        misses: runs that contradict it.
        total: runs in question, the missing ones among them.

    Returns:
        `CERTIFIED` only where every run in question is a hit; `REFUTED` where some
        contradict and none is a hit.

    Example:
        >>> of_runs(3, 0, 3).name, of_runs(2, 0, 3).name, of_runs(2, 1, 3).name
        ('CERTIFIED', 'IN_PART', 'IN_PART')
        >>> of_runs(0, 1, 3).name, of_runs(0, 0, 3).name, of_runs(0, 0, 0).name
        ('REFUTED', 'NOT_REPRODUCED', 'NOT_RUN')
    """
    if hits:
        return Verdict.CERTIFIED if hits == total else Verdict.IN_PART
    if misses:
        return Verdict.REFUTED
    return Verdict.NOT_REPRODUCED if total else Verdict.NOT_RUN


def at_most(value: float, bound: float) -> Verdict:
    """The verdict on a number with an upper bound; not run for NaN.

    Example:
        >>> at_most(1.0, 1.0).name, at_most(1.1, 1.0).name, at_most(math.nan, 1.0).name
        ('REPRODUCED', 'NOT_REPRODUCED', 'NOT_RUN')
    """
    if math.isnan(value):
        return Verdict.NOT_RUN
    return Verdict.REPRODUCED if value <= bound else Verdict.NOT_REPRODUCED


def at_least(value: float, bound: float) -> Verdict:
    """The verdict on a number with a lower bound; not run for NaN.

    Example:
        >>> at_least(0.9, 0.9).name, at_least(0.8, 0.9).name
        ('REPRODUCED', 'NOT_REPRODUCED')
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
        `REPRODUCED` where both ends are near, `NOT_REPRODUCED` where all of the
        interval is far, `NOT_RUN` where it is wide or not known.

    Example:
        >>> [of_interval(a, b, 0.0, 1.0).name for a, b in ((-1, 1), (-1, 2), (2, 3))]
        ['REPRODUCED', 'NOT_RUN', 'NOT_REPRODUCED']
    """
    if max(abs(low - value), abs(high - value)) <= within:
        return Verdict.REPRODUCED
    far = low > value + within or high < value - within
    return Verdict.NOT_REPRODUCED if far else Verdict.NOT_RUN


def of_status(status: str, known: Mapping[str, Verdict]) -> Verdict:
    """The verdict of a status.

    Raises:
        BadInput: the status is not known, so that nothing can be said.

    Example:
        >>> of_status("LOST", {"FOUND": Verdict.CERTIFIED})
        Traceback (most recent call last):
        jaxselect.checks.BadInput: status LOST: wanted one of FOUND; run the study again
    """
    if status not in known:
        raise BadInput(
            f"status {status}: wanted one of {', '.join(known)}; run the study again"
        )
    return known[status]
