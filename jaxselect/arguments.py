"""Arguments checked against the annotations of the signature.

Tests check every signature with jaxtyping. Where a user's arguments arrive they are
always checked, before anything is traced: one line in place of what JAX would say of
the innards.
"""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping
from numbers import Real as RealNumber
from types import NoneType, UnionType
from typing import Any, ParamSpec, TypeVar, get_args, get_origin

import numpy as np
from jaxtyping import Float, Real, jaxtyped

from .errors import BadInput

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
        jaxselect.errors.BadInput: vector of norm is of type list: wanted float[dim]
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
        jaxselect.errors.BadInput: first of Name is of type int: wanted str; take a text
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
