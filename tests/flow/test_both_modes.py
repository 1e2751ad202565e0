"""Derivatives of an integration in both modes, on a flow with a closed form."""

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxselect.flow.adjoint import Doubt, in_both_modes
from jaxselect.flow.control import FlowSettings


class Fall(eqx.Module):
    end: jax.Array
    steps: jax.Array


@in_both_modes
def fall(inputs, settings, adjoint):
    """Steps of Euler's method: y = start (1 − rate h)^(power/h), for t to power."""
    rate, start, power = inputs
    solution = dfx.diffeqsolve(
        dfx.ODETerm(lambda t, y, rate: -rate * y),
        dfx.Euler(),
        0.0,
        jnp.asarray(power, float),
        settings,
        start,
        args=rate,
        adjoint=adjoint,
    )
    return Fall(end=solution.ys[0], steps=solution.stats["num_steps"])


def end(rate, start=2.0, known=None):
    # The last input is an integer, which nothing is differentiated in.
    return fall((rate, jnp.asarray(start), jnp.asarray(3)), STEP, known=known).end


STEP, STEPS = 0.5, 6
RATES = np.array([0.5, 1.0])
SHARES = (1 - STEP * RATES) ** STEPS
SLOPES = -2 * STEPS * STEP * (1 - STEP * RATES) ** (STEPS - 1)


def both_modes(function):
    """Its values and Jacobians, forward and reverse: one program for both modes."""

    def modes(*inputs):
        values, push = jax.linearize(function, *inputs)
        pull = jax.linear_transpose(push, *inputs)
        columns = jax.vmap(push)(*np.eye(len(inputs)))
        return values, columns.T, jnp.stack(jax.vmap(pull)(np.eye(len(values))), axis=1)

    return modes


def test_derivatives_are_those_of_the_closed_form():
    """In a batch, in several inputs, and of what is beside the end."""

    def made(rate, start):
        return jnp.stack([end(rate, start), rate])

    values, *modes = jax.jit(jax.vmap(both_modes(made)))(RATES, np.full(2, 2.0))
    np.testing.assert_allclose(values[:, 0], 2 * SHARES, rtol=1e-12)
    for slopes in modes:
        np.testing.assert_allclose(slopes[:, 0, 0], SLOPES, rtol=1e-12)
        np.testing.assert_allclose(slopes[:, 0, 1], SHARES, rtol=1e-12)
        np.testing.assert_array_equal(slopes[:, 1], [[1, 0], [1, 0]])


def test_what_is_known_is_not_integrated_again():
    """The numbers are those given, the derivative that of the integration, alone."""
    known = Fall(end=jnp.array(7.0), steps=jnp.array(0))

    def made(rate):
        there = end(rate, known=known)
        return jnp.stack([there, there**2])

    values, slopes = jax.jit(lambda rate: jax.jvp(made, (rate,), (1.0,)))(RATES[0])
    assert values.tolist() == [7, 49]
    np.testing.assert_allclose(slopes, [SLOPES[0], 14 * SLOPES[0]], rtol=1e-12)


def test_a_second_derivative_is_refused():
    with pytest.raises(RuntimeError, match="differentiated twice"):
        jax.eval_shape(jax.grad(jax.grad(end)), RATES[0])


@in_both_modes
def coarse(inputs, settings, adjoint):
    """y = start e^−rate, but for the tolerance."""
    rate, start = inputs
    return Fall(end=start * jnp.exp(-rate) * (1 + settings.atol * rate), steps=rate)


@pytest.mark.parametrize(
    ("atol", "needed", "known"), [(1e-5, 1, 1), (1e-2, 1, 0), (1e-2, 0, 1)]
)
def test_a_derivative_that_depends_on_the_tolerance_is_no_number(atol, needed, known):
    """In either mode; where that is in no doubt, it is given."""
    part = jax.tree_util.Partial(lambda found: found.end)
    doubt = Doubt(jnp.array(needed, bool), part)

    def made(rate):
        inputs = rate, jnp.array(2.0)
        return jnp.stack([coarse(inputs, FlowSettings(atol=atol), doubt=doubt).end])

    _, forward, reverse = jax.jit(both_modes(made))(RATES[0])
    slope = -2 * np.exp(-RATES[0])
    wanted = slope if known else np.nan
    for found in (forward, reverse):
        np.testing.assert_allclose(found, [[wanted]], rtol=2 * atol)
