"""A family, and a way to embed, from outside the package: from names to results."""

import dataclasses
import json
import sys
from functools import partial
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from experiments.common import console
from experiments.common.grids import of_family
from experiments.figures import __main__ as figures
from experiments.report.folders import search
from experiments.sweep import launch, study
from experiments.sweep.settings import PRESETS, Settings
from jaxselect.errors import BadInput
from jaxselect.model.embedding_step import embedding_step, embedding_steps
from jaxselect.model.parameters import gaussian_reduced
from jaxselect.model.selection import important_tokens
from jaxselect.model.synthetic import independent_tokens
from jaxselect.sweep.chunks import program
from jaxselect.sweep.family import importable, label, located
from jaxselect.sweep.grid import Grid
from jaxselect.sweep.store import load
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


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    program.cache_clear()
    found = tmp_path_factory.mktemp("family")
    study.sweep(Settings(grid=GRID, out=found, workers=1, quiet=True))
    return found


def mean_alignment(noise, share, dim, step_size, seed):
    """γ of one lane by its functions, without the flow."""
    corpus_key, key = jax.random.split(jax.random.key(seed))
    corpus = noisy_labels(corpus_key, sequences=8, noise=noise)
    before = gaussian_reduced(key, vocabulary=corpus.vocabulary, dim=dim)
    after = damped(before, corpus, step_size, share=share)
    values = np.abs(after.embeddings @ after.head)
    return values[np.asarray(important_tokens(corpus))].mean()


def test_a_lane_is_the_trial_of_its_functions(folder):
    results = load(folder)
    assert results.status.dims == (*GRID.fixed, *GRID.traced)
    assert (results.status >= 0).all()
    for noise, share, seed in ((0.0, 0.5, 1), (0.3, 1.0, 0)):
        cell = {"noise": noise, "share": share, "dim": 1e6, "step_size": 100.0}
        one = results.sel(cell | {"seed": seed}).squeeze()
        wanted = mean_alignment(*cell.values(), seed)
        np.testing.assert_allclose(one.alignment, wanted, rtol=1e-9)


def test_half_a_step_is_a_step_of_half_the_size(folder):
    """The axis of `embed` reaches it: γ is of the product alone."""
    gamma = load(folder).alignment.sel(dim=1e6)
    half = gamma.sel(share=0.5, step_size=100.0, noise=0.0)
    whole = gamma.sel(share=1.0, step_size=100.0, noise=0.0)
    # E⁰ᵀv adds noise of order d^{−1/2}.
    np.testing.assert_allclose(2 * half.squeeze(), whole.squeeze(), atol=5e-3)


def test_the_error_of_the_lemma_is_of_the_step_itself_alone(folder):
    assert np.isnan(load(folder).alignment_error).all()


def test_its_figures_are_drawn_and_its_command_makes_it_again(folder, tmp_path):
    assert figures.main([str(folder), "--into", str(tmp_path)]) == 0
    assert {"phases.png", "growth.png"} <= {path.name for path in tmp_path.iterdir()}
    (found,) = search([folder])
    words = found.command.split()[3:]
    again = console.parse(study.sweep, partial(of_family, PRESETS), words)
    assert again.grid == GRID and str(again.out) == str(folder)


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


@pytest.mark.parametrize(
    "changed", [{"embed": embedding_steps(2)}, {"draw": independent_tokens}]
)
def test_results_of_other_functions_are_refused(folder, changed):
    grid = dataclasses.replace(GRID, axes={"sequences": (8,)}, **changed)
    with pytest.raises(BadInput, match="results of other settings"):
        study.sweep(Settings(grid=grid, out=folder, workers=1, quiet=True))


def test_results_name_their_functions_and_their_sources(folder, monkeypatch):
    stored = json.loads((folder / "settings.json").read_text())
    assert stored["grid"]["family"] == NAME
    assert stored["grid"]["embed"] == "tests.sweep.test_family:damped"
    sources = study._sources("jaxselect.sweep.chunks", *study.own_modules(GRID))
    assert {"tests.variants.noisy_labels", "tests.sweep.test_family"} <= set(sources)
    assert "jaxselect.model.synthetic" in sources
    assert stored["environment"]["code"] == study._fingerprint(sources)


def test_programs_of_other_modules_are_traced_in_every_process(monkeypatch, tmp_path):
    """No digest of ours holds their sources: none is kept."""
    asked = []

    def ready(build, settings, arguments, options, known):
        asked.append(known)
        return SimpleNamespace(run=lambda *values: None)

    monkeypatch.setattr(launch, "ready", ready)
    steps = dataclasses.replace(PRESETS["smoke"].grid, embed=embedding_steps(2))
    for grid in (PRESETS["smoke"].grid, steps, GRID):
        job = launch.Job(grid, 4, False, tmp_path)
        job.program(grid, grid.shapes()[0], False)()
    assert asked == [True, True, False]


FUNCTIONS = [noisy_labels, embedding_step, independent_tokens, embedding_steps(3)]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_name_finds_its_function(function):
    assert located(importable("draw", function)) == function


def test_what_no_process_can_import_is_refused(monkeypatch):
    def inner(key):
        return None

    def of_a_script(key):
        return None

    of_a_script.__module__, of_a_script.__qualname__ = "__main__", "of_a_script"
    monkeypatch.setattr(sys.modules["__main__"], "of_a_script", of_a_script, False)

    def twin(key):
        return None

    twin.__module__, twin.__qualname__ = NAME.split(":")
    parts = partial(noisy_labels, noise=0.1)
    for function in (inner, of_a_script, twin, lambda key: None, parts):
        with pytest.raises(BadInput, match="other processes can import"):
            importable("draw", function)
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
