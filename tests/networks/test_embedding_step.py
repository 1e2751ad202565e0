"""One step on the embeddings of a richer network: α one level up, and its error.

Source: mathematics, section 5a.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.networks.embedding_step import (
    change_error,
    network_step,
    predicted_change,
    two_layer_importance,
)
from experiments.networks.network import Design, Network, start, start_reduced
from jaxselect import from_sequences
from jaxselect.model import step as embedding_step
from jaxselect.model.parameters import gaussian
from tests.exponents import mean_error_exponent
from tests.model.test_embedding_step import CORPORA, corpus_of
from tests.networks.base_model import with_base
from tests.tolerances import assert_close

# A network is what a program is compiled for.
compiled = partial(jax.jit, static_argnums=0)
begun, stepped = compiled(start), compiled(network_step)
reached = jax.jit(two_layer_importance, static_argnames="residual")


FOUR_CLASSES = from_sequences(
    [[0, 0, 1], [1, 2], [2, 2, 0], [3]], [0, 1, 2, 3], vocabulary=5, classes=4
)
STEPS = {
    "two layers": (lambda: corpus_of("independent tokens"), Design(2, residual=False)),
    "two layers, residual": (lambda: corpus_of("arbitrary"), Design(2)),
    "four classes": (lambda: FOUR_CLASSES, Design(heads=4)),
}


@pytest.mark.parametrize("name", STEPS)
def test_the_error_of_a_step_falls_as_the_root_of_the_dimension(name):
    """The exponent of the mean error over d = 10³ … 10⁹ is −1/2, as for the base model,
    and at d = 10¹⁶ only rounding is left of it."""
    draw, design = STEPS[name]
    corpus = draw()
    network = Network(corpus.vocabulary, corpus.vocabulary + design.heads + 1, design)
    predicted = predicted_change(corpus, design, 50.0)

    def error(key, dim):
        before = start_reduced(network, key, dim)
        after = network_step(network, before, corpus, 50.0)
        return change_error(before, after, predicted)

    assert abs(mean_error_exponent(error) + 0.5) < 0.02
    # The relative error at 10¹⁶ is 10⁻⁸ times a constant of order ten.
    assert jax.jit(error)(jax.random.key(1), 1e16) < 1e-6


def test_behind_an_mlp_a_step_goes_along_the_response():
    """P gᵀ with g = Uᵀv for tanh: the error falls as d^{−1/2}; gᵀv has either sign."""
    corpus = corpus_of("independent tokens")
    errors, signs = [], set()
    for dim in (40, 360):
        network = Network(corpus.vocabulary, dim, Design(activation="tanh"))
        predicted = predicted_change(corpus, network.design, 5.0)

        def one(key, network=network, predicted=predicted):
            before = start(network, key)
            after = network_step(network, before, corpus, 5.0)["params"]["embeddings"]
            inner = before["params"]
            answer = inner["hidden"].T @ inner["heads"][0]
            wanted = predicted * answer[None]
            change = after - inner["embeddings"]
            left = jnp.linalg.norm(change - wanted) / jnp.linalg.norm(wanted)
            values = change @ inner["heads"][0]
            return left, values @ predicted[:, 0], answer @ inner["heads"][0]

        keys = jax.random.split(jax.random.key(0), 12)
        each = jax.jit(lambda keys, one=one: jax.lax.map(one, keys))
        left, rises, towards = map(np.asarray, each(keys))
        errors.append(left.mean())
        clear = np.abs(towards) > 0.3 * dim**-0.5
        assert (np.sign(rises) == np.sign(towards))[clear].all()
        signs |= set(np.sign(towards[clear]).tolist())
    assert signs == {-1.0, 1.0}
    exponent = np.log(errors[1] / errors[0]) / np.log(9)
    assert abs(exponent + 0.5) < 0.1


@pytest.mark.parametrize("residual", [True, False])
@pytest.mark.parametrize("name", CORPORA)
def test_two_layer_importance_is_that_of_attention_at_orthonormal_embeddings(
    name, residual
):
    """Written out over positions: E_sᵀE_r = δ_sr in the logits, then means."""
    corpus = jax.tree.map(np.asarray, corpus_of(name))
    wanted = np.zeros(corpus.vocabulary)
    for row in range(len(corpus.labels)):
        said = np.repeat(corpus.tokens[row], corpus.counts[row].astype(int))
        mixing = np.exp((said[:, None] == said[None]).astype(float))
        mixing /= mixing.sum(axis=1, keepdims=True)
        weight = mixing.mean(axis=0) + residual / len(said)
        np.add.at(wanted, said, int(corpus.labels[row]) * weight / len(corpus.labels))
    assert_close(reached(corpus, residual=residual), wanted)


def test_one_layer_takes_the_step_of_the_base_model():
    corpus = corpus_of("arbitrary")
    base = gaussian(jax.random.key(1), vocabulary=corpus.vocabulary, dim=5)
    network = Network(corpus.vocabulary, 5, Design())
    begin = with_base(begun(network, jax.random.key(0)), base)
    after = stepped(network, begin, corpus, 7.0)["params"]
    wanted = jax.jit(embedding_step.embedding_step)(base, corpus, 7.0)
    assert_close(after["embeddings"], wanted.embeddings)
    assert_close(after["cls"], base.query)


def test_change_error_is_the_share_that_is_missing():
    """With orthonormal heads: E¹ − E⁰ = 3/4 P V leaves a quarter of ‖P‖."""
    predicted, heads = (
        jnp.asarray(np.random.default_rng(0).normal(size=(4, 2))),
        np.eye(2, 8),
    )
    before, after = (
        {"params": {"embeddings": 1.0 + share * predicted @ heads, "heads": heads}}
        for share in (0.0, 0.75)
    )
    assert_close(change_error(before, after, predicted), 0.25)
