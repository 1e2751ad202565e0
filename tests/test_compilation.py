"""Where compiled programs are kept, and what is said while one is compiled."""

import gc
import os
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from jaxselect import compilation
from jaxselect.compilation import compiled_alone, keep_compiled_programs
from jaxselect.flow.control import FlowSettings
from tests.processes import printed

KEPT = """
import jax
from jaxselect.compilation import compiled_alone
compiled_alone(lambda x: x)(1.0)
print(jax.config.values["jax_compilation_cache_dir"])
"""
FACTORISES = """
import jax.numpy as jnp
import threadpoolctl
from jaxselect.compilation import compiled_alone
compiled_alone(jnp.linalg.cholesky)(jnp.eye(2))
found = threadpoolctl.threadpool_info()
print([one["num_threads"] for one in found if "scipy.libs" in one["filepath"]])
"""
NAMES = ("JAXSELECT_CACHE", "JAX_COMPILATION_CACHE_DIR", "XDG_CACHE_HOME")
CASES = {
    "in the user's cache": ({"XDG_CACHE_HOME": "/cache"}, "/cache/jaxselect"),
    "nowhere, if refused": ({"JAXSELECT_CACHE": "off"}, "None"),
    "where an empty name counts as none": (
        {"HOME": "/h", **dict.fromkeys(NAMES, "")},
        "/h/.cache/jaxselect",
    ),
}


def test_a_program_alone_is_traced_once_for_equal_settings(monkeypatch):
    """And compiled as suits one call."""
    traced, asked = [], []
    usual = compilation.compile_options

    def options(fast):
        asked.append(fast)
        return usual(fast)

    monkeypatch.setattr(compilation, "compile_options", options)

    @partial(compiled_alone, static=("settings",))
    def double(x, *, settings):
        traced.append(settings)
        return 2 * x

    for x in (1.0, 2.0):
        assert double(x, settings=FlowSettings(1e-5)) == 2 * x
    assert len(traced) == 1 and asked == [True]
    assert jax.vmap(partial(double, settings=FlowSettings(1e-5)))(jnp.ones(2))[1] == 2
    assert len(traced) == 2
    gradient = jax.grad(lambda x: double(x=x, settings=FlowSettings(1e-6)))(1.0)
    assert gradient == 2 and isinstance(traced[-1], FlowSettings)
    # Also a part of a program that hands it no input of its own.
    fixed = jnp.ones(())
    within = jax.jit(lambda x: x + double(fixed, settings=FlowSettings(1e-5)))
    assert within(1.0) == 3 and len(asked) == 1


def test_a_program_alone_factorises_on_one_thread():
    bare = {name: value for name, value in os.environ.items() if "THREADS" not in name}
    assert printed(FACTORISES, env=bare) == "[1]"


@pytest.mark.parametrize("running", [True, False])
def test_the_collector_rests_while_a_program_is_traced(running, monkeypatch):
    monkeypatch.setattr(gc, "isenabled", lambda: running)
    called = []
    for name in ("disable", "enable"):
        monkeypatch.setattr(gc, name, partial(called.append, name))

    @compiled_alone
    def refuse(x):
        called.append("traced")
        raise ValueError

    with pytest.raises(ValueError):
        refuse(1.0)
    assert called == ["disable", "traced", "enable"][: 2 + running]


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="of Linux alone")
def test_programs_are_dropped_before_they_fill_the_process(monkeypatch):
    """And not sooner; nor for a call that is too short to have compiled any."""
    traced = []
    double = compiled_alone(lambda x: [2 * x, traced.append(x)][0])
    room = {"_FULL": 0.0, "_COMPILES_FOR": 0.0}
    for changed, wanted in (([], 1), (["_FULL"], 1), (["_COMPILES_FOR"], 1), (room, 2)):
        with monkeypatch.context() as patch:
            for name in changed:
                patch.setattr(compilation, name, room[name])
            assert double(1.0) == 2.0
        assert double(1.0) == 2.0 and len(traced) == wanted, changed


@pytest.mark.parametrize("case", CASES)
def test_programs_are_kept(case):
    given, wanted = CASES[case]
    bare = {name: value for name, value in os.environ.items() if name not in NAMES}
    assert printed(KEPT, env=bare | given) == wanted


def test_only_programs_that_a_kill_left_without_a_time_are_removed(
    tmp_path, monkeypatch
):
    """Whatever else ends in -cache is a person's: a file, a link, a folder."""
    monkeypatch.setattr(jax.config, "update", lambda name, value: None)
    whole, half, link, folder = (f"jit_f-{digit * 64}" for digit in "0123")
    others = ("important-cache", f"jit_f-{'4' * 63}-cache", f"jit_f-{'x' * 64}-cache")
    for name in (*others, f"{whole}-cache", f"{whole}-atime", f"{half}-cache"):
        (tmp_path / name).touch()
    (tmp_path / f"{link}-cache").symlink_to(tmp_path / "important-cache")
    (tmp_path / f"{folder}-cache").mkdir()
    before = {*tmp_path.iterdir()}
    keep_compiled_programs.__wrapped__(tmp_path)
    assert before - {*tmp_path.iterdir()} == {tmp_path / f"{half}-cache"}


def test_names_of_programs_are_those_that_jax_gives(tmp_path):
    keep = f"""
import jax, jax.numpy as jnp
from jaxselect import compilation
compilation.CACHED_FROM = 0.0
compilation.keep_compiled_programs({str(tmp_path)!r})
jax.jit(jnp.sin)(1.0)
"""
    names = ("JAX_COMPILATION_CACHE_DIR", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS")
    bare = {name: value for name, value in os.environ.items() if name not in names}
    printed(keep, env=bare)
    kept = [path.name for path in tmp_path.glob("*-cache")]
    assert kept and all(map(compilation.ENTRY.fullmatch, kept))
