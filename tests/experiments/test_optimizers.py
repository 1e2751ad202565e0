"""The study of optimisers: its gradient, its minibatches and its measures.

Source: mathematics, section 3k.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from experiments.beyond import optimizers
from experiments.common.study import check
from jaxselect.checks import BadInput
from jaxselect.model.attention import empirical_risk
from tests.tolerances import assert_close

SMOKE = optimizers.PRESETS["smoke"]
DRAW = jax.jit(optimizers.instance, static_argnums=0)
PARAMETERS, CORPUS = DRAW(SMOKE, 3.0, 0)


def test_the_gradient_is_that_of_the_risk():
    found = jax.jit(optimizers.gradient)(PARAMETERS, CORPUS)
    wanted = jax.jit(jax.grad(lambda here: empirical_risk(here, CORPUS)))(PARAMETERS)
    for one, other in zip(*map(jax.tree.leaves, (found, wanted)), strict=True):
        assert_close(one, other)


def test_what_is_left_of_an_end_under_decay():
    slope = jax.jit(jax.grad(lambda here: empirical_risk(here, CORPUS)))(PARAMETERS)
    left = jax.tree.map(lambda down, part: down + 0.5 * part, slope, PARAMETERS)
    wanted = max(float(jnp.abs(part).max()) for part in jax.tree.leaves(left))
    found, off = jax.jit(optimizers.residuals)(0.5, PARAMETERS, CORPUS)
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
            lambda seed: optimizers.minibatch(jax.random.key(seed), CORPUS, 4).weights
        )
    )(jnp.arange(4000))
    assert ((some > 0).sum(axis=1) == 4).all()
    kept = np.asarray(some) / np.asarray(CORPUS.weights)
    assert_close(kept[kept > 0], np.full(4 * 4000, 4.0))
    # Five standard errors of a share ¼ of 4,000, of weights four times as large.
    np.testing.assert_allclose(kept.mean(axis=0), 1.0, atol=5 * (3 / 4000) ** 0.5)


def test_a_measurement_reads_weights_values_and_selection():
    found = jax.jit(optimizers.measure)(PARAMETERS, CORPUS)
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
    settings = dataclasses.replace(SMOKE, seeds=1)
    found, (end, _) = optimizers.train(
        settings, optax.sgd(0.5), np.array([1, 3]), 0, 3.0
    )
    here = PARAMETERS
    for number in (1, 2, 3):
        slope = jax.jit(optimizers.gradient)(here, CORPUS)
        here = jax.tree.map(lambda part, down: part - 0.5 * down, here, slope)
        if number == 1:
            first = jax.jit(optimizers.measure)(here, CORPUS)["rest"]
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
    found = optimizers.summary(SMOKE, arrays, "a")
    assert found["exponent_in_loss"] == pytest.approx(0.25)
    assert found["over_flow"] == pytest.approx(0.5)
    assert found["over_flow_at_loss"] == pytest.approx(0.25)
    assert found["difference"] == pytest.approx(1.5)
    assert found["difference_limit"] == pytest.approx(np.log(3.0))
    assert (found["log_time"], found["log_inverse_loss"]) == (11.0, 12.0)
    assert found["selected"] == pytest.approx(22 / 23)


@pytest.mark.parametrize("change", [{"batch": 17}, {"points": 3}])
def test_settings_without_a_study_are_refused(change):
    with pytest.raises(BadInput, match="wanted"):
        check(dataclasses.replace(SMOKE, **change))
