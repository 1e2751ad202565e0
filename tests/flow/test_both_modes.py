"""Derivatives of an integration in both modes, on a flow with a closed form."""

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxselect.flow._both_modes import in_both_modes


class Fall(eqx.Module):
    end: jax.Array
    steps: jax.Array


@in_both_modes
def fall(inputs, settings, adjoint):
    """dy/dt = −rate y from `start`, until t = power; y = start e^(−rate power)."""
    rate, start, power = inputs
    solution = dfx.diffeqsolve(
        dfx.ODETerm(lambda t, y, rate: -rate * y),
        dfx.Tsit5(),
        0.0,
        jnp.asarray(power, float),
        0.01,
        start,
        args=rate,
        stepsize_controller=dfx.PIDController(settings, settings),
        adjoint=adjoint,
    )
    return Fall(end=solution.ys[0], steps=solution.stats["num_steps"])


def end(rate, start=2.0, known=None):
    # The last input is an integer, which nothing is differentiated in.
    return fall((rate, jnp.asarray(start), jnp.asarray(3)), 1e-10, known=known).end


RATES = jnp.array([0.5, 1.0])
SLOPES = -3 * 2 * jnp.exp(-3 * RATES)


@pytest.mark.parametrize("mode", [jax.jacfwd, jax.jacrev])
def test_derivatives_are_those_of_the_closed_form(mode):
    """Alone, in a batch, in several inputs, and of what is made of the end."""
    slopes = jax.jit(jax.vmap(mode(end, argnums=(0, 1))))(RATES, jnp.full(2, 2.0))
    np.testing.assert_allclose(slopes[0], SLOPES, rtol=1e-8)
    np.testing.assert_allclose(slopes[1], jnp.exp(-3 * RATES), rtol=1e-8)
    pair = mode(lambda rate: jnp.stack([end(rate) ** 2, rate]))
    square = jax.jit(pair)(RATES[0])
    wanted = 2 * jax.jit(end)(RATES[0]) * SLOPES[0]
    np.testing.assert_allclose(square, jnp.stack([wanted, jnp.array(1.0)]), rtol=1e-8)


@pytest.mark.parametrize("mode", [jax.jacfwd, jax.jacrev])
def test_what_is_known_is_not_integrated_again(mode):
    """The numbers are those given, the derivative that of the integration."""
    known = Fall(end=jnp.array(7.0), steps=jnp.array(0))
    assert end(RATES[0], known=known) == 7
    slope = jax.jit(mode(lambda rate: end(rate, known=known)))(RATES[0])
    np.testing.assert_allclose(slope, SLOPES[0], rtol=1e-8)


@pytest.mark.parametrize("twice", [jax.hessian, lambda f: jax.grad(jax.grad(f))])
def test_a_second_derivative_is_refused(twice):
    with pytest.raises(RuntimeError, match="differentiated twice"):
        jax.eval_shape(twice(end), RATES[0])
