"""Rodas5P: its order, its interpolant, stiffness, and straight lines at any step."""

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxselect.flow._rosenbrock import Rodas5P, from_autodiff


def _field(t, y, args):
    """A nonlinear, time-dependent field with a symmetric Jacobian."""
    return jnp.stack([-(y[0] ** 2) * jnp.cos(t) + y[1], y[0] - y[1] ** 3])


def _solve(solver, steps, field=_field, end=2.0, saveat=None, start=(1.0, 0.5)):
    """Lengths are arrays: steps of any number and size share a program."""
    return dfx.diffeqsolve(
        dfx.ODETerm(field),
        solver,
        0.0,
        jnp.array(end),
        jnp.array(end / steps),
        jnp.array(start),
        saveat=saveat or dfx.SaveAt(t1=True),
        max_steps=10**6,
    ).ys


def _order(errors, refinement):
    return np.log(np.array(errors[:-1]) / np.array(errors[1:])) / np.log(refinement)


@pytest.fixture(scope="module")
def times():
    return jnp.linspace(0.0, 2.0, 42)[1:-1]


@pytest.fixture(scope="module")
def errors(times):
    save = dfx.SaveAt(ts=times)
    exact = _solve(dfx.Dopri8(), 4000, saveat=save)
    exact_end = _solve(dfx.Dopri8(), 4000)
    between, end, solver = [], [], Rodas5P(from_autodiff(_field))
    for steps in (10, 20, 40, 80):
        between.append(jnp.max(jnp.abs(_solve(solver, steps, saveat=save) - exact)))
        end.append(jnp.max(jnp.abs(_solve(solver, steps) - exact_end)))
    return between, end


def test_order_five_at_the_end_of_a_step(errors):
    assert _order(errors[1], 2)[-1] == pytest.approx(5.0, abs=0.25)


def test_order_four_or_better_between_steps(errors):
    assert _order(errors[0], 2).min() > 3.7


def test_stiff_decay_is_followed_at_long_steps():
    rate = 1e8

    def field(t, y, args):
        return -rate * (y - jnp.cos(t)) - jnp.sin(t)

    solver = Rodas5P(from_autodiff(field))
    end = _solve(solver, 10, field=field, start=(1.0,))
    np.testing.assert_allclose(end[0, 0], np.cos(2.0), atol=1e-6)


def test_the_late_flow_is_followed_exactly_by_one_step_of_any_length():
    """u' = e^{t−u} from u(0) = 0 is solved by u = t: linear, though stiff."""

    def field(t, y, args):
        return jnp.exp(t - y)

    solver = Rodas5P(from_autodiff(field))
    for length in (1.0, 1e3, 1e6):
        end = _solve(solver, 1, field=field, end=length, start=(0.0,))
        # Rounding of a sum of stages with weights of order 100.
        np.testing.assert_allclose(end[0, 0], length, rtol=1e-13)


def test_a_step_that_outruns_growth_is_refused():
    """I/(γh) − J is not positive definite when h is longer than the growth time."""

    def field(t, y, args):
        return 100.0 * y

    solver = Rodas5P(from_autodiff(field))
    _, error, *_ = solver.step(
        dfx.ODETerm(field), 0.0, 1.0, jnp.ones(1), None, None, False
    )
    assert not jnp.isfinite(error).any()

    def end(start):
        controller = dfx.PIDController(1e-10, 1e-10)
        return dfx.diffeqsolve(
            dfx.ODETerm(field),
            solver,
            0.0,
            1.0,
            1.0,
            start[None],
            stepsize_controller=controller,
        ).ys[0, 0]

    # A refused step leaves no trace in the derivative either.
    for number in jax.value_and_grad(end)(jnp.array(1.0)):
        np.testing.assert_allclose(number, np.exp(100.0), rtol=1e-7)


def test_a_step_so_long_that_a_stage_overflows_is_refused():
    """e^{90} is no number in single precision: the error is infinite, not NaN."""

    def field(t, y, args):
        return -jnp.exp(y)

    @jax.jit
    def error(end, start):
        term, solver = dfx.ODETerm(field), Rodas5P(from_autodiff(field))
        return solver.step(term, 0.0 * end, end, start, None, None, False)[1]

    assert jnp.isposinf(error(jnp.float32(1.0), jnp.full(1, 86.0, "float32"))).all()
    assert jnp.isfinite(error(jnp.array(1.0), jnp.full(1, 86.0))).all()


def test_lanes_that_wait_for_others_keep_their_derivative():
    """y' = −y² from y₀ at three lengths in one batch: dy/dy₀ = 1/(1 + y₀ T)²."""

    def field(t, y, args):
        return -(y**2)

    def end(start, length):
        return dfx.diffeqsolve(
            dfx.ODETerm(field),
            Rodas5P(from_autodiff(field)),
            0.0,
            length,
            None,
            start[None],
            stepsize_controller=dfx.PIDController(1e-9, 1e-9),
        ).ys[0, 0]

    lengths = jnp.array([0.0, 1.0, 50.0])
    slope = jax.vmap(jax.grad(end), (None, 0))(jnp.array(2.0), lengths)
    np.testing.assert_allclose(slope, (1 + 2 * lengths) ** -2, rtol=1e-6)
