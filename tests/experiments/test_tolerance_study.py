"""The study of tolerances: what it counts, and that it goes on where it was."""

import dataclasses
import json
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.common.grids import GRIDS
from experiments.common.results import read
from experiments.theory import tolerance
from experiments.theory.tolerance import summary
from jaxselect.margin.certificate import TrialStatus
from jaxselect.sweep.grid import lane_values
from tests.experiments.test_console import ended

ALL, PART, LOST, TIES = (
    TrialStatus.SELECTED_ALL,
    TrialStatus.PARTIAL,
    TrialStatus.NORM_NOT_REACHED,
    TrialStatus.TIES_UNPROVED,
)


def invented(atol, grid, shape):
    """Checks that nobody had to integrate; each knows the cell it is of."""
    names = list(lane_values(grid, np.array([0])))

    def run(*values):
        cell = dict(zip(names, values, strict=True))
        same = cell["seed"] != 1
        return SimpleNamespace(
            same_selection=same,
            status=jnp.asarray(ALL),
            closer_status=jnp.where(same, ALL, PART),
            norm_change=cell["dim"] * cell["step_size"],
            constant_change=cell["step_size"],
            history_dim=jnp.zeros((), int),
        )

    return run


def test_every_cell_has_its_own_check_and_is_not_run_twice(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(tolerance, "program", invented)
    command = ["--preset", "smoke", "--json", "--cells", 12, "--out", tmp_path]

    def results():
        assert ended(tolerance.main, command, tolerance.PRESETS) == 0
        return json.loads(capsys.readouterr().out)

    first = results()
    cells = {
        name.removeprefix("smoke_"): column
        for name, column in read(tmp_path).arrays.items()
    }
    size = cells["dim"] * cells["step_size"]
    np.testing.assert_allclose(cells["norm_change"], size)
    np.testing.assert_allclose(cells["constant_change"], cells["step_size"])
    np.testing.assert_array_equal(cells["same_selection"], cells["seed"] != 1)
    changed = first["smoke"]["all"]["selection_changes"]
    assert (changed["number"], changed["of"]) == ((cells["seed"] == 1).sum(), 12)
    assert {row["seed"] for row in first["smoke"]["changes"]} == {1}
    monkeypatch.setattr(tolerance, "run_lanes", None)
    assert results() == first


@pytest.mark.slow
def test_a_small_sample_is_unchanged(tmp_path):
    """Without history one selection has one constant; with it p's error shows."""
    smoke = dataclasses.replace(tolerance.PRESETS["smoke"], out=tmp_path)
    with jax.numpy_dtype_promotion("standard"):
        found = tolerance.main(smoke)["smoke"]
    assert found["all"]["selection_changes"]["number"] == 0
    arrays = read(tmp_path).arrays
    change, path = arrays["smoke_constant_change"], arrays["smoke_history_dim"] > 0
    assert (change[~path] < 1e-12).all()
    assert path.any() and (change[path] > 0).all() and (change[path] < 1e-4).all()


def test_a_sample_is_a_function_of_its_seed_and_covers_the_sweep():
    grid = GRIDS["phase"]
    lanes, again, other = (
        np.concatenate([chunk.lanes for chunk in tolerance.sample(grid, 200, seed)])
        for seed in (3, 3, 4)
    )
    np.testing.assert_array_equal(lanes, again)
    assert len(set(lanes)) == 200 and set(lanes) != set(other)
    # Uniform: the mean lies within four standard deviations of the middle.
    assert abs(lanes.mean() / grid.size - 0.5) < 4 / (12 * 200) ** 0.5
    several = tolerance.sample(GRIDS["paper"], 40, 0)
    assert sum(len(chunk.lanes) for chunk in several) == 40
    assert len({chunk.shape for chunk in several}) > 1


def test_changes_are_counted_where_they_belong():
    """Cells: unchanged; another selection, same status; the reverse; neither same."""
    status = np.array([ALL, ALL, LOST, PART, ALL, TIES])
    closer = np.array([ALL, ALL, PART, ALL, ALL, TIES])
    columns = {
        "status": status,
        "closer_status": closer,
        "same_selection": np.array([True, False, True, False, True, True]),
        "constant_change": np.array([0.5, 7.0, 7.0, 7.0, 0.25, 7.0]),
        "norm_change": np.zeros(6),
        "history_dim": np.array([0, 0, 0, 0, 3, 0]),
        "dim": np.array([1e3, 1e3, 1e3, 1e3, 1e3, 1e4]),
        "step_size": np.array([1.0, 2.0, 9.0, 20.0, 1.0, 1.0]),
        "seed": np.arange(6),
    }
    found = summary(columns)

    def numbers(row):
        return [(one["number"], one["of"]) for one in row.values()]

    assert numbers(found["all"]) == [(2, 6), (2, 6)]
    assert numbers(found["certified"]) == [(2, 4), (1, 4)]
    assert numbers(found["by_status"]["SELECTED_ALL"]) == [(1, 3), (0, 3)]
    assert numbers(found["by_status"]["NORM_NOT_REACHED"]) == [(0, 1), (1, 1)]
    decades = found["by_decade_of_step_size_over_dim"]
    assert numbers(decades["1e-3"]) == [(1, 4), (1, 4)]
    assert numbers(decades["1e-2"]) == [(1, 1), (1, 1)]
    assert numbers(decades["1e-4"]) == [(0, 1), (0, 1)]
    # Constants of cells certified at both tolerances, with one selection.
    constants = found["error_constant"]
    assert constants["history_dim_zero"]["cells"] == 1
    assert constants["history_dim_zero"]["largest"] == 0.5
    assert constants["history_dim_positive"]["largest"] == 0.25
    assert [row["seed"] for row in found["changes"]] == [1, 2, 3]


@pytest.mark.parametrize(
    "flags", [["--cells", 0], ["--cells", 10_000], ["--atol", -1], ["--workers", 0]]
)
def test_numbers_that_no_study_can_be_made_of(flags, tmp_path, capsys):
    command = [*flags, "--out", tmp_path / "out"]
    assert ended(tolerance.main, command, tolerance.PRESETS) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
