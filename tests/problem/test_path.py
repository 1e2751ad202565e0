"""What a flow passes, by an independent flow in plain arrays, and its picture."""

from functools import cache

import numpy as np
import pytest

from jaxselect import BadInput, key_query, plot, solve
from jaxselect.picture import SERIES
from tests.problem.independent import Model, flow, logistic
from tests.problem.test_report import DRAWN as X
from tests.problem.test_report import LABELS, MASK, B, Z

TIMES = np.array([0.5, 4.0, 12.0, 500.0, 2000.0, 1e9])


@cache
def found():
    return solve(key_query(X, Z, B, LABELS, mask=MASK), at=TIMES)


def test_a_path_is_that_of_an_independent_flow_of_the_callers_arrays():
    path, keys = found().path, np.einsum("itd,ie->itde", X, Z).reshape(5, 4, -1)
    model = Model(keys, B, LABELS, MASK, logistic)
    # Log-times after the end are not passed.
    assert path.log_times.tolist() == TIMES[:5].tolist()
    for time, trained in zip(TIMES[:3], path.trained[:3], strict=True):
        np.testing.assert_allclose(np.ravel(trained), flow(model, time), atol=1e-3)
    late = found().problem.lift(found().limit.query_at(TIMES[4]))
    np.testing.assert_allclose(path.trained[4], late, atol=1e-6)
    scores = np.einsum("itd,Tde,ie->Tit", X, path.trained, Z)
    scores = np.where(MASK, scores, np.nan)
    np.testing.assert_allclose(path.scores, scores, rtol=1e-9, atol=1e-9)
    odds = np.where(MASK, np.exp(scores - np.nanmax(scores, axis=2)[..., None]), 0.0)
    weights = odds / odds.sum(axis=2, keepdims=True)
    np.testing.assert_allclose(path.weights, weights, atol=1e-9)


def test_a_picture_has_weights_scores_and_the_late_law():
    figure, path = plot(found()), found().path
    import matplotlib.pyplot as plt

    plt.close(figure)
    weights, scores, errors = figure.axes
    chosen = np.asarray(found().selected_mask)
    for panel, entries in ((weights, path.weights), (scores, path.scores)):
        drawn = [line for line in panel.lines if len(line.get_xdata())]
        assert len(drawn) == MASK.sum()
        for colour, which in ((SERIES[0], chosen), (SERIES[-1], MASK & ~chosen)):
            lines = [line for line in drawn if line.get_color() == colour]
            seen = np.array([line.get_ydata() for line in lines])
            np.testing.assert_array_equal(seen, np.asarray(entries)[:, which].T)
    measured, law = (line.get_ydata() for line in errors.lines)
    norms = np.linalg.norm(path.trained, axis=(1, 2))
    unit = np.asarray(found().direction) / np.linalg.norm(found().direction)
    apart = np.asarray(path.trained) / norms[:, None, None] - unit
    np.testing.assert_allclose(measured, np.linalg.norm(apart, axis=(1, 2)), atol=1e-9)
    np.testing.assert_allclose(law[-1], found().error_constant / norms[-1])
    np.testing.assert_allclose(measured[-1], law[-1], rtol=1e-2)
    # A length of 1/margin.
    keys = np.einsum("itd,de,ie->it", X, found().direction, Z)
    lead = np.where(chosen, keys, -np.inf).max(axis=1)[:, None] - keys
    np.testing.assert_allclose(lead[MASK & ~chosen].min(), 1.0, rtol=1e-8)


def test_a_picture_needs_a_path():
    solved = solve(key_query(X, Z, B, LABELS, mask=MASK))
    with pytest.raises(BadInput, match="solve\\(problem, at=log_times\\)"):
        plot(solved)


def test_a_data_set_has_named_axes_descriptions_and_units(tmp_path):
    import xarray

    found().to_xarray().to_netcdf(tmp_path / "solved.nc")
    with xarray.open_dataset(tmp_path / "solved.nc") as data:
        for values in data.variables.values():
            assert values.attrs["long_name"] and values.attrs["units"]
        assert data.status == "SELECTED" and "W tends" in data.meaning
        assert data.error_constant == float(found().error_constant)
        picked = data.id.where(data.selected).max("entry")
        assert picked.values.astype(int)[:, None].tolist() == found().selected
        score = data.path_score.sel(log_time=4.0).isel(bag=2, entry=3)
        weights = data.path_trained.sel(log_time=4.0).values
        np.testing.assert_allclose(score, X[2, 3] @ weights @ Z[2])
        np.testing.assert_array_equal(data.direction, found().direction)
