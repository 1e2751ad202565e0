"""The max-margin solution against closed forms, another solver and its optimality."""

import functools

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import quadprog
from scipy.optimize import linprog
from scipy.stats import ortho_group

from jaxselect.max_margin import MaxMarginStatus, max_margin

from .tolerances import assert_close

solve = jax.jit(max_margin)


@jax.jit
def solve_each(embeddings, pairs):
    return jax.lax.map(lambda problem: max_margin(*problem), (embeddings, pairs))


def split(rng, vocabulary, dim):
    """Every relevant token meets half of the irrelevant ones and beats them."""
    embeddings = rng.normal(size=(vocabulary, dim)) / dim**0.5
    relevant, irrelevant = np.split(rng.permutation(vocabulary), [vocabulary // 4])
    pairs = np.zeros((vocabulary, vocabulary), bool)
    for winner in relevant:
        pairs[winner, rng.choice(irrelevant, len(irrelevant) // 2, replace=False)] = 1
    return embeddings, pairs


def bags(rng, vocabulary, dim):
    """In each of many bags the token on top under a planted p beats the others."""
    embeddings = rng.normal(size=(vocabulary, dim)) / dim**0.5
    scores = embeddings @ rng.normal(size=dim)
    pairs = np.zeros((vocabulary, vocabulary), bool)
    for _ in range(2 * vocabulary):
        bag = rng.choice(vocabulary, 8, replace=False)
        pairs[bag[np.argmax(scores[bag])], bag] = True
    np.fill_diagonal(pairs, False)
    return embeddings, pairs


def long_axis(rng, vocabulary, dim):
    """As after a large step on E: relevant tokens lie 250 times farther out along v."""
    embeddings, pairs = split(rng, vocabulary, dim)
    outer = 250 * rng.uniform(0.5, 1.5, vocabulary) * rng.choice([-1, 1], vocabulary)
    embeddings[:, 0] += np.where(pairs.any(axis=1), outer, 0.0)
    return embeddings, pairs


# 250 instances: with more dimensions than tokens, about as many, and fewer.
FAMILIES = {
    "split": (split, 64, 66),
    "bags": (bags, 64, 66),
    "bags in few dimensions": (bags, 64, 16),
    "bags in many dimensions": (bags, 64, 600),
    "one long axis": (long_axis, 64, 66),
}


@functools.cache
def family(name, number=50):
    maker, vocabulary, dim = FAMILIES[name]
    rng = np.random.default_rng(sorted(FAMILIES).index(name))
    problems = [maker(rng, vocabulary, dim) for _ in range(number)]
    embeddings, pairs = map(np.stack, zip(*problems, strict=True))
    return embeddings, pairs, solve_each(jnp.asarray(embeddings), jnp.asarray(pairs))


def differences(embeddings, pairs):
    winner, loser = np.nonzero(pairs)
    return np.asarray(embeddings)[winner] - np.asarray(embeddings)[loser]


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


small = st.integers(0, 2**32 - 1)


def small_problem(seed, planted=True):
    """Eight tokens in six dimensions, some twenty pairs."""
    rng = np.random.default_rng(seed)
    embeddings = rng.normal(size=(8, 6))
    scores = embeddings @ rng.normal(size=6)
    pairs = rng.random((8, 8)) < 0.4
    np.fill_diagonal(pairs, False)
    if planted:
        pairs &= scores[:, None] > scores[None, :] + 0.3
    pairs[np.argmax(scores), np.argmin(scores)] = True
    return rng, embeddings, pairs


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
    duals = np.asarray(solution.duals)
    assert (duals >= 0).all() and (duals[~pairs] == 0).all()
    assert_close(duals.sum(), 1.0)
    combination = differences(embeddings, pairs).T @ duals[pairs]
    assert_close(combination, np.zeros(embeddings.shape[1]))
    assert_no_solution(solution)


def assert_no_solution(solution):
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(solution))
    assert (solution.direction == 0).all() and solution.norm == 0
    assert not solution.active.any()


def contradiction(name):
    _, embeddings, pairs = small_problem(1)
    if name == "both ways":
        pairs |= pairs.T
    if name == "a cycle among many pairs":
        pairs[[0, 1, 2], [1, 2, 0]] = True
    if name == "the same embedding twice":
        embeddings[3] = embeddings[4]
        pairs[3, 4] = True
    if name == "a token over itself":
        pairs[5, 5] = True
    if name == "all embeddings equal":
        embeddings[:] = embeddings[0]
    if name == "a token between two":
        embeddings[0] = 0.25 * embeddings[1] + 0.75 * embeddings[2]
        pairs[:] = False
        pairs[0, [1, 2]] = True
    return embeddings, pairs


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
    assert solution.gap == 0 and solution.infeasibility == 0
    assert_no_solution(solution)


def test_not_a_number_is_a_status():
    _, embeddings, pairs = small_problem(0)
    embeddings[2, 1] = np.nan
    solution = solve(embeddings, pairs)
    assert solution.status == MaxMarginStatus.NOT_CONVERGED
    assert_no_solution(solution)


def test_a_batch_is_its_lanes():
    """Solved, infeasible and empty problems side by side."""
    problems = [small_problem(seed)[1:] for seed in range(4)]
    problems += [contradiction("both ways"), (np.ones((8, 6)), np.zeros((8, 8), bool))]
    embeddings, pairs = map(np.stack, zip(*problems, strict=True))
    together = jax.jit(jax.vmap(max_margin))(embeddings, pairs)
    for lane, problem in enumerate(problems):
        alone = solve(*problem)
        assert together.status[lane] == alone.status
        assert_close(together.direction[lane], alone.direction, worse=100)
        np.testing.assert_array_equal(together.active[lane], alone.active)


@pytest.mark.parametrize("name", FAMILIES)
def test_float32(name):
    """Relative error of p below 16 roundings times (‖p‖ max‖E_s‖)², gap below 5e-4.

    Where that leaves two digits or more the problem must be solved, else it may say
    that it is not; that happens only with one long axis.
    """
    embeddings, pairs, wanted = family(name)
    some = slice(0, 20)
    solution = solve_each(jnp.float32(embeddings[some]), jnp.asarray(pairs[some]))
    assert solution.direction.dtype == jnp.float32
    solved = np.asarray(solution.status == MaxMarginStatus.SOLVED)
    norm = np.asarray(wanted.norm[some])
    size = np.linalg.norm(embeddings[some], axis=2).max(axis=1)
    bound = 16 * float(np.finfo(np.float32).eps) * (norm * size) ** 2
    assert solved[bound < 1e-2].all()
    assert (bound < 1e-2).any() or name == "one long axis"
    error = np.asarray(solution.direction) - np.asarray(wanted.direction[some])
    assert (np.linalg.norm(error, axis=1) <= bound * norm)[solved].all()
    assert (solution.gap[solved] <= 5e-4).all()
