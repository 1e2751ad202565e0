"""A family, and a way to embed, from outside the package: names, flags, programs."""

import dataclasses
import importlib
import sys
import threading
from functools import partial

import numpy as np
import pytest

from experiments.common import console
from experiments.sweep import study
from experiments.sweep.grids import of_family
from experiments.sweep.settings import PRESETS
from jaxselect import BadInput, embedding_step, embedding_steps, independent_tokens
from jaxselect.sweep import description, launch
from jaxselect.sweep.grid import Grid, importable, label, located
from tests.variants.noisy_labels import noisy_labels

NAME = "tests.variants.noisy_labels:noisy_labels"


def damped(before, corpus, step_size, *, share=1.0):
    return embedding_step(before, corpus, share * step_size)


GRID = Grid(
    draw=noisy_labels,
    axes={"sequences": (8,), "noise": (0.0, 0.3), "share": (0.5, 1.0)},
    dim=(100.0, 1e6),
    step_size=(10.0, 100.0),
    seed=(0, 1),
    embed=damped,
    until_norm=100.0,
    path_points=20,
)
WORDS = f"""--family {NAME} --embed tests.sweep.test_family:damped --sequences 8
--noise 0 0.3 --share 0.5 1 --dim 100 1e6 --step-size 10 100 --seed 0 1
--until-norm 100 --path-points 20""".split()


def test_flags_are_those_of_the_functions():
    read = partial(console.parse, study.sweep, partial(of_family, PRESETS))
    assert read(WORDS).grid == GRID
    smoke = PRESETS["smoke"].grid
    grid = read(["--preset", "smoke", "--embed", "embedding_steps(4)"]).grid
    assert grid == dataclasses.replace(smoke, embed=embedding_steps(4))
    words = ["--preset", "smoke", "--family", "independent", "--irrelevant-share"]
    grid = read([*words, "0", "0.5"]).grid
    sizes = {name: smoke.axes[name] for name in smoke.fixed if name != "per_sequence"}
    axes = {**sizes, "irrelevant_share": (0.0, 0.5)}
    assert grid == dataclasses.replace(smoke, draw=independent_tokens, axes=axes)
    with pytest.raises(BadInput, match="Unrecognized options: --noise"):
        read(["--noise", "0.1"])


OWN = """# -*- coding: latin-1 -*-
# \xe9
import helper
from jaxselect import assumption_one
SHARE = 0.5

def draw(key):
    return assumption_one(key, sequences=8, length=3, relevant=2, irrelevant=4)
"""
EDITS = {
    "a function": ("own", "relevant=2", "relevant=1"),
    "a constant": ("own", "SHARE = 0.5", "SHARE = 0.25"),
    "what it imports": ("helper", "0", "1"),
}


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A grid of a family in a folder of its own."""
    (tmp_path / "own.py").write_text(OWN, "latin-1")
    (tmp_path / "helper.py").write_text("def nothing():\n    return 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield Grid(importlib.import_module("own").draw, {}, seed=tuple(range(20)))
    for name in ("own", "helper"):
        description._READ.pop(name, None)
        del sys.modules[name]


def edit(tmp_path, name, old, new):
    path = tmp_path / f"{name}.py"
    path.write_text(path.read_text("latin-1").replace(old, new), "latin-1")


@pytest.mark.parametrize("change", EDITS)
@pytest.mark.parametrize("described", [True, False])
def test_a_file_edited_after_its_import_is_refused(own, tmp_path, change, described):
    """Else chunks of the code in memory would bear the digest of the file."""
    job = launch.Job(own, 8, False, tmp_path / "out")
    if described:
        job.begin("cpu")
    edit(tmp_path, *EDITS[change])
    with pytest.raises(BadInput, match=r"\.py was edited after it was imported"):
        job.begin("cpu")
    edited = sys.modules[EDITS[change][0]]
    importlib.reload(edited)
    job = launch.Job(
        dataclasses.replace(own, draw=sys.modules["own"].draw), 8, False, job.folder
    )
    if described:
        with pytest.raises(
            BadInput, match=r"settings \(environment\.code: \w+, now \w+\)"
        ):
            job.begin("cpu")
    else:
        assert job.begin("cpu") == [0, 1, 2]


class QuickJob(launch.Job):
    def run(self, index, device=None):
        return {"index": index, "lanes": 8, "statuses": {}}


def test_a_worker_that_imports_an_edited_family_is_refused(own, tmp_path):
    job = QuickJob(own, 8, False, tmp_path / "out")
    pending = job.begin("cpu")
    run = partial(launch.local, job, pending, threading.Event(), "cpu", 2)
    assert len(list(run())) == 3
    edit(tmp_path, *EDITS["what it imports"])
    with pytest.raises(BadInput, match=r"other settings \(environment\.code: "):
        list(run())


FUNCTIONS = [noisy_labels, embedding_step, independent_tokens, embedding_steps(3)]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_name_finds_its_function(function):
    assert located(importable("draw", function)) == function


def test_what_no_process_can_import_is_refused(monkeypatch):
    def of_a_script(key):
        return None

    of_a_script.__module__, of_a_script.__qualname__ = "__main__", "of_a_script"
    monkeypatch.setattr(sys.modules["__main__"], "of_a_script", of_a_script, False)

    def twin(key):
        return None

    twin.__module__, twin.__qualname__ = NAME.split(":")
    parts = partial(noisy_labels, noise=0.1)
    for function in (of_a_script, twin, lambda key: None, parts):
        with pytest.raises(BadInput, match="other processes can import"):
            Grid(draw=function).described()
    assert repr(Grid(draw=noisy_labels)).count(label(noisy_labels)) == 1


def test_whole_numbers_fix_shapes_and_others_are_traced():
    grid = Grid(noisy_labels, {"sequences": (8, np.int64(12)), "noise": (0, 0.5)})
    assert grid.fixed == ("sequences",)
    assert grid.traced == ("noise", "dim", "step_size", "seed")
    assert [dict(shape)["sequences"] for shape in grid.shapes()] == [8, 12]
    assert grid.values["noise"] == [0, 0.5]


def test_grids_are_one_where_their_programs_are():
    """Arguments have an order, and 8 fixes a shape where 8.0 is traced."""

    def draw(key, noise, words):
        return None

    grid = Grid(draw, {"noise": (0.5,), "words": (8,)})
    assert grid == Grid(draw, {"noise": (0.5,), "words": (np.int32(8),)})
    assert grid != Grid(draw, {"words": (8,), "noise": (0.5,)})
    assert grid != Grid(draw, {"noise": (0.5,), "words": (8.0,)})
