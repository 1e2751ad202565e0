"""What a sweep costs: over workers, cuts, dimensions and devices; time, memory, disk.

Sweeps are watched from outside while they run as programs: chunks by the time they were
written, memory of every process by the system's own account. Throughput while busy
leaves out the start of the workers; cuts and dimensions are timed in turns.
"""

import dataclasses
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np

from experiments.benchmarks._sweep_watch import observe
from experiments.common.console import at_least_one, command, quickened, say
from experiments.common.devices import configure, probe
from experiments.common.grids import of_family
from experiments.common.results import draw, read, write
from experiments.sweep.settings import CHUNK_SIZE
from experiments.sweep.settings import PRESETS as SWEEPS
from jaxselect.sweep import store
from jaxselect.sweep.chunks import plan, program, run_chunk
from jaxselect.sweep.grid import Grid, lane_values


@dataclasses.dataclass(frozen=True)
class Settings:
    """What to measure.

    Attributes:
        preset: full, or quick: sub-grids, under two minutes once it is compiled.
        quick: the same as `--preset quick`.
        grid: of workers, cuts and devices.
        decades: log₁₀ d of the cost against d.
        eta: η₀ of the cost against d, which fixes γ there.
        seeds: of the cost against d.
        cuts: chunk sizes to compare.
        repeats: timed turns of each; the median counts.
        part: all of it, or one measurement; the others stay as they are on disk.
        out: folder for the results.
        json: print the results as one JSON object on standard output.
    """

    preset: Literal["full", "quick"] = "full"
    quick: bool = False
    grid: Grid = SWEEPS["default"].grid
    decades: tuple[int, ...] = (2, 3, 4, 5, 6, 7, 8, 9)
    eta: float = 100.0
    seeds: int = 8
    cuts: tuple[int, ...] = (1, 8, 64)
    repeats: int = 3
    part: Literal["all", "workers", "cut", "dim", "memory", "device"] = "all"
    out: Path = Path("results") / "benchmarks" / "sweep"
    json: bool = False


_DEFAULT = SWEEPS["default"].grid
PRESETS = {
    "full": Settings(),
    "quick": Settings(
        grid=dataclasses.replace(
            _DEFAULT,
            dim=_DEFAULT.dim[::4],
            step_size=_DEFAULT.step_size[::3],
            seed=(0, 1),
        ),
        decades=(2, 4, 6, 9),
        seeds=4,
        cuts=(8,),
        repeats=1,
    ),
}


def main(settings: Settings) -> dict:
    """Measure, write, draw.

    Args:
        settings: of the command line.

    Returns:
        What `--json` prints.
    """
    settings = quickened(settings, PRESETS["quick"], "part")
    at_least_one(settings, "decades", "seeds", "cuts", "repeats")
    settings.grid.check()
    there = (settings.out / "results.json").exists()
    results = read(settings.out).results if there else {}
    for part in PARTS if settings.part == "all" else (settings.part,):
        say(f"{part} …")
        before = os.getloadavg()[0]
        results[part] = PARTS[part](settings)
        results[part]["load_before"] = before
        say(json.dumps(results[part], indent=1))
        write(settings.out, settings=settings, results=results)
    if "dim" in results:
        draw("cost", settings.out)
    return results


def cost_of_workers(settings: Settings) -> dict:
    """One worker and one per core, in turns; the ratio of their rates while busy."""
    cores = len(os.sched_getaffinity(0))
    found: dict[str, list[dict]] = {"1": [], str(cores): []}
    for _ in range(settings.repeats):
        for number, seen in found.items():
            with tempfile.TemporaryDirectory() as folder:
                seen.append(observe(settings.grid, Path(folder), "--workers", number))
    middle = {
        number: {
            name: statistics.median(one[name] for one in seen)
            for name in (
                "runs_per_second",
                "runs_per_second_while_busy",
                "processor_seconds_per_run",
                "processors_busy",
            )
        }
        for number, seen in found.items()
    }
    one, all_cores = middle["1"], middle[str(cores)]
    return {
        "cores": cores,
        "chunk_size": CHUNK_SIZE["cpu"],
        "workers": middle,
        "ratio_while_busy": all_cores["runs_per_second_while_busy"]
        / one["runs_per_second_while_busy"],
        "ratio_with_start": all_cores["runs_per_second"] / one["runs_per_second"],
        "statuses": found["1"][0]["statuses"],
        "turns": found,
    }


def cost_of_cut(settings: Settings) -> dict:
    """Runs per second for chunk sizes, one after the other and in step."""
    grid = dataclasses.replace(settings.grid, seed=settings.grid.seed[:2])
    configure(grid.precision)
    cases = [(size, together) for size in settings.cuts for together in (False, True)]
    found: dict[str, Any] = {}
    for size, together in cases:
        chunks = plan(grid, size)
        run_chunk(grid, chunks[-1], chunk_size=size, together=together)
        begin = time.perf_counter()
        tables = [
            run_chunk(grid, chunk, chunk_size=size, together=together)
            for chunk in chunks
        ]
        steps = [table["num_steps"] for table in tables]
        seconds = time.perf_counter() - begin
        needed = sum(int(s.sum()) for s in steps)
        paid = sum(int(s.max()) * size for s in steps) if together else needed
        name = f"{size} {'in step' if together else 'one by one'}"
        found[name] = {
            "runs_per_second": grid.size / seconds,
            "wasted_steps_share": paid / needed - 1,
            "seconds_per_step_needed": seconds / needed,
        }
        say(f"{name}: {found[name]}")
    return found


