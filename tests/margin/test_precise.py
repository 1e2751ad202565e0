"""Scores and combinations with twice the digits, against exact fractions."""

from fractions import Fraction
from functools import partial

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxselect.margin.pairs import PairMask
from jaxselect.margin.qp import combination, precise_differences
from tests.margin.pair_problems import small

ALL = PairMask(jnp.ones((6, 6), bool))
precise = jax.jit(partial(precise_differences, ALL))
precise_combination = jax.jit(partial(combination, ALL))


def fractions(values):
    return [[Fraction(float(x)) for x in row] for row in np.atleast_2d(values)]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@hypothesis.given(seed=small, decades=st.integers(0, 9))
def test_leads_are_rounded_once_though_scores_cancel(seed, decades, dtype):
    """Tokens far from the origin: the scores share all but their last digits."""
    rng = np.random.default_rng(seed)
    shift, size = 10 ** (decades if dtype is np.float64 else decades / 3), (5, 8)
    tokens = (rng.normal(size=size) + shift * rng.normal(size=size[1])).astype(dtype)
    point = rng.normal(size=size[1]).astype(dtype)
    exact, where = fractions(tokens), fractions(point)[0]
    scores = [sum(a * b for a, b in zip(row, where, strict=True)) for row in exact]
    wanted = [[float(a - b) for b in scores] for a in scores]
    eps, longest = np.finfo(dtype).eps, shift * size[1]
    np.testing.assert_allclose(
        precise(tokens, point), wanted, rtol=4 * eps, atol=64 * eps**2 * longest
    )


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@hypothesis.given(seed=small, decades=st.integers(0, 9))
def test_combinations_are_rounded_once_though_duals_cancel(seed, decades, dtype):
    """As many duals for a pair as against it, up to a small rest."""
    rng = np.random.default_rng(seed)
    tokens = rng.normal(size=(6, 5)).astype(dtype)
    rest = 10.0 ** -(decades if dtype is np.float64 else decades / 3)
    both = rng.random((6, 6))
    duals = (both + both.T + rest * rng.random((6, 6))).astype(dtype)
    exact, weight = fractions(tokens), fractions(duals)
    wanted = [
        float(
            sum(
                weight[s][r] * (exact[s][axis] - exact[r][axis])
                for s in range(6)
                for r in range(6)
            )
        )
        for axis in range(5)
    ]
    eps = np.finfo(dtype).eps
    np.testing.assert_allclose(
        precise_combination(tokens, duals), wanted, rtol=4 * eps, atol=1e3 * eps**2
    )
