"""The span: its defining laws, its rank, and the projector's derivative."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxselect.margin.span import projector, span
from tests.tolerances import assert_close


def normal(seed, shape):
    return np.random.default_rng(seed).normal(size=shape)


@jax.jit
def laws(rows):
    found = span(rows)
    return found, found.rank, found.inverse, projector(rows, found)


@pytest.mark.parametrize("rank", [0, 1, 3, 6])
def test_projects_on_the_rows(rank):
    """Two rows are repeated, and the last is zero."""
    rows = np.zeros((9, 6))
    rows[:rank] = normal(rank, (rank, 6))
    rows[6:8] = rows[:2]
    found, known, inverse, onto = jax.tree.map(np.asarray, laws(rows))
    assert known == rank
    assert_close(onto @ onto, onto)
    assert_close(onto, onto.T)
    assert_close(rows @ onto, rows)
    assert_close(np.trace(onto), rank)
    assert_close((found.left * found.size) @ found.axes, rows)
    assert_close((found.left * inverse) @ found.axes @ rows.T @ rows, rows)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_small_directions_count_as_long_as_rounding_lets_them(dtype):
    """Rows of condition 10³ keep their rank in single precision; repeats add none."""
    left, right = (np.linalg.qr(normal(seed, (6, 4)))[0] for seed in (0, 1))
    rows = (left[:4] * np.geomspace(1.0, 1e-3, 4)) @ right.T
    twice = np.concatenate([rows, rows, np.zeros((1, 6))]).astype(dtype)
    found, rank, _, onto = laws(twice)
    assert rank == 4 and found.axes.dtype == dtype
    # The axes of the smallest directions are known to eps times the condition.
    assert_close(onto, right @ right.T, worse=10)


# Repeated rows and a repeated singular value, where svd has no derivative.
ROWS = np.concatenate([np.eye(3, 6), np.eye(2, 6)])
TOWARDS = normal(0, (3, 6))[[0, 1, 2, 0, 1]]
WEIGHTS = normal(1, (6, 6))


def curve(x):
    moved = ROWS + x * TOWARDS
    return jnp.sum(WEIGHTS * projector(moved, span(moved)))


@jax.jit
@jax.vmap
def derivatives(x):
    forward = jax.jvp(curve, (x,), (1.0,))
    return *forward, jax.grad(curve)(x)


def test_derivatives_match_finite_differences_in_both_modes():
    """At three points in one batch, with the points on either side."""
    step = 1e-5
    points = np.add.outer([-0.1, 0.0, 0.3], [-step, 0.0, step])
    value, forward, reverse = (
        np.reshape(found, points.shape) for found in derivatives(points.ravel())
    )
    difference = (value[:, 2] - value[:, 0]) / (2 * step)
    np.testing.assert_allclose(forward[:, 1], difference, rtol=1e-7)
    np.testing.assert_allclose(reverse, forward, rtol=1e-12)
