"""Every recipe of docs/vary.md, from its text to certified, stored, loaded results."""

import dataclasses
import importlib
import json
import re
from functools import partial
from pathlib import Path

import jax
import numpy as np
import pytest

from experiments.common import console
from experiments.common.runs import CERTIFIED, with_status
from experiments.common.start import initialise
from experiments.report.folders import search
from experiments.sweep import study
from experiments.sweep.grids import of_family
from experiments.sweep.settings import PRESETS, Settings
from jaxselect import BadInput, embedding_steps, gaussian_reduced, run_grid
from jaxselect.data.synthetic import assumption_one, independent_tokens
from jaxselect.model.selection import important_tokens
from jaxselect.sweep.description import fingerprint, modules_outside_library, sources
from jaxselect.sweep.store import load_all
from tests.problem.independent import LOG_SLOPES, flow, of_bags
from tests.variants import weighted
from tests.variants.temperature import SIZES, warm

HERE = Path(__file__).parent
TEXT = (HERE.parents[1] / "docs" / "vary.md").read_text()
RECIPES = sorted(path.stem for path in HERE.glob("[!_]*.py") if "test" not in path.stem)
# Each compiles a program; `tests/trial`, `tests/theory` and `tests/sweep` hold their
# laws.
SLOW = {"decision_lists", "exponential_loss", "four_steps", "noisy_labels"}
SLOW |= {"steep_loss", "weighted"}
LOSSES = {"exponential_loss": LOG_SLOPES["exponential"], "three_classes": None}
LOSSES |= {"steep_loss": lambda margin: -np.logaddexp(0, 2 * margin)}
# The cell that is integrated: where margins differ most, so that pairs settle soonest.
CELL = {"dim": 0, "step_size": 0}
# Log-times between which the late flow is a line, to the integrator's own error.
EARLY, LATE = 400.0, 600.0


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name
        for name in RECIPES
    ],
)
def recipe(request, tmp_path_factory):
    """Name, grid and stored results of a recipe."""
    grid = importlib.import_module(f"tests.variants.{request.param}").GRID
    folder = tmp_path_factory.mktemp(request.param)
    run_grid(grid, folder)
    return request.param, grid, folder


def shown(name):
    """The numbers that the text shows of a recipe's last cell."""
    (row,) = re.findall(rf"^\| `{name}` \|(.*)\|$", TEXT, re.MULTILINE)
    return [float(cell) for cell in row.split("|")[-2:]]


def literal(grid, name):
    """‖p_mm‖ and the error constant of the last cell, by SciPy on the model itself."""
    (shape,) = grid.shapes()
    numbers = {axis: grid.values[axis][CELL.get(axis, -1)] for axis in grid.traced}
    cell = grid.cell(shape, *numbers.values())
    before, after, corpus = initialise(jax.random.key(cell.pop("seed")), **cell)
    tau = numbers.get("tau", 1.0)
    # With a temperature scores are ϑ E p, and p is that of the model itself.
    rows, head = tau * np.asarray(after.embeddings), np.asarray(after.head) / tau
    loss = LOSSES.get(name, LOG_SLOPES["logistic"])
    model, start = of_bags(rows, rows @ head, corpus, loss), np.asarray(before.query)
    early, late = (flow(model, until, start, 1e-11) for until in (EARLY, LATE))
    growth = (late - early) / (LATE - EARLY)
    unit = growth / np.linalg.norm(growth)
    offset = late - LATE * growth
    offset -= unit * (unit @ offset)
    return tau * np.linalg.norm(growth), tau * np.linalg.norm(offset)


def test_a_recipe_is_certified_and_its_constants_are_those_of_the_model(recipe):
    """To 1e-6, by an independent solver of the literal flow; the text shows them."""
    name, grid, folder = recipe
    results = load_all(folder)
    assert with_status(results, *CERTIFIED).all()
    cell = results.isel({axis: CELL.get(axis, -1) for axis in results.status.dims})
    found = np.array([cell.max_margin_norm, cell.error_constant])
    np.testing.assert_allclose(found, literal(grid, name), rtol=1e-6)
    np.testing.assert_allclose(shown(name), found, rtol=2e-4)
    plain = not np.isnan(results.alignment_error).any()
    assert plain == (results.attrs["grid"]["embed"] == "embedding_step")


