"""Strata hold every bag once; training on them is training on the padded corpus."""

import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy.sparse import csr_array

from experiments.networks import training as network_training
from experiments.networks.embedding_step import network_risk
from experiments.networks.network import Design, Network, outputs, start, tables_of
from experiments.networks.training import minibatch, stratify
from jaxselect import BadInput, from_sequences
from tests.tolerances import assert_close

RNG = np.random.default_rng(0)
SEQUENCES = [RNG.integers(0, 12, RNG.integers(1, 20)) for _ in range(23)]
COUNTS = csr_array(np.stack([np.bincount(s, minlength=12) for s in SEQUENCES]) * 1.0)
SIGNS = np.where(RNG.random(23) < 0.5, 1, -1)


# A network is what a program is compiled for.
compiled = partial(jax.jit, static_argnums=0)
begin, apply = compiled(start), compiled(Network.apply)
truth = compiled(jax.value_and_grad(network_risk, argnums=1))


def test_strata_hold_every_bag_once():
    strata = stratify(COUNTS, SIGNS, number=5)
    dense = np.zeros((0, 13))
    for corpus in strata:
        rows = np.zeros((len(corpus.labels), 13))
        rows[:, 12] = corpus.labels
        for row, tokens, counts in zip(rows, corpus.tokens, corpus.counts, strict=True):
            np.add.at(row, np.asarray(tokens), np.asarray(counts))
        assert corpus.tokens.shape[1] == (np.asarray(corpus.counts) > 0).sum(1).max()
        dense = np.concatenate([dense, rows])
    wanted = np.concatenate([COUNTS.toarray(), SIGNS[:, None]], axis=1)
    assert sorted(map(tuple, dense)) == sorted(map(tuple, wanted))
    assert len(strata) <= 5


@pytest.mark.parametrize(
    "pieces, design",
    [
        ("some", Design(2, "separate")),
        ("bags", Design(activation="relu")),
        ("strata", Design(heads=3)),
    ],
)
def test_piecewise_gradient_is_the_gradient(design, pieces):
    # Some pieces lack a bag, and are filled up with one that does not count.
    some = 300 if design.layers == 2 else 30
    at_once = {"bags": 1, "some": some, "strata": 10**9}[pieces]
    labels = SIGNS if design.heads == 1 else np.arange(23) % 3
    corpus = from_sequences(
        SEQUENCES, labels, vocabulary=12, classes=max(2, design.heads)
    )
    network = Network(12, 5, design)
    variables = begin(network, jax.random.key(0))
    classes = max(2, design.heads)
    strata = stratify(COUNTS, labels, classes=classes, number=3)
    risk, slope = network_training.risk_and_gradient(
        network, variables, strata, at_once=at_once
    )
    wanted_risk, wanted = truth(network, variables, corpus)
    assert_close(risk, wanted_risk)
    for got, leaf in zip(*map(jax.tree.leaves, (slope, wanted)), strict=True):
        assert_close(got, leaf)
    metrics = network_training.evaluate(network, variables, strata, at_once=at_once)
    assert_close(metrics.loss, risk)
    heads = jnp.zeros_like(variables["params"]["heads"])
    silent = {"params": variables["params"] | {"heads": heads}}
    silent = network_training.evaluate(network, silent, strata, at_once=at_once)
    # Outputs of zero are negative, or of the first class.
    first = -1 if design.heads == 1 else 0
    assert_close(silent.accuracy, np.mean(labels == first))
    got = np.asarray(apply(network, variables, corpus))
    right = np.sign(got[:, 0]) if design.heads == 1 else got.argmax(axis=1)
    assert_close(
        metrics.accuracy, np.mean(np.asarray(right) == np.asarray(corpus.labels))
    )


def test_response_is_the_head_without_an_mlp_and_a_derivative_behind_one():
    strata = stratify(COUNTS, SIGNS, number=3)
    straight = Design(activation="identity", hidden="identity")
    network = Network(12, 5, straight)
    variables = begin(network, jax.random.key(0))
    got = network_training.response(network, variables, strata)
    assert_close(got, variables["params"]["heads"])
    network = Network(12, 5, Design(activation="tanh", heads=2))
    variables = begin(network, jax.random.key(0))
    got = network_training.response(network, variables, strata, at_once=50)
    corpus = from_sequences(SEQUENCES, SIGNS, vocabulary=12)
    tables = tables_of(network, variables)

    @jax.jit
    def mean(t):
        moved = tables._replace(values=tables.values + t * jnp.arange(5.0)[None])
        return outputs(moved, corpus, network.design).mean(axis=0)

    finite = (mean(1e-4) - mean(-1e-4)) / 2e-4
    # Second order at h = 10⁻⁴: 10⁻⁸ times a third derivative.
    assert np.abs(got @ jnp.arange(5.0) - finite).max() < 1e-6


def test_a_minibatch_holds_different_bags_of_each_stratum():
    strata = stratify(COUNTS, np.arange(23), classes=23, number=3)
    small = minibatch(jax.random.key(0), strata, batch=12)
    labels = jnp.concatenate([corpus.labels for corpus in small]).tolist()
    assert len(set(labels)) == len(labels)
    for drawn, whole in zip(small, strata, strict=True):
        assert len(drawn.labels) == round(12 / 23 * len(whole.labels))
    one = minibatch(jax.random.key(0), strata, batch=1)
    assert [len(drawn.labels) for drawn in one] == [1] * len(strata)


def test_labels_of_other_classes_are_refused():
    with pytest.raises(BadInput, match=r"label 0 of .*wanted one of \[-1, 1\]"):
        stratify(COUNTS, np.arange(23) % 3)
    with pytest.raises(BadInput, match=r"label -1 of .*wanted one of \[0, 1, 2\]"):
        stratify(COUNTS, SIGNS, classes=3)


def test_each_step_draws_its_own_minibatch():
    """One bag a step: the rows of E that move are those of its tokens."""
    network = Network(12, 5, Design())
    strata, seen = stratify(COUNTS, SIGNS, number=1), []
    network_training.train(
        network,
        begin(network, jax.random.key(0)),
        strata,
        optax.sgd(1.0),
        steps=6,
        batch=1,
        key=jax.random.key(0),
        report=lambda step, now: seen.append(now["params"]["embeddings"]),
    )
    moved = [
        tuple(np.flatnonzero((b != a).any(axis=1))) for a, b in itertools.pairwise(seen)
    ]
    held = {tuple(sorted(set(sequence.tolist()))) for sequence in SEQUENCES}
    assert set(moved) <= held and len(set(moved)) > 3


def test_training_is_gradient_descent_with_the_optimisers_memory():
    """Three steps of momentum, m ← ∇L + 0.5 m, x ← x − η m, of all but the heads."""
    network = Network(12, 5, Design(2, "tied"))
    now = begin(network, jax.random.key(0))
    strata = stratify(COUNTS, SIGNS, number=3)
    sgd = optax.sgd(0.3, momentum=0.5)
    fixed = {"steps": 3, "fixed": ("heads",)}
    end = network_training.train(network, now, strata, sgd, **fixed)
    heads = now["params"]["heads"]
    memory = jax.tree.map(jnp.zeros_like, now)
    for _ in range(3):
        _, slope = network_training.risk_and_gradient(network, now, strata)
        memory = jax.tree.map(lambda m, g: g + 0.5 * m, memory, slope)
        now = jax.tree.map(lambda x, m: x - 0.3 * m, now, memory)
        now = {"params": now["params"] | {"heads": heads}}
    jax.tree.map(assert_close, end, now)
