"""The step size after two errors, against the formula written out."""

import diffrax as dfx
import jax.numpy as jnp
import numpy as np
import pytest

from jaxselect.flow._step_control import PredictiveController

RTOL, ORDER = 1e-6, 5.0


def steps_after(errors, controller):
    """Step sizes that follow errors of steps from zero on, starting with length 0.1."""
    value = jnp.ones(1)
    start, end, state = jnp.array(0.0), jnp.array(0.1), None
    _, state = controller.init(
        dfx.ODETerm(lambda t, y, args: -y), start, end, value, end, None, None, ORDER
    )
    lengths = []
    for error in errors:
        kept, start, end, _, state, _ = controller.adapt_step_size(
            start, end, value, value, None, jnp.array([error * RTOL]), ORDER, state
        )
        lengths.append((bool(kept), float(end - start)))
    return lengths


@pytest.mark.parametrize("second", [0.3, 0.6, 0.9])
def test_growing_errors_shorten_the_step_before_it_is_refused(second):
    """h₃ ≤ h₂ (h₂/h₁) 0.9 (ε₁/ε₂²)^{1/k}, with errors in units of the tolerance."""
    first = 0.01
    controller = PredictiveController(rtol=0.0, atol=RTOL, pcoeff=0.0, icoeff=1.0)
    plain = dfx.PIDController(rtol=0.0, atol=RTOL, pcoeff=0.0, icoeff=1.0)
    (kept, one), (also, two) = steps_after([first, second], controller)
    assert kept and also
    (_, unbounded), (_, free) = steps_after([first, second], plain)
    assert one == pytest.approx(unbounded)
    trend = (first / second**2) ** (1 / ORDER)
    bound = one * (one / 0.1) * 0.9 * trend
    np.testing.assert_allclose(two, min(bound, free), rtol=1e-12)


def test_a_refused_step_is_left_to_diffrax():
    controller = PredictiveController(rtol=0.0, atol=RTOL)
    plain = dfx.PIDController(rtol=0.0, atol=RTOL)
    for errors in ([4.0], [0.5, 4.0], [0.5, 4.0, 0.7]):
        ours, theirs = steps_after(errors, controller), steps_after(errors, plain)
        assert [kept for kept, _ in ours] == [kept for kept, _ in theirs]
    assert steps_after([4.0], controller) == steps_after([4.0], plain)