# A way to embed from outside the package, with an axis that its program traces.
one_recipe = pytest.mark.parametrize("recipe", ["temperature"], indirect=True)


@one_recipe
def test_a_lane_is_the_trial_of_its_functions(recipe):
    """γ of two lanes without the flow: every axis reaches its function."""
    _, grid, folder = recipe
    results = load_all(folder)
    assert results.status.dims == (*grid.fixed, *grid.traced)
    for tau, dim, step_size in ((0.5, 1e4, 30.0), (2.0, 100.0, 100.0)):
        corpus_key, key = jax.random.split(jax.random.key(0))
        sizes = {name: grid.axes[name][0] for name in SIZES}
        corpus = grid.draw(corpus_key, **sizes)
        before = gaussian_reduced(key, vocabulary=corpus.vocabulary, dim=dim)
        after = warm(before, corpus, step_size, tau=tau)
        values = np.abs(np.asarray(after.embeddings) @ np.asarray(after.head))
        lane = results.sel(tau=tau, dim=dim, step_size=step_size, seed=0).squeeze()
        wanted = values[np.asarray(important_tokens(corpus))].mean()
        np.testing.assert_allclose(lane.alignment, wanted, rtol=1e-9)
        np.testing.assert_allclose(lane.cls_norm, grid.until_norm, rtol=1e-6)


@one_recipe
def test_results_name_their_functions_and_are_made_again_by_their_command(recipe):
    _, grid, folder = recipe
    stored = json.loads((folder / "settings.json").read_text())
    assert stored["grid"]["embed"] == "tests.variants.temperature:warm"
    texts = sources("jaxselect.sweep.run", *modules_outside_library(grid))
    assert stored["environment"]["code"] == fingerprint(texts)
    (found,) = search([folder])
    words = found.command.split()[3:]
    again = console.parse(study.sweep, partial(of_family, PRESETS), words)
    assert again.grid == grid and str(again.out) == str(folder)
    for changed in ({"embed": embedding_steps(2)}, {"draw": independent_tokens}):
        other = dataclasses.replace(grid, axes={"sequences": (8,)}, **changed)
        with pytest.raises(BadInput, match="results of other settings"):
            study.sweep(Settings(grid=other, out=folder, workers=1, quiet=True))


@pytest.mark.parametrize("name", RECIPES)
def test_the_text_names_every_recipe(name):
    assert len(shown(name)) == 2
    assert sum(map(bool, (HERE / f"{name}.py").read_text().splitlines())) <= 25
    importlib.import_module(f"tests.variants.{name}").GRID.check()


def test_the_text_shows_recipes_as_they_stand():
    named = r"\*`tests/variants/(\w+)\.py`\*\n\n```python\n(.*?)```"
    programs = re.findall(named, TEXT, re.DOTALL)
    assert len(programs) == TEXT.count('```python\n"""') > 0
    for name, text in programs:
        assert text == (HERE / f"{name}.py").read_text()


@pytest.mark.slow
def test_an_interval_by_reweighting_is_the_one_in_the_text():
    bags_key, start_key, weights_key = jax.random.split(jax.random.key(0), 3)
    corpus = assumption_one(bags_key, **weighted.SIZES)
    begin = gaussian_reduced(start_key, vocabulary=8, dim=1e4)
    weights = jax.random.dirichlet(weights_key, np.full(8, 100.0), (64,))
    each = jax.jit(jax.vmap(weighted.resampled, (None, None, None, 0)))
    found = np.quantile(each(begin, corpus, 100.0, weights), [0.025, 0.975])
    (said,) = re.findall(r"\[(\d\.\d+), (\d\.\d+)\]", TEXT)
    np.testing.assert_allclose(found, [float(end) for end in said], rtol=2e-3)
