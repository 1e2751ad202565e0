"""Types of arguments and results, checked the first times that a test calls anything.

A flow on the host calls the same functions a hundred thousand times with arrays of the
same shapes: to check every call took two thirds of the time of its tests.
"""

import functools
from collections.abc import Callable
from typing import Any

import jaxtyping
from beartype import beartype

# Checks in one test.
CHECKS = 10_000
_left = [CHECKS]


def check_again() -> None:
    """Begin another test."""
    _left[0] = CHECKS
    jaxtyping.config.update("jaxtyping_disable", False)


def first_calls(function: Callable) -> Callable:
    """A type checker for `--jaxtyping-packages`: beartype for a test's first calls.

    Args:
        function: has the annotations and does nothing else.

    Returns:
        A function to be called for its errors alone.
    """
    checked = beartype(function)

    @functools.wraps(function)
    def counted(*args: Any, **kwargs: Any) -> Any:
        _left[0] -= 1
        if _left[0] == 0:
            jaxtyping.config.update("jaxtyping_disable", True)
        return checked(*args, **kwargs)

    return counted
