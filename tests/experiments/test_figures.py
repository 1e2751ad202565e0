"""Figures show the results on disk: their lines against the columns."""

import numpy as np
import pytest
import xarray as xr

from experiments.beyond import phases, selection
from experiments.common import edges, results, style
from experiments.common.palette import EDGES, STATUS
from experiments.common.style import draw_in_style, subplots
from experiments.figures.__main__ import main as draw_folder
from experiments.sweep import figures
from experiments.sweep.figures import draw_direction, draw_growth, draw_lemma
from jaxselect.margin.certificate import TrialStatus
from jaxselect.sweep import store
from jaxselect.sweep.labels import LABELS
from tests.experiments.invented_results import invent_sweep, rewrite

BOTH = (draw_growth, draw_direction)


@pytest.fixture
def sweep(tmp_path):
    return store.load_all(invent_sweep(tmp_path / "sweep"))


def lines(axes, style):
    return [one for one in axes.get_lines() if one.get_linestyle() == style]


@pytest.mark.parametrize("draw", BOTH)
def test_a_curve_stands_beside_the_law_of_its_own_solution(sweep, draw):
    """‖p_mm‖ log t for the norm, the constant over ‖p‖ for the direction."""
    (axes,) = draw_in_style(draw, sweep).axes
    run = next(figures.examples(sweep))
    kept = (run.path_norms > 1).values | (draw is draw_growth)
    times, norms = run.path_log_times.values[kept], run.path_norms.values[kept]
    across, upward, law = {
        draw_growth: (times, norms, run.max_margin_norm.item() * times),
        draw_direction: (
            norms,
            run.path_errors.values[kept],
            run.error_constant.item() / norms,
        ),
    }[draw]
    measured, predicted = lines(axes, "-")[0], lines(axes, "--")[0]
    np.testing.assert_array_equal(measured.get_xdata(), across)
    np.testing.assert_array_equal(measured.get_ydata(), upward)
    np.testing.assert_allclose(predicted.get_ydata(), law)


def test_examples_are_certified_runs_alone(tmp_path):
    folder = invent_sweep(tmp_path / "sweep")

    def status(rows):
        odd = rows["lane"] % 17 < 3
        return np.where(odd, TrialStatus.TIES_UNPROVED, TrialStatus.PARTIAL)

    rewrite(folder, status=status)
    shown = list(figures.examples(store.load_all(folder)))
    assert [run.seed.item() for run in shown] == [3, 3]
    rewrite(folder, status=lambda rows: TrialStatus.UNRESOLVED)
    assert draw_in_style(draw_growth, store.load_all(folder)) is None


def test_the_lemma_is_drawn_with_the_line_of_its_exponent(sweep):
    (axes,) = draw_in_style(draw_lemma, sweep).axes
    median, line = axes.get_lines()
    error = sweep.alignment_error.isel(step_size=0).squeeze()
    wanted = np.median(error.transpose("dim", "seed").values, axis=1)
    np.testing.assert_allclose(median.get_ydata(), wanted)
    fall = np.diff(np.log(line.get_ydata())) / np.diff(np.log(line.get_xdata()))
    np.testing.assert_allclose(fall, -0.5)


def test_a_map_has_its_edges_where_there_are_any(sweep, monkeypatch):
    dims = np.array([100.0, 1e4, 1e6])
    lines = {"selection": [1.0, 2.0, 3.0], "breaking_lower": [np.nan, 5.0, 6.0]}
    lines |= {"capture_upper": [np.nan] * 3}
    found_edges = [
        edges.Edge(name, dims, np.array(line), np.array(line))
        for name, line in lines.items()
    ]
    monkeypatch.setattr(
        figures, "predicted", lambda grid: edges.Predicted(found_edges, "so")
    )
    figure = draw_in_style(figures.draw_phases, sweep)
    there = {line.get_linestyle(): line for line in figure.axes[0].get_lines()}
    said = [text.get_text() for text in figure.legends[0].get_texts()]
    for (name, line), drawn in zip(lines.items(), ("-", "--", ":"), strict=True):
        np.testing.assert_array_equal(there[drawn].get_ydata(), line)
        label = f"predicted: {EDGES[name.partition('_')[0]][1]}"
        assert (label in said) == (name != "capture_upper")
    (low, high), name = figure.axes[0].get_xlim(), figure.axes[0].get_xlabel()
    assert low < dims[0] and dims[-1] < high < 1e8 and LABELS["dim"] in name
    assert LABELS["step_size"] in figure.axes[0].get_ylabel()


def test_measured_edges_are_drawn_at_predicted_times_ratio():
    row = {"case": "n1", "edge": "capture_lower", "fixed": 1e4, "predicted": 200.0}
    row |= {"ratio": 1.1, "low": 1.0, "high": 1.2}
    other = row | {"case": "n2", "ratio": 9.0}
    _, axes = subplots(figsize=(4, 3))
    finished = results.Finished({}, {"edges": [row, other]}, {}, {})
    phases._measured(axes, finished)
    (bar,) = axes.containers
    assert bar[0].get_xdata()[0] == 1e4
    assert bar[0].get_ydata()[0] == pytest.approx(220.0)
    ends = np.array(bar[2][0].get_segments())[0, :, 1]
    np.testing.assert_allclose(ends, [200.0, 240.0])


def test_words_are_drawn_at_their_columns_and_means_where_words_are():
    across = np.array([0.0, 0.0, 0.3, 0.3])
    upward = np.array([1.0, 3.0, 5.0, 7.0])
    _, axes = subplots(figsize=(4, 3))
    style.cloud(axes, across, upward, "E·v")
    dots, means = axes.get_lines()[:2]
    np.testing.assert_array_equal(dots.get_ydata(), upward)
    shown = ~np.isnan(means.get_ydata())
    np.testing.assert_allclose(means.get_xdata()[shown], [0.0, 0.3])
    np.testing.assert_allclose(means.get_ydata()[shown], [2.0, 6.0])


def test_a_data_set_of_one_cell_has_no_map():
    one = xr.Dataset(coords={"dim": [1.0], "step_size": [1.0, 2.0]})
    assert figures.draw_phases(one) is None


def test_the_folder_of_a_study_is_drawn_by_the_study_it_names(tmp_path, monkeypatch):
    results.write(tmp_path, settings=selection.PRESETS["smoke"], results={"a": 1})
    seen = []
    monkeypatch.setattr(
        selection.main,
        "draw",
        lambda found: seen.append(found) or subplots(figsize=(4, 3))[0],
    )
    assert draw_folder([str(tmp_path)]) == 0
    assert seen[0].results == {"a": 1} and (tmp_path / "selection.png").exists()
    assert draw_folder([str(tmp_path), "--only", "lemma"]) == 2


def test_every_status_has_a_look():
    assert {status.name for status in TrialStatus} | {"MISSING"} == set(STATUS)
