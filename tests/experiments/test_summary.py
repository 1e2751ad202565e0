"""Summaries counted by hand, and statistics that say how sure they are."""

import numpy as np
import pytest
import xarray as xr

from experiments.common.runs import CERTIFIED, SELECTING, lemma_fit
from experiments.common.statistics import (
    binned,
    bootstrap,
    compare_bins,
    fitted_exponent,
)
from experiments.sweep import figures
from experiments.sweep.summary import describe, summarise, wasted_work
from jaxselect.margin.certificate import TrialStatus

STATUSES = {status.name: int(status) for status in TrialStatus}
ALL, LEFT, PARTIAL = (
    STATUSES[name] for name in ("SELECTED_ALL", "CAPTURED_POSITIVE", "PARTIAL")
)
TIES_UNPROVED, UNRESOLVED = STATUSES["TIES_UNPROVED"], STATUSES["UNRESOLVED"]
NONE, MISSING = STATUSES["SELECTED"], -1


def results(status, selected=None, vmapped=False):
    """Runs over two d, two η₀ and two seeds, from their statuses."""
    status = np.array(status).reshape(2, 2, 2)
    chosen = np.where(status == ALL, 1.0, 0.5) if selected is None else selected
    axes, place = ("dim", "step_size", "seed"), np.arange(8).reshape(2, 2, 2)
    lost = np.where(status == MISSING, np.nan, 1.0)
    columns = {
        "status": status,
        "important_selected": np.where(status == MISSING, np.nan, chosen),
        "num_steps": np.where(status == MISSING, MISSING, place[::-1, ::-1, ::-1] + 10),
        "file": np.where(status == MISSING, MISSING, place // 2),
        "alignment_error": lost,
        "direction_error": 2e-3 * lost,
        "cls_norm": 1e3 * lost,
        "error_constant": 1.6 * lost,
        "history_dim": np.zeros_like(status),
        "unselected_effect": lost,
        "duality_gap": lost,
    }
    return xr.Dataset(
        {name: (axes, column) for name, column in columns.items()},
        coords={"dim": [8.0, 64.0], "step_size": [1.0, 10.0], "seed": [0, 1]},
        attrs={"statuses": STATUSES, "vmapped": vmapped, "chunk_size": 2},
    )


def test_certified_statuses_are_those_the_library_certifies():
    assert set(CERTIFIED) < set(STATUSES)
    assert not {"TIES_UNPROVED", "UNRESOLVED", "NORM_NOT_REACHED", "FAILED"} & set(
        CERTIFIED
    )
    assert set(CERTIFIED) - set(SELECTING) == {"SELECTED"}


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


def test_selected_but_not_certified_is_not_counted():
    summed = summarise(results([UNRESOLVED, TIES_UNPROVED] * 4, selected=1.0))
    assert summed["certified_share"] == 0
    for row in summed["ends_by_step_size"].values():
        assert (row["selected_all"], row["undecided"]) == (0, 1)
    assert summed["direction_constant_deviation_predicted"] is None
    assert summed["direction_constant_deviation_with_path"] is None
    assert summed["unselected_effect"] is summed["duality_gap"] is None


def test_nothing_to_select_is_certified_and_selects_nothing():
    summed = summarise(results([NONE] * 8, selected=1.0))
    assert summed["certified_share"] == 1
    for row in summed["ends_by_step_size"].values():
        assert (row["selected_all"], row["other"]) == (0, 1)


def test_ties_and_rests_that_are_certified_count_and_select_nothing():
    tied, at_rest = STATUSES["TIED"], STATUSES["AT_REST"]
    runs = results([ALL, LEFT, TIES_UNPROVED, tied, ALL, at_rest, -1, -1])
    summed = summarise(runs)
    assert summed["certified_share"] == 5 / 6
    assert (summed["statuses"]["tied"], summed["statuses"]["at_rest"]) == (1, 1)
    row = summed["ends_by_step_size"]["1"]
    assert (row["selected_all"], row["other"], row["runs"]) == (2 / 4, 2 / 4, 4)
    shares = figures.status_shares(runs)
    np.testing.assert_allclose(sum(shares.values()), 1.0)
    assert shares["TIED"].sum() == 0.5


def test_one_run_has_no_interval():
    summed = summarise(results([ALL] + [MISSING] * 7))
    row = summed["ends_by_step_size"]["1"]
    assert row["selected_all"] == 1 and np.isnan(row["low"])
    fit = {"exponent": -0.5, "low": np.nan, "high": np.nan, "dims": [8.0, 64.0]}
    said = describe(summed | {"alignment_error_exponent": fit})
    assert "nan" not in said and "∝ d^(-0.500)" in said


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


def test_steps_that_waited_by_hand():
    """Chunks of 17 and 16, 15 and 14, … steps: the longest, twice, over the sum."""
    assert wasted_work(results([ALL] * 8)) == 0
    paid, needed = 2 * (17 + 15 + 13 + 11), sum(range(10, 18))
    found = wasted_work(results([ALL] * 8, vmapped=True))
    assert found == pytest.approx(paid / needed - 1)
    # The last chunk missing: neither paid nor needed.
    found = wasted_work(results([ALL] * 6 + [MISSING] * 2, vmapped=True))
    assert found == pytest.approx(2 * (17 + 15 + 13) / sum(range(12, 18)) - 1)


def test_a_cell_is_cut_by_the_shares_of_all_its_runs():
    found = results([ALL, LEFT, UNRESOLVED, NONE, ALL, TIES_UNPROVED, MISSING, ALL])
    shares = figures.status_shares(found)
    half = {
        "SELECTED_ALL": [[0.5, 0], [0.5, 0.5]],
        "CAPTURED_POSITIVE": [[0.5, 0], [0, 0]],
        "UNRESOLVED": [[0, 0.5], [0, 0]],
        "SELECTED": [[0, 0.5], [0, 0]],
        "TIES_UNPROVED": [[0, 0], [0.5, 0]],
        "MISSING": [[0, 0], [0, 0.5]],
    }
    # Rows are d, columns η₀.
    for name, share in shares.items():
        assert share.tolist() == half.get(name, [[0, 0], [0, 0]]), name


def test_bins_hold_every_point_once():
    rng = np.random.default_rng(0)
    across = np.concatenate([rng.uniform(-1, 1, 500), [-1.0, 1.0, np.nan]])
    upward = rng.normal(size=across.size)
    _, mean, spread, number = binned(across, upward)
    assert number.sum() == 502
    assert np.nansum(mean * number) == pytest.approx(upward[:-1].sum())
    inside = (spread**2 + mean**2) * number
    assert np.nansum(inside) == pytest.approx((upward[:-1] ** 2).sum())


def test_a_point_on_an_edge_belongs_to_the_right_in_either_precision():
    for kind in (np.float32, np.float64):
        edges = np.array([-1.0, -0.6, 0.2, 1.0])
        across = np.array([-0.6, 0.2, 1.0], kind)
        assert binned(across, across, edges).number.tolist() == [0, 1, 2]


def test_an_empty_bin_has_no_mean():
    bins = binned(np.array([0.5]), np.array([2.0]), np.array([-1.0, 0.0, 1.0]))
    assert np.isnan(bins.mean[0]) and np.isnan(bins.spread[0])
    assert (bins.mean[1], bins.spread[1], bins.number.tolist()) == (2, 0, [0, 1])
    assert np.isnan(bins.positions[0]) and bins.positions[1] == 0.5


def test_an_interval_is_as_wide_as_normal_theory_says():
    values = np.random.default_rng(1).normal(3.0, 2.0, 400)
    low, high = bootstrap(values)
    assert low < values.mean() < high
    assert high - low == pytest.approx(2 * 1.96 * values.std() / 20, rel=0.1)
    assert bootstrap(values, level=0.5)[1] < high
    assert np.isnan(bootstrap(values[:1])).all()


def test_an_exponent_resamples_whole_seeds():
    """A factor common to a whole seed leaves the exponent exact; noise does not."""
    dims = np.array([10.0, 100.0, 1000.0])
    law = dims[:, None] ** -0.5
    exact = fitted_exponent(dims, law * np.linspace(1, 2, 8))
    assert exact == pytest.approx((-0.5, -0.5, -0.5))
    noise = np.exp(0.3 * np.random.default_rng(0).normal(size=(3, 8)))
    middle, low, high = fitted_exponent(dims, law * noise)
    assert low < middle < high and 0.02 < high - low < 0.4
    assert np.isnan(fitted_exponent(dims, law)[1:]).all()


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
    assert str(law) == "-0.500 ± 0.000 for d from 64 to 1,024"
    assert lemma_fit(sweep.isel(dim=slice(1))) is None


def test_an_exponent_is_covered_where_the_noise_depends_on_the_dimension():
    """Noise ten times as wide at small d: 95 % intervals hold −1/2 nearly as often."""
    dims, draw = np.logspace(2, 6, 5), np.random.default_rng(2)
    width = np.array([0.5, 0.3, 0.15, 0.08, 0.05])[:, None]
    held = 0
    for _ in range(40):
        noise = 1 + width * draw.uniform(-1, 1, (5, 24))
        middle, low, high = fitted_exponent(dims, dims[:, None] ** -0.5 * noise)
        assert abs(middle + 0.5) < 0.02
        held += low <= -0.5 <= high
    assert held >= 34


def test_ours_beside_the_published_by_hand():
    theirs = np.array([-2.0, -1.0, 1.0, 4.0])
    same = compare_bins(3 * theirs, theirs)
    assert same == pytest.approx({"rank_correlation": 1, "same_sign": 1, "ratio": 3})
    turned = compare_bins(-theirs, theirs)
    assert (turned["rank_correlation"], turned["same_sign"]) == (-1, 0)
    # A level that attention cannot see: signs after the mean over bins.
    assert compare_bins(theirs + 10, theirs)["same_sign"] == 0.5
    assert compare_bins(theirs + 10, theirs + 10)["same_sign"] == 1
    assert compare_bins(theirs + 10, theirs, level=True)["same_sign"] == 1
    holes = np.array([np.nan, -1.0, 1.0, 4.0])
    assert compare_bins(holes, theirs)["ratio"] == 1
