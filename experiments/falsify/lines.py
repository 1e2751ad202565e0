"""Attacks on the late line: ties, margins hardly above one, minima about to vanish."""

from dataclasses import replace

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike
from scipy.optimize import brentq, minimize_scalar

from .problem import Problem, an_end, log_uniform, problem, rotation


def _against(
    random: Generator,
    differences: ArrayLike,
    weak: list[int],
    strong: list[int],
    until: float,
) -> Problem:
    """Bags {0, k} in a plane, where D_k of k ≥ 2 may pull towards the loser.

    The head is drawn such that token 0 deserves to win against 1; the label of every
    other bag, and the strength of all, are drawn.
    """
    differences = np.asarray(differences, float)
    dim = differences.shape[1]
    rows = -np.vstack([np.zeros(dim), differences])
    head = random.normal(size=dim)
    head = head * np.sign(head @ differences[0])
    bags = [[(0, 1), (1, 1)]]
    labels = [1]
    for token in range(2, len(rows)):
        bags.append([(0, random.choice(weak)), (token, random.choice(strong))])
        labels.append(random.choice([-1, 1]))
    start = random.normal(size=dim) * random.choice([0.3, 3.0])
    # At the start token 0 is ahead.
    start = start + differences[0] * random.choice([0.0, 3.0])
    if random.random() < 0.5:
        turn = rotation(random, dim) * random.choice([0.5, 1.0, 2.0])
        rows, head, start = rows @ turn, head @ turn, start @ turn
    return problem(rows, start, head, bags, labels, until)


def near_tie(random: Generator) -> Problem:
    """A second pair whose margin is hardly another than one."""
    shift = random.choice([-1.0, 1.0]) * log_uniform(random, -12, -1)
    differences = [[1.0, 0.0], [1.0 + shift, random.choice([-1.0, 1.0])]]
    if random.random() < 0.5:
        differences.append([1.0 + log_uniform(random, -3, 0), random.normal()])
    return _against(random, differences, [1, 10], [1, 10, 400], an_end(random))


def zero_dual(random: Generator) -> Problem:
    """A pair of margin one that p_mm does not need."""
    differences = [[1.0, 0.0], [1.0, 1.0]]
    if random.random() < 0.5:
        above = random.choice([0.01, 0.1, 1.0])
        differences.append([1.0 + above, random.choice([-10.0, -1.0, 1.0])])
    until = log_uniform(random, 1.2, 9.5)
    return _against(random, differences, [1, 10, 400], [1, 10], until)


def margin_above_one(random: Generator) -> Problem:
    """A pair that has to fade, and does so slowly."""
    lever = random.choice([0.0, 1.0, 10.0, 100.0]) * random.choice([-1.0, 1.0])
    differences = [[1.0, 0.0], [1.0 + log_uniform(random, -4, -1), lever]]
    if random.random() < 0.7:
        duality = random.choice([0.0, log_uniform(random, -4, -1)])
        differences.insert(1, [1.0 - duality, random.choice([-1.0, 1.0])])
    return _against(random, differences, [1, 10, 400], [1, 10], an_end(random))


def lever(random: Generator) -> Problem:
    """A small error of the slow pair is a large one of a pair that has to fade."""
    dual = log_uniform(random, -4, -1)
    lever = log_uniform(random, 2, 6) * random.choice([-1.0, 1.0])
    differences = [
        [1.0, 0.0],
        [1.0 - dual, 1.0],
        [1.0 + log_uniform(random, -2, 1), lever],
    ]
    until = log_uniform(random, 0.8, 3.0)
    return _against(random, differences, [1, 10], [1, 10, 400], until)


def saddle(near: float, beyond: float, ahead: float, norm: float = 1e4) -> Problem:
    """An active pair of the wrong sign, as minimum and saddle of Φ nearly merge.

    E = I, bags {i, j}, i ∈ {0, 1}, j ∈ {2, 3, 4}. Duals λ_ij = c_ij e^{−(ρ_i − ρ_j)}
    with row sums 0.6 and column sums 0.4 have one free number, ξ = −λ_02, and a
    critical point of Φ is a ξ with ξ(0.1 − ξ/2)/((0.3 + ξ/2)(0.4 + ξ)) = κ: a minimum,
    then a saddle, which merge at the largest κ.

    Args:
        near: 1 − κ over that largest κ.
        beyond: distance of p_0 from the saddle, in ξ.
        ahead: p_0 is on the line of its ξ where log t is this; p waits till then.
        norm: ‖p‖ to stop at.
    """

    def ratio(xi: float) -> float:
        return xi * (0.1 - xi / 2) / ((0.3 + xi / 2) * (0.4 + xi))

    middle = minimize_scalar(
        lambda xi: -ratio(xi), bounds=(0.0, 0.2), method="bounded", options={"xatol": 0}
    ).x
    wanted = (1 - near) * ratio(middle)
    xi = middle
    if near > 0:
        xi = brentq(lambda xi: ratio(xi) - wanted, middle, 0.2, xtol=1e-15)
    xi = min(max(xi + beyond, 1e-6), 0.2 - 1e-6)
    values = np.array([1.0, 2.0, 1.0 + wanted / (2 + wanted), 0.0, 0.0])
    strength = (values[1] - values[2:]) / (1 + np.exp(values[1])) / 9
    duals = np.array([0.4 + xi, 0.1 - xi / 2, 0.1 - xi / 2])
    first = 1 / (1 + np.exp(values[0])) / 9 / (0.3 + xi / 2)
    losers = np.log(duals / strength)
    winners = np.array([np.log(first) + losers[1], 0.0])
    start = ahead * np.array([0.6, 0.6, -0.4, -0.4, -0.4])
    start = start + np.concatenate([winners, losers])
    bags = [[(i, 1), (j, 1)] for i in (0, 1) for j in (2, 3, 4)] + [[2], [3], [4]]
    labels = [1] * 6 + [-1] * 3
    return problem(np.eye(5), start, values, bags, labels, 1e15, norm)


def near_saddle(random: Generator) -> Problem:
    """A `saddle` with p about to leave it, or to be drawn in."""
    if random.random() < 0.5:
        # From beyond so near a saddle p takes log-times of 10⁴ to leave it.
        near, beyond = log_uniform(random, -9, -6), random.uniform(-3e-5, 3e-5)
    else:
        near = random.choice([-1.0, 1.0]) * log_uniform(random, -6, -1)
        beyond = np.sqrt(abs(near)) * random.uniform(-0.6, 0.3)
    ahead = random.choice([10.0, 20.0, 40.0])
    made = saddle(near, beyond, ahead)
    if random.random() < 0.5:
        until = random.choice([100.0, 1e3, 1e4])
        made = replace(made, until_log_time=until, until_norm=np.inf)
    return made
