"""Problems whose certificates were refuted once, with the numbers that did it."""

from dataclasses import replace

import numpy as np

from .lines import saddle
from .problem import Problem, problem


def _gauge(until: float, shift: float) -> Problem:
    """Three bags at rest from log t = 20.5 on, and p_0 far along no difference."""
    bags = [[(0, 1000), (1, 1)], [(0, 1), (2, 500)], [(1, 1000), (2, 1)]]
    start = np.array([12.3765, 0.0243, -12.4008]) + shift / np.sqrt(3)
    return problem(np.eye(3), start, [0.0, -1.0, 1.0], bags, [1, 1, -1], until)


def _exact_tie(until: float) -> Problem:
    """D = (1, 0), (1, 1): the dual of the second is zero, and z_2 = log s."""
    rows = [[0.0, 0.0], [-1.0, 0.0], [-1.0, -1.0]]
    return problem(rows, [0.0, 0.0], [1.0, 1.0], [[0, 1], [0, 2]], [1, 1], until)


def _word_comes_back(until: float) -> Problem:
    """An exact tie carries a token of margin 1.01 back, at log t = 109.28."""
    rows = [[0.0, 0.0], [-1.0, 0.0], [-1.0, -1.0], [-1.01, 10.0]]
    bags = [[0, 1], [(0, 400), (2, 1)], [(0, 10), (3, 1)]]
    return problem(rows, [3.0, -3.0], [1.0, 1.0], bags, [1, 1, 1], until)


def _two_lines(until: float) -> Problem:
    """D = (1, 0), (2, 1) with c_1 > 0 > c_2: lines (1, 0) and (1, −1), one unstable."""
    rows = [[0.0, 0.0], [-1.0, 0.0], [-2.0, -1.0]]
    return problem(rows, [2.0, 0.0], [1.0, 0.0], [[0, 1], [0, 2]], [1, -1], until)


NAMED = {
    "gauge, log t = 20": _gauge(20.0, 1e6),
    "without its gauge": _gauge(20.0, 0.0),
    "gauge, log t = 30": _gauge(30.0, 1e6),
    "exact tie, log t = 1e9": _exact_tie(1e9),
    "exact tie, log t = 3e9": _exact_tie(3e9),
    "a word comes back, log t = 34": _word_comes_back(34.0),
    "a word comes back, log t = 60": _word_comes_back(60.0),
    "before the saddle": saddle(3e-8, -2e-5, 20.0),
    "beyond the saddle": saddle(3e-8, 1e-5, 20.0),
    "two lines": _two_lines(30.0),
}
NAMED = {name: replace(made, kind=name) for name, made in NAMED.items()}
