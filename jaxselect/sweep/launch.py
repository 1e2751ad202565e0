"""Running a grid, on this machine or on a cluster by Ray.

Each launcher is an iterator over finished chunks and independent of their content.
Chunks already on disk are skipped, so a sweep that was killed can be resumed by any
launcher.
"""

import functools
import logging
import multiprocessing
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    wait,
)
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax

try:
    from jax import enable_x64
except ImportError:  # JAX before 0.8
    from jax.experimental import enable_x64  # type: ignore[attr-defined, no-redef]

from .. import compilation
from ..checks import BadInput, of_kind, whole
from ..checks import folder as check_folder
from ..compilation import (
    factorise_on_one_thread,
    keep_compiled_programs,
    make_room_for_programs,
)
from ..files import writing
from ..margin.certificate import TrialStatus
from .batch_size import chunk_layout, compile_options_for
from .description import description
from .grid import NUMBERS, Grid, Shape
from .labels import load
from .run import ONWARD, plan, program, run_chunk
from .store import finished, prepare, require_same, tidy, write_chunk

if TYPE_CHECKING:
    import xarray

# What a worker reports of a chunk that it finished.
Done = dict[str, Any]
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Job:
    """A sweep for a launcher to run: grid, chunks, folder of results.

    Attributes:
        grid: grid of trials.
        chunk_size: runs per chunk.
        vmapped: runs of a chunk in step, or one after the other.
        folder: of the results, seen by all workers under this name.
    """

    grid: Grid
    chunk_size: int
    vmapped: bool
    folder: Path

    def begin(self, kind: str, alone: bool = True) -> list[int]:
        """Make the folder ready, and return the chunks to run.

        Results depend on the kind of the devices. Nobody else writes there if it is
        `alone`.

        Raises:
            BadInput: the folder holds results of other settings, or the code on disk is
                not that of this process.
        """
        prepare(self.folder, self.described(kind))
        if alone:
            tidy(self.folder)
        number, whole = len(plan(self.grid, self.chunk_size)), finished(self.folder)
        return [index for index in range(number) if index not in whole]

    def described(self, kind: str) -> dict[str, Any]:
        """What results depend on, as this process has it."""
        return description(self.grid, self.chunk_size, self.vmapped, kind)

    def run(self, index: int, device: Any = None) -> Done:
        """Run one chunk in this process and write it."""
        make_room_for_programs()
        with enable_x64(self.grid.precision == "float64"):
            chunk = _planned(self.grid, self.chunk_size)[index]
            in_step = self.chunk_size if self.vmapped else None
            run = self.program(chunk.shape)
            rows = run_chunk(self.grid, chunk, run, in_step=in_step, device=device)
        # What a further stage begins with; the length of p differs between shapes.
        kept = [name for name in rows.dtype.names or () if name not in ONWARD]
        write_chunk(self.folder, index, rows[kept])
        counts = Counter(TrialStatus(code).name for code in rows["status"])
        return {"index": index, "lanes": len(rows), "statuses": dict(counts)}

    def program(self, shape: Shape) -> Callable[..., Any]:
        """Compile the program of a shape with the options that suit the grid."""
        options = tuple(compile_options_for(self.grid).items())
        # Grids that differ in values of traced axes alone share a program.
        fixed = self.grid.fixed
        axes = {name: (0,) if name in fixed else (0.5,) for name in self.grid.axes}
        numbers = {name: getattr(Grid, name) for name in NUMBERS}
        bare = replace(self.grid, axes=axes, **numbers)
        return _compiled(options, bare, shape, self.vmapped)


_planned = functools.cache(plan)


@functools.cache
def _compiled(
    options: tuple[tuple[str, Any], ...], grid: Grid, shape: Shape, vmapped: bool
) -> Callable[..., Any]:
    return jax.jit(program(grid, shape, vmapped), compiler_options=dict(options))


