"""The max-margin solution against closed forms, another solver and its optimality."""

import hypothesis
import hypothesis.strategies as st
import jax
import numpy as np
import pytest
import quadprog
from scipy.stats import ortho_group

from jaxselect.margin.max_margin import MaxMarginStatus
from tests.margin.pair_problems import (
    FAMILIES,
    contradiction,
    differences,
    family,
    small,
    small_problem,
    solve,
    solve_each,
    solve_together,
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
    for lane in range(len(pairs)):
        wanted = least_norm(embeddings[lane], pairs[lane])
        error = np.linalg.norm(solution.direction[lane] - wanted)
        assert error <= 1e-9 * np.linalg.norm(wanted)


@pytest.mark.parametrize("name", FAMILIES)
def test_certificate_and_optimality(name):
    """Gap, feasibility, p = Dᵀλ with λ ≥ 0, and λ = 0 wherever p is ahead by more."""
    embeddings, pairs, solution = family(name)
    assert (solution.gap <= 1e-12).all() and (solution.infeasibility <= 1e-12).all()
    assert (solution.iterations <= 20).all()
    for lane in range(len(pairs)):
        own = jax.tree.map(lambda leaf, lane=lane: np.asarray(leaf[lane]), solution)
        assert (own.duals >= 0).all() and (own.duals[~pairs[lane]] == 0).all()
        stationary = (
            differences(embeddings[lane], pairs[lane]).T @ own.duals[pairs[lane]]
        )
        # The duals of a few hundred pairs cancel to p: ‖p‖ says by how much.
        assert_close(stationary / own.norm, own.direction / own.norm, worse=10)
        assert (own.active | (own.duals == 0)).all()
        scores = embeddings[lane] @ own.direction
        ahead = scores[:, None] - scores[None, :]
        assert_close(ahead[own.active], np.ones(own.active.sum()), worse=100)
        assert (ahead[pairs[lane] & ~own.active] > 1).all()
        # Weak duality holds for any p and λ; here both sides are equal.
        value = own.duals.sum() - 0.5 * stationary @ stationary
        assert_close(value / own.norm**2, 0.5)


def test_active_pairs_outnumber_their_rank():
    """Degenerate duals are the rule, so the families above must hold such cases."""
    embeddings, _, solution = family("split")
    active = np.asarray(solution.active[0])
    rank = np.linalg.matrix_rank(differences(embeddings[0], active))
    assert active.sum() > 2 * rank


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


@hypothesis.given(small)
def test_rotation_turns_p(seed):
    rng, embeddings, pairs = small_problem(seed)
    turn = ortho_group.rvs(6, random_state=rng)
    here, there = solve(embeddings, pairs), solve(embeddings @ turn, pairs)
    # Both are rounded at the size of p; a narrow margin amplifies it once more.
    assert_close(there.direction, here.direction @ turn, worse=10 * here.norm)
    np.testing.assert_array_equal(here.active, there.active)


@hypothesis.given(small, st.floats(1e-6, 1e6))
def test_scaling_and_shifting_the_tokens(seed, scale):
    """E → cE + 1uᵀ gives p/c: only differences count."""
    rng, embeddings, pairs = small_problem(seed)
    here = solve(embeddings, pairs)
    there = solve(scale * (embeddings + rng.normal(size=6)), pairs)
    assert_close(there.direction * scale, here.direction, worse=10 * here.norm)
    assert_close(there.duals * scale**2, here.duals, worse=100 * here.norm**2)


@hypothesis.given(small)
def test_relabelling_the_tokens(seed):
    rng, embeddings, pairs = small_problem(seed)
    order = rng.permutation(8)
    here = solve(embeddings, pairs)
    there = solve(embeddings[order], pairs[np.ix_(order, order)])
    assert_close(there.direction, here.direction, worse=10 * here.norm)
    np.testing.assert_array_equal(there.active, here.active[np.ix_(order, order)])


@hypothesis.given(small)
def test_a_pair_more_costs_norm(seed):
    """A constraint more never shortens p, and changes nothing if it held anyway."""
    rng, embeddings, pairs = small_problem(seed)
    here = solve(embeddings, pairs)
    scores = embeddings @ here.direction
    held = pairs | (scores[:, None] - scores[None, :] > 1 + 1e-6)
    assert_close(
        solve(embeddings, held).direction, here.direction, worse=10 * here.norm
    )
    fewer = pairs & (rng.random((8, 8)) < 0.7)
    assert solve(embeddings, fewer).norm <= here.norm * (1 + 1e-12)


def test_a_batch_is_its_lanes():
    """Solved, infeasible and empty problems side by side."""
    problems = [small_problem(seed)[1:] for seed in range(4)]
    problems += [contradiction("both ways"), (np.ones((8, 6)), np.zeros((8, 8), bool))]
    embeddings, pairs = map(np.stack, zip(*problems, strict=True))
    together = solve_together(embeddings, pairs)
    for lane, problem in enumerate(problems):
        alone = solve(*problem)
        assert together.status[lane] == alone.status
        assert_close(together.direction[lane], alone.direction, worse=100)
        np.testing.assert_array_equal(together.active[lane], alone.active)
