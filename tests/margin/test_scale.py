"""Powers of two: every digit kept, over the whole range of a format."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxselect.margin.qp import norm, survives, times_two_to, unit_size

BOTH = pytest.mark.parametrize("dtype", [np.float64, np.float32])


@BOTH
def test_scaling_is_that_of_ldexp(dtype):
    info = np.finfo(dtype)
    values = np.array([1.0, -1.5, 1 + info.eps, 0.0], dtype)
    scale = jax.jit(times_two_to)
    for power in range(info.minexp, info.maxexp, 37):
        np.testing.assert_array_equal(
            scale(values, jnp.int32(power)), np.ldexp(values, power)
        )
    # From the largest number to the smallest, whose quotient is no number.
    far = info.maxexp - info.minexp - 1
    tiny = np.array(info.tiny, dtype)
    assert scale(tiny, jnp.int32(far)) == np.ldexp(tiny, far)
    assert np.isinf(scale(values, jnp.int32(2 * info.maxexp))[0])
    assert scale(values, jnp.int32(2 * info.minexp))[0] == 0


@BOTH
def test_unit_size_and_what_may_be_blurred(dtype):
    info = np.finfo(dtype)
    size = jax.jit(unit_size)
    for power in (info.minexp // 2, 0, info.maxexp - 1):
        values = np.ldexp(np.array([[0.75, -0.5]], dtype), power)
        unit, exponent, blur = size(values)
        np.testing.assert_array_equal(unit, [[0.75, -0.5]])
        assert exponent == power and blur == 0
    least = info.tiny / info.eps
    for faint in (info.smallest_subnormal, info.tiny, least / 2):
        for sign in (1, -1):
            _, _, blur = size(np.array([[1.0, sign * faint]], dtype))
            assert blur >= least / info.eps
    assert size(np.array([[1.0, 2 * least]], dtype))[2] == 0
    # Scaled up with the rest, what was faint is blurred up to a larger size.
    unit, exponent, blur = size(np.array([[2.0**-20, least / 2]], dtype))
    assert exponent == -19 and blur == np.ldexp(least / info.eps, 19)
    # A number that becomes faint beside a far larger one.
    large = np.ldexp(dtype(1), info.maxexp - 1)
    assert size(np.array([[large, 1 / large]], dtype))[2] > 0
    assert size(np.zeros((2, 2), dtype))[2] == 0


@BOTH
def test_what_survives_scaling(dtype):
    info = np.finfo(dtype)
    before = jnp.asarray([1.0, info.eps, 0.0], dtype)
    assert survives(before, before)
    # A number far below the largest may vanish, no other one.
    assert not survives(before, before.at[1].set(0.0))
    assert survives(before.at[1].set(info.eps**3), before.at[1].set(0.0))
    assert not survives(before, before.at[0].set(jnp.inf))
    assert not survives(before, before.at[2].set(jnp.nan))


@BOTH
def test_norm_of_vectors_whose_square_is_no_number(dtype):
    info = np.finfo(dtype)
    vector = np.array([3.0, -4.0], dtype)
    value_and_slope = jax.jit(jax.value_and_grad(norm))
    for power in (info.minexp + 3, info.minexp // 2, 0, info.maxexp // 2):
        value, slope = value_and_slope(np.ldexp(vector, power))
        assert value == np.ldexp(dtype(5), power)
        np.testing.assert_allclose(slope, [0.6, -0.8], rtol=4 * info.eps)
    value, slope = value_and_slope(np.zeros(2, dtype))
    assert value == 0 and (slope == 0).all()
