"""The span: its defining laws, its rank, and the projector's derivative."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxselect.margin.span import projector, span
from tests.tolerances import assert_close


@pytest.mark.parametrize("rank", [0, 1, 3, 6])
def test_projects_on_the_rows(rank):
    rows = jax.random.normal(jax.random.key(rank), (rank, 6))
    rows = jnp.concatenate([rows, rows[:2], jnp.zeros((1, 6))])
    found = span(rows)
    onto = projector(rows, found)
    assert found.rank == rank
    assert_close(onto @ onto, onto)
    assert_close(onto, onto.T)
    assert_close(rows @ onto, rows)
    assert_close(jnp.trace(onto), rank)
    assert_close((found.left * found.size[None, :]) @ found.axes, rows)
    assert_close(
        found.left @ jnp.diag(found.inverse) @ found.axes @ rows.T @ rows, rows
    )


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_small_directions_count_as_long_as_rounding_lets_them(dtype):
    """Rows of condition 10³ keep their rank in single precision; repeats add none."""
    left, right = (
        jnp.linalg.qr(jax.random.normal(jax.random.key(seed), (40, 20)))[0]
        for seed in (0, 1)
    )
    rows = ((left * jnp.geomspace(1.0, 1e-3, 20)[None, :]) @ right.T).astype(dtype)
    found = span(jnp.concatenate([rows, rows]))
    assert found.rank == 20 and found.axes.dtype == dtype
    exact = np.asarray(right @ right.T)
    # The axes of the smallest directions are known to eps times the condition.
    assert_close(projector(rows, span(rows)), exact, worse=10)
    assert span(jnp.zeros((3, 4), dtype)).rank == 0


def curve():
    """Repeated rows and a repeated singular value, where svd has no derivative."""
    rows = jnp.concatenate([jnp.eye(3, 6), jnp.eye(2, 6)])
    towards = jax.random.normal(jax.random.key(0), (3, 6))
    towards = jnp.concatenate([towards, towards[:2]])
    weights = jax.random.normal(jax.random.key(1), (6, 6))

    def value(x):
        moved = rows + x * towards
        return jnp.sum(weights * projector(moved, span(moved)))

    return value


def test_derivative_matches_finite_differences_in_both_modes():
    value, step = curve(), 1e-5
    difference = (value(step) - value(-step)) / (2 * step)
    forward = jax.jvp(value, (0.0,), (1.0,))[1]
    np.testing.assert_allclose(forward, difference, rtol=1e-8)
    np.testing.assert_allclose(jax.grad(value)(0.0), forward, rtol=1e-12)


def test_a_batch_of_derivatives_is_its_lanes():
    value, places = curve(), jnp.array([-0.1, 0.0, 0.3])
    alone = [jax.grad(value)(place) for place in places]
    assert_close(jax.vmap(jax.grad(value))(places), alone)
    forward = jax.vmap(lambda x: jax.jvp(value, (x,), (1.0,))[1])(places)
    assert_close(forward, alone)