def cost_of_dim(settings: Settings) -> dict:
    """Seconds per run and per step of the solver for each d, by one program."""
    dims = tuple(10.0**decade for decade in settings.decades)
    grid = dataclasses.replace(
        settings.grid,
        dim=dims,
        step_size=(settings.eta,),
        seed=tuple(range(settings.seeds)),
        path_points=0,
    )
    configure(grid.precision)
    # Programs are counted: none may be left from before.
    program.cache_clear()
    chunks = plan(grid, settings.seeds)
    by_dim = {lane_values(grid, chunk.lanes)["dim"][0]: chunk for chunk in chunks}
    seconds: dict[float, list[float]] = {dim: [] for dim in dims}
    tables = {}
    for turn in range(settings.repeats + 1):
        for dim, chunk in by_dim.items():
            begin = time.perf_counter()
            tables[dim] = run_chunk(grid, chunk, chunk_size=settings.seeds)
            if turn:
                seconds[dim].append(time.perf_counter() - begin)
    per_run = np.array([statistics.median(seconds[d]) for d in dims]) / settings.seeds
    steps = np.array([tables[dim]["num_steps"].mean() for dim in dims])
    per_step = per_run / steps
    return {
        "dim": list(dims),
        "step_size": settings.eta,
        "alignment": [float(tables[dim]["alignment"].mean()) for dim in dims],
        "seeds": settings.seeds,
        "programs": program.cache_info().currsize,
        "seconds_per_run": per_run.tolist(),
        "steps_per_run": steps.tolist(),
        "seconds_per_step": per_step.tolist(),
        "spread_per_run": float(np.max(per_run) / np.min(per_run)),
        "spread_per_step": float(np.max(per_step) / np.min(per_step)),
        "device": jax.devices()[0].device_kind,
        "precision": grid.precision,
    }


def cost_of_memory(settings: Settings) -> dict:
    """Memory and disk of the preset `phase`: while it runs, and of its whole result.

    The sweep itself is begun, watched for a while and stopped. The result is invented:
    rows of a real chunk at every lane of the grid, in as many files.
    """
    grid = SWEEPS["phase"].grid
    size = CHUNK_SIZE["cpu"]
    chunks = plan(grid, size)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        seen = observe(grid, folder, limit=30.0)
        rows = store.read_chunk(folder, store.finished(folder)[0].pop())
        for index, chunk in enumerate(chunks):
            table = np.resize(rows, len(chunk.lanes))
            table["lane"] = chunk.lanes
            store.write_chunk(folder, index, table)
        files = list((folder / "chunks").iterdir())
        code = (
            "import os, sys, time; from jaxselect.sweep import store\n"
            "from pathlib import Path\n"
            "from experiments.sweep.summary import summarise\n"
            "from experiments.benchmarks._sweep_watch import peak_bytes\n"
            "peak = lambda: peak_bytes(os.getpid())\n"
            "folder = Path(sys.argv[1]); before, begin = peak(), time.perf_counter()\n"
            "store.finished(folder); checked = time.perf_counter()\n"
            "results = store.load(folder); loaded, end = peak(), time.perf_counter()\n"
            "summarise(results)\n"
            "print(before, loaded, peak(), checked - begin, end - checked)"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, name], capture_output=True, check=True
        )
        before, loaded, summarised, checking, loading = map(float, done.stdout.split())
        return {
            "begun": seen,
            "runs_of_the_preset": grid.size,
            "chunks_of_the_preset": len(chunks),
            "result_files_invented": len(files),
            "result_megabytes": sum(path.stat().st_size for path in files) / 2**20,
            "result_megabytes_on_disk": sum(p.stat().st_blocks for p in files) / 2**11,
            "megabytes_before_load": before / 2**20,
            "megabytes_after_load": loaded / 2**20,
            "megabytes_after_summary": summarised / 2**20,
            "seconds_to_check_on_resume": checking,
            "seconds_to_load": loading,
        }


def cost_of_device(settings: Settings) -> dict:
    """The grid on the accelerator that is here, if there is one."""
    kind, number = probe()
    if kind == "cpu":
        return {"device": None}
    with tempfile.TemporaryDirectory() as folder:
        seen = observe(settings.grid, Path(folder))
    told = subprocess.run(
        [sys.executable, "-c", "import jax; print(jax.devices()[0].device_kind)"],
        capture_output=True,
        text=True,
        check=True,
    )
    return seen | {"devices": number, "device": told.stdout.strip()}


PARTS = {
    "workers": cost_of_workers,
    "cut": cost_of_cut,
    "dim": cost_of_dim,
    "memory": cost_of_memory,
    "device": cost_of_device,
}


if __name__ == "__main__":
    command(main, partial(of_family, PRESETS))
