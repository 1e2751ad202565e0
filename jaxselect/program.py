"""One compiled program for a call, where each operation would be another."""

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import jax

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def one_program(
    *static: str,
) -> Callable[[Callable[_Arguments, _Result]], Callable[_Arguments, _Result]]:
    """Compile a function as a whole where it is called with concrete arrays.

    Called operation by operation, each one is compiled for each shape that it meets:
    the first call of a function of ten costs ten programs. Where a program is being
    traced the function joins it, as if it were written there.

    Args:
        static: names of the arguments that are no arrays.

    Returns:
        A decorator.

    Example:
        >>> twice = one_program("times")(lambda x, times: sum([x] * times))
        >>> twice(1.5, times=2).item()
        3.0
        >>> "call" in jax.jit(lambda x: twice(x, 2)).lower(1.0).as_text()
        False
    """

    def compiled(
        function: Callable[_Arguments, _Result],
    ) -> Callable[_Arguments, _Result]:
        program = jax.jit(function, static_argnames=static, inline=True)

        @functools.wraps(function)
        def called(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
            return program(*args, **kwargs)

        return called

    return compiled
