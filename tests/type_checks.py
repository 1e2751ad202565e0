"""Types of arguments and results, checked the first times that a test calls a function.

A flow on the host calls the same functions thousands of times with arrays of the same
shapes: to check every call took two thirds of the time of its tests.
"""

import functools
from collections.abc import Callable
from typing import Any

from beartype import beartype

# Calls of one function that are checked in one test.
CALLS = 20
_tests = [0]


def next_test() -> None:
    """Check the first calls of every function again."""
    _tests[0] += 1


def first_calls(function: Callable) -> Callable:
    """A type checker for `--jaxtyping-packages`: beartype for a test's first calls.

    Args:
        function: has the annotations and does nothing else.

    Returns:
        A function to be called for its errors alone.
    """
    checked: Callable | None = None
    test, calls = -1, 0

    @functools.wraps(function)
    def limited(*args: Any, **kwargs: Any) -> Any:
        nonlocal checked, test, calls
        if test != _tests[0]:
            test, calls = _tests[0], 0
        calls += 1
        if calls > CALLS:
            return None
        # Most functions are imported and never called.
        checked = checked or beartype(function)
        return checked(*args, **kwargs)

    return limited
