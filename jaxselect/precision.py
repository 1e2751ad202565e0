"""Products in full precision, whatever the caller set."""

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import jax

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def full_precision(
    function: Callable[_Arguments, _Result],
) -> Callable[_Arguments, _Result]:
    """Trace a function with matrix products in the full precision of their numbers.

    Accelerators round the operands of float32 products to TF32 or bfloat16 by
    default. Where digits are the result, as in a certificate, that is a silent error:
    in bfloat16 a flow takes fifteen times the steps to five times the error. Rules of
    derivatives are traced on their own, so they are wrapped on their own.

    Args:
        function: any.

    Returns:
        The same function, its products at "highest" precision.

    Example:
        >>> import jax.numpy as jnp
        >>> square = full_precision(lambda x: x @ x)
        >>> "HIGHEST" in str(jax.make_jaxpr(square)(jnp.eye(2)))
        True
    """

    @functools.wraps(function)
    def protected(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        with jax.default_matmul_precision("highest"):
            return function(*args, **kwargs)

    return protected
