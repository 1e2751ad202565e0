"""The step size after two errors, against the formula written out."""

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxselect.data.corpus import from_bags
from jaxselect.flow.cls import FlowSettings, aligned, cls_flow
from jaxselect.flow.control import (
    PARTS,
    PredictiveController,
    skips_a_force,
    step_length,
)
from jaxselect.flow.rodas import Rodas5P, from_autodiff
from jaxselect.model.parameters import Parameters
from jaxselect.problem import attention

RTOL, ORDER = 1e-6, 5.0


def steps_after(errors, controller):
    """Step sizes that follow errors of steps from zero on, starting with length 0.1."""

    def each(errors):
        start, end, value = jnp.array(0.0), jnp.array(0.1), jnp.ones(1)
        term = dfx.ODETerm(lambda t, y, args: -y)
        _, state = controller.init(term, start, end, value, end, None, None, ORDER)
        for error in errors:
            kept, start, end, _, state, _ = controller.adapt_step_size(
                start, end, value, value, None, error[None] * RTOL, ORDER, state
            )
            yield kept, end - start

    found = jax.jit(lambda errors: [*each(errors)])(np.array(errors))
    return [(bool(kept), float(length)) for kept, length in found]


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


def test_rounding_of_large_scores_is_granted_to_a_step_and_no_more():
    """Scores of 10⁶ may err by some of their roundings, beside a tolerance of 10⁻⁹."""
    bags = from_bags([[0, 1]], [[1, 1]], [1], vocabulary=2)
    start = Parameters(*map(jnp.asarray, (np.eye(2), np.zeros(2), [1.0, -1.0])))
    rounding = 1e6 * np.finfo(float).eps

    @jax.jit
    def kept(roundings):
        problem = aligned(attention(start, bags), jnp.array(jnp.inf))[1]
        # One axis of differences, along which p moves both scores alike.
        axis = problem.rows[0] / (problem.rows[0] @ problem.rows[0])
        begin, end, there = jnp.array(6.0), jnp.array(7.0), 1e6 * axis
        controller = FlowSettings(atol=1e-9).score_control(there.dtype)
        term = dfx.ODETerm(lambda t, y, args: y)
        _, state = controller.init(term, begin, end, there, end, problem, None, ORDER)
        given = begin, end, there, there, problem, roundings * rounding * axis
        return controller.adapt_step_size(*given, ORDER, state)[0]

    assert kept(10.0) and not kept(1000.0)


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


@pytest.mark.parametrize("kind", ["float32", "float64"])
@pytest.mark.parametrize("time", [1.0, 37.9, 1e6])
def test_an_empty_step_is_a_part_of_the_shortest(kind, time):
    time = jnp.asarray(time, kind)
    following = jnp.nextafter(time, jnp.asarray(jnp.inf, kind))
    shortest = following - time
    assert step_length(time, following) == shortest
    ratio = PARTS * step_length(time, time) / shortest
    assert 1 <= ratio < 2 and ratio.dtype == kind


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


def test_a_force_is_skipped_where_its_factors_change_places():
    """At a crossing weights do; in a bag of large values a weight and the residual."""
    bags = from_bags([[0, 1, 2]], [[1, 1, 1]], [1], vocabulary=3)
    first, second, even, both = np.array(
        [[[9.0, 0.0, 0.0]], [[0.0, 9.0, 0.0]], [[0.5, 0.0, -9.0]], [[9.0, 9.0, 0.0]]]
    )
    values, large = np.array([[1.0, 0.0, 0.0]]), np.array([[600.0, 0.0, 0.0]])
    skips = jax.jit(skips_a_force)
    assert skips(first, second, values, bags)
    for before, after in ((first, first), (first, even), (even, second), (first, both)):
        assert not skips(before, after, values, bags)
    # With equal weights f = 300, and no force is left.
    assert skips(both, second, large, bags)
    assert not skips(both, first, large, bags)


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
