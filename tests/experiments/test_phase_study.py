"""The study of the phase diagram: what it reads off a path, and how it bisects."""

from dataclasses import make_dataclass

import numpy as np
import pytest

from experiments.common.results import write
from experiments.figures import __main__ as drawn
from experiments.theory import _phase_lanes, _phase_questions
from experiments.theory._phase_lanes import MARKS, Run
from experiments.theory._phase_questions import Case, Prediction, bisect, questions
from experiments.theory._phase_ratios import compare, share_within
from experiments.theory.phases import DIMS
from jaxselect.flow.cls_flow import FlowStatus
from jaxselect.sweep.grid import Shape

TIMES = np.asarray(MARKS)
CASE = Case("any", Shape(8, 4, 2, 6, 1), (1e4, 1e6))


def observed(winner, loser, status=FlowStatus.REACHED):
    path = np.stack([winner, loser], axis=1)
    return _phase_lanes.observe(path, path[-1], np.int32(status))


def test_a_return_is_timed_and_its_side_does_not_matter():
    """Odds of the loser that fall until log-time 2, and pass one at log-time 10."""
    odds = np.exp(np.where(TIMES < 2, -3 * TIMES, 1.5 * (TIMES - 2) - 6 * 2))
    loser = odds / (1 + odds)
    winner = np.full_like(TIMES, 0.9)
    for pair in ((winner, loser), (loser, winner)):
        found = observed(*pair)
        np.testing.assert_allclose(found.log_time, 10.0, rtol=0.01)
        np.testing.assert_allclose(found.ratio, np.log(0.9) + 6 + 6, rtol=0.05)


def test_a_class_that_stays_away_never_returns():
    gone = observed(np.full_like(TIMES, 1.0), np.exp(-TIMES) / 2)
    assert np.isnan(gone.log_time)
    assert _phase_lanes.captured(gone) and not _phase_lanes.selected(gone)


def test_conditions_ask_for_whole_classes_at_the_norm():
    whole = np.full_like(TIMES, 1.0)
    for status, other, selected, captured in (
        (FlowStatus.REACHED, 1.0, True, False),
        (FlowStatus.BALANCED, 1.0, False, False),
        (FlowStatus.REACHED, 0.998, False, False),
        (FlowStatus.REACHED, 0.4, False, True),
    ):
        found = observed(whole, other * whole, status)
        assert _phase_lanes.selected(found) == selected
        assert _phase_lanes.captured(found) == captured
    assert not _phase_lanes.broken(observed(whole, 0.51 * whole))
    assert _phase_lanes.broken(observed(whole, 0.49 * whole))


def diagram(dim, step_size):
    """Edges at η₀ = 100/√d, 40, 60, 200 and 500, and d_c = 10⁶."""
    captured = (step_size > 60) & (step_size < 200) & (dim < 1e6)
    selected = (step_size > 100 / np.sqrt(dim)) & ~captured
    broken = (step_size > 40) & (step_size < 500)
    return Run(
        ratio=np.where(broken, 1.0, 0.1),
        log_time=np.full(len(dim), np.nan),
        least=np.where(selected, 1.0, 0.0),
        most=np.ones(len(dim)),
        reached=np.ones(len(dim), int),
    )


def test_bisection_finds_every_edge_from_either_side():
    off = 1.2
    edges = np.array([[100 / np.sqrt(d), 40, 500, 60, 200] for d in CASE.dims]) * off
    guessed = Prediction(edges=edges[:1], middle=np.array([150.0]), critical=600.0)
    one = Case("any", CASE.shape, CASE.dims[:1])
    asked = questions(one, guessed, np.arange(3))
    ended = bisect(asked, 12, lambda seed, dim, step: diagram(dim, step))
    rows = {row["edge"]: row for row in compare(one, asked, ended)}
    assert set(rows) == set(_phase_questions.NAMES)
    for name, row in rows.items():
        wanted = 1.0 if name == "largest_dim" else 1 / off
        np.testing.assert_allclose(row["ratio"], wanted, rtol=2e-3)
        assert row["at_an_end"] == 0
        assert row["low"] <= row["ratio"] <= row["high"]


def test_an_edge_outside_its_bracket_is_said_to_be_at_an_end():
    edges = np.array([[1.0, 10.0, 2000.0, np.nan, np.nan]])
    guessed = Prediction(edges=edges, middle=np.full(2, np.nan), critical=1e4)
    one = Case("any", CASE.shape, CASE.dims[:1])
    asked = questions(one, guessed, np.arange(2))
    ended = bisect(asked, 3, lambda seed, dim, step: diagram(dim, step))
    rows = {row["edge"]: row for row in compare(one, asked, ended)}
    assert set(rows) == {"selection", "breaking_lower", "breaking_upper"}
    assert rows["breaking_lower"]["at_an_end"] == 1
    assert rows["breaking_upper"]["at_an_end"] == 1
    assert rows["selection"]["at_an_end"] == 0


def test_rounds_are_read_back_as_they_were(tmp_path):
    (tmp_path / "chunks").mkdir()
    made = diagram(np.array([1e4, 1e5]), np.array([30.0, 100.0]))
    first = _phase_questions.kept(tmp_path, 7, set(), lambda: made)
    again = _phase_questions.kept(tmp_path, 7, {7}, pytest.fail)
    for one, other, known in zip(first, again, made, strict=True):
        np.testing.assert_array_equal(one, other)
        np.testing.assert_array_equal(one, known)


def test_shares_are_of_ratios_on_either_side():
    assert share_within([0.8, 1.0, 1.25, 1.3], 1.26) == 0.75
    assert np.isnan(share_within([], 2.0)) and len(DIMS) == 4


def test_a_sweep_is_drawn_with_the_edges_of_its_own_problem(tmp_path):
    problem = {"sequences": 8, "length": 4, "relevant": 2, "irrelevant": 6}
    settings = make_dataclass("Settings", ["problem"])(problem=problem)
    grid = {name: [size] for name, size in problem.items()}
    assert drawn._predicted(tmp_path / "default", grid) == {}
    found = {"dims": [100.0, 1e4], "selection": [60.0, 6.0]}
    write(tmp_path / "edges", settings=settings, results=found)
    edges = drawn._predicted(tmp_path / "default", grid)
    assert edges == {"dim": found["dims"], "selection": found["selection"]}
    other = grid | {"length": [5]}
    assert drawn._predicted(tmp_path / "default", other) == {}
    several = grid | {"length": [4, 8]}
    assert drawn._predicted(tmp_path / "default", several) == {}
