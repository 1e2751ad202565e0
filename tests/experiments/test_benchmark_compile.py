"""The cost of compiling: what is counted is what is there, wherever it would run."""

import dataclasses

import jax
import jax.numpy as jnp
import pytest

from experiments.benchmarks import compile, programs
from experiments.common.results import read
from experiments.run import PRESETS as RUNS
from experiments.sweep.settings import PRESETS as SWEEPS
from jaxselect.sweep.batch_size import CHUNK_SIZE
from tests.experiments.invented_results import check_shown

CHIP_BYTES = {"v5e": 16e9, "v6e": 32e9}
# Largest code of a sweep's program.
CODE_BYTES = 60e6


def gram(rows):
    return rows @ rows.T


def test_bytes_and_lines_are_those_of_the_program():
    rows = jax.ShapeDtypeStruct((6, 4), jnp.float32)
    found = compile.cost(gram, (rows,))
    assert found["arguments"] == 6 * 4 * 4
    assert found["lines"] == jax.jit(gram).lower(rows).as_text().count("\n")
    assert found["code"] > 0
    # One copy of the argument, at most: neither product is kept beside the result.
    assert found["temporaries"] <= 6 * 4 * 4
    assert min(found[name] for name in ("trace", "lower", "compile")) >= 0


def test_what_a_program_keeps_is_counted():
    def kept(rows):
        return jnp.sort((rows @ rows.T).ravel())[::-1].reshape(64, 64) @ rows

    found = compile.cost(kept, (jnp.ones((64, 4)),))
    assert found["temporaries"] >= 64 * 64 * 8


def test_for_cuda_a_program_is_lowered_and_no_more():
    found = compile.cost(gram, (jnp.ones((6, 4)),), "cuda")
    assert set(found) == {"trace", "lower", "lines"}


def test_a_refusal_is_printed_with_its_reason():
    assert compile.isolated("nothing", "cpu") == {"refused": "KeyError: 'nothing'"}


def test_every_program_is_compiled_for_every_target(tmp_path, monkeypatch):
    """Where its manner has a meaning; and what fails takes nothing with it."""

    def invented(name, target):
        if (name, target) == ("chunk", "v5e"):
            return {"refused": "no room"}
        return compile.cost(gram, (jnp.ones((6, 4)),), "cuda")

    monkeypatch.setattr(compile, "isolated", invented)
    lacking = {"v6e": "bring it", "h100": "bring that"}
    monkeypatch.setattr(compile, "missing", lacking.get)
    compile.main(dataclasses.replace(compile.Settings(), out=tmp_path))
    results = read(tmp_path).results
    assert results["absent"] == lacking
    found = {(row["target"], row["program"]) for row in results["rows"]}
    every = {(t, p) for t in ("cpu", "v5e", "cuda") for p in programs.PROGRAMS}
    quick = {("cpu", "run fast"), ("cpu", "chunk fast"), ("v5e", "chunk fast")}
    assert found == every | quick | {("v5e", "chunk sharded")}
    refused = [row for row in results["rows"] if "lines" not in row]
    assert [row["refused"] for row in refused] == ["no room"]
    check_shown(tmp_path)


def test_without_a_compiler_the_command_that_brings_it_is_named(monkeypatch):
    monkeypatch.setattr(compile.importlib.util, "find_spec", lambda name: None)
    assert "-e '.[tpu]'" in compile.missing("v5e") and compile.missing("cuda") is None
    assert "-e '.[cuda]'" in compile.missing("h100")


def test_the_run_is_that_of_its_study():
    settings = dataclasses.asdict(RUNS["default"])
    assert dataclasses.asdict(programs.RUN).items() <= settings.items()
    numbers = tuple(settings[name] for name in ("dim", "step_size", "until_norm"))
    assert numbers == programs.NUMBERS


def test_a_tpu_gets_the_chunk_of_its_preset():
    grid = SWEEPS["tpu"].grid
    arguments = programs.chunk("tpu").arguments
    assert {len(column) for column in arguments} == {CHUNK_SIZE["tpu"]}
    assert {column.dtype.name for column in arguments} == {
        grid.precision,
        "int32",
        "bool",
    }


@pytest.mark.slow
def test_a_chunk_fits_an_h100_that_is_not_here():
    lacking = compile.missing("h100")
    if lacking:
        pytest.skip(lacking)
    found = compile.isolated("chunk", "h100")
    assert "refused" not in found, found
    parts = ("code", "arguments", "temporaries", "outputs")
    assert sum(found[name] for name in parts) < 80e9


@pytest.mark.slow
@pytest.mark.parametrize("target", ["v5e", "v6e"])
def test_a_chunk_of_the_tpu_preset_fits_a_chip(target):
    """Alone, and on each of the four that share a larger one.

    Compiled with the fast options: with all its effort the compiler takes minutes.
    """
    lacking = compile.missing(target)
    if lacking:
        pytest.skip(lacking)
    alone, shared = (
        compile.isolated(f"{name} fast", target) for name in ("chunk", "chunk sharded")
    )
    for found in (alone, shared):
        assert "refused" not in found, found
        parts = ("code", "arguments", "temporaries", "outputs")
        assert sum(found[name] for name in parts) < CHIP_BYTES[target]
        assert found["code"] < CODE_BYTES
    assert shared["arguments"] == alone["arguments"]
    assert shared["outputs"] == alone["outputs"]
