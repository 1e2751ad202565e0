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

from experiments.common import programs, sealed
from jaxselect.sweep.chunks import lanes_over

ROOT = Path(__file__).parents[2]


class Solved(eqx.Module):
    shift: jax.Array
    factor: jax.Array
    inverse: jax.Array


@dataclass(frozen=True)
class Ridge:
    size: float = 1.0


def build(ridge, power):
    """Not in the order of the alphabet; with a routine of LAPACK, and a loop."""

    def solve(matrix, shift):
        gram = matrix @ matrix.T + (ridge.size + shift) * jnp.eye(len(matrix))
        factor = jnp.linalg.cholesky(gram)
        inverse = jax.lax.fori_loop(0, power, lambda _, x: jnp.sin(x), factor)
        return Solved(shift=shift, factor=factor, inverse=inverse)

    return [(jax.jit(solve), OPTIONS)]


def build_in_parts(ridge, power):
    """The inverse is another program's, which takes records and returns them."""
    ((whole, options),) = build(ridge, power)

    def begin(matrix, shift):
        return (whole(matrix, shift), {"power": shift**power}), matrix

    def end(made, matrix):
        solved, more = made
        inverse = jnp.cos(solved.inverse) * more["power"] * FACTOR
        return eqx.tree_at(lambda it: it.inverse, solved, inverse)

    return [(jax.jit(begin), options), (jax.jit(end), options)]


FACTOR = 2.0
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
            yield tmp_path / "programs"
    programs._HELD.update(held)


def again(build=build):
    """What a new process would find."""
    programs._HELD.clear()
    return programs.ready(build, SETTINGS, ARGUMENTS)


def test_a_program_read_is_the_program_compiled(folder):
    """Nor is it one that JAX has read, which XLA would not write whole."""
    ((jitted, options),) = build(*SETTINGS)
    jitted.lower(*ARGUMENTS).compile(options)
    assert any(folder.parent.glob("*-cache"))
    first, second = again(), again()
    assert (first.found, second.found) == (False, True)
    assert programs.ready(build, SETTINGS, ARGUMENTS) is second
    wanted = jitted.lower(*ARGUMENTS).compile(options)(*ARGUMENTS)
    for program in (first, second):
        found = program.run(*ARGUMENTS)
        assert digits(found) == digits(wanted)
        assert list(vars(found)) == ["shift", "factor", "inverse"]


def test_parts_are_one_program(folder, monkeypatch):
    """Read, compiled, or one read and the other compiled, behind an edit of its own."""
    (begin, options), (end, _) = build_in_parts(*SETTINGS)
    made = begin.lower(*ARGUMENTS).compile(options)(*ARGUMENTS)
    wanted = digits(end.lower(*made).compile(options)(*made))
    for found in (False, True):
        program = again(build_in_parts)
        assert program.found == found
        assert digits(program.run(*ARGUMENTS)) == wanted
    kept = set(folder.iterdir())
    assert len(kept) == 3
    monkeypatch.setitem(globals(), "FACTOR", 3.0)
    monkeypatch.setattr(programs, "_sources", lambda places: "edited")
    program = again(build_in_parts)
    assert not program.found
    # A name, and the executable of the second part.
    assert len(set(folder.iterdir()) - kept) == 2
    assert digits(program.run(*ARGUMENTS)) != wanted


def test_what_is_cut_over_devices_stays_cut_from_part_to_part():
    place = lanes_over(jax.devices()[:1])
    kind = jax.ShapeDtypeStruct((4,), "float64", sharding=place)
    spread = jax.jit(lambda x, y: (jnp.full(4, x.sum()), y))
    parts = 3 * [(spread, {})]
    for low, _ in programs.lowered(parts, (kind, kind)):
        done = low.compile()
        assert set(done.input_shardings[0]) == set(done.output_shardings) == {place}


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
        (programs, "_machine", lambda: ["abacus"]),
        (programs, "cores", lambda: 1000),
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


def files(folder):
    """What leads to the executable, and the executable."""
    found = sorted(folder.iterdir(), key=lambda path: path.stat().st_size)
    assert len(found) == 2
    return dict(zip(("name", "executable"), found, strict=True))


