"""The benchmark poses everybody the same problem and measures every answer alike."""

import importlib.util

import jax
import numpy as np
import pytest

from experiments.benchmarks.max_margin import (
    FAMILIES,
    RIVALS,
    instance,
    problem,
    relative_gap,
)
from jaxselect.margin.max_margin import max_margin

INSTALLED = [
    name
    for name, (package, _) in RIVALS.items()
    if importlib.util.find_spec(package) is not None
]


@pytest.mark.parametrize("family", FAMILIES)
def test_every_solver_at_hand_finds_our_solution(family):
    embeddings, pairs = instance(family, 12, 0)
    given = problem(embeddings, pairs)
    solution = jax.jit(max_margin)(embeddings, pairs)
    bound = float(solution.norm) ** 2 / 2
    for name in INSTALLED:
        answer = RIVALS[name][1](given)
        assert abs(relative_gap(answer, given, bound)) < 1e-6, name
        np.testing.assert_allclose(answer, solution.direction, atol=1e-5)


def test_the_gap_of_an_answer():
    """Zero for the solution at any scale, one where a pair is on the wrong side."""
    given = problem(np.eye(2), np.array([[False, True], [False, False]]))
    solution = np.array([0.5, -0.5])
    assert relative_gap(3 * solution, given, 0.25) == 0
    assert relative_gap(np.array([1.0, 0.0]), given, 0.25) == 0.5
    assert relative_gap(-solution, given, 0.25) == 1
    assert relative_gap(None, given, 0.25) == 1
