"""How far a study has come, and the time left, for whoever sits before a terminal."""

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)

from experiments.common.console import say

# Seconds over which speed is averaged: steps between two reports may take long.
MEMORY = 600.0


@contextlib.contextmanager
def watched(what: str, total: float) -> Iterator[Callable[[float], None]]:
    """A bar with the time left on standard error; nothing where that is no terminal.

    Yields:
        To be called with the amount done since the last call.

    Example:
        >>> with watched("training", 3) as advance:
        ...     for step in range(3):
        ...         advance(1)
    """
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(
        *columns,
        console=console,
        speed_estimate_period=MEMORY,
        disable=not console.is_terminal,
    ) as bar:
        task = bar.add_task(what, total=total)
        yield partial(bar.advance, task)


@contextlib.contextmanager
def followed(what: str, total: float) -> Iterator[Callable[[float], None]]:
    """The same bar, called with how far all has come.

    Yields:
        To be called with a level from 0 to the total.

    Example:
        >>> with followed("training", 3) as reach:
        ...     reach(2)
    """
    reached = [0.0]
    with watched(what, total) as advance:

        def reach(level: float) -> None:
            advance(level - reached.pop())
            reached.append(level)

        yield reach


def announce(out: Path, drawn: bool = False) -> None:
    """Say what a study is going to write where.

    Args:
        out: folder for results.
        drawn: whether a figure is drawn in the end.
    """
    files = "results.json and arrays.npz"
    if drawn:
        files = "results.json, arrays.npz and a figure"
    say(f"will write {files} into {out}")
