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
from experiments.networks.network import Design, Network, start
from jaxselect.model import step as embedding_step
from jaxselect.model.parameters import gaussian, gaussian_reduced
from tests.exponents import mean_error_exponent
from tests.model.test_embedding_step import CORPORA, corpus_of
from tests.networks.base_model import with_base
from tests.tolerances import assert_close

# A network is what a program is compiled for.
compiled = partial(jax.jit, static_argnums=0)
begun, stepped = compiled(start), compiled(network_step)
reached = jax.jit(two_layer_importance, static_argnames="residual")


@pytest.mark.parametrize(
    "name, residual", [("independent tokens", False), ("arbitrary", True)]
)
def test_two_layer_step_error_falls_as_the_root_of_the_dimension(name, residual):
    """The exponent of the mean error over d = 10³ … 10⁹ is −1/2, as for one layer."""
    corpus = corpus_of(name)
    design = Design(2, residual=residual)
    network = Network(corpus.vocabulary, corpus.vocabulary + 2, design)
    blank = begun(network, jax.random.key(0))

    def error(key, dim):
        before = with_base(
            blank, gaussian_reduced(key, vocabulary=corpus.vocabulary, dim=dim)
        )
        after = network_step(network, before, corpus, 50.0)
        return change_error(before, after, predicted_change(corpus, design, 50.0))

    assert abs(mean_error_exponent(error) + 0.5) < 0.02


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
