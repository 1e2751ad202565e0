"""The max-margin solution and its derivative in single precision."""

from functools import cache, partial

import jax
import numpy as np
import pytest

from jaxselect.margin.max_margin import MaxMarginStatus, with_derivatives
from tests.margin.pair_problems import FAMILIES, family, mixed_problem, solve_each


@cache
def single(name):
    """Their solutions in single precision."""
    embeddings, pairs, _ = family(name)
    return solve_each(embeddings.astype(np.float32), pairs)


@pytest.mark.parametrize("name", FAMILIES)
def test_float32(name):
    """Relative error of p below 16 roundings times (‖p‖ max‖E_s‖)², gap below 5e-4.

    Where that leaves two digits or more the problem must be solved, else it may say
    that it is not; and it is known after no more iterations than in double precision.
    """
    embeddings, _, wanted = family(name)
    solution = single(name)
    assert solution.direction.dtype == np.float32
    solved = solution.status == MaxMarginStatus.SOLVED
    norm = wanted.norm
    size = np.linalg.norm(embeddings, axis=2).max(axis=1)
    bound = 16 * float(np.finfo(np.float32).eps) * (norm * size) ** 2
    assert solved[bound < 1e-2].all()
    assert (bound < 1e-2).any() or name == "one long axis"
    error = solution.direction - wanted.direction
    assert (np.linalg.norm(error, axis=1) <= bound * norm)[solved].all()
    assert (solution.gap[solved] <= 5e-4).all()
    assert (solution.iterations <= 20).all()


@jax.jit
def slopes(embeddings, solutions, changes):
    """Slopes of p along a change of E, one problem after the other."""

    def slope(problem):
        tokens, solution, change = problem
        known = lambda tokens: with_derivatives(tokens, solution).direction  # noqa: E731
        return jax.jvp(known, (tokens,), (change,))[1]

    return jax.lax.map(slope, (embeddings, solutions, changes))


@pytest.mark.parametrize("name", FAMILIES)
def test_derivatives_in_float32(name):
    """Three digits of dp, also where one axis is hundreds of times longer."""
    embeddings, _, solution = family(name)
    few = partial(jax.tree.map, lambda leaf: leaf[:4])
    tokens = few(embeddings)
    changes = np.random.default_rng(0).normal(size=tokens.shape)
    wanted = np.asarray(slopes(tokens, few(solution), changes))
    tokens, changes = tokens.astype(np.float32), changes.astype(np.float32)
    got = np.asarray(slopes(tokens, few(single(name)), changes))
    assert got.dtype == np.float32
    away = np.linalg.norm(got - wanted, axis=1)
    assert (away <= 1e-3 * np.linalg.norm(wanted, axis=1)).all()


@pytest.mark.parametrize(
    ("name", "decades", "lost"),
    [("far from the origin", 7.0, False), ("long and short axes", 6.0, True)],
)
def test_a_derivative_has_two_digits_or_is_none(name, decades, lost):
    """Tokens far from the origin, and axes of which single precision loses some."""
    problems = [mixed_problem(name, seed, decades) for seed in range(32)]
    embeddings, pairs = map(np.stack, zip(*problems, strict=True))
    # The same numbers and active pairs in both precisions.
    embeddings = embeddings.astype(np.float32)
    change = np.random.default_rng(0).normal(size=embeddings.shape).astype(np.float32)
    solution = solve_each(embeddings.astype(float), pairs)
    wanted = slopes(embeddings.astype(float), solution, change.astype(float))
    wanted = np.asarray(wanted)
    rounded = jax.tree.map(
        lambda x: x.astype(np.float32) if x.dtype == np.float64 else x, solution
    )
    got = np.asarray(slopes(embeddings, rounded, change))
    solved = solution.status == MaxMarginStatus.SOLVED
    there, none = np.isfinite(wanted).all(axis=1), np.isnan(got).any(axis=1)
    assert there[solved].mean() > 0.9 and none[solved & ~there].all()
    solved = solved & there
    assert none[solved].any() == lost and none[solved].mean() < 0.5
    away = np.linalg.norm(got - wanted, axis=1)[solved & ~none]
    assert (away <= 1e-2 * np.linalg.norm(wanted, axis=1)[solved & ~none]).all()
