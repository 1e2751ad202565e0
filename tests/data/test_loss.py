"""Every loss: its functions against each other, and its limits.

Source: mathematics, section 1b.
"""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxselect import BadInput, Loss, cross_attention
from jaxselect.data.loss import LOGISTIC, LOSSES, POLYNOMIAL, Bounds, check_margins
from tests.problem.independent import LOG_SLOPES
from tests.tolerances import assert_close

MARGINS = np.linspace(-30.0, 30.0, 241)
OF_ALL_MARGINS = [loss for loss in LOSSES if not np.isfinite(loss.domain)]


@pytest.fixture(params=OF_ALL_MARGINS, ids=lambda loss: loss.name)
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


@pytest.mark.parametrize("each", LOSSES, ids=lambda loss: loss.name)
def test_a_loss_of_ones_own_is_compared_with_its_derivatives(each):
    own = replace(each, name="own")
    check_margins(own, max(own.domain, -900.0), 900.0)


# What of the logistic loss is said wrongly, and the error.
WRONG = {
    "value": ({"value": lambda m: -LOGISTIC.value(m)}, "slope .* above 0, here -0"),
    "slope": ({"slope": lambda m: 2 * LOGISTIC.slope(m)}, "slope of the loss own is"),
    "log": ({"log_slope": lambda m: LOGISTIC.log_slope(m) + 1e-6}, "log_slope"),
    "ratio": ({"ratio": LOGISTIC.slope}, "ratio of the loss own"),
    "excess": ({"excess": lambda m, step: -LOGISTIC.excess(m, step)}, "excess"),
    "no number": ({"slope": lambda m: m * np.nan}, "slope of the loss own is nan"),
    "largest ratio": ({"largest_ratio": 0.5}, "largest_ratio .* is 0.5"),
    "no bound": ({"largest_ratio": np.nan}, "largest_ratio nan: wanted a number"),
    "first": ({"bounds": Bounds(0.8, 0.25, 0.1)}, "bounds.first"),
    "second": ({"bounds": Bounds(1.0, 0.24, 0.1)}, "bounds.second"),
    "third": ({"bounds": Bounds(1.0, 0.25, 0.09)}, "bounds.third"),
    "largest third": ({"largest_third": 0.5}, "largest_third"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_loss_that_contradicts_itself_is_refused(what):
    wrong, message = WRONG[what]
    with pytest.raises(BadInput, match=message):
        check_margins(replace(LOGISTIC, name="own", **wrong), -2.0, 2.0)


def test_a_loss_is_judged_by_the_margins_that_values_can_have():
    """A parabola is one on a side of its minimum."""
    parabola = Loss(
        "parabola",
        value=lambda m: (m - 1) ** 2 / 2,
        slope=lambda m: 1 - m,
        log_slope=lambda m: jnp.log(jnp.abs(1 - m)),
        ratio=lambda m: 1 / (1 - m),
        excess=lambda m, step: step * (1 - m) + step**2 / 2,
        largest_ratio=10.0,
    )
    x, values = np.eye(2)[None], np.array([[0.9, -0.9]])
    cross_attention(x, values, [1], loss=parabola)
    with pytest.raises(BadInput, match="slope of the loss parabola is -0"):
        cross_attention(x, 2 * values, [-1], loss=parabola)
