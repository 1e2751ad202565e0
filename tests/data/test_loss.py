"""Every loss: its functions against each other, and its limits.

Source: mathematics, section 1b.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxselect.data.loss import EXPONENTIAL, LOGISTIC, POLYNOMIAL, SQUARED_PROBABILITY
from tests.problem.independent import LOG_SLOPES
from tests.tolerances import assert_close

LOSSES = (LOGISTIC, EXPONENTIAL, POLYNOMIAL, SQUARED_PROBABILITY)
MARGINS = np.linspace(-30.0, 30.0, 241)


@pytest.fixture(params=LOSSES, ids=lambda loss: loss.name)
def loss(request):
    return request.param


def each(function, margins):
    return jax.jit(jax.vmap(function))(margins)


def relative(actual, wanted, worse=1.0):
    assert_close(np.asarray(actual) / np.asarray(wanted), np.ones(len(wanted)), worse)


def test_the_slope_is_minus_the_derivative(loss):
    relative(-each(jax.grad(loss.value), MARGINS), loss.slope(MARGINS))
    small = MARGINS[np.abs(MARGINS) < 5]
    relative(loss.slope(small), np.exp(LOG_SLOPES[loss.name](small)), worse=100)


def test_the_log_and_the_ratio_are_those_of_the_slope(loss):
    assert_close(np.exp(loss.log_slope(MARGINS)) / loss.slope(MARGINS), np.ones(241))
    second = -each(jax.grad(loss.slope), MARGINS)
    assert_close(loss.ratio(MARGINS), second / loss.slope(MARGINS))


def test_the_excess_is_the_difference(loss):
    """Where the difference has digits, and to first order where it has none."""
    step = np.linspace(-2.0, 2.0, 241)
    wanted = loss.value(MARGINS - step) - loss.value(MARGINS)
    size = loss.value(MARGINS - step) + loss.value(MARGINS)
    assert_close(loss.excess(MARGINS, step) / size, wanted / size)
    tiny = np.full(241, 1e-200)
    relative(loss.excess(MARGINS, tiny) / tiny, loss.slope(MARGINS))


def test_both_kinds_of_arrays_have_one_value(loss):
    both = jnp.asarray(MARGINS)
    for function in (loss.value, loss.slope, loss.ratio):
        assert isinstance(function(MARGINS), np.ndarray)
        relative(function(both), function(MARGINS))
    assert_close(loss.log_slope(both), loss.log_slope(MARGINS))
    relative(loss.excess(both, both / 7 + 10), loss.excess(MARGINS, MARGINS / 7 + 10))


def test_bounds_hold_and_are_reached(loss):
    """Over a fine grid, each within a thousandth from below."""
    fine = np.linspace(-12.0, 12.0, 20001)
    assert 0.999 * loss.largest_ratio < loss.ratio(fine).max()
    assert loss.ratio(fine).max() <= loss.largest_ratio * (1 + 1e-12)
    derivative, derivatives = loss.value, []
    for _ in range(3):
        derivative = jax.grad(derivative)
        derivatives.append(np.abs(each(derivative, fine)))
    ratio = (derivatives[2] / derivatives[0]).max()
    assert 0.999 * loss.largest_third < ratio <= loss.largest_third * (1 + 1e-9)
    if not np.isfinite(loss.bounds.first):
        assert loss.slope(-30.0) > 1e12
        return
    found = np.max(derivatives, axis=1)
    assert np.all(found <= np.array(loss.bounds) * (1 + 1e-9))
    assert np.all(found >= 0.99 * np.array(loss.bounds))


def test_bounds_near_a_margin_hold_there_and_fall_with_it(loss):
    """Within a tenth: no derivative is larger, and far out the bounds are as small."""
    derivative = loss.value
    near = loss.bounds_near(MARGINS, 0.1)
    for bound in near:
        derivative = jax.grad(derivative)
        for distance in (-0.1, 0.0, 0.1):
            found = np.abs(each(derivative, MARGINS + distance))
            assert np.all(found <= bound * (1 + 1e-9))
    far = MARGINS > 5
    most = loss.largest_third * np.exp(0.1 * loss.largest_ratio)
    assert np.all(near.third[far] <= most * (1 + 1e-12) * loss.slope(MARGINS[far]))


def test_far_out_the_logs_go_on(loss):
    far = np.array([1e4, 1e8])
    assert np.isfinite(loss.log_slope(far)).all()
    assert np.isfinite(loss.log_slope(-far)).all()
    if loss is POLYNOMIAL:
        # −ℓ′ = 1/(4 m²) (1 + O(m⁻²)).
        relative(np.exp(loss.log_slope(far)), 1 / (4 * far**2), worse=1e5)
