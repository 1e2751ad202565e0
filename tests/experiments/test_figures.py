"""Figures show the results on disk, and the edges of the theory over their map."""

import numpy as np
import pytest

from experiments.beyond import step_size
from experiments.common import edges, results
from experiments.common.palette import EDGES, STATUS
from experiments.common.style import draw_in_style, subplots
from experiments.figures.__main__ import main as draw_folder
from experiments.sweep import figures
from experiments.sweep.figures import draw_direction, draw_growth
from jaxselect.margin.certificate import TrialStatus
from jaxselect.sweep import store
from jaxselect.sweep.labels import LABELS
from tests.experiments.invented_results import invent_sweep

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


def test_the_folder_of_a_study_is_drawn_by_the_study_it_names(tmp_path, monkeypatch):
    results.write(tmp_path, settings=step_size.PRESETS["smoke"], results={"a": 1})
    seen = []
    monkeypatch.setattr(
        step_size.main,
        "draw",
        lambda found: seen.append(found) or subplots(figsize=(4, 3))[0],
    )
    assert draw_folder([str(tmp_path)]) == 0
    assert seen[0].results == {"a": 1} and (tmp_path / "step_size.png").exists()
    assert draw_folder([str(tmp_path), "--only", "lemma"]) == 2


def test_every_status_has_a_look():
    assert {status.name for status in TrialStatus} | {"MISSING"} == set(STATUS)


GRID = {
    "family": "exact",
    "embed": "embedding_step",
    "sequences": [200, 1000],
    "length": [8],
    "relevant": [8],
    "irrelevant": [48],
    "dim": [1e4, 1e6],
}


def test_every_shape_of_a_sweep_has_its_own_edges_over_the_whole_map(monkeypatch):
    """Edges invented from n; those that are nowhere are no number."""
    asked = []

    def invented(shape, dims):
        asked.append(dims)
        found = np.full((5, len(dims)), float(shape[0]))
        found[1], found[2:] = np.inf, 0.0
        return found, found == 200

    monkeypatch.setattr(edges, "over", invented)
    found, note = edges.predicted(GRID | {"purity": [1.0]})
    assert [one.name for one in found] == [*edges.NAMES] * 2
    assert np.all(found[0].step_sizes == 200) and np.all(found[5].step_sizes == 1000)
    assert all(np.isnan(one.step_sizes).all() for one in found[1:5])
    assert np.all(found[0].within == 200) and np.all(found[5].within == 1000)
    assert note == ""
    monkeypatch.setattr(edges, "over", lambda *_: (np.ones((5, 13)), np.eye(5, 13) > 0))
    found, note = edges.predicted(GRID)
    assert [np.isfinite(one.within).sum() for one in found[:5]] == [13, 1, 1, 1, 1]
    assert note.startswith("pale lines")
    np.testing.assert_allclose([asked[0][0], asked[0][-1]], [1e3, 1e7])


def test_a_family_beyond_the_theory_has_none():
    beyond = {
        "family": "classes",
        "per_sequence": [2],
        "purity": [0.9],
        "embed": "my:e",
    }
    for other in ({name: value} for name, value in beyond.items()):
        found, note = edges.predicted(GRID | other)
        assert found == [] and note.startswith("no predicted lines")
