"""Compiled programs kept between processes, found by what they are made from.

JAX's own cache is asked with a program in hand, and to trace and lower a program takes
longer than to read it. Here the key is a digest of everything that decides it: sources,
packages, flags, machine, settings, kinds of the arguments. It leads to the lowered
text, whose own digest leads to the executable: an edit that changes no program costs
its tracing alone. On accelerators, where what a program calls from outside would have
to be there first, JAX's cache serves.
"""

import contextlib
import functools
import hashlib
import json
import os
import platform
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
from jax.experimental import serialize_executable
from jax.experimental.compilation_cache import compilation_cache

from experiments.common.devices import ROOT, cores
from experiments.common.sealed import load, save

SOURCES = (ROOT / "jaxselect", ROOT / "experiments" / "common")
"""Where an edit may change a program, beside the file that builds it."""
STEERING = ("EQX", "JAX", "NPROC", "PJRT", "XLA")
"""How variables of the environment begin that may change one."""


class Program(NamedTuple):
    """A compiled program.

    Attributes:
        run: from arrays, as many and of such kinds as it was compiled for, to a record
            of arrays.
        found: read, and not compiled.
        seconds: that it took to be ready.
    """

    run: Callable[..., SimpleNamespace]
    found: bool
    seconds: float


def ready(
    build: Callable[..., Any], settings: tuple, arguments: Sequence[jax.Array]
) -> Program:
    """The program of some settings, from this process, from disk, or compiled now.

    Args:
        build: from the settings to a jitted function of arrays, which returns a record
            of arrays, and the compiler's options for it; of this checkout, and not made
            inside a function.
        settings: numbers, names, and frozen dataclasses and tuples of them. They and
            the arguments' kinds must be all that `build` depends on.
        arguments: of the program.

    Returns:
        The program.

    Example:
        >>> from equinox import Module
        >>> class Power(Module):
        ...     value: jax.Array
        >>> def build(exponent):
        ...     return jax.jit(lambda x: Power(x**exponent)), {}
        >>> x = jax.numpy.asarray(3.0)
        >>> ready(build, (2,), [x]).run(x).value.item()
        9.0
    """
    name = key(build, settings, arguments)
    if name not in _HELD:
        folder = _folder(arguments)
        program = _found(folder, name, arguments)
        if program is None:
            function, options = build(*settings)
            program = _made(function, options, arguments, folder, name)
        _HELD[name] = program
    return _HELD[name]


_HELD: dict[str, Program] = {}


def key(
    build: Callable[..., Any], settings: tuple, arguments: Sequence[jax.Array]
) -> str:
    """The digest of all that decides a program; see `ready`."""
    return _digest(
        arguments,
        build=f"{build.__module__}.{build.__qualname__}",
        settings=repr(settings),
        sources=_sources((*SOURCES, Path(build.__code__.co_filename))),
    )


