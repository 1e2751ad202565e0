"""The projector: its defining laws, and its derivative at constant rank."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxselect.span import span_projector


@pytest.mark.parametrize("rank", [0, 1, 3, 6])
def test_projects_on_the_range(rank):
    rows = jax.random.normal(jax.random.key(rank), (rank, 6))
    projector = span_projector(rows.T @ rows)
    np.testing.assert_allclose(projector @ projector, projector, atol=1e-12)
    np.testing.assert_allclose(projector, projector.T, atol=1e-12)
    np.testing.assert_allclose(rows @ projector, rows, atol=1e-12)
    np.testing.assert_allclose(jnp.trace(projector), rank, atol=1e-12)


def test_derivative_matches_finite_differences_in_both_modes():
    """Repeated rows and a repeated eigenvalue, where eigh itself has no derivative."""
    rows = jnp.concatenate([jnp.eye(3, 6), jnp.eye(2, 6)])
    towards = jax.random.normal(jax.random.key(0), (3, 6))
    towards = jnp.concatenate([towards, towards[:2]])
    weights = jax.random.normal(jax.random.key(1), (6, 6))

    def value(x):
        moved = rows + x * towards
        return jnp.sum(weights * span_projector(moved.T @ moved))

    step = 1e-5
    difference = (value(step) - value(-step)) / (2 * step)
    forward = jax.jvp(value, (0.0,), (1.0,))[1]
    np.testing.assert_allclose(forward, difference, rtol=1e-8)
    np.testing.assert_allclose(jax.grad(value)(0.0), forward, rtol=1e-12)
