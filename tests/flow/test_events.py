"""What ends an integration, and when: an event on a closed form, and one of several."""

from collections import OrderedDict

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np

from jaxselect.flow.integration import integrate
from jaxselect.flow.rodas import Rodas5P
from tests.flow.autodiff import from_autodiff


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
