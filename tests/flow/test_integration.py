"""An integration on closed forms: its solution at given times, and what ends it."""

from collections import OrderedDict

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxselect.flow.integration import Recorder, integrate, record
from jaxselect.flow.rodas import Rodas5P
from tests.flow.autodiff import from_autodiff

RATE = 0.7
# Ten times the tolerance of a step: an interpolant is as exact as the steps beside it.
RTOL = 1e-8
BEGIN, END = 1.0, 5.0


def path(times, adjoint=None):
    """dy/dt = −rate y, y = 1 at 1, until 5."""
    field = lambda t, y, args: -RATE * y  # noqa: E731
    solution = dfx.diffeqsolve(
        dfx.ODETerm(field),
        Recorder(Rodas5P(from_autodiff(field)), times),
        BEGIN,
        END,
        None,
        jnp.ones(1),
        saveat=dfx.SaveAt(t1=True, solver_state=True),
        stepsize_controller=dfx.PIDController(RTOL, RTOL),
        adjoint=adjoint or dfx.RecursiveCheckpointAdjoint(),
    )
    return record(solution.solver_state[1], times, BEGIN, solution.ts[0])


def closed_form(times):
    return np.exp(-RATE * (np.asarray(times) - BEGIN))


_path = jax.jit(path)


def followed(times):
    return map(np.asarray, _path(np.array(times)))


@pytest.mark.parametrize(
    ("times", "known"),
    [
        # Its two ends among them, and one time twice.
        ([1.0, 1.0, 1.3, 2.0, 4.999, 5.0], [1, 1, 1, 1, 1, 1]),
        ([0.9, 1.0, 2.0, 3.0, 5.0, 5.1], [0, 1, 1, 1, 1, 0]),
        ([1.0, 3.0, 2.0, 2.9, 3.0, 4.0], [1, 1, 0, 0, 1, 1]),
        ([1.0, np.nan, 2.0, 3.0, 4.0, 5.0], [1, 0, 0, 0, 0, 0]),
        ([-np.inf, 1.0, 2.0, 3.0, np.inf, 4.0], [0, 1, 1, 1, 0, 0]),
    ],
)
def test_the_solution_at_times_of_the_flow_and_none_off_it(times, known):
    """Before it, after it, earlier than one before them, behind a NaN."""
    known = np.asarray(known, bool)
    found, states = followed(times)
    np.testing.assert_array_equal(found, np.where(known, times, np.inf))
    assert np.isinf(states[~known]).all()
    wanted = closed_form(np.asarray(times)[known])
    np.testing.assert_allclose(states[known, 0], wanted, rtol=10 * RTOL)


def test_its_derivative_in_a_time_is_the_velocity():
    """In both modes; and that of a time off the flow is zero, not NaN."""
    inner = jnp.asarray([1.3, 2.0, 4.9, 7.0])

    def known(times, adjoint):
        states = path(times, adjoint)[1][:, 0]
        return jnp.where(jnp.isfinite(states), states, 0.0)

    forward = jax.jit(jax.jacfwd(lambda times: known(times, dfx.ForwardMode())))
    reverse = jax.jit(jax.jacrev(lambda times: known(times, None)))
    wanted = np.diag([*(-RATE * closed_form(inner[:3])), 0.0])
    for jacobian in (forward(inner), reverse(inner)):
        # The derivative of an interpolant is one order worse than its value.
        np.testing.assert_allclose(jacobian, wanted, atol=1e-5)


def above(level):
    return lambda time, state, problem: state[0] - level


@jax.jit
def ended(levels):
    """dy/dt = y from 1 at 0, until y is above a level, the later named first."""
    field = lambda t, y, args: y  # noqa: E731
    return integrate(
        field,
        Rodas5P(from_autodiff(field)),
        dfx.PIDController(1e-3, 1e-3),
        None,
        jnp.ones(1),
        (jnp.array(0.0), jnp.array(3.0)),
        OrderedDict(later=above(levels[1]), earlier=above(levels[0])),
        max_steps=99,
    )


def test_an_event_ends_a_flow_where_it_happens():
    """Whichever it is; one that does not happen ends nothing."""
    for levels, name in (((2.0, 99.0), "earlier"), ((98.0, 7.0), "later")):
        found = ended(jnp.array(levels))
        level = min(levels)
        assert found.end.by(name) and found.end.by_event
        np.testing.assert_allclose(found.state[0], level, rtol=1e-14)
        np.testing.assert_allclose(found.log_time, np.log(level), rtol=1e-3)
    found = ended(jnp.array([98.0, 99.0]))
    assert found.log_time == 3.0 and not found.end.by_event


def test_of_two_events_within_a_step_that_which_was_named_first_counts():
    """By its place, not by its letters."""
    found = ended(jnp.array([5.0, 5.001]))
    assert found.end.by("later") and not found.end.by("earlier")
    np.testing.assert_allclose(found.state[0], 5.001, rtol=1e-14)