@pytest.mark.parametrize("which", ["name", "executable"])
@pytest.mark.parametrize("harm", [half, one_bit, noise, lambda data: b""])
def test_what_is_damaged_is_made_anew_and_replaced(folder, harm, which):
    wanted = digits(again().run(*ARGUMENTS))
    path = files(folder)[which]
    path.write_bytes(harm(path.read_bytes()))
    second = again()
    assert second.found == (which == "name")
    assert len(path.read_bytes()) > 32
    third = again()
    assert third.found
    assert digits(second.run(*ARGUMENTS)) == digits(third.run(*ARGUMENTS)) == wanted
    assert set(files(folder)) == {"name", "executable"}


@pytest.mark.parametrize("which", ["name", "executable"])
def test_another_programs_file_is_not_taken(folder, which):
    wanted = digits(again().run(*ARGUMENTS))
    path = files(folder)[which]
    programs.ready(build, (Ridge(), 3), ARGUMENTS)
    sizes = {other: other.stat().st_size for other in folder.iterdir()}
    like = [other for other in sizes if (sizes[other] < 1000) == (which == "name")]
    (strange,) = set(like) - {path}
    strange.replace(path)
    program = again()
    assert program.found == (which == "name")
    assert digits(program.run(*ARGUMENTS)) == wanted


@pytest.mark.parametrize("which", ["folder", "executable"])
def test_what_others_may_write_is_not_read(folder, which):
    again()
    (files(folder) | {"folder": folder})[which].chmod(0o777)
    assert not again().found


def test_what_is_kept_is_for_its_owner_alone(tmp_path, monkeypatch):
    folder = tmp_path / "kept"
    before = os.umask(0)
    try:
        sealed.save(folder, "name", b"body")
    finally:
        os.umask(before)
    modes = [path.stat().st_mode & 0o777 for path in (folder, folder / "name")]
    assert modes == [0o700, 0o600]
    assert sealed.load(folder, "name") == b"body"
    somebody = os.getuid() + 1
    monkeypatch.setattr(os, "getuid", lambda: somebody)
    assert sealed.load(folder, "name") is None


def test_an_edit_that_changes_no_program_compiles_none(folder, monkeypatch):
    again()
    monkeypatch.setattr(programs, "_sources", lambda places: "edited")
    assert again().found
    assert len(list(folder.iterdir())) == 3
    monkeypatch.setattr(programs, "_sources", lambda places: "compiled otherwise")
    monkeypatch.setitem(OPTIONS, "xla_backend_optimization_level", 1)
    assert not again().found


def test_what_was_used_longest_ago_goes_first(tmp_path, monkeypatch):
    folder = tmp_path / "kept"
    for number in range(4):
        sealed.save(folder, str(number), bytes(100))
        os.utime(folder / str(number), (number, number))
    assert sealed.load(folder, "1") == bytes(100)
    monkeypatch.setattr(sealed, "BYTES", 3 * 132 + 50)
    sealed.save(folder, "new", bytes(100))
    assert {path.name for path in folder.iterdir()} == {"1", "3", "new"}


def test_no_room_costs_no_result(folder):
    folder.write_text("not a folder")
    assert not again().found


def test_what_calls_back_is_not_kept(folder):
    def build():
        def call(x):
            shape = jax.ShapeDtypeStruct((), x.dtype)
            return Ring(jax.pure_callback(np.sin, shape, x))

        return [(jax.jit(call), {})]

    class Ring(eqx.Module):
        value: jax.Array

    assert not programs.ready(build, (), ARGUMENTS[1:]).found
    assert not folder.exists()


ALONE = """
from experiments.common.devices import configure
configure("float64")
from experiments.common import programs
from tests.experiments import test_programs as t
program = programs.ready(t.build, t.SETTINGS, t.ARGUMENTS)
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

    told = [process.communicate()[0] for process in [start(), start()]]
    told.append(start().communicate()[0])
    found, records = zip(*(line.split(" ", 1) for line in told), strict=True)
    assert found[2] == "True"
    assert len(set(records)) == 1
    assert set(files(folder)) == {"name", "executable"}
