"""Max-margin problems without a solution: proved, or refused by a status.

Source: mathematics, section 3c.
"""

import hypothesis
import hypothesis.strategies as st
import jax
import numpy as np
import pytest
from scipy.optimize import linprog

from jaxselect.margin.max_margin import MaxMarginStatus
from tests.margin.pair_problems import (
    contradiction,
    differences,
    small,
    small_problem,
    solve,
    solve_each,
)
from tests.tolerances import assert_close


@hypothesis.settings(max_examples=60)
@hypothesis.given(small, st.booleans())
def test_feasible_or_not_as_a_linear_program_says(seed, planted):
    _, embeddings, pairs = small_problem(seed, planted)
    rows = differences(embeddings, pairs)
    program = linprog(
        np.zeros(6), A_ub=-rows, b_ub=-np.ones(len(rows)), bounds=(None, None)
    )
    solution = solve(embeddings, pairs)
    wanted = MaxMarginStatus.SOLVED if program.success else MaxMarginStatus.INFEASIBLE
    assert solution.status == wanted
    if not program.success:
        assert_farkas(solution, embeddings, pairs)


def assert_farkas(solution, embeddings, pairs):
    """λ ≥ 0 on the pairs, Σλ = 1 and Σλ(E_s − E_r) = 0: no p is ahead on all."""
    assert solution.status == MaxMarginStatus.INFEASIBLE
    duals = solution.duals
    assert (duals >= 0).all() and (duals[~pairs] == 0).all()
    assert_close(duals.sum(), 1.0)
    combination = differences(embeddings, pairs).T @ duals[pairs]
    assert_close(combination, np.zeros(embeddings.shape[1]))
    assert_no_solution(solution)


def assert_no_solution(solution):
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(solution))
    assert (solution.direction == 0).all() and solution.norm == 0
    # Without pairs no margin is missing.
    missing = float(solution.status != MaxMarginStatus.NO_PAIRS)
    assert solution.gap == missing and solution.infeasibility == missing
    assert not solution.active.any()


@pytest.mark.parametrize(
    "name",
    [
        "both ways",
        "a cycle among many pairs",
        "the same embedding twice",
        "a token over itself",
        "all embeddings equal",
        "a token between two",
    ],
)
def test_contradictions_are_proved(name):
    assert_farkas(solve(*contradiction(name)), *contradiction(name))


def test_large_random_contradictions():
    """Random pairs on 64 tokens hold a cycle, most pairs are in none."""
    rng = np.random.default_rng(3)
    embeddings = rng.normal(size=(20, 64, 66)) / 8
    pairs = rng.random((20, 64, 64)) < 0.06
    solution = solve_each(embeddings, pairs)
    for lane in range(20):
        own = jax.tree.map(lambda leaf, lane=lane: leaf[lane], solution)
        assert_farkas(own, embeddings[lane], pairs[lane])


def test_no_pairs():
    solution = solve(np.ones((8, 6)), np.zeros((8, 8), bool))
    assert solution.status == MaxMarginStatus.NO_PAIRS
    assert_no_solution(solution)


def test_not_a_number_is_a_status():
    _, embeddings, pairs = small_problem(0)
    embeddings[2, 1] = np.nan
    solution = solve(embeddings, pairs)
    assert solution.status == MaxMarginStatus.NOT_CONVERGED
    assert_no_solution(solution)
