"""How far a study has come, and the time left, for whoever sits before a terminal."""

import contextlib
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

PERIOD = 600.0
"""Seconds over which speed is averaged: steps between two reports may take long."""
REDRAWS = 2.0
"""Redraws in a second, at most."""


@contextlib.contextmanager
def progress_bar(
    what: str, total: float, quiet: bool = False
) -> Iterator[Callable[[float], None]]:
    """A bar, n/N and the time left on standard error; nothing without a terminal.

    Until the first call with an amount it says that the program is being compiled.

    Args:
        what: is counted.
        total: amount.
        quiet: no bar.

    Yields:
        To be called with the amount done since the last call.

    Example:
        >>> with progress_bar("training", 3) as advance:
        ...     for step in range(3):
        ...         advance(1)
    """
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        TextColumn("{task.completed:,.0f}/{task.total:,.0f}"),
        TextColumn("{task.fields[left]}"),
        TimeRemainingColumn(elapsed_when_finished=True),
    )
    with Progress(
        *columns,
        console=console,
        speed_estimate_period=PERIOD,
        refresh_per_second=REDRAWS,
        disable=quiet or not console.is_terminal,
    ) as bar:
        task = bar.add_task(f"{what}: compiling", total=total, left="")

        def advance(amount: float) -> None:
            if amount:
                bar.update(task, advance=amount, description=what, left="time left")

        yield advance
