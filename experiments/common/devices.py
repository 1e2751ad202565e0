"""JAX's settings for a program, and what a result says of where it was computed."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax

from jaxselect.compilation import keep_compiled_programs
from jaxselect.sweep.description import versions

ROOT = Path(__file__).parents[2]
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

    Example:
        >>> configure("float64")
        >>> jax.numpy.zeros(1).dtype
        dtype('float64')
    """
    jax.config.update("jax_enable_x64", precision == "float64")
    jax.config.update("jax_default_matmul_precision", "highest")
    if not os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        keep_compiled_programs(ROOT / ".jax_cache")


def provenance() -> dict[str, Any]:
    """Where and with what this process computes, to be kept beside its results.

    Returns:
        `device`, `precision` (also of matrix products), `versions`, and `commit` of the
        checkout: None outside one, `-dirty` after it where files were edited.

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


def probe() -> tuple[str, int]:
    """Kind and number of the devices here, found without taking hold of them.

    Returns:
        `cpu`, `gpu` or `tpu`; devices, or cores where there is none.
    """
    if not any(importlib.util.find_spec(name) for name in PLUGINS):
        return "cpu", cores()
    code = "import jax; print(jax.default_backend(), jax.local_device_count())"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    kind, count = (done.stdout.split() or ["cpu", "0"])[-2:]
    return (kind, int(count)) if kind != "cpu" else ("cpu", cores())


def cores() -> int:
    """Processors that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def _commit() -> str | None:
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    except OSError:
        return None
    return done.stdout.strip() or None
