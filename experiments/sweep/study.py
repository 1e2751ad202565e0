"""Sweep seeds × d × η₀ × data: what one run shows, over all of its phases.

Results go to a folder chunk by chunk; the same command goes on where it was stopped.
`python -m experiments.figures DIR` draws them.
"""

import ast
import contextlib
import hashlib
import json
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from importlib.util import find_spec, resolve_name
from pathlib import Path

import jax
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)

from experiments.common import memory
from experiments.common.console import say
from experiments.common.devices import configure, probe, versions
from experiments.common.results import prepare as writable
from experiments.common.study import check_numbers
from experiments.sweep.batch_size import lanes_per_device, sizes
from experiments.sweep.launch import (
    ALONE,
    Done,
    Job,
    local,
    over_jax_processes,
    over_ray,
    own_modules,
    sharded,
)
from experiments.sweep.settings import CHUNK_SIZE, Settings
from experiments.sweep.summary import describe, summarise
from jaxselect.checks import BadInput
from jaxselect.files import writing
from jaxselect.margin.certificate import TrialStatus
from jaxselect.sweep.grid import Grid
from jaxselect.sweep.run import plan
from jaxselect.sweep.store import finished, load, prepare, tidy

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
    if settings.launcher == "jax":
        _join_cluster()
    configure(grid.precision)
    _require_memory(grid)
    grid.check()
    folder = (settings.out or Path("results") / settings.preset).absolute()
    kind, devices = probe()
    workers = settings.workers
    if workers is None:
        # A second process would start for longer than it works.
        workers = 1 if kind == "cpu" and grid.size <= ALONE else devices
    shards = len(jax.local_devices()[:workers]) if settings.launcher == "sharded" else 1
    vmapped, chunk_size = _cut(settings, kind, shards)
    if not settings.resume and settings.launcher == "jax":
        raise BadInput("no-resume with the jax launcher: remove the folder instead")
    chunks = plan(grid, chunk_size)
    first = settings.launcher != "jax" or jax.process_index() == 0
    with writing(folder) if first else contextlib.nullcontext(), _stopping() as stop:
        if not settings.resume:
            old = (folder / "chunks").glob("[0-9]*.npy")
            for path in (*folder.glob("settings.*json"), *old):
                path.unlink(missing_ok=True)
        prepare(folder, _description(grid, chunk_size, vmapped, kind))
        if settings.launcher == "local":
            tidy(folder)
        planned = [chunk.lanes for chunk in chunks]
        whole, damaged = finished(folder, planned)
        if damaged:
            say(f"{len(damaged)} damaged chunks found and removed: {damaged}")
        if whole:
            say(f"{len(whole)} of {len(chunks)} chunks are there already")
        pending = [index for index in range(len(chunks)) if index not in whole]
        job = Job(grid, chunk_size, vmapped, folder)
        if settings.launcher == "jax":
            run = over_jax_processes(job, pending, stop, len(chunks))
        elif settings.launcher == "ray":
            run = over_ray(job, pending, stop, kind)
        elif settings.launcher == "sharded":
            run = sharded(job, pending, stop, jax.local_devices()[:shards])
        else:
            run = local(job, pending, stop, kind, workers)
        begin = time.perf_counter()
        lanes = sum(len(chunks[index].lanes) for index in pending)
        try:
            ran = _watch(run, lanes, settings.quiet)
        except OSError:
            say("nothing finished is lost; the same command goes on, once it can write")
            raise
        seconds = time.perf_counter() - begin
        left = len(chunks) - len(finished(folder, planned)[0])
    if stop.is_set() and left:
        say(f"{left} of {len(chunks)} chunks to go; the same command goes on from here")
        raise KeyboardInterrupt
    if not first:
        return {}
    summary = summarise(load(folder))
    summary |= {"folder": str(folder), "runs_now": ran, "seconds_now": seconds}
    if ran:
        say(f"{ran} runs in {seconds:.1f} s, {ran / seconds:.2f} per second")
    say(describe(summary))
    return summary


def _join_cluster() -> None:
    """Meet the other processes of a cluster.

    Raises:
        BadInput: there is no cluster that JAX knows.
    """
    try:
        jax.distributed.initialize()
    except (RuntimeError, ValueError) as error:
        raise BadInput(
            f"the jax launcher found no cluster ({error}): start it with your "
            "cluster's launcher, such as srun or mpirun; on one machine leave "
            "--launcher out"
        ) from error


