"""Descent beside the flow of p; its gradient and its measures where all is trained.

Source: mathematics, section 3k.
"""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from experiments.beyond import descent
from experiments.beyond.problem import Problem
from jaxselect.data.corpus import from_sequences
from jaxselect.model.attention import empirical_risk
from jaxselect.model.parameters import Parameters
from jaxselect.model.step import embedding_step
from tests.tolerances import assert_close


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
            return descent.update(after, bags, query, step=step, normalised=False)

        return jnp.linalg.norm(jax.lax.fori_loop(0, steps, once, start))

    begin = np.linalg.norm(start)
    # The distance shrinks by |1 − 2 share| in every step, or grows by it.
    np.testing.assert_allclose(after_steps(0.9), begin * 0.8**60, rtol=1e-3)
    np.testing.assert_allclose(after_steps(1.1, 20), begin * 1.2**20, rtol=1e-3)
    assert after_steps(1.1) > 1e3 * begin


STABLE = jax.jit(descent.stable_steps)
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
            descent.update(before, bags, query, step=0.5, normalised=normalised)
            for normalised in (False, True)
        ]

    plain, unit = updated(before, bags, query)
    np.testing.assert_allclose(plain, query - 0.5 * slope, atol=1e-14)
    wanted = query - 0.5 * slope / np.linalg.norm(slope)
    np.testing.assert_allclose(unit, wanted, atol=1e-12)


def test_distance_to_a_line():
    corners = np.array([[0.0, 0.0], [2.0, 0.0], [2.0, 5.0]])
    distance = jax.jit(descent.distance)
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
        away = descent.deviation(begun, bags, line, step, steps, False)
    # At the start it is nine times ‖p‖, at the end 1.2¹² / 10 of the way is done.
    assert 9 <= away <= 9.4


@pytest.mark.parametrize("rule", descent.RULES)
def test_what_first_order_leaves_out_is_of_second(rule):
    """Measured over predicted is 1 + O(h): half the step, half of it left or less."""
    settings = dataclasses.replace(descent.PRESETS["smoke"], until_time=20.0)
    after, bags, line, stable, slopes = jax.jit(partial(descent.curve, settings))(0)
    number, until = descent.RULES.index(rule), 30.0 if rule == "normalised" else 20.0
    train = jax.jit(partial(descent.deviation, normalised=rule == "normalised"))
    off = []
    for share in (0.05, 0.025):
        step = share * float(stable[number])
        away = train(after, bags, line, jnp.array(step), round(until / step))
        off.append(away / (step * slopes[number]) - 1)
    assert abs(off[1]) <= descent.REMAINDER * 0.025 and abs(off[1]) < abs(off[0]) / 1.6


def test_a_share_is_the_nearest_as_a_ratio():
    shares, rows = np.array([0.03, 0.1, 0.3, 1.0, 3.0]), np.arange(10).reshape(2, 5)
    assert descent.at_share(shares, rows, 0.19).tolist() == [2, 7]
    assert descent.at_share(shares, rows, 0.11).tolist() == [1, 6]


PARAMETERS, CORPUS = jax.jit(descent.instance)(3.0, 0)


def test_the_gradient_is_that_of_the_risk():
    found = jax.jit(descent.gradient)(PARAMETERS, CORPUS)
    wanted = jax.jit(jax.grad(lambda here: empirical_risk(here, CORPUS)))(PARAMETERS)
    for one, other in zip(*map(jax.tree.leaves, (found, wanted)), strict=True):
        assert_close(one, other)


def test_what_is_left_of_an_end_under_decay():
    slope = jax.jit(jax.grad(lambda here: empirical_risk(here, CORPUS)))(PARAMETERS)
    left = jax.tree.map(lambda down, part: down + 0.5 * part, slope, PARAMETERS)
    wanted = max(float(jnp.abs(part).max()) for part in jax.tree.leaves(left))
    found, off = jax.jit(descent.residuals)(0.5, PARAMETERS, CORPUS)
    assert_close(found, wanted)
    rows = np.asarray(PARAMETERS.embeddings)
    pair = np.stack([PARAMETERS.query, PARAMETERS.head])
    assert_close(off, np.abs(rows.T @ rows - pair.T @ pair).max())


