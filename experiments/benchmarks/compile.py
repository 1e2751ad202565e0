"""The cost of compiling: seconds, size of code and memory, for CPU, TPUs and CUDA.

A run, a sweep's chunk, the gradient of rates and a step on text are traced, lowered and
compiled, each in a new process and without the cache of programs. Seconds are of
CPU, all threads added up. No device but the CPU has to be here: a TPU's compiler comes
with libtpu, an H100's with the extra `cuda`; for other GPUs programs are lowered only.
"""

import dataclasses
import importlib.util
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import jax
from rich.console import Console
from rich.table import Table

from experiments.common.claims import Shown
from experiments.common.console import command, say
from experiments.common.devices import configure
from experiments.common.numbers import num
from experiments.common.results import Finished
from experiments.common.study import Experiment, Study, presets
from jaxselect.compilation import options_of

TARGETS = {"cpu": "cpu", "v5e": "tpu", "v6e": "tpu", "h100": "gpu", "cuda": "gpu"}
"""Devices that programs are compiled for, and their kinds."""
CHIPS = 4
"""Topology that a TPU's program is compiled for."""
COMPILERS = {"tpu": ("libtpu", "tpu"), "gpu": ("jax_cuda12_plugin", "cuda")}
"""Package of a compiler that wants no device, and the extra that brings it."""
H100 = """
gpu_device_info {
  cuda_compute_capability { major: 9 }
  core_count: 132 fpus_per_core: 128 threads_per_warp: 32 clock_rate_ghz: 1.98
  threads_per_block_limit: 1024 threads_per_core_limit: 2048
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  registers_per_core_limit: 65536 registers_per_block_limit: 65536
  shared_memory_per_block: 49152 shared_memory_per_block_optin: 232448
  shared_memory_per_core: 233472 l2_cache_size: 52428800
  memory_bandwidth: 3352320000000 device_memory_size: 84929347584
}
platform_name: "CUDA" device_description_str: "NVIDIA H100 80GB HBM3"
dnn_version_info { major: 9 minor: 7 } runtime_version { major: 12 minor: 9 }
"""
"""What XLA asks of a GPU that is not here."""
ALONE = (
    "import json, sys; from experiments.benchmarks import compile; "
    "print(json.dumps(compile.here(*sys.argv[1:])))"
)


COLUMNS = {
    "trace": ("trace", 1, ".2f"),
    "lower": ("lower", 1, ".2f"),
    "compile": ("compile", 1, ".1f"),
    "lines": ("lines", 1, ",d"),
    "code": ("code", 2**20, ".1f"),
    "arguments": ("args", 2**20, ".1f"),
    "temporaries": ("temps", 2**20, ".1f"),
    "outputs": ("outs", 2**20, ".1f"),
}
"""Measured quantities: heading, unit and digits; lines are of StableHLO."""
CALL = re.compile(r'custom_call_target="([^"]+)"')
PRECISION = re.compile(r'operand_precision"?[:=][\[{]"?(\w+)')
MANNERS = {
    "run fast": ("cpu",),
    "chunk fast": ("cpu", "tpu"),
    "chunk sharded": ("tpu",),
}
"""Programs that are compiled in a special manner, and the kinds they are for: with
the options of `experiments.run` and of small sweeps, which optimise little; for lanes
on all chips."""

