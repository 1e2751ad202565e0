"""Polishing: exact from nearly active pairs, and single precision on long tokens."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxselect.margin._nearest_point import nearest_point
from jaxselect.margin._polish import polish
from jaxselect.margin.max_margin import MaxMarginStatus, max_margin
from jaxselect.margin.pair_graph import potentials
from tests.tolerances import assert_close


def problem(seed, dim, length=0.0):
    """Eight tokens over sixteen others, longer along the first axis by classes."""
    tokens = jax.random.normal(jax.random.key(seed), (24, dim)) / np.sqrt(dim)
    side = jnp.concatenate([jnp.ones(4), -jnp.ones(4), jnp.zeros(16)])
    pairs = jnp.zeros((24, 24), bool).at[:8, 8:].set(True)
    return tokens.at[:, 0].add(length * side), pairs


@pytest.mark.parametrize("dim", [20, 60])
def test_mends_a_rough_point_to_rounding(dim):
    tokens, pairs = problem(0, dim)
    axes = tokens.T
    exact = jax.jit(nearest_point)(axes, pairs)
    size = exact.nearest @ exact.nearest
    noise = jax.random.normal(jax.random.key(1), exact.nearest.shape)
    tilt = 1 + 1e-2 * jax.random.normal(jax.random.key(2), exact.duals.shape)
    rough = exact._replace(
        nearest=exact.nearest + 1e-3 * size * noise,
        duals=exact.duals * tilt,
        gap=jnp.asarray(1e-2),
        certain=jnp.asarray(False),
    )
    found = jax.jit(polish)(axes, pairs, rough)
    assert jnp.abs(found.gap) < 1e-12
    assert_close(found.nearest, exact.nearest)
    # The duals are not unique: many pairs share few dimensions.
    assert (found.duals >= 0).all() and (found.duals[~pairs] == 0).all()
    assert_close(axes @ potentials(found.duals), exact.nearest)


def test_leaves_what_is_certain_as_it_is():
    tokens, pairs = problem(0, 60)
    found = jax.jit(nearest_point)(tokens.T, pairs)
    assert found.certain
    after = jax.jit(polish)(tokens.T, pairs, found)
    for before, same in zip(found, after, strict=True):
        np.testing.assert_array_equal(before, same)


@pytest.mark.parametrize("length", [1.0, 30.0, 300.0])
def test_single_precision_solves_tokens_far_longer_along_one_axis(length):
    """Certified, with the active pairs of double precision and four digits of p."""
    for seed in range(4):
        tokens, pairs = problem(seed, 60, length)
        single = jax.jit(max_margin)(tokens.astype(jnp.float32), pairs)
        wanted = jax.jit(max_margin)(tokens.astype(jnp.float32).astype(float), pairs)
        assert wanted.status == MaxMarginStatus.SOLVED
        assert single.status == MaxMarginStatus.SOLVED
        np.testing.assert_array_equal(single.active, wanted.active)
        away = jnp.linalg.norm(single.direction.astype(float) - wanted.direction)
        assert away < 1e-4 * wanted.norm