def _cut(settings: Settings, kind: str, shards: int) -> tuple[bool, int]:
    """Whether lanes run in step, and how many make a chunk."""
    vmapped, chunk_size = settings.vmapped, settings.chunk_size
    spread = settings.launcher == "sharded"
    if vmapped is None:
        vmapped = spread or kind != "cpu"
    if spread and not vmapped:
        raise BadInput("the sharded launcher: wanted lanes in step, --vmapped")
    if chunk_size is None:
        chunk_size = CHUNK_SIZE[kind]
        if vmapped and kind != "cpu" and settings.launcher in ("local", "sharded"):
            chunk_size = lanes_per_device(settings.grid, chunk_size)
        chunk_size *= shards
    if chunk_size % shards:
        raise BadInput(f"chunk_size {chunk_size}: wanted a multiple of {shards}")
    return vmapped, chunk_size


def _description(grid: Grid, chunk_size: int, vmapped: bool, kind: str) -> dict:
    return {
        "grid": grid.described(),
        "axes": grid.values,
        "chunk_size": chunk_size,
        "vmapped": vmapped,
        "environment": {
            "device": kind,
            "precision": grid.precision,
            "versions": versions(),
            "code": _fingerprint(_sources("jaxselect.sweep.run", *own_modules(grid))),
        },
        "statuses": {status.name: status.value for status in TrialStatus},
    }


def _require_memory(grid: Grid) -> None:
    """Refuse a shape of which one lane is larger than memory."""
    for shape in grid.shapes():
        sequences, length, tokens = sizes(grid, shape)
        memory.require(
            memory.corpus(sequences, length, tokens) + 24 * grid.path_points,
            f"{sequences} sequences of {length}, {tokens} tokens, {grid.path_points} "
            "points",
        )


def _sources(*modules: str) -> dict[str, str]:
    """The library's files that these modules need, themselves included, by name."""
    known: dict[str, str] = {}
    ahead = list(modules)
    while ahead:
        name = ahead.pop()
        source = None if name in known else _source(name)
        if source is not None:
            known[name] = source.read_text()
            package = name if source.stem == "__init__" else name.rpartition(".")[0]
            ahead += _imports(known[name], package)
    return known


def _source(name: str) -> Path | None:
    """The file of a module; none for what a module merely defines."""
    try:
        found = find_spec(name)
    except ModuleNotFoundError:
        return None
    return Path(found.origin) if found and found.origin else None


def _imports(text: str, package: str) -> Iterator[str]:
    """Modules of its own project that a file imports, names in modules too."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                base = resolve_name("." * node.level + base, package)
            names = [base, *(f"{base}.{part.name}" for part in node.names)]
        elif isinstance(node, ast.Import):
            names = [part.name for part in node.names]
        else:
            continue
        yield from (name for name in names if _same_project(name, package))


def _same_project(name: str, package: str) -> bool:
    """Whether a module is of a package's own top, or not installed at all."""
    top = name.partition(".")[0]
    if top == package.partition(".")[0]:
        return True
    origin = getattr(find_spec(top), "origin", None)
    return top not in sys.stdlib_module_names and "site-packages" not in str(origin)


def _fingerprint(sources: dict[str, str]) -> str:
    """Their digest: chunks of one sweep must not come from two states of a checkout."""
    text = json.dumps(sources, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@contextlib.contextmanager
def _stopping() -> Iterator[threading.Event]:
    """Turn the first Ctrl-C or SIGTERM into a request; the second ends at once."""
    stop = threading.Event()

    def ask(number: int, frame: object) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        say("finishing the chunks in flight; Ctrl-C again to drop them")

    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {name: signal.signal(name, ask) for name in STOPPING}
    try:
        yield stop
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)


def _watch(run: Iterator[Done], lanes: int, quiet: bool) -> int:
    """Follow a launcher on a bar, or line by line; how many runs it finished."""
    console = Console(stderr=True)
    counts: Counter[str] = Counter()
    ran = 0
    columns = (
        TextColumn("runs"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[counts]}"),
    )
    begin = shown_at = time.perf_counter()
    shown = console.is_terminal and not quiet
    with Progress(*columns, console=console, disable=not shown) as progress:
        task = progress.add_task("", total=lanes, rate="", counts="")
        for done in run:
            ran += done["lanes"]
            counts.update(done["statuses"])
            now = time.perf_counter()
            rate = f"{ran / (now - begin):.1f}/s"
            ends = ", ".join(f"{v} {k.lower()}" for k, v in sorted(counts.items()))
            progress.update(task, completed=ran, rate=rate, counts=ends)
            if not (shown or quiet) and now - shown_at >= PACE and ran < lanes:
                say(f"{ran} of {lanes} runs, {rate}: {ends}")
                shown_at = now
    return ran
