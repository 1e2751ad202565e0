"""Numbers as the page holds and says them."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np


def rounded(values: Any, digits: int = 4) -> Any:
    """Numbers with a few digits, None where they are not finite; for JSON.

    Example:
        >>> rounded([0.123456, np.nan, 2000000.0])
        [0.1235, None, 2000000]
    """
    array = np.asarray(values)
    if array.ndim:
        return [rounded(value, digits) for value in array]
    value = array.item()
    if not isinstance(value, float):
        return value
    if not math.isfinite(value):
        return None
    near = float(f"{value:.{digits}g}")
    return int(near) if near.is_integer() and abs(near) < 1e15 else near


def num(value: float | None, digits: int = 3) -> str:
    """A number for people: powers of ten written out, a dash where there is none.

    Example:
        >>> num(0.000123), num(1e6), num(42.0), num(None)
        ('1.23·10⁻⁴', '10⁶', '42', '–')
    """
    if value is None or not math.isfinite(value):
        return "–"
    if value == 0 or 1e-3 <= abs(value) < 1e5:
        return f"{float(f'{value:.{digits}g}'):,.10g}".replace("-", "−")
    return _power(value, digits)


def in_words(value: Any) -> str:
    """Results for people: names with their numbers, in one line.

    Example:
        >>> in_words({"log_time": 2.0, "kept": {"runs": 3, "low": None}, "d": [1, 2]})
        'log time 2, kept (runs 3, low –), d 1 2'
    """
    if isinstance(value, Mapping):
        found = []
        for name, one in value.items():
            said = in_words(one)
            said = f"({said})" if isinstance(one, Mapping) else said
            found.append(f"{name.replace('_', ' ')} {said}")
        return ", ".join(found)
    if isinstance(value, list):
        return " ".join(map(in_words, value))
    return value if isinstance(value, str) else num(value)


def ticks(values: Iterable[float]) -> list[str]:
    """The values of one axis in one notation: powers of ten where any needs them.

    Example:
        >>> ticks([31600.0, 1e5]), ticks([0.1, 31600.0])
        (['3.16·10⁴', '10⁵'], ['0.1', '31,600'])
    """
    values = list(values)
    if all(value == 0 or 1e-3 <= abs(value) < 1e5 for value in values):
        return [num(value) for value in values]
    return [_power(value, 3) for value in values]


def majors(values: Iterable[float], most: int = 6) -> list[bool]:
    """Which values of an axis have a label: all of a few, else the powers of ten.

    Example:
        >>> majors([10.0, 30.0, 100.0]), majors([10.0, 30.0, 100.0], most=2)
        ([True, True, True], [True, False, True])
        >>> majors([2.0, 3.0, 4.0], most=2)
        [True, False, True]
    """
    values = list(values)
    if len(values) <= most:
        return [True] * len(values)
    whole = [value > 0 and round(math.log10(value), 6).is_integer() for value in values]
    every = -(-len(values) // most)
    return whole if sum(whole) > 1 else [i % every == 0 for i in range(len(values))]


def _power(value: float, digits: int) -> str:
    """A number as a mantissa and a power of ten."""
    mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
    raised = str(int(exponent)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    front = mantissa.rstrip("0").rstrip(".").replace("-", "−")
    return f"10{raised}" if front == "1" else f"{front}·10{raised}"


def counted(number: int, noun: str) -> str:
    """A number of things, with its noun in the plural but for one.

    Example:
        >>> counted(1, "run"), counted(1040, "run")
        ('1 run', '1,040 runs')
    """
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def percent(hits: float, total: float) -> str:
    """A share for people, never rounded to none or to all.

    Example:
        >>> percent(1, 3), percent(0, 8), percent(999_999, 1_000_000)
        ('33.3 %', '0 %', '> 99.9 %')
    """
    if not total:
        return "–"
    share = 100 * hits / total
    if 0 < share < 0.1:
        return "< 0.1 %"
    if 99.9 < share < 100:
        return "> 99.9 %"
    return f"{share:.3g} %"


def finite(values: Iterable[float]) -> np.ndarray:
    """Those that are numbers."""
    array = np.asarray(list(values), float)
    return array[np.isfinite(array)]
