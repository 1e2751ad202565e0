"""BDF with a kept Jacobian: orders, straight lines, and what renews the Jacobian.

Source: mathematics, section 3a.
"""

from collections import OrderedDict

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxselect import BadInput, FlowSettings
from jaxselect.flow.bdf import Equation, integrate_bdf, rescaled, start_bdf, try_step
from tests.tolerances import assert_close


def nothing_seen(*_):
    """No force is looked for."""
    return jnp.asarray(False)


def equation(field, atol):
    """An equation with errors in units of a tolerance, and of some roundings."""

    def norm_at(y):
        allowed = atol + 64 * jnp.finfo(y.dtype).eps * jnp.max(jnp.abs(y))
        return lambda error: jnp.max(jnp.abs(error)) / allowed

    return Equation(
        image=lambda y: y,
        field=field,
        jacobian=jax.jacfwd(field, argnums=1),
        norm_at=norm_at,
        seen_at=nothing_seen,
        skips=nothing_seen,
    )


def follow(field, start, until, atol, max_steps=4000):
    """The end of an integration from s = 0."""
    span = jnp.zeros(()), jnp.asarray(until)
    start = jnp.asarray(start)
    return integrate_bdf(
        equation(field, atol), None, start, span, OrderedDict(), max_steps=max_steps
    )


def test_differences_of_a_polynomial_are_those_at_the_new_spacing():
    """Of degree five, where the last of them is used."""
    polynomial = np.polynomial.Polynomial([1.0, -2.0, 0.5, 3.0, -1.0, 0.25])

    def differences(spacing):
        points = polynomial(2.0 - spacing * np.arange(6))
        rows = [points]
        while len(rows[-1]) > 1:
            rows.append(rows[-1][:-1] - rows[-1][1:])
        return jnp.array([row[0] for row in rows] + [7.0, 9.0])[:, None]

    for factor in (0.3, 1.7):
        found = rescaled(differences(0.1), jnp.array(5), jnp.array(factor))
        assert_close(found, differences(0.1 * factor), worse=1e2)


def test_the_error_follows_the_tolerance_of_a_stiff_equation_in_motion():
    """y′ = −10⁴ (y − sin s) + cos s from off the solution sin s, and a slow part."""

    def field(time, y):
        slow = -y[1]
        return jnp.stack([-1e4 * (y[0] - jnp.sin(time)) + jnp.cos(time), slow])

    @jax.jit
    def errors(atol):
        found = follow(field, [1.0, 1.0], 3.0, atol)
        exact = jnp.stack([jnp.sin(3.0), jnp.exp(-3.0)])
        return jnp.abs(found.state - exact).max(), found.solution.stats

    coarse, fine = errors(1e-4), errors(1e-8)
    assert fine[0] < 1e-7 < coarse[0] < 1e-3
    # Four decades of tolerance for a quarter of a step: an order above five.
    assert fine[1]["num_steps"] < 4 * coarse[1]["num_steps"]
    assert fine[1]["num_jacobians"] < 4


def test_a_straight_line_takes_few_steps_to_any_time():
    """y′ = g − μ (y − g s): from y = 0 the line g s."""
    slope = jnp.array([1.0, -3.0])

    @jax.jit
    def end(until):
        line = lambda time, y: slope - 5.0 * (y - slope * time)  # noqa: E731
        found = follow(line, [0.0, 0.0], until, 1e-6)
        return found.state, found.solution.stats["num_steps"]

    for until in (1e3, 1e12):
        state, steps = end(until)
        assert_close(state / until, slope)
        assert steps < 60


def jacobians_of(log_stiffness):
    """Jacobians and steps of y′ = −k(s) (y − sin s) + cos s to s = 20."""

    def field(time, y):
        off = y - jnp.sin(time)
        return jnp.cos(time) - jnp.exp(log_stiffness(time)) * off

    found = jax.jit(lambda: follow(field, [0.0], 20.0, 1e-8))()
    np.testing.assert_allclose(found.state, np.sin(20.0), atol=1e-7)
    stats = found.solution.stats
    return int(stats["num_jacobians"]), int(stats["num_steps"])


def test_a_jacobian_that_has_aged_is_renewed():
    """Kept from the start it fails where the stiffness comes and goes."""
    jacobians, steps = jacobians_of(lambda time: 4 + 5 * jnp.sin(time))
    assert 20 < jacobians < steps / 4


def test_stiffness_that_grows_as_that_of_ties_is_foreseen():
    """Like eˢ: each new Jacobian lasts twice as long as the one before."""
    jacobians, _ = jacobians_of(lambda time: time)
    assert jacobians < 10


def test_growth_is_followed_and_not_damped():
    """An implicit step longer than the growth resolves would turn it round."""
    found = jax.jit(lambda: follow(lambda time, y: 3.0 * y, [1e-9], 6.0, 1e-15))()
    np.testing.assert_allclose(found.state, 1e-9 * np.exp(18.0), rtol=1e-5)


def test_a_step_is_accepted_up_to_the_leading_term_of_its_error():
    """Of y′ = −y with an exact past: (1/(k+1) + κ_k γ_k) ∇^{k+1} y at every order.

    With ∇ of the exact y, the error of the step is that over (1 − κ_k) γ_k + h.
    """
    kappa = np.array([-0.1850, -1 / 9, -0.0823, -0.0415, 0.0])
    gamma = np.cumsum(1 / np.arange(1, 6))
    length, begin = 0.05, jnp.zeros(())

    @jax.jit
    def step(order, differences, atol):
        given = equation(lambda time, y: -y, atol)
        state = start_bdf(given, differences[0], begin, begin + 1)
        state = state._replace(order=order, differences=differences)
        return try_step(given, state._replace(step=begin + length), begin + 1)

    for order in range(1, 6):
        past = np.exp(length * np.arange(order + 1))
        backward = (1 - np.exp(length)) ** np.arange(order + 1)
        backward = jnp.zeros((8, 1)).at[: order + 1, 0].set(backward)
        reached, exact = step(jnp.int32(order), backward, 1.0)[-1], np.exp(-length)
        difference, true = (
            abs(np.diff([y, *past], order + 1).item()) for y in (reached[0], exact)
        )
        constant = 1 / (order + 1) + kappa[order - 1] * gamma[order - 1]
        divisor = (1 - kappa[order - 1]) * gamma[order - 1] + length
        missed = abs(reached[0] - exact)
        assert missed == pytest.approx(constant * true / divisor, rel=0.15)
        for ratio, accepted in (0.99, False), (1.01, True):
            atol = ratio * constant * difference
            assert step(jnp.int32(order), backward, atol)[1] == accepted


def test_a_stepper_that_is_none_is_refused():
    with pytest.raises(BadInput, match="stepper 'euler': wanted one of"):
        FlowSettings(stepper="euler")
