"""Independent pieces of a study, side by side and stored: its command resumes them."""

import dataclasses
import multiprocessing
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from experiments.common.devices import configure
from experiments.common.progress import progress_bar
from jaxselect.files import writing
from jaxselect.sweep.store import finished, prepare, write_chunk


def run_resumable(
    settings: Any,
    work: Callable[..., Any],
    pieces: Sequence[Any],
    what: str,
    *,
    ignored: tuple[str, ...] = (),
    **about: Any,
) -> list[Any]:
    """Results of all pieces in order; those on disk are read.

    Args:
        settings: of a study with `workers`; a folder of other settings is refused.
        work: from folder, numbers of its whole files, an event that asks it to stop,
            the number of a piece, and the piece; of a module.
        pieces: independent of each other.
        what: the pieces are, for the progress bar.
        ignored: settings, besides `out`, `json` and `workers`, that no file depends on.
        about: what the folder is described by besides the settings.
    """
    folder, left_out = settings.out.absolute(), {"out", "json", "workers", *ignored}
    kept = dataclasses.asdict(settings)
    kept = {name: kept[name] for name in kept if name not in left_out}
    with writing(folder):
        prepare(folder, {"axes": {}, **about, **kept})
        here = partial(work, folder, finished(folder))
        return _side_by_side(here, pieces, settings.workers, what)


def write_columns(
    folder: Path, index: int, columns: Mapping[str, np.ndarray], first: int = 0
) -> None:
    """Write columns of one length as a file, with lane numbers.

    Args:
        folder: of the study.
        index: of the file.
        columns: by name, with any shape behind the first axis.
        first: lane of the first row.
    """
    kinds = [(name, one.dtype, one.shape[1:]) for name, one in columns.items()]
    number = len(next(iter(columns.values())))
    rows = np.zeros(number, [("lane", np.int64), *kinds])
    rows["lane"] = first + np.arange(number)
    for name, column in columns.items():
        rows[name] = column
    write_chunk(folder, index, rows)


def _side_by_side(
    work: Callable[..., Any], pieces: Sequence[Any], workers: int, what: str
) -> list[Any]:
    """Results of all pieces, in processes: threads that factorise may deadlock."""
    if workers == 1:
        never, found = threading.Event(), []
        with progress_bar(what, len(pieces)) as advance:
            for number, piece in enumerate(pieces):
                found.append(work(never, number, piece))
                advance(1)
        return found
    context = multiprocessing.get_context("spawn")
    with (
        progress_bar(what, len(pieces)) as advance,
        context.Manager() as manager,
        ProcessPoolExecutor(workers, context, _begin) as pool,
    ):
        stop = manager.Event()
        asked = [pool.submit(work, stop, *each) for each in enumerate(pieces)]
        try:
            for _ in as_completed(asked):
                advance(1)
            return [future.result() for future in asked]
        except BaseException:
            stop.set()
            pool.shutdown(cancel_futures=True)
            raise


def _begin() -> None:
    """In a worker, which leaves Ctrl-C to its parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    configure("float64")
