"""Sweep seeds × d × η₀ × data: what one run shows, over all of its phases.

Results go to a folder chunk by chunk; the same command goes on where it was stopped.
`python -m experiments.figures DIR` draws them.
"""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

from experiments.common import memory
from experiments.common.console import say
from experiments.common.devices import configure, probe
from experiments.common.progress import progress_bar
from experiments.common.results import prepare as writable
from experiments.common.study import check_numbers
from experiments.sweep.cluster import over_ray
from experiments.sweep.job import ConfiguredJob
from experiments.sweep.settings import Settings
from experiments.sweep.summary import describe, summarise
from jaxselect.files import writing
from jaxselect.sweep.batch_size import chunk_layout, few_runs
from jaxselect.sweep.grid import FAMILIES, Grid, Shape
from jaxselect.sweep.launch import Done, local
from jaxselect.sweep.run import plan
from jaxselect.sweep.store import clear, load_all

ALONE = 64
"""Runs up to which one process is done before a second one is ready."""
COMPILE = {True: 20, False: 40}
"""Seconds that a shape takes to compile, by `few_runs`: with little effort, or all."""
STOPPING = (signal.SIGINT, signal.SIGTERM)
PACE = 15.0
"""Seconds between two lines of progress, where there is no terminal for a bar."""


def sweep(settings: Settings) -> dict:
    """Run what is missing of a sweep, and summarise it; see the module.

    Raises:
        BadInput: settings out of range, or a folder of other results.
        KeyboardInterrupt: after Ctrl-C, once the chunks in flight are on disk.
    """
    check_numbers(settings)
    if settings.out is not None:
        writable(settings.out)
    grid = settings.grid
    configure(grid.precision)
    _require_memory(grid)
    grid.check()
    folder = (settings.out or Path("results") / settings.preset).absolute()
    kind, devices = probe()
    workers = settings.workers
    if workers is None:
        # A second process would start for longer than it works.
        workers = 1 if kind == "cpu" and grid.size <= ALONE else devices
    vmapped, chunk_size = chunk_layout(
        grid,
        kind,
        vmapped=settings.vmapped,
        chunk_size=settings.chunk_size,
        measured=settings.launcher == "local",
    )
    chunks = plan(grid, chunk_size)
    with writing(folder), _stopping() as stop:
        if not settings.resume:
            clear(folder)
        job = ConfiguredJob(grid, chunk_size, vmapped, folder)
        pending = job.begin(kind, alone=settings.launcher == "local")
        if there := len(chunks) - len(pending):
            say(f"{there} of {len(chunks)} chunks are there already")
        if settings.launcher == "ray":
            run = over_ray(job, pending, stop, kind)
        else:
            run = local(job, pending, stop, kind, workers)
        if pending and not settings.quiet:
            say(_announcement(grid, kind, folder))
        begin = time.perf_counter()
        lanes = sum(len(chunks[index].lanes) for index in pending)
        try:
            ran = _watch(run, lanes, settings.quiet)
        except OSError:
            say("nothing finished is lost; the same command goes on, once it can write")
            raise
        seconds = time.perf_counter() - begin
    if ran < lanes:
        left = f"{lanes - ran} of {grid.size} runs to go"
        say(f"{left}; the same command goes on from here")
        raise KeyboardInterrupt
    summary = summarise(load_all(folder))
    summary |= {"folder": str(folder), "runs_now": ran, "seconds_now": seconds}
    if ran:
        say(f"{ran} runs in {seconds:.1f} s, {ran / seconds:.2f} per second")
    say(describe(summary))
    return summary


def _announcement(grid: Grid, kind: str, folder: Path) -> str:
    """What takes a while before the first run is done."""
    number, seconds = len(grid.shapes()), COMPILE[few_runs(grid, kind)]
    programs = "one program" if number == 1 else f"{number} programs, one per shape"
    return (
        f"{grid.size} runs into {folder}\ncompiling {programs}: about "
        f"{seconds * number} s, or seconds where an earlier sweep has compiled it"
    )


def sizes(grid: Grid, shape: Shape) -> tuple[int, int, int]:
    """Return the numbers of sequences, slots and tokens of one run of a shape."""
    if any(grid.draw is known for known, _ in FAMILIES.values()):
        # These are known without a draw, which refuses whatever is no int32.
        of = dict(shape)
        tokens = of.get("classes", 2) * of["relevant"] + of["irrelevant"]
        return of["sequences"], of["length"], tokens
    bags = grid.bags(shape)
    sequences, length = bags.tokens.shape
    return sequences, length, bags.vocabulary


def _require_memory(grid: Grid) -> None:
    """Refuse a shape of which one run is larger than memory."""
    for shape in grid.shapes():
        sequences, length, tokens = sizes(grid, shape)
        memory.require(
            memory.corpus(sequences, length, tokens) + 24 * grid.path_points,
            f"{sequences} sequences of {length}, {tokens} tokens, {grid.path_points} "
            "points",
        )


@contextlib.contextmanager
def _stopping() -> Iterator[threading.Event]:
    """Turn the first Ctrl-C or SIGTERM into a request; the second ends at once.

    A thread listens: the main one may be within a program of JAX for a minute.
    """
    stop = threading.Event()

    def listen(heard: int) -> None:
        while number := os.read(heard, 1):
            if number[0] in STOPPING and stop.is_set():
                Console(stderr=True).show_cursor()
                say("dropped; what was finished is on disk")
                os._exit(130)
            elif number[0] in STOPPING:
                stop.set()
                say("finishing the chunks in flight; Ctrl-C again to drop them")
        os.close(heard)

    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    heard, tell = os.pipe()
    os.set_blocking(tell, False)
    threading.Thread(target=listen, args=(heard,), daemon=True).start()
    before = {name: signal.signal(name, lambda *_: None) for name in STOPPING}
    told = signal.set_wakeup_fd(tell, warn_on_full_buffer=False)
    try:
        yield stop
    finally:
        signal.set_wakeup_fd(told)
        for name, handler in before.items():
            signal.signal(name, handler)
        os.close(tell)


def _watch(run: Iterator[Done], lanes: int, quiet: bool) -> int:
    """Follow a launcher on a bar, or line by line; how many runs it finished."""
    lines = not (quiet or Console(stderr=True).is_terminal)
    ran, first, shown_at = 0, None, time.perf_counter()
    with progress_bar("runs", lanes, quiet) as advance:
        for done in run:
            ran += done["lanes"]
            advance(done["lanes"])
            now = time.perf_counter()
            # The first of every worker waited for the compiler: not a measure.
            first = first or (ran, now)
            known = ran > first[0] and now - first[1] >= PACE
            if lines and known and now - shown_at >= PACE and ran < lanes:
                pace = (ran - first[0]) / (now - first[1])
                left = f"{(lanes - ran) / pace:.0f} s left"
                say(f"{ran:,} of {lanes:,} runs, {pace:.1f} per second, {left}")
                shown_at = now
    return ran
