"""The max-margin solution against closed forms, another solver and its optimality.

Source: mathematics, section 3c.
"""

import numpy as np
import pytest
import quadprog
from scipy.stats import ortho_group

from jaxselect.margin.max_margin import MaxMarginStatus
from tests.margin.pair_problems import (
    FAMILIES,
    differences,
    family,
    small_problem,
    solve,
    solve_each,
)
from tests.tolerances import assert_close


def least_norm(embeddings, pairs):
    """The same problem by an active-set method, in coordinates that span the rows."""
    rows = differences(embeddings, pairs)
    basis = np.eye(rows.shape[1])
    if rows.shape[1] > len(embeddings):
        basis = np.linalg.qr(np.asarray(embeddings).T)[0]
    dim = basis.shape[1]
    answer = quadprog.solve_qp(
        np.eye(dim), np.zeros(dim), (rows @ basis).T, np.ones(len(rows))
    )
    return basis @ answer[0]


@pytest.mark.parametrize("name", FAMILIES)
def test_agrees_with_an_active_set_solver(name):
    embeddings, pairs, solution = family(name)
    assert (solution.status == MaxMarginStatus.SOLVED).all()
    assert (solution.iterations <= 20).all()
    for lane in range(len(pairs)):
        wanted = least_norm(embeddings[lane], pairs[lane])
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
    assert solution.active.sum() == 1 and solution.status == MaxMarginStatus.SOLVED


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


def test_more_dimensions_than_tokens_turn_p_along():
    """There the problem is solved in coordinates of the span."""
    _, embeddings, pairs = small_problem(0)
    turn = ortho_group.rvs(20, random_state=0)[:6]
    here, there = solve(embeddings, pairs), solve(embeddings @ turn, pairs)
    assert_close(there.direction, here.direction @ turn, worse=10 * here.norm)
    np.testing.assert_array_equal(there.active, here.active)


@pytest.mark.parametrize("slope", [1e-1, 1e-4])
def test_a_narrow_cone(slope):
    """D = (±1, slope) leaves p = (0, 1/slope), however narrow."""
    embeddings = np.zeros((8, 6))
    embeddings[:2, :2] = [[1.0, slope], [-1.0, slope]]
    pairs = np.zeros((8, 8), bool)
    pairs[:2, 2] = True
    solution = solve(embeddings, pairs)
    assert solution.status == MaxMarginStatus.SOLVED
    assert_close(solution.direction * slope, np.eye(6)[1])


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
    solved = found.status == MaxMarginStatus.SOLVED
    assert solved.mean() > 0.7
    np.testing.assert_array_equal(found.active[solved], pairs[solved])
