"""The study of the phase diagram: what it reads off a path, and how it bisects."""

import numpy as np
import pytest

from experiments.beyond import phases
from experiments.beyond.phases import MARKS, Case, Prediction, Run, Shape, brackets
from jaxselect.status import Reason

TIMES = np.asarray(MARKS)
CASE = Case("any", Shape(8, 4, 2, 6), (1e4, 1e6))


def observed(winner, loser, status=Reason.NONE):
    path = np.stack([winner, loser], axis=1)
    return phases.observe(path, path[-1], np.int32(status))


@pytest.mark.parametrize("back", [9.7, 10.0, 10.2])
def test_a_return_is_timed_and_its_side_does_not_matter(back):
    """Odds of the loser that fall until log-time 2, and pass one at another."""
    rise = 1.5 * (TIMES - back)
    odds = np.exp(np.where(TIMES < 2, -0.75 * (back - 2) * TIMES, rise))
    loser = odds / (1 + odds)
    winner = np.full_like(TIMES, 0.9)
    for pair in ((winner, loser), (loser, winner)):
        found = observed(*pair)
        np.testing.assert_allclose(found.log_time, back, rtol=0.005)
        wanted = np.log(0.9) + 1.5 * (back - 2)
        np.testing.assert_allclose(found.ratio, wanted, rtol=0.05)


def test_a_class_that_stays_away_never_returns():
    gone = observed(np.full_like(TIMES, 1.0), np.exp(-TIMES) / 2)
    assert np.isnan(gone.log_time)
    assert phases.captured(gone) and not phases.selected(gone)


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
    asked = brackets(one, guessed, np.arange(3))
    dims = []

    def answer(seed, dim, step_size):
        dims.extend(dim)
        return diagram(dim, step_size)

    ended = phases.bisect(asked, 12, answer)
    # Nobody can ask for half a dimension.
    assert all(float(dim).is_integer() for dim in dims)
    rows = {row["edge"]: row for row in phases.compare(one, asked, ended)}
    assert set(rows) == set(phases.NAMES)
    for name, row in rows.items():
        wanted = 1.0 if name == "largest_dim" else 1 / off
        np.testing.assert_allclose(row["ratio"], wanted, rtol=2e-3)
        assert row["at_an_end"] == 0
        assert row["low"] <= row["ratio"] <= row["high"]
