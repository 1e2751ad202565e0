"""Description of a sweep: its grid, chunks, package versions and source files."""

import ast
import hashlib
import json
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec, resolve_name
from pathlib import Path

from ..margin.certificate import TrialStatus
from .grid import Grid

PACKAGES = ("jax", "jaxlib", "diffrax", "equinox", "jaxselect")
"""Packages whose versions stand beside every result."""


def description(grid: Grid, chunk_size: int, vmapped: bool, kind: str) -> dict:
    """Describe how a results folder is made, in plain values for JSON.

    Args:
        grid: grid of trials.
        chunk_size: lanes per chunk.
        vmapped: lanes of a chunk in step.
        kind: kind of device: `cpu`, `gpu` or `tpu`.

    Raises:
        BadInput: a function of the grid that no other process can import.
    """
    modules = "jaxselect.sweep.run", *modules_outside_library(grid)
    return {
        "grid": grid.described(),
        "axes": grid.values,
        "chunk_size": chunk_size,
        "vmapped": vmapped,
        "environment": {
            "device": kind,
            "precision": grid.precision,
            "versions": versions(),
            "code": fingerprint(sources(*modules)),
        },
        "statuses": {status.name: status.value for status in TrialStatus},
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


def modules_outside_library(grid: Grid) -> list[str]:
    """Find the modules of a grid's functions that are outside the library."""
    where = {str(function.__module__) for function in (grid.draw, grid.embed)}
    return sorted(name for name in where if not name.startswith("jaxselect."))


def sources(*modules: str) -> dict[str, str]:
    """Read the source files that these modules import, themselves included."""
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
    """Find the file of a module; None for a name that a module defines."""
    try:
        found = find_spec(name)
    except ModuleNotFoundError:
        return None
    return Path(found.origin) if found and found.origin else None


def _imports(text: str, package: str) -> Iterator[str]:
    """List the modules of the same project that a file imports."""
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
    """Whether a module belongs to the same project as a package."""
    top = name.partition(".")[0]
    if top == package.partition(".")[0]:
        return True
    origin = getattr(find_spec(top), "origin", None)
    return top not in sys.stdlib_module_names and "site-packages" not in str(origin)


def fingerprint(texts: dict[str, str]) -> str:
    """Digest of the sources; chunks of different code must not be mixed."""
    text = json.dumps(texts, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
