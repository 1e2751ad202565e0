"""The max-margin solution and its derivative in single precision.

Source: mathematics, section 3c.
"""

from functools import cache, partial

import equinox as eqx
import jax
import numpy as np
import pytest

from jaxselect.margin.max_margin import with_derivatives
from jaxselect.status import Reason
from tests.margin.pair_problems import FAMILIES, family, solve_each


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
    solved = solution.status == Reason.NONE
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


def test_no_derivative_where_a_short_difference_is_lost_beside_a_long_one():
    """Orthogonal differences of length L and 1: p = (1/L, 1), dp = −D⁻¹ dD p."""
    lengths, change = np.array([1.0, 1e2, 1e9]), np.array([[0.3, -0.2], [1, 2], [0, 1]])
    tokens = np.array([[[0, 0], [-length, 0], [0, -1]] for length in lengths])
    pairs = np.zeros((len(lengths), 3, 3), bool)
    pairs[:, 0, 1:] = True
    query = np.stack([1 / lengths, np.ones_like(lengths)], axis=1)
    # The same active pairs, with p in closed form.
    solution = solve_each(np.array([tokens[0]] * len(lengths)), pairs)
    parts = lambda found: (found.direction, found.norm)  # noqa: E731
    closed = query, np.linalg.norm(query, axis=1)
    solution = eqx.tree_at(parts, solution, closed)
    changes = np.array([change] * len(lengths))
    rise = change[:1] - change[1:]
    wanted = -(query @ rise.T) / np.stack([lengths, np.ones_like(lengths)], axis=1)
    double = slopes(tokens, solution, changes)
    # To a rounding times the ratio of lengths.
    np.testing.assert_allclose(double, wanted, rtol=1e9 * np.finfo(float).eps)
    single = np.float32
    rounded = jax.tree.map(
        lambda x: x.astype(single) if x.dtype == np.float64 else x, solution
    )
    got = slopes(tokens.astype(single), rounded, changes.astype(single))
    np.testing.assert_allclose(got[:2], wanted[:2], rtol=100 * np.finfo(single).eps)
    assert np.isnan(got[2]).all()
