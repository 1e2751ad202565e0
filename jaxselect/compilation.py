"""Compilation: programs kept on disk, options of XLA, products in full precision."""

import contextlib
import functools
import gc
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import jax

from . import checks

CACHE_BYTES = 3 * 2**27
"""Size of JAX's cache; the largest programs of a study take about 4 MiB."""
CACHED_FROM = 0.05
"""Seconds of compilation from which a program is kept; shorter ones are compiled as
fast as they are read."""
ENTRY = re.compile(r".+-[0-9a-f]{64}-cache", re.DOTALL)
"""Name of a program in JAX's cache: its module, then a SHA-256 digest."""

COMPILES = "a first call compiles; the next process reads that from disk"
"""What is said of a call that takes long."""

COMPILE_OPTIONS: dict[str, dict[str, Any]] = {
    "gpu": {"xla_gpu_autotune_level": 0},
    "tpu": {"xla_tpu_enable_deduplicated_calls": "ENABLED"},
}
"""XLA's options for large programs.

A GPU's kernels are not chosen by timing them: digits would depend on it, and a chunk of
trials would compile for minutes more. For a TPU code that occurs twice is written once
and called, which saves two fifths of the code of a chunk of trials."""
FAST_COMPILE_OPTIONS: dict[str, dict[str, Any]] = {
    "cpu": {
        "xla_backend_optimization_level": 0,
        "xla_cpu_use_fusion_emitters": False,
        "xla_llvm_disable_expensive_passes": True,
    },
    "tpu": {"exec_time_optimization_effort": -1.0},
}
"""XLA's options that compile a trial three times faster, and run it four times slower:
measured on a CPU; for a TPU its compiler estimates two and a half times."""


@functools.cache
def keep_compiled_programs(folder: str | Path = ".jax_cache") -> None:
    """Keep compiled programs in a folder, for the next process that needs them.

    Sets JAX's compilation cache for the whole process; call it before the first `jit`.
    Tracing is done again in each process, compiling is not.

    Args:
        folder: folder that holds up to 384 MiB; processes may share it. `~` is the home
            folder.

    Raises:
        BadInput: an empty name, which would be the working folder.

    Example:
        >>> import tempfile
        >>> keep_compiled_programs(tempfile.mkdtemp())
        >>> jax.config.values["jax_compilation_cache_max_size"] == CACHE_BYTES
        True
    """
    checks.folder(folder)
    cache = Path(folder).expanduser()
    jax.config.update("jax_compilation_cache_dir", str(cache))
    jax.config.update("jax_compilation_cache_max_size", CACHE_BYTES)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", CACHED_FROM)
    # JAX writes nothing more to a cache in which a kill left an entry without a time.
    for entry in cache.glob("*-cache"):
        time = entry.with_name(entry.name.removesuffix("-cache") + "-atime")
        ours = ENTRY.fullmatch(entry.name) and not entry.is_symlink()
        if ours and entry.is_file() and not time.exists():
            entry.unlink(missing_ok=True)


@functools.cache
def keep_by_default() -> None:
    """Keep compiled programs in the user's cache, unless JAX keeps them elsewhere.

    The environment variable `JAXSELECT_CACHE` names another folder, or is `off`; an
    empty one counts as unset.
    """
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    folder = os.environ.get("JAXSELECT_CACHE") or f"{home}/jaxselect"
    if folder != "off" and not jax.config.values["jax_compilation_cache_dir"]:
        keep_compiled_programs(folder)


