"""Checks that constructors share; each error says what arrived and what was wanted."""

import math
import operator
import os

import jax
import numpy as np
from numpy.typing import ArrayLike

from .errors import BadInput

# Token ids are int32.
MOST_TOKENS = 2**31 - 1


def whole(name: str, value: object, *, least: int = 1, most: int | None = None) -> int:
    """The whole number that a setting is.

    Args:
        name: of the setting, for the message.
        value: what arrived.
        least: the smallest number wanted.
        most: the greatest, if there is one.

    Returns:
        The number as a Python integer.

    Raises:
        BadInput: anything else.

    Example:
        >>> whole("vocabulary", 3)
        3
        >>> whole("vocabulary", 3.5)
        Traceback (most recent call last):
        jaxselect.errors.BadInput: vocabulary 3.5: wanted a whole number ≥ 1
    """
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = least - 1
    if number < least or (most is not None and number > most):
        wanted = f"≥ {least}" if most is None else f"from {least} to {most}"
        raise BadInput(f"{name} {value}: wanted a whole number {wanted}")
    return number


def array(name: str, value: ArrayLike, *, kinds: str, wanted: str) -> np.ndarray:
    """A NumPy array of numbers of some kinds.

    Args:
        name: of the argument, for the message.
        value: what arrived.
        kinds: letters of `numpy.dtype.kind`, such as "iu" for integers.
        wanted: in words, for the message.

    Returns:
        The array.

    Raises:
        BadInput: rows of different length, or entries of another kind.

    Example:
        >>> array("tokens", [[0.7]], kinds="iu", wanted="integers")
        Traceback (most recent call last):
        jaxselect.errors.BadInput: tokens of type float64: wanted integers
    """
    try:
        found = np.asarray(value)
    except ValueError as error:  # NumPy's way to say that rows differ in length
        raise BadInput(f"{name}: rows of different length; wanted {wanted}") from error
    # An empty list has no kind.
    if found.size and found.dtype.kind not in kinds:
        raise BadInput(f"{name} of type {found.dtype}: wanted {wanted}")
    return found


def numbers(**given: object) -> None:
    """Refuse a concrete NaN, which passes every comparison.

    Args:
        **given: real numbers by name; traced ones pass.

    Raises:
        BadInput: the first that is NaN.

    Example:
        >>> numbers(until_norm=float("nan"))
        Traceback (most recent call last):
        jaxselect.errors.BadInput: until_norm nan: wanted a number
    """
    for name, value in given.items():
        if not isinstance(value, jax.core.Tracer) and np.isnan(np.asarray(value)).any():
            raise BadInput(f"{name} {value}: wanted a number")


def between(name: str, value: object, low: float, high: float) -> None:
    """Refuse a concrete number outside an interval, or NaN.

    Args:
        name: of the number, for the message.
        value: what arrived; a traced one passes.
        low: the number is above it.
        high: and below it.

    Raises:
        BadInput: any other number.

    Example:
        >>> between("error", 2.0, 0.0, 1.5)
        Traceback (most recent call last):
        jaxselect.errors.BadInput: error 2.0: wanted a number between 0 and 1.5
    """
    if isinstance(value, jax.core.Tracer):
        return
    try:
        # Text would pass as a number.
        fits = not isinstance(value, str) and low < float(value) < high  # type: ignore[arg-type]
    except (TypeError, ValueError):
        fits = False
    if not fits:
        raise BadInput(f"{name} {value}: wanted a number between {low:g} and {high:g}")


def in_memory(name: str, *sizes: int) -> None:
    """Refuse an array larger than this machine's memory.

    XLA may give such an array, and the process ends where its numbers are needed.

    Args:
        name: of the array, for the message.
        *sizes: of its axes, in numbers of eight bytes.

    Raises:
        BadInput: the size, and that of the memory.

    Example:
        >>> in_memory("embeddings", 3, 10**15)
        Traceback (most recent call last):
        jaxselect.errors.BadInput: embeddings of 3 × 1000000000000000 numbers: ...
    """
    available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if 8 * math.prod(sizes) > available:
        shape = " × ".join(map(str, sizes))
        raise BadInput(
            f"{name} of {shape} numbers: this machine has memory for {available // 8}"
        )


def at_least(name: str, value: object, least: object, meaning: str = "") -> None:
    """Refuse a concrete number below another, or NaN.

    Args:
        name: of the number, for the message.
        value: what arrived; a traced one passes.
        least: the other number; a traced one passes.
        meaning: name of the other number.

    Raises:
        BadInput: a number below `least`.

    Example:
        >>> at_least("until_log_time", 2.0, 3.0, "from_log_time")
        Traceback (most recent call last):
        jaxselect.errors.BadInput: until_log_time 2: wanted at least from_log_time = 3
    """
    if any(isinstance(leaf, jax.core.Tracer) for leaf in (value, least)):
        return
    if not (np.asarray(value) >= np.asarray(least)).all():
        bound = f"{meaning} = {float(least):g}" if meaning else f"{float(least):g}"  # type: ignore[arg-type]
        raise BadInput(f"{name} {float(value):g}: wanted at least {bound}")  # type: ignore[arg-type]


def increasing(name: str, values: object) -> None:
    """Refuse concrete times that go back, or are NaN.

    Args:
        name: of the times, for the message.
        values: a list or an array; a traced one passes.

    Raises:
        BadInput: a time below the one before it.

    Example:
        >>> increasing("path_log_times", [2.0, 1.0])
        Traceback (most recent call last):
        jaxselect.errors.BadInput: path_log_times [2.0, 1.0]: wanted increasing numbers
    """
    leaves = jax.tree.leaves(values)
    if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
        return
    times = np.asarray(values, float)
    if np.isnan(times).any() or (np.diff(times) < 0).any():
        raise BadInput(f"{name} {times.tolist()[:6]}: wanted increasing numbers")