def _digest(arguments: Sequence[jax.Array], **parts: Any) -> str:
    """Of some parts, and of what decides about any program here and now."""
    parts |= {
        "arguments": [
            f"{array.dtype} {array.shape} {array.weak_type} {array.sharding}"
            for array in arguments
        ],
        "packages": _packages(),
        "flags": {name: repr(value) for name, value in jax.config.values.items()},
        "environment": {
            name: value
            for name, value in os.environ.items()
            if name.startswith(STEERING)
        },
        "machine": _machine(),
        "cores": cores(),
        "devices": [device.device_kind for device in jax.devices()],
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


@functools.cache
def _sources(places: tuple[Path, ...]) -> str:
    digest = hashlib.sha256()
    for folder in places:
        for path in [folder] if folder.is_file() else sorted(folder.rglob("*.py")):
            text = path.read_bytes()
            digest.update(f"{path.relative_to(folder)} {len(text)} ".encode() + text)
    return digest.hexdigest()


@functools.cache
def _packages() -> list[str]:
    """Whatever is installed, with versions, as the names of its folders say."""
    kinds = ("*.dist-info", "*.egg-info")
    found = {
        p.name for place in sys.path for kind in kinds for p in Path(place).glob(kind)
    }
    return [sys.version, *sorted(found)]


@functools.cache
def _machine() -> list[str]:
    """What the processor is and can do."""
    told = [*platform.uname()[4:], platform.system()]
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        # One line of each kind: processors of one machine are alike.
        told += sorted(
            {
                line
                for line in lines
                if line.startswith(("model name", "flags", "Features", "CPU part"))
            }
        )
    return told


def _folder(arguments: Sequence[jax.Array]) -> Path | None:
    """Beside JAX's cache; none where nothing is kept, or several devices take part."""
    cache = jax.config.values["jax_compilation_cache_dir"]
    kept = cache and jax.config.values["jax_enable_compilation_cache"]
    devices = {device for array in arguments for device in array.devices()}
    here = [device.platform for device in devices] == ["cpu"]
    return Path(cache) / "programs" if kept and here and "://" not in cache else None


def _found(
    folder: Path | None, name: str, arguments: Sequence[jax.Array]
) -> Program | None:
    text = folder and load(folder, name)
    return _read(folder, text.decode(), arguments) if folder and text else None


def _made(
    function: Any,
    options: dict[str, Any],
    arguments: Sequence[jax.Array],
    folder: Path | None,
    name: str,
) -> Program:
    """The program of a lowered text, read or compiled; kept, if it can be."""
    begin = time.perf_counter()
    lowered = function.lower(*arguments)
    names = list(vars(lowered.out_info))
    if folder is None:
        compiled = lowered.compile(options)
        return Program(_naming(names, compiled), False, time.perf_counter() - begin)
    text = _digest(arguments, text=lowered.as_text(), names=names, options=options)
    program = _read(folder, text, arguments)
    if program is None:
        with _anew():
            compiled = lowered.compile(options)
        program = Program(_naming(names, compiled), False, 0.0)
    program = program._replace(seconds=time.perf_counter() - begin)
    if program.found or _write(folder, text, names, compiled):
        save(folder, name, text.encode())
    return program


def _read(folder: Path, text: str, arguments: Sequence[jax.Array]) -> Program | None:
    begin = time.perf_counter()
    # What is read here may run any code, and a damaged one end the process.
    body = load(folder, text)
    if body is None:
        return None
    head, _, executable = zlib.decompress(body).partition(b"\n")
    names = json.loads(head)
    _offer_lapack()
    try:
        compiled = serialize_executable.deserialize_and_load(
            executable,
            jax.tree.structure((tuple(arguments), {})),
            jax.tree.structure(tuple(names)),
            execution_devices=list(arguments[0].devices()),
        )
    except Exception:  # Whatever keeps it from being loaded, it can be compiled.
        return None
    return Program(_naming(names, compiled), True, time.perf_counter() - begin)


def _write(folder: Path, text: str, names: list[str], compiled: Any) -> bool:
    """Keep an executable, unless it cannot live alone: it calls back to Python, say."""
    try:
        executable = serialize_executable.serialize(compiled)[0]
    except Exception:
        return False
    save(
        folder, text, zlib.compress(json.dumps(names).encode() + b"\n" + executable, 1)
    )
    return True


@contextlib.contextmanager
def _anew() -> Iterator[None]:
    """Compile what JAX's cache may hold: what was read cannot be written again whole.

    XLA for CPU (jaxlib 0.10.2) leaves out fused loops, and says so when it runs.
    """
    jax.config.update("jax_enable_compilation_cache", False)
    compilation_cache.reset_cache()
    try:
        yield
    finally:
        jax.config.update("jax_enable_compilation_cache", True)
        compilation_cache.reset_cache()


def _naming(
    names: list[str], compiled: Callable[..., Any]
) -> Callable[..., SimpleNamespace]:
    """The program with its results in a record, whose class need not be loaded."""

    def run(*arguments: jax.Array) -> SimpleNamespace:
        values = jax.tree.leaves(compiled(*arguments))
        return SimpleNamespace(**dict(zip(names, values, strict=True)))

    return run


@functools.cache
def _offer_lapack() -> None:
    """Have JAX tell XLA where LAPACK is, as it does when it lowers a call of it.

    A program that calls what XLA does not know ends the process.
    """
    jax.jit(jax.lax.linalg.cholesky).lower(jax.ShapeDtypeStruct((1, 1), "float32"))
