"""Checks of arguments: each error says what arrived and what was wanted.

Entry points call them before anything is traced, so that an error is one line and not a
traceback of JAX. Traced numbers cannot be read and are not checked.
"""

import math
import operator
import os
import sys
import warnings
from collections.abc import Sequence
from numbers import Real as RealNumber
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


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


# Packages whose functions lie between a user's call and a check.
_INSIDE = ("jaxselect", "jaxtyping")
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
    if isinstance(value, bool | np.bool_):
        number = least - 1
    if number < least or (most is not None and number > most):
        wanted = f"≥ {least}" if most is None else f"from {least} to {most}"
        raise BadInput(f"{name} {value}: wanted a whole number {wanted}")
    return number


def array(name: str, value: Any, *, kinds: str, wanted: str) -> np.ndarray:
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
    except TypeError as error:  # a key, or an object that is no array
        raise BadInput(f"{name} {shown(value)}: wanted {wanted}") from error
    # An empty list has no kind.
    if found.size and found.dtype.kind not in kinds:
        kind = "object" if found.dtype.hasobject else found.dtype
        raise BadInput(f"{name} of type {kind}: wanted {wanted}")
    return found


def reals(
    name: str, value: Any, *axes: str, beside: jax.Array | None = None
) -> jax.Array:
    """Turn what a caller gave into an array of finite real numbers.

    `axes` names its axes, one string for each number of them that it may have. Numbers
    without a precision of their own get that of `beside`, or JAX's; values of traced
    ones are not read.

    Example:
        >>> reals("start", [1j], "dim")
        Traceback (most recent call last):
        jaxselect.checks.BadInput: start of type complex128: wanted real numbers
    """
    given, wanted = value, "real numbers"
    if any(isinstance(each, jax.core.Tracer) for each in jax.tree.leaves(value)):
        given = jnp.asarray(value)
    elif not isinstance(value, jax.Array):
        given = array(name, value, kinds="iuf", wanted=wanted)
    if not any(is_array(given, kind) for kind in (jnp.floating, jnp.integer)):
        raise BadInput(f"{name} of type {given.dtype}: wanted {wanted}")
    shape = given.shape
    if len(shape) not in [each.count(",") + 1 for each in axes] or 0 in shape:
        wanted = " or ".join(f"({each})" for each in axes)
        raise BadInput(f"{name} of shape {shape}: wanted {wanted}, none of them 0")
    dtype = jnp.result_type(float) if beside is None else beside.dtype
    # Also of other libraries; lists have no precision.
    if hasattr(value, "dtype") and is_array(given, jnp.floating):
        own = precise(name, given)
        if beside is not None and own != dtype:
            raise BadInput(f"{name} of type {own} beside {dtype}: wanted one type")
        dtype = own
    with np.errstate(over="ignore"):
        found = jnp.asarray(given, dtype)
    finite(name, found)
    return found


def precise(name: str, given: jax.Array | np.ndarray) -> Any:
    """Return the type in which JAX computes with single or double precision.

    Where double becomes single, warn; refuse others.
    """
    if given.dtype not in (np.float32, np.float64):
        raise BadInput(f"{name} of type {given.dtype}: wanted float32 or float64")
    double = jnp.result_type(float)
    if given.dtype == np.float32 or double == np.float64:
        return given.dtype
    level, frame = 1, sys._getframe()
    while frame.f_back and frame.f_globals["__name__"].split(".")[0] in _INSIDE:
        level, frame = level + 1, frame.f_back
    warnings.warn(
        f"{name} of type float64 is computed with in float32: call "
        'jax.config.update("jax_enable_x64", True) first, or give float32',
        stacklevel=level,
    )
    return double


def finite(name: str, found: jax.Array | np.ndarray) -> None:
    """Refuse concrete numbers that are not finite."""
    if not isinstance(found, jax.core.Tracer) and not np.isfinite(found).all():
        place = np.argwhere(~np.isfinite(found))[0]
        number = np.asarray(found)[tuple(place)]
        raise BadInput(
            f"{name} {place.tolist()} is {number}, not finite: wanted numbers"
        )


def is_array(value: object, dtype: Any, *numbers_of_axes: int) -> bool:
    """Whether a value is an array, of JAX or NumPy, of this dtype and these axes.

    Without numbers of axes, it may have any.

    Example:
        >>> is_array(np.ones((2, 3)), jnp.floating, 2), is_array([1.0], jnp.floating, 1)
        (True, False)
    """
    if not isinstance(value, jax.Array | np.ndarray):
        return False
    right = not numbers_of_axes or value.ndim in numbers_of_axes
    return right and jnp.issubdtype(value.dtype, dtype)