def test_frequent_tokens_stand_in_more_of_the_weight():
    share = np.asarray(CORPUS.mean_by_token((CORPUS.counts > 0).astype(float)))
    assert_close(share[:4], np.array([3.0, 1.0, 3.0, 1.0]) / 8)
    assert_close(CORPUS.weights.sum(), 1.0)


def test_the_mean_minibatch_is_the_corpus():
    """Each holds `batch` sequences; over many keys their weights have its mean."""
    some = jax.jit(
        jax.vmap(
            lambda seed: descent.minibatch(CORPUS, jax.random.key(seed), 4).weights
        )
    )(jnp.arange(4000))
    assert ((some > 0).sum(axis=1) == 4).all()
    kept = np.asarray(some) / np.asarray(CORPUS.weights)
    assert_close(kept[kept > 0], np.full(4 * 4000, 16.0))
    # Five standard errors of a share 1/16 of 4,000, of weights 16 times as large.
    np.testing.assert_allclose(kept.mean(axis=0), 1.0, atol=5 * (15 / 4000) ** 0.5)


def test_a_measurement_reads_weights_values_and_selection():
    found = jax.jit(descent.measure)(PARAMETERS, CORPUS)
    scores = np.asarray(PARAMETERS.embeddings @ PARAMETERS.query)
    values = np.asarray(PARAMETERS.embeddings @ PARAMETERS.head)
    assert_close(found["values"], values[:4] * [1, 1, -1, -1])
    rest, share, loss = 0.0, 0.0, 0.0
    arrays = (CORPUS.tokens, CORPUS.counts, CORPUS.labels, CORPUS.weights)
    for tokens, counts, label, weight in zip(*map(np.asarray, arrays), strict=True):
        q = counts * np.exp(scores[tokens])
        q /= q.sum()
        rest += weight * q[tokens >= 4].sum()
        share += (tokens[q.argmax()] < 4) / len(CORPUS.labels)
        loss += weight * np.log1p(np.exp(-label * (q @ values[tokens])))
    assert_close(
        np.array([found["rest"], found["share"], found["log_loss"]]),
        np.array([rest, share, np.log(loss)]),
    )


def test_descent_takes_the_steps_that_it_is_given():
    """Marks 1 and 3 are steps θ − h ∇L by hand, with all sequences."""
    settings = dataclasses.replace(descent.PRESETS["smoke"], joint_seeds=1)
    found, (end, _) = descent.train_all(
        settings, optax.sgd(0.5), np.array([1, 3]), 0, 3.0
    )
    here = PARAMETERS
    for number in (1, 2, 3):
        slope = jax.jit(descent.gradient)(here, CORPUS)
        here = jax.tree.map(lambda part, down: part - 0.5 * down, here, slope)
        if number == 1:
            first = jax.jit(descent.measure)(here, CORPUS)["rest"]
    assert_close(found["rest"][0, 0], first)
    assert_close(end.embeddings[0], here.embeddings)


def test_what_is_summed_up_of_a_rule():
    """Late 1 − q = L^¼, b_s − b_r = 1.5, and the flow has twice the weight."""
    log_loss = -np.linspace(1.0, 12.0, 12)[:, None] * np.ones(2)
    values = np.array([2.5, 1.0, 3.5, 2.0])
    arrays = {
        "log_loss a, equal": log_loss,
        "rest a, equal": np.exp(log_loss / 4) * np.where(log_loss > -8, 3.0, 1.0),
        "values a, unequal": np.tile(values, (12, 2, 1)),
        "share a, equal": np.linspace(0, 1, 24).reshape(12, 2),
        "log_times a": np.arange(12.0),
        "predicted a": 2 * np.exp(log_loss[:, 0] / 4),
        "flow_log_loss": np.array([-1.0, -11.0, -13.0]),
        "flow_rest": np.exp(-3.0) * np.array([9.0, 5.0, 3.0]),
    }
    found = descent.summary(arrays, "a")
    assert found["exponent_in_loss"] == pytest.approx(0.25)
    assert found["over_flow"] == pytest.approx(0.5)
    assert found["over_flow_at_loss"] == pytest.approx(0.25)
    assert found["difference"] == pytest.approx(1.5)
    assert found["difference_limit"] == pytest.approx(np.log(3.0))
    assert (found["log_time"], found["log_inverse_loss"]) == (11.0, 12.0)
    assert found["selected"] == pytest.approx(22 / 23)
