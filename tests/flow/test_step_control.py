"""Steps over what happens within a rounding of time, and over forces unseen."""

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np

from jaxselect import Parameters, attention, from_bags
from jaxselect.flow.cls import aligned, cls_flow
from jaxselect.flow.control import FlowSettings, PredictiveController
from jaxselect.flow.rodas import Rodas5P
from tests.flow.autodiff import from_autodiff


@jax.jit
def late(rate):
    """y' = −rate y³ from 1 at t = 10⁶, whose rounding is 10⁻¹⁰, for a time of 1."""

    def field(t, y, args):
        return -rate * y**3

    start = jnp.array(1e6)
    found = dfx.diffeqsolve(
        dfx.ODETerm(field),
        Rodas5P(from_autodiff(field)),
        start,
        start + 1,
        None,
        jnp.ones(1),
        stepsize_controller=PredictiveController(
            1e-4, 1e-4, dtmin=1e-14, force_dtmin=False
        ),
        throw=False,
    )
    refused = found.result == dfx.RESULTS.dt_min_reached
    return found.ys[0, 0], refused, found.stats["num_steps"]


def test_what_happens_within_a_rounding_of_time_is_followed_while_time_stands_still():
    """Whatever the rate, y ends at 1/√(1 + 2 rate): its start leaves no trace."""
    for rate in (1e6, 1e8, 1e9, 3e9):
        value, refused, _ = late(rate)
        np.testing.assert_allclose(value * np.sqrt(1 + 2 * rate), 1.0, rtol=2e-3)
        assert not refused


def test_what_happens_sooner_than_that_ends_at_once():
    """No step is refused twice, and y stays where it could be followed to."""
    for rate in (1e11, 1e15):
        value, refused, steps = late(rate)
        assert value == 1.0 and refused and steps < 30


def test_a_step_is_kept_whose_error_of_every_score_is_within_the_tolerance():
    rows = np.array([[20.0, 0.0], [-10.0, 1.0], [-10.0, -1.0]])
    bags = from_bags([[0, 1], [0, 2]], [[1, 1]] * 2, [1, 1], vocabulary=3)
    start = Parameters(jnp.array(rows), jnp.zeros(2), jnp.ones(2))
    axes, problem = aligned(attention(start, bags), None)
    control = FlowSettings(atol=1e-3).score_control(rows.dtype)
    here, begin, end = jnp.zeros(2), jnp.array(1.0), jnp.array(1.1)
    _, state = control.init(None, begin, end, here, end - begin, problem, None, 5)
    kept = jax.jit(
        lambda error: control.adapt_step_size(
            begin, end, here, here, problem, axes.T @ error, 5, state
        )[0]
    )
    for wrong in np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 15.0]]):
        wrong *= 1e-3 / np.abs(rows @ wrong).max()
        assert kept(0.99 * wrong) and not kept(1.01 * wrong)


@jax.jit
def follow(start, bags, until_log_time):
    return cls_flow(attention(start, bags), until_log_time=until_log_time)


def test_a_step_over_a_wall_that_no_stage_feels_is_refused():
    """D = (1, 0), (0.96, 1), (1.02, −24600): beyond the wall nothing pulls back.

    A token a thousand times as long as the others loses by 10⁵, then by 27: a step that
    leaps to −10⁵ meets no force on its way, and its error estimate is zero.
    """
    tokens = -jnp.array([[0.0, 0.0], [1.0, 0.0], [0.96, 1.0], [1.02, -24600.0]])
    bags = from_bags(
        [[0, 1], [0, 2], [0, 3]], [[1, 1], [1, 10], [1, 10]], [1, 1, -1], vocabulary=4
    )
    head = jnp.array([1.178, 1.565])
    start = Parameters(tokens, jnp.array([0.65, -4.39]), head)
    flow = follow(start, bags, 35.0)
    scores = tokens @ flow.query
    assert (scores[0] - scores[1:] > 0).all()


def test_a_token_of_large_value_is_held_at_weights_of_a_hundredth():
    """E_3ᵀv = 598: its sequence feels nothing until q_3 is below 6/598."""
    tokens = jnp.array(
        [[0.0, 0.0], [0.499, 0.0282], [0.525, -0.471], [-836.171, 14789.8]]
    )
    bags = from_bags(
        [[0, 1], [0, 2], [0, 3]], [[1, 1], [10, 10], [10, 10]], [1, -1, 1], vocabulary=4
    )
    start = Parameters(
        tokens, jnp.array([-1.35577, 0.08388]), jnp.array([-0.81132, -0.00543])
    )
    flow = follow(start, bags, 7.0)
    scores = tokens @ flow.query
    assert -5 < scores[3] - scores[0] < -2