def factorise_on_one_thread() -> None:
    """Give LAPACK one thread, unless `OPENBLAS_NUM_THREADS` says how many.

    JAX calls that of SciPy, which reads the number when it is loaded. Its threads wait
    for work at full speed: with two of them a step of a flow takes twice the processor
    time, and in company three times as long.

    Example:
        >>> factorise_on_one_thread()
        >>> "OPENBLAS_NUM_THREADS" in os.environ
        True
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


@contextlib.contextmanager
def progress(
    what: str = COMPILES, *, after: float = 5.0, every: float = 60.0
) -> Iterator[Callable[[str], Any]]:
    """Show on the error stream how far a call is that takes long.

    On a terminal that is one line, rewritten each second and removed at the end; else
    a line now, and one each minute.

    Args:
        what: what is shown first.
        after: seconds until the first line.
        every: seconds between the lines where there is no terminal.

    Yields:
        A function that takes what is to be shown from then on.

    Example:
        >>> with progress() as say:
        ...     say("log t = 10")
    """
    begun, said, done = time.monotonic(), [what], threading.Event()
    stream = sys.stderr
    alive = stream.isatty()
    begin, end = ("\r\x1b[K", "") if alive else ("", "\n")

    def show() -> None:
        pause = after
        while not done.wait(pause):
            text = f"jaxselect, {time.monotonic() - begun:.0f} s: {said[-1]}"
            print(f"{begin}{text}", end=end, file=stream, flush=True)
            pause = 1.0 if alive else every

    thread = threading.Thread(target=show, daemon=True)
    thread.start()
    try:
        yield said.append
    finally:
        done.set()
        thread.join()
        if alive and time.monotonic() - begun >= after:
            print(begin, end="", file=stream, flush=True)


@contextlib.contextmanager
def _collector_paused() -> Iterator[None]:
    """A trace makes a million objects that are no garbage: look through none."""
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()


@functools.cache
def compile_options(fast: bool = False) -> dict[str, Any]:
    """List options of `jax.jit` for a large program.

    `jax.jit(jax.value_and_grad(f), compiler_options=compile_options(fast=True))`
    computes the first gradient of a rate in five eighths of the time and later ones in
    3.5 times the time.

    Args:
        fast: whether it takes longer to compile than to run.

    Returns:
        The options in `COMPILE_OPTIONS`, and `FAST_COMPILE_OPTIONS`, that XLA knows.

    Example:
        >>> jax.jit(lambda x: 2 * x, compiler_options=compile_options())(3.0).item()
        6.0
    """
    kind = jax.default_backend()
    options = COMPILE_OPTIONS.get(kind, {})
    if fast:
        options = options | FAST_COMPILE_OPTIONS.get(kind, {})
    if _known(options):
        return options
    return {name: value for name, value in options.items() if _known({name: value})}


def _known(options: dict[str, Any]) -> bool:
    """Whether the installed XLA accepts these options."""
    try:
        jax.jit(lambda: 0, compiler_options=options).lower().compile()
    except jax.errors.JaxRuntimeError:
        return False
    return True


def is_traced(arguments: Any) -> bool:
    """Whether arguments are part of a larger program.

    Example:
        >>> is_traced(1.0), jax.jit(lambda x: x if is_traced(x) else -x)(1.0).item()
        (False, 1.0)
    """
    # Within a program what is put on a device is traced, be its inputs or not.
    leaves = jax.tree.leaves((arguments, jax.device_put(0.0)))
    return any(isinstance(leaf, jax.core.Tracer) for leaf in leaves)


# Share of its pieces of memory that a process may fill. Chosen: the largest programs
# take a tenth.
_FULL = 0.75
# Seconds that a call takes at least if it compiles a large program.
_COMPILES_FOR = 0.1


def make_room_for_programs() -> None:
    """Drop all compiled programs where a few more would end the process.

    A program lies in hundreds of pieces of memory. Linux gives a process 65,530, enough
    for `solve` of forty small shapes or a dozen large ones; then the compiler ends it.
    What is dropped is read from the cache, or compiled again, when it is called.
    """
    if is_full():
        jax.clear_caches()
        gc.collect()


def is_full() -> bool:
    """Whether three quarters of the pieces of memory of this process are taken."""
    pieces, most = Path("/proc/self/maps"), Path("/proc/sys/vm/max_map_count")
    if not pieces.exists() or not most.exists():
        return False
    return pieces.read_bytes().count(b"\n") > _FULL * int(most.read_text())


_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def compiled_alone(
    function: Callable[_Arguments, _Result],
    *,
    static: tuple[str, ...] = (),
    silent: bool = False,
    long: Callable[_Arguments, bool] | None = None,
) -> Callable[_Arguments, _Result]:
    """Compile a function with fast options and the cache on disk, as `jax.jit` does.

    Under an outer trace it is inlined.

    Args:
        function: of arrays.
        static: names of arguments that are no arrays, passed by name.
        silent: whether the caller says that it takes long, by `progress`.
        long: whether it runs for longer, of such arguments, than it compiles with all
            optimisations; never by default.

    Returns:
        The same function.

    Example:
        >>> power = compiled_alone(lambda x, *, n: x**n, static=("n",))
        >>> power(3.0, n=2).item(), jax.grad(power)(3.0, n=2).item()
        (9.0, 6.0)
    """
    inside = jax.jit(function, static_argnames=static, inline=True)

    @functools.cache
    def alone(fast: bool) -> Callable[_Arguments, _Result]:
        keep_by_default()
        factorise_on_one_thread()
        options = compile_options(fast)
        return jax.jit(function, static_argnames=static, compiler_options=options)

    @functools.wraps(function)
    def call(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        if is_traced((args, kwargs)):
            return inside(*args, **kwargs)
        shown: Any = contextlib.nullcontext() if silent else progress()
        with shown, _collector_paused():
            fast, begun = long is None or not long(*args, **kwargs), time.monotonic()
            found = alone(fast)(*args, **kwargs)
        if time.monotonic() - begun > _COMPILES_FOR:
            make_room_for_programs()
        return found

    return call


def full_precision(
    function: Callable[_Arguments, _Result],
) -> Callable[_Arguments, _Result]:
    """Trace a function with matrix products in full precision.

    Accelerators round the operands of float32 products to TF32 or bfloat16 by default.
    A certificate computed so would be wrong without notice; in bfloat16 a flow takes
    fifteen times as many steps and has five times the error. Custom derivative rules
    are traced separately and must be wrapped, too.

    Args:
        function: any.

    Returns:
        The same function, its products at "highest" precision.

    Example:
        >>> import jax.numpy as jnp
        >>> square = full_precision(lambda x: x @ x)
        >>> "HIGHEST" in str(jax.make_jaxpr(square)(jnp.eye(2)))
        True
    """

    @functools.wraps(function)
    def protected(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        with jax.default_matmul_precision("highest"):
            return function(*args, **kwargs)

    return protected
