"""Independent parts of a study, in processes side by side."""

import multiprocessing
import signal
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import Any

from experiments.common.devices import configure
from experiments.common.progress import watched


def side_by_side(
    work: Callable[[threading.Event, int, Any], Any],
    cases: Sequence[Any],
    workers: int,
    what: str,
) -> list[Any]:
    """Results of all cases, in order: threads that factorise can wait for one another.

    Args:
        work: from an event that asks it to stop, the number of a case, and the case; of
            a module, where there are several workers.
        cases: independent of each other.
        workers: processes; one is this process itself.
        what: the cases are, for the progress bar.

    Returns:
        The result of `work` for each case.

    Example:
        >>> side_by_side(lambda stop, number, case: number * case, [5, 7], 1, "factors")
        [0, 7]
    """
    if workers == 1:
        never, found = threading.Event(), []
        with watched(what, len(cases)) as advance:
            for number, case in enumerate(cases):
                found.append(work(never, number, case))
                advance(1)
        return found
    context = multiprocessing.get_context("spawn")
    with (
        watched(what, len(cases)) as advance,
        context.Manager() as manager,
        ProcessPoolExecutor(workers, context, _begin) as pool,
    ):
        stop = manager.Event()
        asked = [pool.submit(work, stop, *each) for each in enumerate(cases)]
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
