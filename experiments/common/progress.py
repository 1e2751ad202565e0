"""How far a study has come, and the time left, for whoever sits before a terminal."""

import contextlib
from collections.abc import Callable, Iterator
from functools import partial

from rich.console import Console
from rich.progress import Progress

PERIOD = 600.0
"""Seconds over which speed is averaged: steps between two reports may take long."""


@contextlib.contextmanager
def progress_bar(what: str, total: float) -> Iterator[Callable[[float], None]]:
    """A bar with the time left on standard error; nothing where that is no terminal.

    Yields:
        To be called with the amount done since the last call.

    Example:
        >>> with progress_bar("training", 3) as advance:
        ...     for step in range(3):
        ...         advance(1)
    """
    console = Console(stderr=True)
    with Progress(
        console=console,
        speed_estimate_period=PERIOD,
        disable=not console.is_terminal,
    ) as bar:
        yield partial(bar.advance, bar.add_task(what, total=total))
