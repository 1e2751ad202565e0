"""Description of a sweep: its grid, chunks, package versions and source files."""

import ast
import contextlib
import hashlib
import inspect
import json
import sys
from collections import Counter
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from importlib.metadata import PackageNotFoundError, version
from importlib.util import decode_source, find_spec, resolve_name
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from ..checks import BadInput
from ..margin.certificate import TrialStatus
from ..status import Reason
from .grid import Grid

PACKAGES = ("jax", "jaxlib", "diffrax", "equinox", "jaxselect")
"""Packages whose versions are kept with every result."""


def description(grid: Grid, chunk_size: int, vmapped: bool, kind: str) -> dict:
    """Describe how a results folder is made, in plain values for JSON.

    Raises:
        BadInput: a function of the grid that no other process can import, or a file
            that was edited after this process imported it.
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
        "reasons": {reason.name: reason.value for reason in Reason},
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
            known[name] = _as_imported(name, source)
            package = name if source.stem == "__init__" else name.rpartition(".")[0]
            ahead += _imports(known[name], package)
    return known


_READ: dict[str, tuple[ModuleSpec, str]] = {}
"""Sources of imported modules as first read, each with the spec of that import."""


def _as_imported(name: str, source: Path) -> str:
    """Read a source, if it is what this process imported.

    Raises:
        BadInput: it was edited since it was first read, or, as far as the functions and
            constants of the module show, between its import and that.
    """
    text = decode_source(source.read_bytes())
    module = sys.modules.get(name)
    imported = getattr(module, "__spec__", None)
    if module is None or imported is None:
        return text
    spec, first = _READ.get(name, (None, ""))
    if spec is not imported and _defines(imported, text, module):  # New by a reload.
        spec, first = _READ[name] = imported, text
    if spec is not imported or text != first:
        raise BadInput(
            f"{source} was edited after it was imported, so it is not what would run: "
            "restart Python"
        )
    return text


def _defines(spec: ModuleSpec, text: str, module: ModuleType) -> bool:
    """Whether a file defines the functions and constants of a module."""
    get_code = getattr(spec.loader, "get_code", None)
    if get_code is None:
        return True
    try:
        ahead, constants = [get_code(spec.name)], dict(_constants(text))
    except SyntaxError:
        return False
    there = set()
    while ahead:
        there.add(code := ahead.pop())
        ahead += [part for part in code.co_consts if isinstance(part, CodeType)]
    held = vars(module)
    values = list(held.values())
    values += [
        one for kind in values if isinstance(kind, type) for one in vars(kind).values()
    ]
    functions = [inspect.unwrap(one) for one in values if callable(one)]
    codes = [one.__code__ for one in functions if isinstance(one, FunctionType)]
    return there.issuperset(
        one for one in codes if one.co_filename == spec.origin
    ) and all(repr(held.get(name)) == repr(one) for name, one in constants.items())


def _constants(text: str) -> Iterator[tuple[str, Any]]:
    """Literals at the top of a module that can only change by its text, by name."""
    tree = ast.parse(text)
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    bound = Counter(one.id for one in names if isinstance(one.ctx, ast.Store))
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
            if isinstance(target, ast.Name) and bound[target.id] == 1 and node.value:
                with contextlib.suppress(ValueError, TypeError):
                    value = ast.literal_eval(node.value)
                    hash(value)  # What is changed in place tells nothing.
                    yield target.id, value


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
