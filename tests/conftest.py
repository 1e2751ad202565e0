"""Strict settings for every test: float64, no silent promotion, threads that behave."""

import ctypes
import gc
import os
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

# Before anything imports NumPy: OpenBLAS reads it once. Programs compiled once serve
# the next run, and the processes that tests start.
for _name, _value in {
    "OPENBLAS_NUM_THREADS": "1",
    "JAX_COMPILATION_CACHE_DIR": str(Path(__file__).parents[1] / ".jax_cache"),
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.05",
}.items():
    os.environ.setdefault(_name, _value)
# The suite compiles far more than it computes: optimising would cost four times more
# than it gains. XLA aborts on flags it does not know, so only where these were seen.
_FAST_TO_COMPILE = (
    "--xla_backend_optimization_level=0 --xla_cpu_parallel_codegen_split_count=1 "
)
_FLAGS = {
    "0.10": _FAST_TO_COMPILE + "--xla_cpu_use_fusion_emitters=false",
    "0.12": _FAST_TO_COMPILE,
}
if (_release := ".".join(version("jaxlib").split(".")[:2])) in _FLAGS:
    os.environ.setdefault("XLA_FLAGS", _FLAGS[_release])

import hypothesis  # noqa: E402
import jax  # noqa: E402
import matplotlib  # noqa: E402
import pytest  # noqa: E402

from tests.type_checks import next_test  # noqa: E402

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")
# Two programs in a thousand are compiled twice: to keep all of them costs a seventh of
# the time of compiling. Processes that tests start keep theirs.
jax.config.update("jax_enable_compilation_cache", False)
matplotlib.use("Agg")

# Compiling is slow and bursty: a deadline per example would only measure that.
hypothesis.settings.register_profile(
    "jaxselect", deadline=None, max_examples=25, derandomize=True, database=None
)
hypothesis.settings.load_profile("jaxselect")

# Tracing makes millions of small objects that are no garbage: at Python's own pace
# looking through them takes a quarter of the time of tracing.
gc.set_threshold(50_000, 20, 50)


@pytest.fixture(autouse=True)
def types_are_checked_in_every_test() -> None:
    """A function's first calls in this test are checked, whatever others called."""
    next_test()


# Folders of tests of what draws: there a key that is used twice is an error. To look
# for one makes each call of a compiled function six times as long.
_DRAWING = {"data", "experiments", "model", "networks", "text", "trial"}


@pytest.fixture(autouse=True, scope="module")
def keys_are_used_once(request: pytest.FixtureRequest) -> Iterator[None]:
    """No key is used twice, where keys are drawn from."""
    with jax.debug_key_reuse(request.path.parent.name in _DRAWING):
        yield


# Two workers of so many bytes fit into 8 GiB.
_BYTES = 2.5 * 2**30


@pytest.fixture(autouse=True, scope="module")
def compiled_programs_are_no_garbage() -> Iterator[None]:
    """Traced functions of a module stay cached, until there are too many: collecting
    garbage among them again and again would take a quarter of the suite's time."""
    yield
    # Not sooner: the library's own types are checked from its import on.
    from jaxselect.compilation import is_full

    own = Path("/proc/self/statm")
    if own.exists():
        pages = int(own.read_text().split()[1])
        if is_full() or pages * os.sysconf("SC_PAGE_SIZE") > _BYTES:
            jax.clear_caches()
            gc.unfreeze()
    gc.collect()
    gc.freeze()
    library = ctypes.CDLL(None)
    if hasattr(library, "malloc_trim"):
        # The GNU library keeps what was freed.
        library.malloc_trim(0)


def pytest_unconfigure(config: pytest.Config) -> None:
    """A worker that has reported its results ends at once: to take its programs apart,
    one by one, took longer than pytest-xdist waits for it."""
    if hasattr(config, "workerinput"):
        os._exit(0)
