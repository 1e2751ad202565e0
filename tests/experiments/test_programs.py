"""A kept program is the one that would be compiled, or it is not taken."""

import os
import random
import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.compilation_cache import compilation_cache

from experiments.common import programs
from jaxselect.sweep.run import lanes_over

ROOT = Path(__file__).parents[2]


class Solved(eqx.Module):
    shift: jax.Array
    factor: jax.Array
    inverse: jax.Array


@dataclass(frozen=True)
class Ridge:
    size: float = 1.0


def build(ridge, power):
    """Not in the order of the alphabet; with routines of LAPACK, and a loop."""

    def solve(matrix, shift):
        gram = matrix @ matrix.T + (ridge.size + shift) * jnp.eye(len(matrix))
        factor = jnp.linalg.cholesky(gram)
        inverse = jax.lax.fori_loop(0, power, lambda _, x: jnp.sin(x), factor)
        return Solved(shift=shift, factor=factor, inverse=inverse)

    return solve


OPTIONS = {"xla_backend_optimization_level": 0}
SETTINGS = Ridge(0.5), 3
ARGUMENTS = jnp.linspace(0.0, 1.0, 16).reshape(4, 4), jnp.asarray(0.1, "float64")


def digits(record):
    return {name: np.asarray(value).tobytes() for name, value in vars(record).items()}


@pytest.fixture
def folder(tmp_path):
    """Where programs are kept, in a process that holds none.

    JAX keeps there what it compiles, however small.
    """
    mine = {
        "jax_enable_compilation_cache": True,
        "jax_compilation_cache_dir": str(tmp_path),
        "jax_persistent_cache_min_compile_time_secs": 0.0,
    }
    before = {name: jax.config.values[name] for name in mine}
    held = dict(programs._HELD)
    for settings in (mine, before):
        for name, value in settings.items():
            jax.config.update(name, value)
        compilation_cache.reset_cache()
        programs._HELD.clear()
        if settings is mine:
            yield tmp_path / "traced"
    programs._HELD.update(held)


def ready(build=build, settings=SETTINGS, arguments=ARGUMENTS, options=OPTIONS):
    return programs.ready(build, settings, arguments, options=options)


def again():
    """The program that a new process would find."""
    programs._HELD.clear()
    return ready()


def test_a_program_read_is_the_program_compiled(folder):
    first, second = again(), again()
    assert (first.found, second.found) == (False, True)
    assert ready() is second
    jitted = jax.jit(build(*SETTINGS), compiler_options=OPTIONS)
    wanted = digits(jitted(*ARGUMENTS))
    assert digits(first.run(*ARGUMENTS)) == digits(second.run(*ARGUMENTS)) == wanted


def test_xla_compiles_a_program_once(folder):
    """Compiled programs are in JAX's own cache, one for each set of options."""
    again()
    compiled = set(folder.parent.glob("*-cache"))
    again()
    assert compiled and set(folder.parent.glob("*-cache")) == compiled
    assert ready(options={}) is not ready()
    assert len(set(folder.parent.glob("*-cache"))) > len(compiled)


def test_what_is_cut_over_devices_stays_cut():
    place = lanes_over(jax.devices()[:1])
    matrix = jax.device_put(ARGUMENTS[0], place)
    program = ready(lambda: lambda x: Ring(value=jnp.full(4, x.sum())), (), (matrix,))
    assert program.run(matrix).value.sharding == place


class Ring(eqx.Module):
    value: jax.Array


def key(settings=SETTINGS, arguments=ARGUMENTS, build=build):
    return programs.key(build, settings, arguments)


def other(settings, power):
    return build(settings, power)


@pytest.mark.parametrize(
    "changed",
    [
        partial(key, (Ridge(0.5), 4)),
        partial(key, (Ridge(np.nextafter(0.5, 1)), 3)),
        partial(key, build=other),
        partial(key, arguments=(ARGUMENTS[0][:3], ARGUMENTS[1])),
        partial(key, arguments=(ARGUMENTS[0], ARGUMENTS[1].astype("float32"))),
        partial(key, arguments=(ARGUMENTS[0], jnp.asarray(1, "int32"))),
        # As many bits, but what is made of it may have others.
        partial(key, arguments=(ARGUMENTS[0], jnp.asarray(0.1))),
    ],
)
def test_another_program_has_another_key(changed):
    assert changed() != key() == key()


