"""Watch a sweep from outside: chunks as they are written, memory of its processes."""

import os
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from experiments.common.flags import spelled
from jaxselect.sweep import store
from jaxselect.sweep.grid import Grid


def flags(grid: Grid) -> list[str]:
    """The command line of a grid.

    Args:
        grid: any.

    Returns:
        Arguments for `experiments.sweep`.
    """
    return spelled(grid.described(), {})


def observe(grid: Grid, folder: Path, *extra: str, limit: float = 3600.0) -> dict:
    """Run a sweep as a program, and watch it.

    Args:
        grid: to run.
        folder: for its results.
        extra: further flags.
        limit: seconds after which it is asked to stop.

    Returns:
        Runs, seconds, rates, memory of its processes, bytes on disk.
    """
    command = [sys.executable, "-m", "experiments.sweep", "--quiet", *flags(grid)]
    before = os.times()
    begin = time.perf_counter()
    process = subprocess.Popen(
        [*command, "--out", str(folder), *extra], stderr=subprocess.DEVNULL
    )
    parent = 0
    workers: dict[int, int] = {}
    try:
        while process.poll() is None:
            parent = max(parent, peak_bytes(process.pid))
            for child in _children(process.pid):
                workers[child] = max(workers.get(child, 0), peak_bytes(child))
            if time.perf_counter() - begin > limit:
                process.send_signal(signal.SIGINT)
                limit *= 2
            time.sleep(0.05)
    finally:
        process.terminate()
        process.wait()
    seconds = time.perf_counter() - begin
    after = os.times()
    busy = sum(after[2:4]) - sum(before[2:4])
    files = sorted((folder / "chunks").glob("[0-9]*.npy"), key=_written)
    tables = [store.read_chunk(folder, int(path.stem)) for path in files]
    lanes = np.array([len(table) for table in tables])
    # Every worker has loaded its program once it has written a chunk.
    first = min(2 * max(len(workers), 1), len(files) - 1)
    span = _written(files[-1]) - _written(files[first - 1]) if first else seconds
    described = store.describe(folder)
    codes = np.concatenate([table["status"] for table in tables])
    return {
        "exit_code": process.returncode,
        "runs": int(lanes.sum()),
        "seconds": seconds,
        "runs_per_second": float(lanes.sum() / seconds),
        "runs_per_second_while_busy": float(lanes[first:].sum() / span),
        "processor_seconds_per_run": busy / float(lanes.sum()),
        "processors_busy": busy / seconds,
        "statuses": {
            name: int((codes == code).sum())
            for name, code in described["statuses"].items()
        },
        "device": described["environment"]["device"],
        "precision": described["environment"]["precision"],
        "parent_megabytes": parent / 2**20,
        "worker_megabytes": max(workers.values(), default=0) / 2**20,
        "bytes_per_chunk": statistics.mean(path.stat().st_size for path in files),
    }


def peak_bytes(process: int) -> int:
    """Most memory a process has held so far; 0 where it is gone.

    Args:
        process: its number.

    Returns:
        Bytes, as Linux accounts for them.
    """
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return 0
    peaks = [line.split()[1] for line in lines if line.startswith("VmHWM")]
    return 1024 * int(peaks[0]) if peaks else 0


def _written(path: Path) -> float:
    return path.stat().st_mtime_ns / 1e9


def _children(process: int) -> list[int]:
    try:
        listed = Path(f"/proc/{process}/task/{process}/children").read_text()
    except OSError:
        return []
    return [int(child) for child in listed.split()]
