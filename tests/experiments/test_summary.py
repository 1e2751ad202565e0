"""Summaries counted by hand, and statistics that say how sure they are."""

import numpy as np
import pytest
import xarray as xr

from experiments.common.runs import lemma_fit
from experiments.common.statistics import fitted_exponent
from experiments.sweep.summary import describe, summarise
from jaxselect.margin.certificate import TrialStatus
from tests.experiments.test_verdicts import sweep

STATUSES = {status.name: int(status) for status in TrialStatus}
ALL, LEFT, PARTIAL = (
    STATUSES[name] for name in ("SELECTED_ALL", "CAPTURED_POSITIVE", "PARTIAL")
)
TIES_UNPROVED, UNRESOLVED = STATUSES["TIES_UNPROVED"], STATUSES["UNRESOLVED"]
NONE, MISSING = STATUSES["SELECTED"], -1


def results(status):
    """Runs over two d, two η₀ and two seeds, from their statuses."""
    status = np.array(status).reshape(2, 2, 2)
    chosen, there = np.where(status == ALL, 1.0, 0.5), status != MISSING
    place = np.arange(8).reshape(2, 2, 2)
    columns = {
        "important_selected": np.where(there, chosen, np.nan),
        "num_steps": np.where(there, place[::-1, ::-1, ::-1] + 10, MISSING),
        "file": np.where(there, place // 2, MISSING),
        "unselected_effect": np.where(there, 1.0, np.nan),
    }
    sizes = {"direction_error": 2e-3, "cls_norm": 1e3, "error_constant": 1.6}
    columns |= {name: np.where(there, size, np.nan) for name, size in sizes.items()}
    found = sweep((8.0, 64.0), (1.0, 10.0), 2, status=status, **columns)
    return found.assign_attrs(vmapped=False, chunk_size=2)


def test_shares_are_of_all_runs_with_the_undecided_beside():
    # η₀ = 1: all, captured, all, balanced; η₀ = 10: one not yet, one with nothing to
    # select, and a chunk of two that is missing.
    summed = summarise(
        results([ALL, LEFT, UNRESOLVED, NONE, ALL, TIES_UNPROVED, MISSING, -1])
    )
    assert summed["runs"] == 8 and summed["statuses"]["missing"] == 2
    assert summed["statuses"]["selected_all"] == 2
    assert summed["certified_share"] == 4 / 6
    one, ten = (summed["ends_by_step_size"][eta] for eta in ("1", "10"))
    ends = ("selected_all", "other", "undecided")
    assert [one[name] for name in ends] == [1 / 2, 1 / 4, 1 / 4]
    assert one["low"] <= 1 / 2 <= one["high"] and one["runs"] == 4
    assert [ten[name] for name in ends] == [0, 1 / 2, 1 / 2]
    said = describe(summed)
    assert "ties unproved              1   12.5%   not certified" in said
    assert "failed" not in said


def test_deviation_of_the_constant_by_hand():
    """2e-3 · 1e3 / 1.6 = 1.25."""
    runs = results([ALL] * 4 + [PARTIAL] * 2 + [MISSING] * 2)
    # In the last two runs a dimension is read from p: their deviation stands apart.
    flat = np.arange(8).reshape(runs.status.shape)
    runs["history_dim"] = (runs.status.dims, np.where(flat >= 4, 1, 0))
    runs["direction_error"] = runs.direction_error.where(runs.history_dim == 0, 2.4e-3)
    summary = summarise(runs)
    found = {
        name: (
            summary[f"certified_{name}"],
            summary[f"direction_constant_deviation_{name}"],
        )
        for name in ("predicted", "with_path")
    }
    assert found["predicted"] == (4, pytest.approx((0.25, 0.25)))
    assert found["with_path"] == (2, pytest.approx((0.5, 0.5)))


def test_an_exponent_is_that_of_means_and_not_of_mean_logs():
    """Seeds of very different size: their mean follows the law of the largest."""
    dims = np.array([10.0, 100.0, 1000.0])
    seeds = np.stack([1e-9 * dims**2, 5.0 * dims**-0.5], axis=1)
    middle, _, _ = fitted_exponent(dims, seeds)
    wanted = np.polyfit(np.log(dims), np.log(seeds.mean(axis=1)), 1)[0]
    assert middle == pytest.approx(wanted)
    assert abs(middle - np.polyfit(np.log(dims), np.log(seeds).mean(axis=1), 1)[0]) > 1


def test_the_law_of_the_lemma_is_fitted_to_the_larger_half_of_d_and_says_so():
    """Smaller d, where the next order shows, do not bend it; nor does a missing run."""
    dims = np.array([4.0, 16.0, 64.0, 256.0, 1024.0])
    error = np.where(dims < 60, 1.0, dims**-0.5)[:, None, None] * np.ones((1, 2, 3))
    error[3, 0, 1] = np.nan
    sweep = xr.Dataset(
        {"alignment_error": (("dim", "step_size", "seed"), error)}, {"dim": dims}
    )
    law = lemma_fit(sweep)
    assert law.exponent == pytest.approx(-0.5) and law.runs == 2
    assert str(law) == "−0.500 ± 0.000 for d from 64 to 1,024"
    assert lemma_fit(sweep.isel(dim=slice(1))) is None
