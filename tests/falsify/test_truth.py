"""The independent flow against closed forms and plain time."""

import numpy as np
from scipy.integrate import solve_ivp

from experiments.falsify.forces import lane, stacked, tangent
from experiments.falsify.truth import Outcome, begin, follow, step

SHAPE = 3, 3, 3
# Error of a trajectory: steps err by 1e-9 each, a few hundred of them, in scores.
GLOBAL = 1e-6


def bag(*tokens):
    return [(token, 1) for token in tokens]


def two_bags(gap):
    """Mathematics 7d: token 1 is behind by the gap, and comes back."""
    bags = [bag(0, 1), bag(0, 2)]
    return lane(np.eye(3), [0.0, -gap, 0.0], [0.0, 1.0, -1.0], bags, [1, 1], SHAPE)


def held(counts):
    """Two labels pull the tokens of one pair both ways."""
    bags = [bag(0, 1), [(0, counts), (1, 1)]]
    return lane(np.eye(2), [1.0, 0.0], [1.0, -1.0], bags, [1, -1], SHAPE)


def test_steps_converge_with_order_four():
    lanes, ends = two_bags(5.0), []
    for number in (20, 40, 640):
        y = begin(lanes).y
        for _ in range(number):
            y = step(lanes, y, np.full(1, 4.0 / number))[0]
        ends.append(y)
    coarse, fine = (np.abs(y - ends[-1]).max() for y in ends[:2])
    assert 14 < coarse / fine < 24


def test_a_token_comes_back_when_mathematics_says():
    gap = 300.0
    back = 2 * gap + np.log(2 / 3)
    lanes = stacked([two_bags(gap)] * 2)
    course = follow(begin(lanes), back + np.array([-1e-2, 1e-2]))
    assert (course.outcome == Outcome.REACHED).all()
    before, after = course.moved + np.array([0.0, -gap, 0.0])
    # It is t itself that decides, so a hundredth of s is a hundredth of t.
    assert before[1] < before[0] - 1
    assert after[1] > after[0] + gap / 2


def test_a_stable_balance_rests():
    """Where both labels hold a pair p rests, and a lopsided balance moves its rest."""
    course = follow(begin(stacked([held(1), held(2)])), 1e4)
    assert (course.outcome == Outcome.RESTS).all()
    for lanes, moved in zip((held(1), held(2)), course.moved, strict=True):
        y = np.append(moved, 0.0)[None]
        # Newton's method finds the rest near; p is that near to it itself.
        assert np.abs(tangent(lanes, y)[0, :-1]).max() < 1e-6


def test_plain_time_agrees():
    """Random bags against SciPy on dp/dt, as far as plain time reaches."""
    random = np.random.default_rng(0)
    rows, start, head = random.normal(size=(3, 3)), random.normal(size=3), [1.0, 0, 0]
    bags, labels = [bag(0, 1, 2), [(0, 5), (2, 1)]], [1, 1]
    counts = np.array([[1, 1, 1], [5, 0, 1]])

    def force(_, p):
        weight = counts * np.exp(rows @ p - (rows @ p).max())
        weight = weight / weight.sum(1, keepdims=True)
        value = rows @ head
        f = weight @ value
        slope = 1 / (1 + np.exp(f)) / 2
        return (slope[:, None] * weight * (value - f[:, None])).sum(0) @ rows

    late = 9.0
    plain = solve_ivp(
        force, (0, np.exp(late) - 1), start, method="Radau", rtol=1e-10, atol=1e-12
    )
    course = follow(begin(lane(rows, start, head, bags, labels, SHAPE)), late)
    np.testing.assert_allclose(start + course.moved[0], plain.y[:, -1], atol=GLOBAL)
