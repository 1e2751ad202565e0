"""Traced programs kept between processes, found by what they are made from.

JAX's compilation cache is asked with a program in hand, and to trace a trial takes
longer than to read it. Kept here is the program as `jax.export` writes it; the key is a
digest of everything that decides it: sources, packages, flags, settings, kinds of the
arguments. The executable that XLA makes of it is in JAX's cache.
"""

import contextlib
import functools
import hashlib
import inspect
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
from filelock import FileLock
from jax import export

from experiments.common.devices import ROOT
from jaxselect.files import replacing

SOURCES = (ROOT / "jaxselect", ROOT / "experiments" / "common")
"""Where an edit may change a program, beside the file that builds it."""
STEERING = ("EQX", "JAX", "XLA")
"""How variables of the environment begin that may change one."""
KEPT = 100
"""Programs on disk, those used last; one of a trial takes 300 kB."""
# JAX promises nothing of these between versions; the key names the version.
UNPROMISED = [
    export.DisabledSafetyCheck.custom_call(f"lapack_{kind}ormqr_ffi") for kind in "ds"
]


class Program(NamedTuple):
    """A compiled program.

    Attributes:
        run: from arrays, as many and of such kinds as it was compiled for, to a record
            of arrays.
        found: read, and not traced.
        seconds: that it took to be ready.
    """

    run: Callable[..., SimpleNamespace]
    found: bool
    seconds: float


def ready(
    build: Callable[..., Callable[..., Any]],
    settings: tuple,
    arguments: Sequence[jax.Array],
    *,
    options: dict[str, Any],
    known: bool = True,
) -> Program:
    """The program of some settings, from this process, from disk, or traced now.

    Args:
        build: from the settings to a function of arrays that returns a record of
            arrays; of this checkout, and not made inside a function.
        settings: numbers, names, and frozen dataclasses and tuples of them. They and
            the arguments' kinds must be all that `build` depends on.
        arguments: of the program.
        options: of XLA.
        known: that the settings are; else the program is traced in every process.

    Example:
        >>> from equinox import Module
        >>> class Power(Module):
        ...     value: jax.Array
        >>> def build(exponent):
        ...     return lambda x: Power(x**exponent)
        >>> x = jax.numpy.asarray(3.0)
        >>> ready(build, (2,), [x], options={}).run(x).value.item()
        9.0
    """
    name = key(build, settings, arguments)
    held = f"{name} {options}"
    if held not in _HELD:
        begin = time.perf_counter()
        place = arguments[0].sharding
        # Arrays that are sharded over devices stay sharded.
        cut = place if isinstance(place, jax.sharding.NamedSharding) else None
        folder = _folder(arguments) if known and cut is None else None
        # Of workers that start side by side one compiles, and the others read.
        with _alone(folder):
            traced = _read(folder / name) if folder else None
            function = traced.call if traced else _fields_of(build(*settings))
            jitted = jax.jit(function, compiler_options=options, out_shardings=cut)
            if folder and not traced:
                jitted = _kept(jitted, arguments, folder / name, options)
            compiled = jitted.lower(*arguments).compile()
        seconds = time.perf_counter() - begin

        def run(*values: jax.Array) -> SimpleNamespace:
            return SimpleNamespace(**compiled(*values))

        _HELD[held] = Program(run, traced is not None, seconds)
    return _HELD[held]


_HELD: dict[str, Program] = {}


def _alone(folder: Path | None) -> contextlib.AbstractContextManager:
    """A lock that one process at a time holds; it goes with a process that dies."""
    if folder is None:
        return contextlib.nullcontext()
    with contextlib.suppress(OSError):
        folder.parent.mkdir(parents=True, exist_ok=True)
        return FileLock(folder.with_suffix(".lock"))
    return contextlib.nullcontext()


def _fields_of(function: Callable[..., Any]) -> Callable[..., dict[str, jax.Array]]:
    """The record that a function returns, by name: its class need not be loaded."""
    return lambda *arguments: dict(vars(function(*arguments)))


def key(
    build: Callable[..., Any], settings: tuple, arguments: Sequence[jax.Array]
) -> str:
    """The digest of all that decides a traced program; see `ready`."""
    decides = {
        "build": f"{build.__module__}.{build.__qualname__}",
        "settings": repr(settings),
        "sources": _sources((*SOURCES, Path(inspect.getfile(inspect.unwrap(build))))),
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
        "devices": [device.device_kind for device in jax.devices()],
    }
    return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()


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


def _folder(arguments: Sequence[jax.Array]) -> Path | None:
    """Beside JAX's cache; none where nothing is kept, or several devices take part."""
    cache = jax.config.values["jax_compilation_cache_dir"]
    kept = cache and jax.config.values["jax_enable_compilation_cache"]
    devices = {device for array in arguments for device in array.devices()}
    here = [device.platform for device in devices] == ["cpu"]
    return Path(cache) / "traced" if kept and here and "://" not in cache else None


def _kept(
    jitted: Any, arguments: Sequence[jax.Array], path: Path, options: dict[str, Any]
) -> Any:
    """The same as it will be read; as it is where it cannot be written."""
    try:
        traced = export.export(jitted, disabled_checks=UNPROMISED)(*arguments)
        body = bytes(traced.serialize())
    except (ValueError, NotImplementedError):  # It calls back to Python, say.
        return jitted
    # A full disk costs the next process its time, not this one its results.
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as aside:
            aside.write_bytes(_seal(path, body) + body)
        for old in sorted(path.parent.iterdir(), key=_used)[:-KEPT]:
            old.unlink(missing_ok=True)
    return jax.jit(traced.call, compiler_options=options)


def _used(path: Path) -> float:
    with contextlib.suppress(OSError):
        return path.stat().st_mtime
    return 0.0


def _read(path: Path) -> export.Exported | None:
    """The program of a file, if it is there and whole."""
    try:
        data = path.read_bytes()
        os.utime(path)
    except OSError:
        return None
    seal, body = data[:32], data[32:]
    if seal != _seal(path, body):
        return None
    # Older JAX registers LAPACK with XLA when it first lowers a call to it; a
    # program that calls a function unknown to XLA ends the process.
    jax.jit(jax.lax.linalg.cholesky).lower(jax.ShapeDtypeStruct((1, 1), "float32"))
    return export.deserialize(bytearray(body))


def _seal(path: Path, body: bytes) -> bytes:
    """The digest before a program: a damaged or renamed file has another."""
    return hashlib.sha256(path.name.encode() + body).digest()