def shown(value: object) -> str:
    """Describe a value in a message: an array by dtype and shape, else by its type."""
    if isinstance(value, jax.Array | np.ndarray):
        return f"{value.dtype}{list(value.shape)}"
    return f"of type {type(value).__name__}"


def of_kind(name: str, value: object, kind: Any, hint: str = "") -> None:
    """Refuse a value of another type.

    Example:
        >>> of_kind("settings", 3, dict)
        Traceback (most recent call last):
        jaxselect.checks.BadInput: settings of type int: wanted dict
    """
    if not isinstance(value, kind):
        given = type(value).__name__
        raise BadInput(f"{name} of type {given}: wanted {kind.__name__}{hint}")


def folder(value: object) -> None:
    """Refuse what is not the path of a folder.

    Example:
        >>> folder(3)
        Traceback (most recent call last):
        jaxselect.checks.BadInput: folder of type int: wanted a path
    """
    if not isinstance(value, str | os.PathLike):
        raise BadInput(f"folder of type {type(value).__name__}: wanted a path")
    if not os.fspath(value):
        raise BadInput("folder '': wanted a path")


def key(value: object) -> None:
    """Refuse anything but a `jax.random.key`."""
    if not is_array(value, jax.dtypes.prng_key, 0):
        raise BadInput(f"key {shown(value)}: wanted jax.random.key(seed)")


def real(name: str, value: object) -> float | None:
    """Return the real number that a value is, or ±∞; None where it is traced.

    Example:
        >>> real("dim", "3")
        Traceback (most recent call last):
        jaxselect.checks.BadInput: dim 3: wanted a number
    """
    if isinstance(value, jax.core.Tracer):
        return None
    scalar = isinstance(value, RealNumber | np.ndarray | jax.Array) and (
        np.ndim(value) == 0  # type: ignore[arg-type]
    )
    dtype = getattr(value, "dtype", type(value))
    known = any(jnp.issubdtype(dtype, each) for each in (jnp.integer, jnp.floating))
    if not scalar or not known or np.isnan(value):  # type: ignore[call-overload]
        raise BadInput(f"{name} {_short(value)}: wanted a number")
    return float(value)  # type: ignore[arg-type]


def _short(value: object) -> str:
    """A value in one line."""
    if isinstance(value, jax.Array | np.ndarray):
        return shown(value)
    return " ".join(str(value).split())[:40]


def between(name: str, value: object, low: float, high: float) -> None:
    """Refuse anything but a number in (low, high); traced numbers pass."""
    number = real(name, value)
    if number is not None and not low < number < high:
        raise BadInput(f"{name} {value}: wanted a number between {low:g} and {high:g}")


def positive(name: str, value: object) -> None:
    """Refuse anything but a number above 0, or ∞; traced numbers pass."""
    number = real(name, value)
    if number is not None and not number > 0:
        raise BadInput(f"{name} {value}: wanted a number above 0")


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


def names_of(name: str, given: Any, number: int) -> None:
    """Refuse fewer names than there are tokens; a text is one name."""
    known = isinstance(given, Sequence | np.ndarray) and not isinstance(given, str)
    if not known or len(given) < number:
        raise BadInput(
            f"{name} {_short(given)}: wanted one for each of {number} tokens"
        )


def increasing(name: str, values: object) -> None:
    """Refuse anything but an array of increasing times; traced arrays pass."""
    if not is_array(values, jnp.floating, 1) and not is_array(values, jnp.integer, 1):
        raise BadInput(f"{name} {shown(values)}: wanted an array of increasing numbers")
    if isinstance(values, jax.core.Tracer):
        return
    times = np.asarray(values)
    if np.isnan(times).any() or (np.diff(times) < 0).any():
        raise BadInput(f"{name} {times.tolist()[:6]}: wanted increasing numbers")


def in_memory(name: str, *sizes: int, copies: int = 1) -> None:
    """Refuse an array of eight-byte numbers that does not fit into memory.

    XLA may promise such an array; the process then ends when its numbers are needed.
    `copies` are there at a time.

    Example:
        >>> in_memory("embeddings", 3, 10**15)
        Traceback (most recent call last):
        jaxselect.checks.BadInput: embeddings of 3 × 1000000000000000 numbers: ...
    """
    available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // copies
    if 8 * math.prod(sizes) > available:
        shape = " × ".join(map(str, sizes))
        raise BadInput(
            f"{name} of {shape} numbers: this machine has memory for {available // 8}"
        )
