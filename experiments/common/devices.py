"""JAX's settings for a program, and what a result says of where it was computed."""

import functools
import importlib.util
import os
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import jax

ROOT = Path(__file__).parents[2]
PACKAGES = ("jax", "jaxlib", "diffrax", "equinox", "jaxselect")
"""Packages whose versions stand beside every result."""

CACHE_BYTES = 3 * 2**27
"""Size of JAX's cache; a study's largest programs take about 4 MiB."""
CACHED_FROM = 0.05
"""Seconds of compilation from which a program is kept; shorter ones are compiled as
fast as they are read."""

USUALLY: dict[str, dict[str, Any]] = {
    "tpu": {"xla_tpu_enable_deduplicated_calls": "ENABLED"}
}
"""XLA's options for large programs: what stands in one twice is written once, and
called, which saves two fifths of the code of a chunk."""
QUICKLY: dict[str, dict[str, Any]] = {
    "cpu": {
        "xla_backend_optimization_level": 0,
        "xla_cpu_use_fusion_emitters": False,
        "xla_llvm_disable_expensive_passes": True,
    },
    "tpu": {"exec_time_optimization_effort": -1.0},
}
"""XLA's options that compile a trial four to five times faster, and run it two times
slower: measured on a CPU, estimated by the compiler for a TPU."""

PLUGINS = (
    "jax_cuda12_plugin",
    "jax_cuda13_plugin",
    "jax_rocm60_plugin",
    "jax_rocm7_plugin",
    "libtpu",
)
"""Packages without which JAX can see no accelerator."""


def configure(precision: str) -> None:
    """JAX's settings for one process: what every program calls before it computes.

    Matrix products keep all their digits: accelerators would round their factors to
    eleven bits or eight. Compiled programs are kept in the checkout, in a folder of
    bounded size that processes may share, unless `JAX_COMPILATION_CACHE_DIR` says
    where.

    Args:
        precision: `float64` or `float32`.

    Example:
        >>> configure("float64")
        >>> jax.numpy.zeros(1).dtype
        dtype('float64')
    """
    jax.config.update("jax_enable_x64", precision == "float64")
    jax.config.update("jax_default_matmul_precision", "highest")
    if not os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        _keep_programs(ROOT / ".jax_cache")


@functools.cache
def usually() -> dict[str, Any]:
    """Options of `jax.jit` for a large program.

    Returns:
        Those of `USUALLY` for the device here that XLA knows.

    Example:
        >>> jax.jit(lambda x: 2 * x, compiler_options=usually())(3.0).item()
        6.0
    """
    return _known_among(compiler_options(jax.default_backend()))


@functools.cache
def quickly() -> dict[str, Any]:
    """Options of `jax.jit` for a program that would compile for longer than it runs.

    Returns:
        Those of `usually` and of `QUICKLY`, that XLA knows.

    Example:
        >>> double = jax.jit(lambda x: 2 * x, compiler_options=quickly())
        >>> double(3.0).item()
        6.0
    """
    return _known_among(compiler_options(jax.default_backend(), hurried=True))


def compiler_options(kind: str, *, hurried: bool = False) -> dict[str, Any]:
    """XLA's options for a kind of devices, which need not be here.

    Args:
        kind: `cpu`, `gpu` or `tpu`.
        hurried: as `quickly`, else as `usually`.

    Returns:
        Values by name; an XLA of another age may not know them.

    Example:
        >>> compiler_options("cpu")
        {}
    """
    return USUALLY.get(kind, {}) | (QUICKLY.get(kind, {}) if hurried else {})


def _known_among(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if _known({name: value})}


def _known(options: dict[str, Any]) -> bool:
    """Whether this XLA, whose options come and go, takes some."""
    try:
        jax.jit(lambda: 0, compiler_options=options).lower().compile()
    except jax.errors.JaxRuntimeError:
        return False
    return True


def provenance() -> dict[str, Any]:
    """Where and with what this process computes, to be kept beside its results.

    Returns:
        `device`, `precision` (also of matrix products), `versions`, and `commit` of the
        checkout: None outside one, `-dirty` behind it where files were edited.

    Example:
        >>> sorted(provenance())
        ['commit', 'device', 'matmul_precision', 'precision', 'versions']
    """
    return {
        "device": jax.devices()[0].device_kind,
        "precision": jax.dtypes.canonicalize_dtype("float64").name,
        "matmul_precision": jax.config.values["jax_default_matmul_precision"],
        "versions": versions(),
        "commit": _commit(),
    }


def versions() -> dict[str, str]:
    """Installed versions of `PACKAGES`."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def probe() -> tuple[str, int]:
    """Kind and number of the devices here, found without taking hold of them.

    Returns:
        `cpu`, `gpu` or `tpu`; devices, or cores where there is none.
    """
    if not any(importlib.util.find_spec(name) for name in PLUGINS):
        return "cpu", cores()
    code = "import jax; print(jax.default_backend(), jax.local_device_count())"
    told = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    kind, count = (told.stdout.split() or ["cpu", "0"])[-2:]
    return (kind, int(count)) if kind != "cpu" else ("cpu", cores())


def cores() -> int:
    """Processors that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


@functools.cache
def _keep_programs(cache: Path) -> None:
    jax.config.update("jax_compilation_cache_dir", str(cache))
    jax.config.update("jax_compilation_cache_max_size", CACHE_BYTES)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", CACHED_FROM)
    # JAX writes nothing more to a cache in which a kill left an entry without a time.
    for entry in cache.glob("*-cache"):
        if not entry.with_name(entry.name.removesuffix("-cache") + "-atime").exists():
            entry.unlink(missing_ok=True)


def _commit() -> str | None:
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    except OSError:
        return None
    return told.stdout.strip() or None