@pytest.mark.parametrize(
    ("owner", "name", "value"),
    [
        (programs, "_packages", lambda: ["jax-0.0.dist-info"]),
        (jax, "devices", lambda: [SimpleNamespace(device_kind="abacus")]),
        (os, "environ", os.environ | {"XLA_FLAGS": "--xla_new"}),
        (os, "environ", os.environ | {"EQX_ON_ERROR": "raise"}),
    ],
)
def test_another_surrounding_has_another_key(monkeypatch, owner, name, value):
    before = key()
    monkeypatch.setattr(owner, name, value)
    assert key() != before


@pytest.mark.parametrize("context", ["bfloat16", "highest"])
def test_a_flag_has_another_key_while_it_holds(context):
    with jax.default_matmul_precision("float32"):
        before = key()
        with jax.default_matmul_precision(context):
            assert key() != before
        assert key() == before


def test_precision_has_another_key():
    before = key()
    jax.config.update("jax_enable_x64", False)
    try:
        assert key() != before
    finally:
        jax.config.update("jax_enable_x64", True)


def test_an_edit_anywhere_has_another_key(tmp_path, monkeypatch):
    inner = tmp_path / "wing" / "module.py"
    inner.parent.mkdir()
    texts = "x = 1", "x = 2", "x = 1"
    found = []
    for text in texts:
        inner.write_text(text)
        programs._sources.cache_clear()
        found.append(programs._sources((tmp_path,)))
    inner.rename(tmp_path / "wing" / "renamed.py")
    programs._sources.cache_clear()
    found.append(programs._sources((tmp_path,)))
    programs._sources.cache_clear()
    assert found[0] == found[2]
    assert len(set(found)) == 3
    asked = []
    monkeypatch.setattr(programs, "_sources", asked.extend)
    key()
    assert asked == [
        ROOT / "jaxselect",
        ROOT / "experiments" / "common",
        Path(__file__),
    ]


def half(data):
    return data[: len(data) // 2]


def one_bit(data):
    return data[:-40] + bytes([data[-40] ^ 1]) + data[-39:]


def noise(data):
    return random.Random(0).randbytes(len(data))


@pytest.mark.parametrize("harm", [half, one_bit, noise, lambda data: b""])
def test_what_is_damaged_is_made_anew_and_replaced(folder, harm):
    wanted = digits(again().run(*ARGUMENTS))
    (path,) = folder.iterdir()
    path.write_bytes(harm(path.read_bytes()))
    second, third = again(), again()
    assert (second.found, third.found) == (False, True)
    assert digits(second.run(*ARGUMENTS)) == digits(third.run(*ARGUMENTS)) == wanted


def test_another_programs_file_is_not_taken(folder):
    wanted = digits(again().run(*ARGUMENTS))
    (path,) = folder.iterdir()
    ready(settings=(Ridge(), 3))
    (strange,) = set(folder.iterdir()) - {path}
    strange.replace(path)
    program = again()
    assert not program.found
    assert digits(program.run(*ARGUMENTS)) == wanted


def test_what_was_used_longest_ago_goes_first(folder, monkeypatch):
    monkeypatch.setattr(programs, "KEPT", 2)
    for power in (1, 2, 3):
        ready(settings=(Ridge(), power))
        for place, path in enumerate(sorted(folder.iterdir(), key=programs._used)):
            os.utime(path, (place, place))
    assert len(list(folder.iterdir())) == 2
    programs._HELD.clear()
    found = [ready(settings=(Ridge(), power)).found for power in (3, 2)]
    assert found == [True, True]


def test_no_room_costs_no_result(folder):
    folder.write_text("not a folder")
    assert not again().found


def test_what_calls_back_is_not_kept(folder):
    def build():
        def call(x):
            shape = jax.ShapeDtypeStruct((), x.dtype)
            return Ring(jax.pure_callback(np.sin, shape, x))

        return call

    program = ready(build, (), ARGUMENTS[1:])
    assert not program.found and not folder.exists()
    assert program.run(*ARGUMENTS[1:]).value == np.sin(0.1)


ALONE = """
from experiments.common.devices import configure
configure("float64")
from experiments.common import programs
from tests.experiments import test_programs as t
program = t.ready()
print(program.found, t.digits(program.run(*t.ARGUMENTS)))
"""


def test_processes_share_programs(folder):
    """Two at once that find nothing; then one that finds what either wrote."""
    environment = os.environ | {"JAX_COMPILATION_CACHE_DIR": str(folder.parent)}

    def start():
        return subprocess.Popen(
            [sys.executable, "-c", ALONE],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )

    outputs = [process.communicate()[0] for process in [start(), start()]]
    outputs.append(start().communicate()[0])
    found, records = zip(*(line.split(" ", 1) for line in outputs), strict=True)
    assert found[2] == "True"
    assert len(set(records)) == 1
    assert len(list(folder.iterdir())) == 1
