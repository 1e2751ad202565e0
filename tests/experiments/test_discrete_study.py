"""Discrete training of p: stable steps and distances to the curve of the flow."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.beyond import (
    discrete,
)
from experiments.beyond.problem import Problem
from jaxselect.data.corpus import from_sequences
from jaxselect.model.attention import empirical_risk
from jaxselect.model.parameters import Parameters
from jaxselect.model.step import embedding_step


def held_by_both_labels():
    """One bag with either label: L = log 2cosh(f/2), f = tanh(x/2), x = a_0 − a_1.

    It is least at x = 0, where L'' = 1/16 in x and λ = ‖E_0 − E_1‖²/16 = 1/8 in p.
    """
    bags = from_sequences([[0, 1], [0, 1]], [1, -1], vocabulary=2)
    return Parameters(jnp.eye(2), jnp.zeros(2), jnp.array([1.0, -1.0])), bags


def test_descent_converges_at_nine_tenths_of_the_stable_step_and_not_at_eleven():
    after, bags = held_by_both_labels()
    stable, _ = np.asarray(STABLE(after, bags, jnp.array(0.0), np.zeros(2)))
    np.testing.assert_allclose(stable, 16.0, rtol=1e-12)
    start = np.array([1e-4, -1e-4])

    @jax.jit
    def after_steps(share, steps=60):
        def once(_, query):
            step = share * stable
            return discrete.update(after, bags, query, step=step, normalised=False)

        return jnp.linalg.norm(jax.lax.fori_loop(0, steps, once, start))

    begin = np.linalg.norm(start)
    # The distance shrinks by |1 − 2 share| in every step, or grows by it.
    np.testing.assert_allclose(after_steps(0.9), begin * 0.8**60, rtol=1e-3)
    np.testing.assert_allclose(after_steps(1.1, 20), begin * 1.2**20, rtol=1e-3)
    assert after_steps(1.1) > 1e3 * begin


STABLE = jax.jit(discrete.stable_steps)
STEP = jax.jit(embedding_step)
DRAW = jax.jit(Problem(8, 3, 1, 4).draw)


def drawn(seed):
    """In NumPy, where what is changed and compared costs no program."""
    return jax.tree.map(np.asarray, DRAW(seed, 64.0))


def stepped():
    before, bags = drawn(0)
    return STEP(before, bags, 10.0), bags


@jax.jit
def curvature_and_slope(after, bags, query):
    def risk(query):
        return empirical_risk(Parameters(after.embeddings, query, after.head), bags)

    return jax.hessian(risk)(query), jax.grad(risk)(query)


@pytest.mark.parametrize("log_time", [0.0, 5.0, 100.0])
def test_stable_steps_are_those_of_the_risk_itself(log_time):
    after, bags = stepped()
    query = 3 * np.asarray(after.query)
    curvature, slope = map(np.asarray, curvature_and_slope(after, bags, query))
    found = STABLE(after, bags, jnp.array(log_time), query)
    wanted = (
        2 / np.linalg.eigvalsh(curvature)[-1] * np.array([1, np.linalg.norm(slope)])
    )
    np.testing.assert_allclose(found, wanted, rtol=1e-9)


def test_both_rules_go_down_the_gradient_of_the_risk():
    before, bags = drawn(1)
    query, (_, slope) = before.query, curvature_and_slope(before, bags, before.query)
    slope = np.asarray(slope)

    @jax.jit
    def updated(before, bags, query):
        return [
            discrete.update(before, bags, query, step=0.5, normalised=normalised)
            for normalised in (False, True)
        ]

    plain, unit = updated(before, bags, query)
    np.testing.assert_allclose(plain, query - 0.5 * slope, atol=1e-14)
    wanted = query - 0.5 * slope / np.linalg.norm(slope)
    np.testing.assert_allclose(unit, wanted, atol=1e-12)


def test_distance_to_a_line():
    corners = np.array([[0.0, 0.0], [2.0, 0.0], [2.0, 5.0]])
    distance = jax.jit(discrete.distance)
    np.testing.assert_allclose(distance(np.array([3.0, 4.0]), corners), 1.0, rtol=1e-12)
    # Behind either end it is that to the end.
    for beyond in ([-3.0, 4.0], [5.0, 9.0]):
        away = distance(np.array(beyond), corners)
        np.testing.assert_allclose(away, 5.0, rtol=1e-12)


def test_the_largest_deviation_of_a_run_counts_wherever_it_was():
    """Steps of 1.1 stable ones grow from a tenth of the way to a point towards it."""
    after, bags = held_by_both_labels()
    begun = Parameters(after.embeddings, jnp.array([1e-4, -1e-4]), after.head)
    line = jnp.array([[1e-3, -1e-3]] * 2)
    step, steps = jnp.array(1.1 * 16.0), jnp.array(12)
    with jax.numpy_dtype_promotion("standard"):
        away = discrete.deviation(begun, bags, line, step, steps, False)
    # At the start it is nine times ‖p‖, at the end 1.2¹² / 10 of the way is done.
    assert 9 <= away <= 9.4


@pytest.mark.parametrize("rule", discrete.RULES)
def test_what_first_order_leaves_out_is_of_second(rule):
    """Measured over predicted is 1 + O(h): half the step, half of it left or less."""
    settings = dataclasses.replace(discrete.PRESETS["smoke"], until_time=20.0)
    after, bags, line, stable, slopes = jax.jit(partial(discrete.curve, settings))(0)
    number, until = discrete.RULES.index(rule), 30.0 if rule == "normalised" else 20.0
    train = jax.jit(partial(discrete.deviation, normalised=rule == "normalised"))
    off = []
    for share in (0.05, 0.025):
        step = share * float(stable[number])
        away = train(after, bags, line, jnp.array(step), round(until / step))
        off.append(away / (step * slopes[number]) - 1)
    assert abs(off[1]) <= discrete.REMAINDER * 0.025 and abs(off[1]) < abs(off[0]) / 1.6


def test_a_share_is_the_nearest_as_a_ratio():
    shares, rows = np.array([0.03, 0.1, 0.3, 1.0, 3.0]), np.arange(10).reshape(2, 5)
    assert discrete.at_share(shares, rows, 0.19).tolist() == [2, 7]
    assert discrete.at_share(shares, rows, 0.11).tolist() == [1, 6]


def test_minibatches_are_unbiased():
    bags = from_sequences(
        [[0, 1], [0, 2], [1, 2]], [1, 1, -1], vocabulary=3, weights=[6.0, 3.0, 1.0]
    )
    keys = jax.random.split(jax.random.key(0), 4000)
    draw = jax.vmap(lambda key: discrete.minibatch(bags, key, 3).weights)
    drawn = np.asarray(jax.jit(draw)(keys))
    np.testing.assert_allclose(drawn.sum(axis=1), 1.0, rtol=1e-12)
    deviation = np.sqrt(np.asarray(bags.weights) / 3 / len(drawn))
    assert (np.abs(drawn.mean(axis=0) - bags.weights) < 5 * deviation).all()
