"""Checks that constructors share; each error says what arrived and what was wanted.

Errors that a person can put right.

Arguments checked against the annotations of the signature.

Tests check every signature with jaxtyping. Where a user's arguments arrive they are
always checked, before anything is traced: one line in place of what JAX would say of
the innards.
"""

import dataclasses
import functools
import inspect
import math
import operator
import os
from collections.abc import Callable, Mapping
from numbers import Real as RealNumber
from types import NoneType, UnionType
from typing import Any, ParamSpec, TypeVar, get_args, get_origin

import jax
import numpy as np
from jaxtyping import Float, Real, jaxtyped
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


def numbers(**given: object) -> None:
    """Refuse a concrete NaN, which passes every comparison.

    Args:
        **given: real numbers by name; traced ones pass.

    Raises:
        BadInput: the first that is NaN.

    Example:
        >>> numbers(until_norm=float("nan"))
        Traceback (most recent call last):
        jaxselect.checks.BadInput: until_norm nan: wanted a number
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
        jaxselect.checks.BadInput: error 2.0: wanted a number between 0 and 1.5
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
        jaxselect.checks.BadInput: embeddings of 3 × 1000000000000000 numbers: ...
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
        jaxselect.checks.BadInput: until_log_time 2: wanted at least from_log_time = 3
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
        jaxselect.checks.BadInput: path_log_times [2.0, 1.0]: wanted increasing numbers
    """
    leaves = jax.tree.leaves(values)
    if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
        return
    times = np.asarray(values, float)
    if np.isnan(times).any() or (np.diff(times) < 0).any():
        raise BadInput(f"{name} {times.tolist()[:6]}: wanted increasing numbers")


_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def as_annotated(
    function: Callable[_Arguments, _Result],
) -> Callable[_Arguments, _Result]:
    """Refuse arguments whose kind, dtype or shape the signature excludes.

    Arrays of NumPy pass where arrays of JAX do, Python's numbers as scalars.

    Args:
        function: with annotations.

    Returns:
        The same function; it raises `BadInput` for the first argument that does not
        fit, alone or beside those before it.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxtyping import Array, Float
        >>> @as_annotated
        ... def norm(vector: Float[Array, " dim"]) -> Float[Array, ""]:
        ...     return jnp.linalg.norm(vector)
        >>> norm([3.0, 4.0])
        Traceback (most recent call last):
        jaxselect.checks.BadInput: vector of norm is of type list: wanted float[dim]
    """
    signature = inspect.signature(function)
    wanted = {name: one.annotation for name, one in signature.parameters.items()}

    @functools.wraps(function)
    def checked(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        given = signature.bind(*args, **kwargs).arguments
        _require(given, wanted, function.__name__)
        return function(*args, **kwargs)

    return checked


def fields_as_annotated(record: Any, advice: str) -> None:
    """Refuse the fields of a record that are not what its class says.

    Args:
        record: a dataclass, complete.
        advice: what to do instead, for the message.

    Raises:
        BadInput: the first field that does not fit, alone or beside those before it.

    Example:
        >>> @dataclasses.dataclass
        ... class Name:
        ...     first: str
        >>> fields_as_annotated(Name(7), "take a text")
        Traceback (most recent call last):
        jaxselect.checks.BadInput: first of Name is of type int: wanted str; take a text
    """
    kind = type(record)
    given = {
        field.name: getattr(record, field.name) for field in dataclasses.fields(record)
    }
    _require(given, kind.__annotations__, kind.__name__, f"; {advice}")


def _require(
    given: Mapping[str, Any], wanted: Mapping[str, Any], where: str, advice: str = ""
) -> None:
    kinds = {name: _kinds(wanted[name]) for name in given}
    # In one context an axis of a name has one length.
    with jaxtyped("context"):
        for name, value in given.items():
            if not isinstance(value, kinds[name]):
                raise BadInput(
                    f"{name} of {where} is {_described(value)}: wanted "
                    f"{_named(wanted[name])}{advice}"
                )


@functools.cache
def _kinds(wanted: Any) -> tuple:
    """The types that an argument may have, for `isinstance`."""
    if isinstance(wanted, UnionType):
        return tuple(kind for part in get_args(wanted) for kind in _kinds(part))
    if hasattr(wanted, "dims"):
        # A program that only reads the results of a sweep does not wait for JAX.
        import jax

        # A whole number is a real one, traced or not.
        dtype = Real if wanted.dtype is Float and not wanted.dims else wanted.dtype
        return tuple(dtype[kind, wanted.dim_str] for kind in (jax.Array, np.ndarray))
    kind = get_origin(wanted) or wanted
    if kind is float:
        return (RealNumber,)
    # Whole numbers say more where they are used.
    return (kind,) if inspect.isclass(kind) and kind is not int else (object,)


def _described(value: object) -> str:
    import jax

    if isinstance(value, jax.Array | np.ndarray):
        return f"{value.dtype}{list(value.shape)}"
    return f"of type {type(value).__name__}"


def _named(wanted: Any) -> str:
    if isinstance(wanted, UnionType):
        return " or ".join(_named(part) for part in get_args(wanted))
    if hasattr(wanted, "dims"):
        axes = ", ".join(wanted.dim_str.split())
        return f"{wanted.dtype.__name__.lower()}[{axes}]"
    if wanted is NoneType:
        return "None"
    return getattr(wanted, "__name__", str(wanted))
