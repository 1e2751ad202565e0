"""Closed-form derivatives against autodiff, and against a thousand digits late.

Source: mathematics, section 1.
"""

import decimal
from decimal import Decimal

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.common.model import accuracy
from jaxselect import LOGISTIC, Parameters, from_sequences
from jaxselect.model.attention import log_strongest_pull, negative_gradient
from tests.model.bags import CORPUS, VOCABULARY
from tests.tolerances import assert_close

compiled_gradient = jax.jit(negative_gradient)


@given(st.integers(0, 2**31), st.floats(-600, 600))
def test_the_scale_multiplies(seed, log_scale):
    scores, values = np.random.default_rng(seed).normal(size=(2, VOCABULARY))
    plain = compiled_gradient(scores, values, CORPUS)
    scaled = compiled_gradient(scores, values, CORPUS, log_scale)
    # An exponent of 600 carries a rounding of 600 · 1e-16 into the result.
    assert_close(scaled.scores / jnp.exp(log_scale), plain.scores, worse=10)
    assert_close(scaled.values / jnp.exp(log_scale), plain.values, worse=10)


def literal_late_gradient(scores, values, log_scale, digits):
    """e^{log_scale} (−∂L/∂a) by the definition itself, with enough digits to cancel."""
    with decimal.localcontext() as context:
        context.prec, context.Emax, context.Emin = digits, 10**9, -(10**9)
        total = [Decimal(0)] * VOCABULARY
        a, b = ([Decimal(float(x)) for x in row] for row in (scores, values))
        powers = [x.exp() for x in a]
        for tokens, counts, label in zip(
            CORPUS.tokens, CORPUS.counts, CORPUS.labels, strict=True
        ):
            bag = {int(s): int(c) for s, c in zip(tokens, counts, strict=True) if c}
            weight = {s: c * powers[s] for s, c in bag.items()}
            mass = sum(weight.values())
            output = sum(weight[s] * b[s] for s in bag) / mass
            y = Decimal(int(label))
            residual = 1 / (1 + (y * output).exp())
            for s in bag:
                total[s] += y * residual * weight[s] / mass * (b[s] - output)
        scale = Decimal(log_scale).exp() / len(CORPUS.labels)
        return np.array([float(x * scale) for x in total])


@pytest.mark.parametrize(
    ("size", "digits"), [(1.0, 50), (30.0, 200), (1e3, 400), (3e3, 1000)]
)
def test_late_gradients_are_exact(size, digits):
    """At scores of 3,000 the definition itself needs hundreds of digits; we have 16."""
    scores = size * jnp.array([1.0, 0.9, 0.4, 0.3, 0.2])
    values = jnp.array([3.0, -2.0, 0.5, -0.25, 0.125])
    # The largest term stays of order one: in token 1 against token 4, sequence 5 aside.
    log_scale = float(size * 0.1)
    wanted = literal_late_gradient(scores, values, log_scale, digits)
    gradient = compiled_gradient(scores, values, CORPUS, log_scale).scores
    # Scores of this size are themselves rounded to 1e-16 of it, and exponentiated.
    assert_close(gradient, wanted, worse=max(1.0, size))
    assert np.abs(wanted).max() > 1e-3


def test_accuracy_counts_signs():
    swap = jnp.array([1.0, -1.0])
    bags = from_sequences([[0], [1], [0], [1]], [1, -1, 1, 1], vocabulary=2)
    assert accuracy(Parameters(jnp.eye(2), swap, swap), bags) == 0.75


def test_losses_do_not_overflow():
    far = jnp.array([-1e300, 1e300])
    assert LOGISTIC.value(far).tolist() == [1e300, 0.0]


def test_the_strongest_pull_is_one_token_s_not_the_sum_on_the_top_one():
    """Two equal tokens 50 behind: σ(−1) e^{−50} each, twice that on the winner."""
    corpus = from_sequences([[0, 1, 2]], [1], vocabulary=3)
    scores, values = jnp.array([50.0, 0.0, 0.0]), jnp.array([1.0, 0.0, 0.0])
    wanted = jax.nn.log_sigmoid(-1.0) - 50.0
    entries = corpus.logits(scores), corpus.gather(values)
    assert_close(log_strongest_pull(*entries, corpus), wanted)
