"""The max-margin solution against closed forms, another solver and its optimality.

Source: mathematics, section 3c.
"""

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
from scipy.stats import ortho_group

from jaxselect.status import Reason
from tests.margin.exact import assert_true
from tests.margin.pair_problems import (
    CONTRADICTIONS,
    FAMILIES,
    contradiction,
    differences,
    family,
    separable,
    small,
    small_problem,
    solve,
    solve_each,
)
from tests.problem.independent import shortest
from tests.tolerances import assert_close


@pytest.mark.parametrize("name", FAMILIES)
def test_agrees_with_an_active_set_solver(name):
    embeddings, pairs, solution = family(name)
    assert (solution.status == Reason.NONE).all()
    assert (solution.iterations <= 20).all()
    for lane in range(len(pairs)):
        wanted = shortest(differences(embeddings[lane], pairs[lane]))
        error = np.linalg.norm(solution.direction[lane] - wanted)
        assert error <= 1e-9 * np.linalg.norm(wanted)


def test_one_pair():
    """p = D/‖D‖² and λ = 1/‖D‖²."""
    embeddings = np.random.default_rng(0).normal(size=(8, 6))
    pairs = np.zeros((8, 8), bool)
    pairs[3, 1] = True
    solution = solve(embeddings, pairs)
    row = embeddings[3] - embeddings[1]
    assert_close(solution.direction, row / (row @ row))
    assert_close(solution.norm, 1 / np.linalg.norm(row))
    assert_close(solution.duals[3, 1], 1 / (row @ row))
    assert solution.active.sum() == 1 and solution.status == Reason.NONE


@pytest.mark.parametrize("winners", [1, 2, 5])
def test_all_over_all(winners):
    """Orthonormal tokens, k winners over m losers: ‖p‖² = km/(k+m), all pairs active.

    With k > 1 these are the pairs of a sequence that keeps k tokens selected: an edge
    from every one of them into every loser, and none among them.
    """
    losers = 6 - winners
    pairs = np.zeros((8, 8), bool)
    pairs[:winners, winners:6] = True
    solution = solve(np.eye(8, 6), pairs)
    scores = np.r_[np.full(winners, losers), np.full(losers, -winners)] / 6
    assert_close(solution.direction, scores)
    assert_close(solution.norm, (winners * losers / 6) ** 0.5)
    np.testing.assert_array_equal(solution.active, pairs)


def test_active_pairs_where_p_is_long_on_every_axis():
    """A cone of slope 1e-4, turned: scores of length 10⁴ cancel to leads of one."""
    problems = []
    for seed in range(32):
        embeddings = np.zeros((8, 6))
        embeddings[:2, :2] = [[1.0, 1e-4], [-1.0, 1e-4]]
        turn = ortho_group.rvs(6, random_state=seed)
        pairs = np.zeros((8, 8), bool)
        pairs[:2, 2] = True
        problems.append((embeddings @ turn, pairs))
    embeddings, pairs = map(np.stack, zip(*problems, strict=True))
    found = solve_each(embeddings, pairs)
    solved = found.status == Reason.NONE
    assert solved.mean() > 0.7
    np.testing.assert_array_equal(found.active[solved], pairs[solved])


@hypothesis.settings(max_examples=60)
@hypothesis.given(small, st.booleans())
def test_feasible_or_not_as_a_linear_program_says(seed, planted):
    _, embeddings, pairs = small_problem(seed, planted)
    solution = solve(embeddings, pairs)
    possible = separable(differences(embeddings, pairs))
    wanted = Reason.NONE if possible else Reason.INFEASIBLE
    assert solution.status == wanted
    assert_true(embeddings, pairs, solution)


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_contradictions_are_proved(name):
    """By Farkas: λ ≥ 0 on the pairs, Σ λ = 1 and Σ λ D = 0."""
    solution = solve(*contradiction(name))
    assert solution.status == Reason.INFEASIBLE
    assert_true(*contradiction(name), solution)


@pytest.mark.parametrize(
    ("entry", "some", "status"),
    [(1.0, False, "NONE"), (np.nan, True, "NOT_CONVERGED")],
)
def test_nothing_to_solve_and_no_number_are_statuses(entry, some, status):
    _, embeddings, pairs = small_problem(0)
    embeddings[2, 1], pairs = entry, pairs & some
    solution = solve(embeddings, pairs)
    assert solution.status == Reason[status]
    assert_true(embeddings, pairs, solution)