ProgramName = Literal[
    "run",
    "run fast",
    "chunk",
    "chunk fast",
    "chunk sharded",
    "rates",
    "text",
]
Target = Literal["cpu", "v5e", "v6e", "h100", "cuda"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(Study):
    """Programs and targets to compile for.

    Attributes:
        preset: full, or quick: a run and a step on text for the CPU, under a minute;
            or smoke: a step on text.
        quick: the same as `--preset quick`.
        programs: to compile; `quickly` with the options that optimise little,
            `sharded` over the four chips of a TPU's machine.
        targets: to compile for.
        seed: not used, since no program is run.
    """

    quick: bool = False
    programs: tuple[ProgramName, ...] = (
        "run",
        "run fast",
        "chunk",
        "chunk fast",
        "chunk sharded",
        "rates",
        "text",
    )
    targets: tuple[Target, ...] = ("cpu", "v5e", "v6e", "h100", "cuda")
    out: Path = Path("results/benchmarks/compile")


PRESETS = presets(
    full=Settings(),
    quick=Settings(programs=("run", "run fast", "text"), targets=("cpu",)),
    smoke=Settings(programs=("text",), targets=("cpu",)),
)


def run(settings: Settings, results: dict) -> None:
    """Compile every program for every target, one after the other."""
    rows: list[dict[str, Any]] = []
    absent: dict[str, str] = {}
    results |= {"rows": rows, "absent": absent}
    for target in settings.targets:
        lacking = missing(target)
        if lacking:
            say(f"{target}: {lacking}")
            absent[target] = lacking
            continue
        for name in settings.programs:
            kind = TARGETS[target]
            if kind not in MANNERS.get(name, (kind,)):
                continue
            say(f"{name} for {target} …")
            rows.append({"program": name, "target": target})
            rows[-1] |= isolated(name, target)
            if "refused" in rows[-1]:
                say(f"not compiled: {rows[-1]['refused']}")
    say_rows(rows)


def say_rows(rows: list[dict[str, Any]]) -> None:
    """The table, on standard error."""
    headings = (heading for heading, *_ in COLUMNS.values())
    table = Table("program", "for", *headings, caption="seconds of CPU, lines, MB")
    for row in rows:
        cells = (
            f"{row[name] / unit if unit > 1 else row[name]:{digits}}"
            if name in row
            else "–"
            for name, (_, unit, digits) in COLUMNS.items()
        )
        table.add_row(row["program"], row["target"], *cells)
    Console(stderr=True).print(table)


def missing(target: str) -> str | None:
    """The installation that compiling for a target still needs.

    Returns:
        A command, in words; None where nothing is missing.

    Example:
        >>> missing("cpu")
    """
    if target in ("cpu", "cuda"):
        return None
    package, extra = COMPILERS[TARGETS[target]]
    if importlib.util.find_spec(package) is None:
        return f"no {package} here: python -m pip install -e '.[{extra}]' brings it"
    return None


def isolated(name: str, target: str) -> dict[str, Any]:
    """The cost of one program in a new process: nothing traced or compiled before.

    Args:
        name: of `programs.PROGRAMS`; after it ` fast` for fewer optimisations,
            ` sharded` for as many lanes on each chip of a TPU's machine.
        target: one of `TARGETS`.

    Returns:
        See `cost`; where the compiler refuses, `refused` alone:
        the last that it said.
    """
    # A TPU's library looks for a TPU's host, and for a process that holds the TPU.
    there = {"TPU_SKIP_MDS_QUERY": "1", "ALLOW_MULTIPLE_LIBTPU_LOAD": "1"}
    done = subprocess.run(
        [sys.executable, "-c", ALONE, name, target],
        env=os.environ | there | {"JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        return {"refused": (done.stderr.strip().splitlines() or ["nothing"])[-1]}
    return json.loads(done.stdout.splitlines()[-1])


def here(name: str, target: str) -> dict[str, Any]:
    """The cost of one program, part by part and added up, in this process.

    Returns:
        See `cost`.
    """
    # The programs bring half of the library: a cost alone waits for none.
    from experiments.benchmarks.programs import PROGRAMS

    kind = TARGETS[target]
    name, *manner = name.split()
    single = kind == "tpu" or name == "text"
    configure("float32" if single else "float64")
    # A program compiled before would be read from disk.
    jax.config.update("jax_enable_compilation_cache", False)
    program = PROGRAMS[name](kind)
    fast = "fast" in manner
    chips = CHIPS if "sharded" in manner else 1
    large = fast or name == "chunk"
    options = options_of(kind, fast=fast) if large else {}
    return cost(program.function, program.arguments, target, options, chips)


def cost(
    function: Callable,
    arguments: tuple[Any, ...],
    target: str = "cpu",
    options: dict[str, Any] | None = None,
    chips: int = 1,
) -> dict[str, Any]:
    """Cost of compiling a function for a target, and memory that the program takes.

    A TPU's program is that of one chip of four, or of all. For `cuda`, any GPU, a
    program is lowered only.

    Args:
        function: to be jitted, or jitted.
        arguments: arrays, or their shapes.
        target: one of `TARGETS`.
        options: of the compiler.
        chips: of a TPU's machine that share the arguments, each as many as are given.

    Returns:
        CPU seconds, of all threads, to `trace`, `lower` and `compile`; `lines` of
        StableHLO; `code`, `arguments`, `temporaries` and `outputs` in bytes, a chip's;
        `calls` of libraries and `precisions` of products, by name; nothing of what was
        not compiled.
    """
    kind, place = TARGETS[target], _place(target, chips)

    def shape(leaf: Any) -> jax.ShapeDtypeStruct:
        array = leaf if hasattr(leaf, "dtype") else jax.numpy.asarray(leaf)
        size = array.shape
        if chips > 1:
            size = (chips * size[0], *size[1:])
        return jax.ShapeDtypeStruct(size, array.dtype, sharding=place)

    shapes = jax.tree.map(shape, arguments)
    # As in `programs.lowered`: what is cut over chips stays cut.
    cut: dict[str, Any] = {"out_shardings": place} if chips > 1 else {}
    jitted = jax.jit(function, compiler_options=options or None, **cut)
    platform = "cuda" if kind == "gpu" else kind
    begin = time.process_time()
    traced = jitted.trace(*shapes)
    traced_at = time.process_time()
    lowered = traced.lower(lowering_platforms=(platform,))
    lowered_at = time.process_time()
    found: dict[str, Any] = {
        "trace": traced_at - begin,
        "lower": lowered_at - traced_at,
        "lines": lowered.as_text().count("\n"),
    }
    if target == "cuda":
        return found
    begin = time.process_time()
    compiled = lowered.compile()
    found["compile"] = time.process_time() - begin
    memory = compiled.memory_analysis()
    # On a CPU and a GPU memory_analysis knows no code; what would be kept on disk is
    # mostly that.
    found["code"] = memory.generated_code_size_in_bytes or len(
        compiled.runtime_executable().serialize()
    )
    found["arguments"] = memory.argument_size_in_bytes
    found["temporaries"] = memory.temp_size_in_bytes
    found["outputs"] = memory.output_size_in_bytes
    text = compiled.as_text()
    found["calls"] = sorted(set(CALL.findall(text)))
    found["precisions"] = sorted({word.lower() for word in PRECISION.findall(text)})
    return found


def _place(target: str, chips: int) -> jax.sharding.Sharding | None:
    """Where arguments lie: on a device that is not here."""
    if target in ("cpu", "cuda"):
        return None
    from jax.experimental import topologies

    if target == "h100":
        machine = topologies.get_topology_desc(
            platform="cuda", topology_name="", target_config=H100, topology="1x1x1"
        )
        return jax.sharding.SingleDeviceSharding(machine.devices[0])
    from jaxselect.sweep.run import lanes_over

    machine = topologies.get_topology_desc(
        platform="tpu", topology_name=f"{target}:2x2"
    )
    if chips > 1:
        return lanes_over(machine.devices[:chips])
    return jax.sharding.SingleDeviceSharding(machine.devices[0])


MIB = 2**20


def _megabytes(size: float | None) -> float | None:
    return None if size is None else size / MIB


def show(found: Finished) -> Shown:
    """Seconds, lines and memory of every program for every device."""
    rows = [["program", "for", "trace s", "lower s", "compile s", "lines"]]
    rows[0] += ["code MB", "temporaries MB", "calls of libraries", "products"]
    for row in found.results["rows"]:
        cells = [num(row.get(name)) for name in ("trace", "lower", "compile", "lines")]
        cells += [num(_megabytes(row.get(name))) for name in ("code", "temporaries")]
        cells += [", ".join(row.get(name, ())) for name in ("calls", "precisions")]
        rows.append([row["program"], row["target"], *cells])
    absent = found.results["absent"].items()
    return Shown(
        [
            "Seconds of CPU, all threads added up; lines of StableHLO.",
            *(f"{target}: {lacking}." for target, lacking in absent),
        ],
        rows,
    )


main = Experiment(run, show=show, title="Compiling")


if __name__ == "__main__":
    command(main, PRESETS)
