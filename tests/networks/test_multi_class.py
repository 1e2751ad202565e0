"""K classes: the loss, posteriors, and the one-step formula in its limit.

Source: mathematics, sections 1c and 2.
"""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np

from experiments.networks.embedding_step import (
    change_error,
    network_step,
    predicted_alignments,
    predicted_change,
)
from experiments.networks.network import Design, Network, start_reduced
from jaxselect import LOGISTIC, from_sequences, multi_class
from jaxselect.model.attention import functional_margin
from tests.exponents import mean_error_exponent
from tests.tolerances import assert_close


def test_the_logistic_loss_of_the_margin_is_cross_entropy():
    """And its derivative: −ℓ′(m) ∂m/∂f_k = 1{k=y} − π_k."""
    output = 5 * jax.random.normal(jax.random.key(0), (40, 4))
    labels = jnp.arange(40) % 4
    margin = functional_margin(labels, output, LOGISTIC)
    logs = jax.nn.log_softmax(output)
    assert_close(LOGISTIC.value(margin.value), -logs[jnp.arange(40), labels])
    pulled = LOGISTIC.slope(margin.value)[:, None] * margin.gradient
    assert_close(pulled, jax.nn.one_hot(labels, 4) - jnp.exp(logs))


SIZES = {"sequences": 30, "length": 6, "relevant": 2, "irrelevant": 8}
CORPORA = {
    "assumption one": (3, lambda: multi_class(jax.random.key(7), **SIZES, classes=3)),
    "arbitrary": (
        4,
        lambda: from_sequences(
            [[0, 0, 1], [1, 2], [2, 2, 0], [3]], [0, 1, 2, 3], vocabulary=5, classes=4
        ),
    ),
}


@cache
def classes_and_corpus(name):
    """Drawn by one program, once somebody asks for it."""
    classes, draw = CORPORA[name]
    return classes, jax.jit(draw)()


def test_one_step_formula_is_exact_in_the_limit():
    """The error falls as d^{−1/2}, and at d = 10¹⁶ only rounding is left of it."""
    classes, corpus = classes_and_corpus("arbitrary")
    design = Design(heads=classes)
    network = Network(corpus.vocabulary, corpus.vocabulary + classes + 1, design)
    predicted = predicted_change(corpus, design, 50.0)

    def error(key, dim):
        before = start_reduced(network, key, dim)
        after = network_step(network, before, corpus, 50.0)
        return change_error(before, after, predicted)

    assert abs(mean_error_exponent(error) + 0.5) < 0.02
    # The relative error at 10¹⁶ is 10⁻⁸ times a constant of order ten.
    assert jax.jit(error)(jax.random.key(1), 1e16) < 1e-6


def test_each_class_picks_its_own_tokens():
    """In the limit E_sᵀv_k > 0 for the tokens of class k alone."""
    classes, corpus = classes_and_corpus("assumption one")
    got = predicted_alignments(corpus, classes=classes, step_size=1.0)
    for token in range(2 * classes):
        assert got[token].argmax() == token // 2
        assert (got[token] > 0).sum() == 1
    assert np.abs(got[2 * classes :]).max() < 1e-15
