"""Checks of arguments: each error says what arrived and what was wanted.

Entry points call them before anything is traced, so that an error is one line and not a
traceback of JAX. Traced numbers cannot be read and are not checked.
"""

import math
import operator
import os
from numbers import Real as RealNumber
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike


class BadInput(ValueError):
    """A setting, a file or an array that cannot be used.

    Its one line says what arrived, what was wanted and what to do; programs print it
    and end with exit code 2. Any other exception is a fault of ours and keeps its
    traceback.

    Example:
        >>> raise BadInput("dim -3: wanted a whole number ≥ 1")
        Traceback (most recent call last):
        jaxselect.checks.BadInput: dim -3: wanted a whole number ≥ 1
    """


# Token ids are int32.
MOST_TOKENS = 2**31 - 1


def whole(name: str, value: object, *, least: int = 1, most: int | None = None) -> int:
    """Return the whole number from `least` to `most` that a setting is.

    Example:
        >>> whole("vocabulary", 3)
        3
        >>> whole("vocabulary", 3.5)
        Traceback (most recent call last):
        jaxselect.checks.BadInput: vocabulary 3.5: wanted a whole number ≥ 1
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
    """Return a NumPy array whose dtype has one of the kinds, such as "iu" for integers.

    Example:
        >>> array("tokens", [[0.7]], kinds="iu", wanted="integers")
        Traceback (most recent call last):
        jaxselect.checks.BadInput: tokens of type float64: wanted integers
    """
    try:
        found = np.asarray(value)
    except ValueError as error:  # NumPy's way to say that rows differ in length
        raise BadInput(f"{name}: rows of different length; wanted {wanted}") from error
    # An empty list has no kind.
    if found.size and found.dtype.kind not in kinds:
        raise BadInput(f"{name} of type {found.dtype}: wanted {wanted}")
    return found


def is_array(value: object, dtype: Any, *numbers_of_axes: int) -> bool:
    """Whether a value is an array, of JAX or NumPy, of this dtype and these axes.

    Example:
        >>> is_array(np.ones((2, 3)), jnp.floating, 2), is_array([1.0], jnp.floating, 1)
        (True, False)
    """
    if not isinstance(value, jax.Array | np.ndarray):
        return False
    return jnp.issubdtype(value.dtype, dtype) and value.ndim in numbers_of_axes


def shown(value: object) -> str:
    """Describe a value in a message: an array by dtype and shape, else by its type."""
    if isinstance(value, jax.Array | np.ndarray):
        return f"{value.dtype}{list(value.shape)}"
    return f"of type {type(value).__name__}"


def key(value: object) -> None:
    """Refuse anything but a `jax.random.key`.

    Example:
        >>> key(0)
        Traceback (most recent call last):
        jaxselect.checks.BadInput: key of type int: wanted jax.random.key(seed)
    """
    if not is_array(value, jax.dtypes.prng_key, 0):
        raise BadInput(f"key {shown(value)}: wanted jax.random.key(seed)")


def numbers(**given: object) -> None:
    """Refuse a concrete NaN, which passes every comparison.

    Example:
        >>> numbers(until_norm=float("nan"))
        Traceback (most recent call last):
        jaxselect.checks.BadInput: until_norm nan: wanted a number
    """
    for name, value in given.items():
        if not isinstance(value, jax.core.Tracer) and np.isnan(np.asarray(value)).any():
            raise BadInput(f"{name} {value}: wanted a number")


def real(name: str, value: object) -> float | None:
    """Return the real number that a value is; None where it is traced.

    Example:
        >>> real("dim", "3")
        Traceback (most recent call last):
        jaxselect.checks.BadInput: dim 3: wanted a number
    """
    if isinstance(value, jax.core.Tracer):
        return None
    scalar = isinstance(value, RealNumber | np.ndarray | jax.Array)
    if not scalar or np.ndim(value) > 0 or not np.isreal(value):  # type: ignore[arg-type,call-overload]
        raise BadInput(f"{name} {_short(value)}: wanted a number")
    return float(value)  # type: ignore[arg-type]


def _short(value: object) -> str:
    """A value in one line."""
    if isinstance(value, jax.Array | np.ndarray):
        return shown(value)
    return " ".join(str(value).split())[:40]


def between(name: str, value: object, low: float, high: float) -> None:
    """Refuse anything but a number in (low, high); traced numbers pass.

    Example:
        >>> between("error", 2.0, 0.0, 1.5)
        Traceback (most recent call last):
        jaxselect.checks.BadInput: error 2.0: wanted a number between 0 and 1.5
    """
    number = real(name, value)
    if number is not None and not low < number < high:
        raise BadInput(f"{name} {value}: wanted a number between {low:g} and {high:g}")


def at_least(name: str, value: object, least: object, meaning: str = "") -> None:
    """Refuse a concrete number below `least`, which `meaning` names, or NaN.

    Example:
        >>> at_least("until_log_time", 2.0, 3.0, "from_log_time")
        Traceback (most recent call last):
        jaxselect.checks.BadInput: until_log_time 2: wanted at least from_log_time = 3
    """
    number, bound = real(name, value), real(meaning, least)
    if number is not None and bound is not None and not number >= bound:
        wanted = f"{meaning} = {bound:g}" if meaning else f"{bound:g}"
        raise BadInput(f"{name} {number:g}: wanted at least {wanted}")


def increasing(name: str, values: object) -> None:
    """Refuse anything but an array of increasing times; traced arrays pass.

    Example:
        >>> increasing("path_log_times", np.array([2.0, 1.0]))
        Traceback (most recent call last):
        jaxselect.checks.BadInput: path_log_times [2.0, 1.0]: wanted increasing numbers
    """
    if not is_array(values, jnp.floating, 1) and not is_array(values, jnp.integer, 1):
        raise BadInput(f"{name} {shown(values)}: wanted an array of increasing numbers")
    if isinstance(values, jax.core.Tracer):
        return
    times = np.asarray(values)
    if np.isnan(times).any() or (np.diff(times) < 0).any():
        raise BadInput(f"{name} {times.tolist()[:6]}: wanted increasing numbers")


def in_memory(name: str, *sizes: int) -> None:
    """Refuse an array of eight-byte numbers that does not fit into memory.

    XLA may promise such an array; the process then ends when its numbers are needed.

    Example:
        >>> in_memory("embeddings", 3, 10**15)
        Traceback (most recent call last):
        jaxselect.checks.BadInput: embeddings of 3 × 1000000000000000 numbers: ...
    """
    available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if 8 * math.prod(sizes) > available:
        shape = " × ".join(map(str, sizes))
        raise BadInput(
            f"{name} of {shape} numbers: this machine has memory for {available // 8}"
        )
