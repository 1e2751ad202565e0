"""Rodas5P: its order, its interpolant, stiffness, and straight lines at any step.

Source: mathematics, section 3a.
"""

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxselect.flow.rodas import _TABLEAU, GAMMA, Rodas5P
from tests.flow.autodiff import from_autodiff
from tests.tolerances import assert_close

TURN = np.array([[0.6, -0.8], [0.8, 0.6]])
START = np.array([1.0, 0.5])


def coupled(t, y, args):
    """y = Q u with u′ = −u² cos t, a symmetric Jacobian."""
    return -TURN @ (TURN.T @ y) ** 2 * jnp.cos(t)


def closed_form(t):
    """u = 1 / (1/u_0 + sin t)."""
    return 1 / (1 / (TURN.T @ START) + np.sin(t)[..., None]) @ TURN.T


def solve(field, steps, start, end=2.0, **save):
    """Lengths are arrays: steps of any number and size share a program."""
    return dfx.diffeqsolve(
        dfx.ODETerm(field),
        Rodas5P(from_autodiff(field)),
        0.0,
        jnp.array(end),
        end / steps,
        jnp.asarray(start),
        max_steps=10**6,
        **save,
    ).ys


def test_order_five_at_the_end_of_a_step_and_four_between():
    times = np.linspace(0.0, 2.0, 42)[1:-1]
    save = dfx.SaveAt(subs=[dfx.SubSaveAt(t1=True), dfx.SubSaveAt(ts=times)])
    found = jax.jit(lambda steps: solve(coupled, steps, START, saveat=save))
    ends, between = [], []
    for steps in (20.0, 40.0, 80.0, 160.0):
        end, path = found(steps)
        ends.append(np.abs(end - closed_form(np.array([2.0]))).max())
        between.append(np.abs(path - closed_form(times)).max())
    order = lambda errors: -np.diff(np.log2(errors))  # noqa: E731
    assert order(ends)[-1] == pytest.approx(5.0, abs=0.25)
    assert order(between).min() > 3.7


def test_the_error_estimate_is_the_last_stage():
    """Of y′ = zy, h = 1: (1/γ − z − z A − C) k = z, y_1 = 1 + A_8 k + k_8."""
    term = dfx.ODETerm(lambda t, y, args: args * y)
    solver = Rodas5P(from_autodiff(term.vector_field))
    step = jax.jit(lambda z: solver.step(term, 0.0, 1.0, jnp.ones(1), z, None, False))
    stages, coupling = map(np.array, _TABLEAU[2:])
    for z in (-1e3, -5.0, -0.1, 2.0):
        system = (1 / GAMMA - z) * np.eye(8) - z * stages - coupling
        last = np.linalg.solve(system, np.full(8, z))
        end, error, *_ = step(z)
        assert_close(end, 1 + last[-1:] + stages[-1:] @ last, worse=1e2)
        np.testing.assert_allclose(error, last[-1:], rtol=1e-5)


def test_stiff_decay_is_followed_at_long_steps():
    rate = 1e8

    def field(t, y, args):
        return -rate * (y - jnp.cos(t)) - jnp.sin(t)

    end = solve(field, 10, (1.0,))
    np.testing.assert_allclose(end[0, 0], np.cos(2.0), atol=1e-6)


def test_the_late_flow_is_followed_exactly_by_one_step_of_any_length():
    """u' = e^{t−u} from u(0) = 0 is solved by u = t: linear, though stiff."""

    def field(t, y, args):
        return jnp.exp(t - y)

    follow = jax.jit(lambda length: solve(field, 1, (0.0,), length))
    for length in (1.0, 1e3, 1e6):
        end = follow(length)
        # Rounding of a sum of stages with weights of order 100.
        np.testing.assert_allclose(end[0, 0], length, rtol=1e-13)


def test_a_step_that_outruns_growth_is_refused():
    """I/(γh) − J is not positive definite when h is longer than the growth time."""

    def field(t, y, args):
        return 100.0 * y

    solver, term = Rodas5P(from_autodiff(field)), dfx.ODETerm(field)

    @jax.jit
    @jax.value_and_grad
    def end(start):
        controller = dfx.PIDController(1e-10, 1e-10)
        return dfx.diffeqsolve(
            term, solver, 0.0, 1.0, 1.0, start[None], stepsize_controller=controller
        ).ys[0, 0]

    step = jax.jit(lambda y: solver.step(term, 0.0, 1.0, y, None, None, False)[1])
    assert not np.isfinite(step(np.ones(1))).any()
    # A refused step leaves no trace in the derivative either.
    for number in end(1.0):
        np.testing.assert_allclose(number, np.exp(100.0), rtol=1e-7)


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

    lengths = np.array([0.0, 1.0, 50.0])
    slope = jax.jit(jax.vmap(jax.grad(end), (None, 0)))(jnp.array(2.0), lengths)
    np.testing.assert_allclose(slope, (1 + 2 * lengths) ** -2, rtol=1e-6)
