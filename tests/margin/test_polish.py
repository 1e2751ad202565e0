"""Polishing: exact from nearly active pairs, and single precision on long tokens.

Source: mathematics, section 3c.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxselect.margin.max_margin import MaxMarginStatus
from jaxselect.margin.pairs import PairMask
from jaxselect.margin.qp import nearest_point, polish
from tests.margin.pair_problems import solve
from tests.tolerances import assert_close

nearest = jax.jit(lambda axes, pairs: nearest_point(axes, PairMask(pairs))[0])
polished = jax.jit(lambda axes, pairs, found: polish(axes, PairMask(pairs), found))


def problem(seed, dim, length=0.0):
    """Eight tokens over sixteen others, longer along the first axis by classes.

    In the shape of the families: all else is zero, and in no pair.
    """
    tokens, pairs = np.zeros((64, 66)), np.zeros((64, 64), bool)
    drawn = np.random.default_rng(seed).normal(size=(24, dim)) / np.sqrt(dim)
    tokens[:24, :dim] = drawn
    tokens[:24, 0] += length * np.repeat([1.0, -1.0, 0.0], [4, 4, 16])
    pairs[:8, 8:24] = True
    return tokens, pairs


@pytest.mark.parametrize("dim", [20, 60])
def test_mends_a_rough_point_to_rounding(dim):
    tokens, pairs = problem(0, dim)
    axes = tokens.T
    exact = jax.tree.map(np.asarray, nearest(axes, pairs))
    size = exact.nearest @ exact.nearest
    random = np.random.default_rng(1)
    noise = random.normal(size=exact.nearest.shape)
    tilt = 1 + 1e-2 * random.normal(size=exact.duals.shape)
    rough = exact._replace(
        nearest=exact.nearest + 1e-3 * size * noise,
        duals=exact.duals * tilt,
        gap=np.asarray(1e-2),
        certain=np.asarray(False),
    )
    found = jax.tree.map(np.asarray, polished(axes, pairs, rough))
    assert np.abs(found.gap) < 1e-12
    assert_close(found.nearest, exact.nearest)
    # The duals are not unique: many pairs share few dimensions.
    assert (found.duals >= 0).all() and (found.duals[~pairs] == 0).all()
    graph = PairMask(jnp.asarray(pairs))
    assert_close(axes @ graph.divergence(jnp.asarray(found.duals)), exact.nearest)


def test_leaves_what_is_certain_as_it_is():
    tokens, pairs = problem(0, 60)
    found = nearest(tokens.T, pairs)
    assert found.certain
    after = polished(tokens.T, pairs, found)
    for before, same in zip(found, after, strict=True):
        np.testing.assert_array_equal(before, same)


@pytest.mark.parametrize("length", [1.0, 30.0, 300.0])
def test_single_precision_solves_tokens_far_longer_along_one_axis(length):
    """Certified, with the active pairs of double precision and four digits of p."""
    for seed in range(4):
        tokens, pairs = problem(seed, 60, length)
        tokens = tokens.astype(np.float32)
        single, wanted = solve(tokens, pairs), solve(tokens.astype(float), pairs)
        assert wanted.status == MaxMarginStatus.SOLVED
        assert single.status == MaxMarginStatus.SOLVED
        np.testing.assert_array_equal(single.active, wanted.active)
        away = np.linalg.norm(single.direction - wanted.direction)
        assert away < 1e-4 * wanted.norm
