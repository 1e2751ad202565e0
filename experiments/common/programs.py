"""Compiled programs kept between processes, found by what they are made from.

JAX's own cache is asked with a program in hand, and to trace and lower a program takes
longer than to read it. Here the key is a digest of everything that decides it: sources,
packages, flags, machine, settings, kinds of the arguments. It leads to the lowered
text, whose own digest leads to the executable: an edit that changes no program costs
its tracing alone. On accelerators, where what a program calls from outside would have
to be there first, JAX's cache serves.

A program may come in parts, each fed by the one before it: XLA compiles most of a
program on one core, and two parts on two.
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
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeAlias

import jax
from jax.experimental import serialize_executable
from jax.experimental.compilation_cache import compilation_cache

from experiments.common.devices import ROOT, cores
from experiments.common.sealed import load, save

SOURCES = (ROOT / "jaxselect", ROOT / "experiments" / "common")
"""Where an edit may change a program, beside the file that builds it."""
STEERING = ("EQX", "JAX", "NPROC", "PJRT", "XLA")
"""How variables of the environment begin that may change one."""


Parts: TypeAlias = Sequence[tuple[Any, dict[str, Any]]]
"""Jitted functions, each with the compiler's options for it."""


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
    build: Callable[..., Any],
    settings: tuple,
    arguments: Sequence[jax.Array],
    *,
    known: bool = True,
) -> Program:
    """The program of some settings, from this process, from disk, or compiled now.

    Args:
        build: from the settings to the parts of the program, each with the compiler's
            options for it; of this checkout, and not made inside a function. Parts are
            jitted functions: the first of the arguments, each other of what the one
            before it returns, a tuple; the last returns a record of arrays. Where
            arguments are cut over devices, so is all that goes from part to part.
        settings: numbers, names, and frozen dataclasses and tuples of them. They and
            the arguments' kinds must be all that `build` depends on.
        arguments: of the program.
        known: that they are; else the program is traced in every process, and found by
            its lowered text alone.

    Returns:
        The program.

    Example:
        >>> from equinox import Module
        >>> class Power(Module):
        ...     value: jax.Array
        >>> def build(exponent):
        ...     return [(jax.jit(lambda x: Power(x**exponent)), {})]
        >>> x = jax.numpy.asarray(3.0)
        >>> ready(build, (2,), [x]).run(x).value.item()
        9.0
    """
    name = key(build, settings, arguments)
    if name not in _HELD:
        folder = _folder(arguments)
        program = _found(folder, name, arguments) if known else None
        if program is None:
            program = _made(build(*settings), arguments, folder, name)
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


class _Part(NamedTuple):
    """A compiled part, the names of the leaves of its result, and where it is kept."""

    compiled: Any
    names: list[str]
    found: bool
    text: str | None = None


def _program(parts: list[_Part], begin: float) -> Program:
    """Parts in turn; the result in a record, whose class need not be loaded."""

    def run(*arguments: jax.Array) -> SimpleNamespace:
        leaves: Sequence[jax.Array] = arguments
        for part in parts:
            given, _ = jax.tree.unflatten(part.compiled.in_tree, leaves)
            leaves = jax.tree.leaves(part.compiled(*given))
        return SimpleNamespace(**dict(zip(parts[-1].names, leaves, strict=True)))

    found = all(part.found for part in parts)
    return Program(run, found, time.perf_counter() - begin)


def _found(
    folder: Path | None, name: str, arguments: Sequence[jax.Array]
) -> Program | None:
    begin = time.perf_counter()
    texts = folder and load(folder, name)
    if not (folder and texts):
        return None
    parts = [_read(folder, text, arguments) for text in texts.decode().split()]
    whole = [part for part in parts if part is not None]
    return _program(whole, begin) if len(whole) == len(parts) else None


def lowered(
    parts: Parts, arguments: Sequence[jax.Array | jax.ShapeDtypeStruct]
) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Each part of a program, lowered, with its compiler's options.

    Args:
        parts: of `ready`.
        arguments: of the first.

    Yields:
        One part after the other: what comes first can be compiled meanwhile.

    Example:
        >>> parts = [(jax.jit(lambda x: (2 * x, x)), {}), (jax.jit(lambda x, y: x), {})]
        >>> [one.in_tree.num_leaves for one, _ in lowered(parts, [jax.numpy.ones(1)])]
        [1, 2]
    """
    kinds: Any = arguments
    place = arguments[0].sharding
    cut = isinstance(place, jax.sharding.NamedSharding)
    for function, options in parts:
        sent = jax.jit(function, out_shardings=place) if cut else function
        low = sent.lower(*kinds)
        yield low, options
        kinds = jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=place),
            low.out_info,
        )


def _made(
    functions: Parts, arguments: Sequence[jax.Array], folder: Path | None, name: str
) -> Program:
    """The program of lowered texts, read or compiled; kept, if it can be."""
    begin = time.perf_counter()
    with _anew() if folder else contextlib.nullcontext(), ThreadPoolExecutor() as pool:
        coming = [
            pool.submit(_part, low, options, arguments, folder)
            for low, options in lowered(functions, arguments)
        ]
        parts = [part.result() for part in coming]
    texts = [part.text for part in parts if part.text]
    if folder and len(texts) == len(parts):
        save(folder, name, " ".join(texts).encode())
    return _program(parts, begin)


def _part(
    lowered: Any,
    options: dict[str, Any],
    arguments: Sequence[jax.Array],
    folder: Path | None,
) -> _Part:
    """A lowered part, read or compiled and kept."""
    leaves = jax.tree_util.tree_leaves_with_path(lowered.out_info)
    names = [jax.tree_util.keystr(path).removeprefix(".") for path, _ in leaves]
    if folder is None:
        return _Part(lowered.compile(options), names, found=False)
    text = _digest(arguments, text=lowered.as_text(), names=names, options=options)
    part = _read(folder, text, arguments)
    if part is None:
        compiled = lowered.compile(options)
        kept = _write(folder, text, names, compiled)
        part = _Part(compiled, names, found=False, text=text if kept else None)
    return part


def _read(folder: Path, text: str, arguments: Sequence[jax.Array]) -> _Part | None:
    # What is read here may run any code, and a damaged one end the process.
    body = load(folder, text)
    if body is None:
        return None
    head, _, executable = zlib.decompress(body).partition(b"\n")
    number, names = json.loads(head)
    _offer_lapack()
    try:
        compiled = serialize_executable.deserialize_and_load(
            executable,
            jax.tree.structure((tuple(range(number)), {})),
            jax.tree.structure(tuple(names)),
            execution_devices=list(arguments[0].devices()),
        )
    except Exception:  # Whatever keeps it from being loaded, it can be compiled.
        return None
    return _Part(compiled, names, found=True, text=text)


def _write(folder: Path, text: str, names: list[str], compiled: Any) -> bool:
    """Keep an executable, unless it cannot live alone: it calls back to Python, say."""
    try:
        executable = serialize_executable.serialize(compiled)[0]
    except Exception:
        return False
    head = json.dumps([compiled.in_tree.num_leaves, names]).encode()
    save(folder, text, zlib.compress(head + b"\n" + executable, 1))
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


@functools.cache
def _offer_lapack() -> None:
    """Have JAX tell XLA where LAPACK is, as it does when it lowers a call of it.

    A program that calls what XLA does not know ends the process.
    """
    jax.jit(jax.lax.linalg.cholesky).lower(jax.ShapeDtypeStruct((1, 1), "float32"))
