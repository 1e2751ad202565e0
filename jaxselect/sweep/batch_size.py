"""Sizes of chunks and compiler options of a sweep, by device and memory."""

import logging
from functools import partial
from typing import Any

import jax

from ..compilation import compile_options
from .grid import Grid, Shape
from .run import lane_kinds, program

CHUNK_SIZE = {"cpu": 8, "gpu": 256, "tpu": 64}
"""Runs per chunk and device, at most: a second of work for a core, enough for an
accelerator to fill. Runs in step wait for the slowest: on the default grid 64 take 2.8
times the steps they need, and 256 five times. A TPU's compiler unrolls over them, too:
of 256 the program is nearly twice as large, for a fifth less of its estimated cycles in
each step."""
FEW_RUNS = {"cpu": 80, "gpu": 256, "tpu": 576}
"""Grids of at most so many runs compile with low optimisation. It depends on the grid
alone, so that results have the same bytes however it is run.

On a CPU full optimisation takes 21 s longer for the default sizes, and saves 1.2 of
1.6 ms in each of some 220 steps of a run. For a v5e, by the compiler's estimates, it
takes 11 s longer and makes a step of 64 runs of 9.5 ms one of 3.8: nine chunks pay for
it."""
MEMORY_SHARE = 0.9
"""Share of a device's memory that a program may take."""
_LOG = logging.getLogger(__name__)


def chunk_layout(
    grid: Grid,
    kind: str,
    *,
    vmapped: bool | None = None,
    chunk_size: int | None = None,
    measured: bool = True,
) -> tuple[bool, int]:
    """Choose whether a chunk runs in lockstep, and how many runs it has.

    By default runs are in step on accelerators, and a chunk has what suits the `kind`
    of device: `cpu`, `gpu` or `tpu`; where it is `measured`, what its memory holds.

    Example:
        >>> chunk_layout(Grid(), "cpu")
        (False, 8)
        >>> chunk_layout(Grid(seed=tuple(range(24))), "gpu", measured=False)
        (True, 32)
    """
    if vmapped is None:
        vmapped = kind != "cpu"
    if chunk_size is None:
        chunk_size = CHUNK_SIZE[kind]
        if vmapped:
            # Lanes beyond the runs of the grid would repeat one of them.
            chunk_size = min(chunk_size, 1 << (grid.size - 1).bit_length())
        if vmapped and kind != "cpu" and measured:
            chunk_size = lanes_per_device(grid, chunk_size)
    return vmapped, chunk_size


def few_runs(grid: Grid, kind: str) -> bool:
    """Whether compiling with full optimisation would take longer than it saves."""
    return grid.size <= FEW_RUNS.get(kind, FEW_RUNS["gpu"])


def compile_options_for(grid: Grid) -> dict[str, Any]:
    """Choose XLA's options for the program of a grid."""
    return compile_options(fast=few_runs(grid, jax.default_backend()))


def lanes_per_device(grid: Grid, most: int) -> int:
    """Find how many runs, `most` or less by powers of two, the first device can hold.

    The program of the largest shape is compiled with the options of the sweep, so JAX's
    cache keeps it; where it does not fit, again for half of the runs, as bytes grow by
    as many with each. Of a single run the device will say what is wrong.
    """
    stats = jax.local_devices()[0].memory_stats() or {}
    if "bytes_limit" not in stats:
        return most
    shape = max(grid.shapes(), key=partial(_size, grid))
    run = program(grid, shape, vmapped=True)

    def held(number: int) -> int:
        lowered = run.lower(*lane_kinds(grid, shape, number))
        compiled = lowered.compile(compile_options_for(grid))
        return bytes_needed(compiled.memory_analysis())

    found, whole, available = most, held(most), MEMORY_SHARE * stats["bytes_limit"]
    if whole > available and most > 1:
        each = (whole - held(most // 2)) / (most // 2)
        while found > 1 and whole - each * (most - found) > available:
            found //= 2
        _LOG.warning("%d runs in step, not %d: the device holds no more", found, most)
    return found


def bytes_needed(memory_of: Any) -> int:
    """Read from `memory_analysis` how many bytes a compiled program needs."""
    parts = ("argument", "output", "temp", "generated_code")
    return sum(getattr(memory_of, f"{part}_size_in_bytes") for part in parts)


def _size(grid: Grid, shape: Shape) -> int:
    """Count the numbers in the bags and embeddings of one run, to compare shapes."""
    bags = grid.bags(shape)
    return bags.tokens.size + bags.vocabulary**2