def run_grid(
    grid: Grid,
    folder: str | Path,
    *,
    workers: int | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> "xarray.Dataset":
    """Run the missing trials of a grid, and open its results.

    Each chunk of runs is one file, written whole or not at all. After Ctrl-C, a kill or
    a power cut the same call continues from the last chunk. One program is compiled for
    each combination of whole numbers on the grid's axes, which takes about half a
    minute; `keep_compiled_programs` keeps it for the next process. A call of more than
    five seconds says so on the error stream. The folder has the format of `python -m
    experiments.sweep --out`, so figures and the report can read it.

    Args:
        grid: grid of trials, in the precision that it names.
        folder: folder for the results, made if it is not there.
        workers: processes on a CPU, devices of an accelerator; by default one process,
            or all devices. A script that asks for more processes begins its work under
            `if __name__ == "__main__"`, as `multiprocessing` demands.
        progress: function called after every chunk with the number of finished runs and
            the number of all runs.

    Returns:
        The data set of `load`.

    Raises:
        BadInput: a grid that no trial fits, functions that other processes cannot
            import or whose file was edited since its import, a folder of other results
            or in use, or workers that keep dying.
        OSError: the folder cannot be written.

    Example:
        >>> import tempfile
        >>> sizes = dict(sequences=(4,), length=(2,), relevant=(1,), irrelevant=(2,))
        >>> grid = Grid(axes=sizes, dim=(1e6,), seed=(0, 1), until_norm=100.0)
        >>> runs = run_grid(grid, tempfile.mkdtemp())
        >>> runs.outcome.squeeze().values.tolist(), bool(runs.certified.all())
        (['selected all', 'selected all'], True)
    """
    of_kind("grid", grid, Grid)
    check_folder(folder)
    grid.check()
    kind = jax.default_backend()
    if workers is None:
        workers = 1 if kind == "cpu" else jax.local_device_count()
    whole("workers", workers)
    with enable_x64(grid.precision == "float64"):
        vmapped, chunk_size = chunk_layout(grid, kind)
    factorise_on_one_thread()
    job = Job(grid, chunk_size, vmapped, Path(folder).absolute())
    with writing(job.folder):
        pending = job.begin(kind)
        lanes = [len(chunk.lanes) for chunk in plan(grid, chunk_size)]
        left = sum(lanes[index] for index in pending)
        there = grid.size - left
        what = f"{left} runs to do; each shape compiles first: half a minute"
        with compilation.progress(what):
            for done in local(job, pending, threading.Event(), kind, workers):
                there += done["lanes"]
                if progress is not None:
                    progress(there, grid.size)
    return load(job.folder)


def local(
    job: Job, pending: list[int], stop: threading.Event, kind: str, workers: int
) -> Iterator[Done]:
    """Run on this machine, with a process per core or a thread per accelerator.

    On CPU, two threads of one process whose programs sort or factorise inside a loop
    can deadlock (jaxlib 0.10.2), so each core gets its own process. After `stop` is
    set, only the chunks in flight are run.
    """
    if workers == 1 or len(pending) == 1:
        for index in pending:
            if stop.is_set():
                return
            yield job.run(index)
    elif kind == "cpu":
        yield from _processes(job, pending, stop, workers)
    else:
        yield from on_devices(job, pending, stop, jax.local_devices()[:workers])


def on_devices(
    job: Job, pending: list[int], stop: threading.Event, devices: list
) -> Iterator[Done]:
    """Run chunks on devices of this process, one thread per device."""
    free = list(devices)

    def run(index: int) -> Done:
        device = free.pop()
        try:
            return job.run(index, device)
        finally:
            free.append(device)

    with ThreadPoolExecutor(len(devices)) as pool:
        yield from _fed(pool, run, pending, stop, len(devices))


def run_elsewhere(job: Job, index: int) -> Done:
    """Run one chunk in a process that was started for it, if it has the same code."""
    _require_same_code(job)
    return job.run(index)


@functools.cache
def _require_same_code(job: Job) -> None:
    """Refuse a worker that imported other code than the sweep began with."""
    require_same(job.folder, job.described(jax.default_backend()))


def _processes(
    job: Job, pending: list[int], stop: threading.Event, workers: int
) -> Iterator[Done]:
    """Run chunks in worker processes; chunks of a process that dies are run again."""
    left, shapes = list(pending), None
    cache = jax.config.values["jax_compilation_cache_dir"]
    if cache:
        # One worker compiles a program, and the others read it from the cache.
        shapes = [chunk.shape for chunk in plan(job.grid, job.chunk_size)]
    context = multiprocessing.get_context("spawn")
    for _ in range(3):
        parent, lifeline = context.Pipe(duplex=False)
        pool = ProcessPoolExecutor(workers, context, _start, (parent, cache))
        run = partial(run_elsewhere, job)
        try:
            for done in _fed(pool, run, list(left), stop, workers, shapes):
                left.remove(done["index"])
                yield done
            pool.shutdown()
            return
        except BrokenProcessPool:
            _LOG.warning("a worker died; %d chunks to go, with new workers", len(left))
        finally:
            # Ends what still works, and is dropped: a chunk may take a minute.
            lifeline.close()
            pool.shutdown()
    raise BadInput(
        "workers keep dying: out of memory (use fewer workers), or a script that does "
        'not begin its work under `if __name__ == "__main__"`'
    )


def _start(parent: Connection, cache: str | None) -> None:
    """Set up a worker: ignore Ctrl-C and SIGTERM, and end when the parent does."""
    if cache and not os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        keep_compiled_programs(cache)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)

    def watch() -> None:
        parent.poll(None)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _fed(
    pool: Executor,
    run: Callable[[int], Done],
    queue: list[int],
    stop: threading.Event,
    workers: int,
    shapes: Sequence[Shape] | None = None,
) -> Iterator[Done]:
    """Give each worker one chunk at a time, so that stopping waits for no more.

    Where shapes are given, by chunk, one chunk of a shape is done before others begin.
    """
    left, flying = list(queue), dict[Future[Done], int]()
    compiled = set[Shape]()

    def free(index: int) -> bool:
        if shapes is None or shapes[index] in compiled:
            return True
        return shapes[index] not in {shapes[other] for other in flying.values()}

    while (left and not stop.is_set()) or flying:
        while len(flying) < workers and not stop.is_set():
            index = next(filter(free, left), None)
            if index is None:
                break
            left.remove(index)
            flying[pool.submit(run, index)] = index
        ready, _ = wait(flying, return_when=FIRST_COMPLETED)
        for future in ready:
            index = flying.pop(future)
            if shapes is not None:
                compiled.add(shapes[index])
            yield future.result()
