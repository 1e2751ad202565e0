"""Compiled programs kept between processes, found by what they are made from.

JAX's own cache is asked with a program in hand, and to trace and lower a program takes
longer than to read it. Here the key is a digest of everything that decides it: sources,
packages, flags, machine, settings, kinds of the arguments. On accelerators, where what
a program calls from outside would have to be there first, JAX's cache serves alone.
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
from jaxselect.files import replacing

BYTES = 2**27
"""Size of the folder; one program takes about 1 MiB."""
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
        seconds: that reading it took, or tracing, lowering and compiling it.
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
            of arrays; of this checkout, and not made inside a function.
        settings: numbers, names, and frozen dataclasses and tuples of them. They and
            the arguments' kinds must be all that `build` depends on.
        arguments: of the program, on one device.

    Returns:
        The program.

    Example:
        >>> from equinox import Module
        >>> class Power(Module):
        ...     value: jax.Array
        >>> def build(exponent):
        ...     return jax.jit(lambda x: Power(x**exponent))
        >>> x = jax.numpy.asarray(3.0)
        >>> ready(build, (2,), [x]).run(x).value.item()
        9.0
    """
    name = key(build, settings, arguments)
    if name not in _HELD:
        path = _place(arguments, name)
        _HELD[name] = _read(path, arguments) or _compile(
            build(*settings), arguments, path
        )
    return _HELD[name]


_HELD: dict[str, Program] = {}


def key(
    build: Callable[..., Any], settings: tuple, arguments: Sequence[jax.Array]
) -> str:
    """The digest of all that decides a program; see `ready`."""
    parts = {
        "build": f"{build.__module__}.{build.__qualname__}",
        "settings": repr(settings),
        "arguments": [
            f"{array.dtype} {array.shape} {array.weak_type} {array.sharding}"
            for array in arguments
        ],
        "sources": _sources((*SOURCES, Path(build.__code__.co_filename))),
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


def _place(arguments: Sequence[jax.Array], name: str) -> Path | None:
    """The program's file, beside JAX's cache; none where nothing is kept."""
    cache = jax.config.values["jax_compilation_cache_dir"]
    kept = cache and jax.config.values["jax_enable_compilation_cache"]
    here = all(d.platform == "cpu" for array in arguments for d in array.devices())
    if not kept or not here or "://" in cache:
        return None
    return Path(cache) / "programs" / f"{name}.program"


def _read(path: Path | None, arguments: Sequence[jax.Array]) -> Program | None:
    """The program in a file that is whole, our own, and this very program's."""
    if path is None:
        return None
    begin = time.perf_counter()
    try:
        if not all(map(_ours, (path.parent, path))):
            return None
        data = path.read_bytes()
        seal, body = data[:32], data[32:]
        # What is read below may run any code, and a damaged one end the process.
        if seal != _seal(path, body):
            return None
        os.utime(path)
    except OSError:
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


def _compile(
    function: Any, arguments: Sequence[jax.Array], path: Path | None
) -> Program:
    """The program compiled, and kept if it can be."""
    begin = time.perf_counter()
    lowered = function.lower(*arguments)
    names = list(vars(lowered.out_info))
    with contextlib.nullcontext() if path is None else _anew():
        compiled = lowered.compile()
    seconds = time.perf_counter() - begin
    if path is not None:
        _write(path, names, compiled)
    return Program(_naming(names, compiled), False, seconds)


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


def _write(path: Path, names: list[str], compiled: Any) -> None:
    try:
        executable = serialize_executable.serialize(compiled)[0]
    except Exception:  # One that calls back to Python, say, has no life of its own.
        return
    body = zlib.compress(json.dumps(names).encode() + b"\n" + executable, 1)
    # A full disk costs the next process its time, not this one its results.
    with contextlib.suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with replacing(path) as aside:
            aside.touch(mode=0o600)
            aside.write_bytes(_seal(path, body) + body)
        _bound(path.parent)


def _bound(folder: Path) -> None:
    """Remove what was used longest ago, until the rest fits."""
    found = []
    for path in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.append((path.stat().st_mtime, path.stat().st_size, path))
    total = 0
    for _, size, path in sorted(found, reverse=True):
        total += size
        if total > BYTES:
            path.unlink(missing_ok=True)


def _seal(path: Path, body: bytes) -> bytes:
    """Of a program under its own name: another's file is as foreign as a damaged."""
    return hashlib.sha256(path.stem.encode() + body).digest()


def _ours(path: Path) -> bool:
    """Whether nobody else can have written there."""
    status = path.stat()
    return status.st_uid == os.getuid() and not status.st_mode & 0o022


@functools.cache
def _offer_lapack() -> None:
    """Have JAX tell XLA where LAPACK is, as it does when it lowers a call of it.

    A program that calls what XLA does not know ends the process.
    """
    jax.jit(jax.lax.linalg.cholesky).lower(jax.ShapeDtypeStruct((1, 1), "float32"))
