"""k steps on E: exact on orthonormal embeddings, and the law of late steps.

Source: mathematics, section 2a.
"""

from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.theory.steps import reduced_steps
from jaxselect import Parameters, embedding_steps, from_sequences, max_margin
from jaxselect.model.selection import competing_pairs, selected_tokens
from tests.tolerances import assert_close

RELEVANT, IRRELEVANT, LENGTH = 2, 4, 3
SIZES = {"relevant": RELEVANT, "irrelevant": IRRELEVANT, "length": LENGTH}
# Every important token with every two neighbours of a circle of irrelevant ones.
CORPUS = from_sequences(
    [
        [token, 4 + place, 4 + (place + 1) % 4]
        for token, place in product(range(4), range(4))
    ],
    [1 if token < 2 else -1 for token, _ in product(range(4), range(4))],
    vocabulary=8,
)
# Rows, p_0 and v of the limit d → ∞: orthonormal.
START = Parameters(jnp.eye(10)[:8], jnp.eye(10)[8], jnp.eye(10)[9])


@jax.jit
def literal(number, step_size):
    """E after the steps, and p_mm of its selection."""
    after = embedding_steps(number)(START, CORPUS, step_size)
    important = jnp.zeros(8).at[:4].set(1.0)
    pairs = competing_pairs(selected_tokens(important, CORPUS, 0.5), CORPUS)
    return after.embeddings, max_margin(after.embeddings, pairs)


@pytest.mark.parametrize("step_size", [3.0, 60.0])
def test_two_numbers_say_all(step_size):
    """Values, scores, weights and p_mm of the parameters themselves."""
    found = reduced_steps(**SIZES, step_size=step_size, number=9)
    for number in (0, 1, 2, 9):
        embeddings, margin = jax.device_get(literal(number, step_size))
        scores, values = embeddings[:, 8], embeddings[:, 9]
        value, score = found.value[number], found.score[number]
        assert_close(values, np.asarray(value) * [1.0, 1, -1, -1, 0, 0, 0, 0])
        assert_close(scores[:4, None] - scores[None, 4:], np.full((4, 4), score))
        weight = 1 / (1 + (LENGTH - 1) * np.exp(-score))
        assert_close(jnp.exp(found.log_unselected[number]), 1 - weight)
        assert_close(margin.norm, found.margin_norm[number])
        assert_close(margin.direction[8] / margin.norm, found.cosine[number])


def test_short_steps_keep_what_the_flow_keeps():
    """log(q/(1 − q)) + 1/(1 − q) − κ²β²/2; its drift is of the order of the step."""
    kappa = 1 + 2 * RELEVANT / IRRELEVANT
    drifts = []
    for number in (1000, 2000):
        found = reduced_steps(**SIZES, step_size=2000.0 / number, number=number)
        rest = jnp.exp(found.log_unselected)
        kept = jnp.log(1 / rest - 1) + 1 / rest - kappa * found.value**2 / 2
        drifts.append(float(jnp.abs(kept - kept[0]).max()))
    assert drifts[0] / drifts[1] == pytest.approx(2, rel=0.02)
    # In a quantity whose parts grow to 38.
    assert drifts[1] < 2e-3 / rest[-1] < 0.1


def test_late_the_rest_of_the_weight_is_two_over_kappa_beta_squared():
    found = reduced_steps(**SIZES, step_size=50.0, number=200_000)
    kappa = 1 + 2 * RELEVANT / IRRELEVANT
    law = np.exp(found.log_unselected) * kappa * found.value**2 / 2
    late = np.array([2_000, 20_000, 200_000])
    off = np.abs(law[late] - 1)
    assert (np.diff(off) < 0).all() and off[-1] < 0.1
    # β grows as the logarithm of the number of steps.
    growth = np.diff(found.value[late]) / np.log(10)
    np.testing.assert_allclose(growth, 1.0, atol=0.05)
