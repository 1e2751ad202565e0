"""Richer networks: gradients, invariances, and the models they contain.

Source: mathematics, section 5.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.common import model as objective
from experiments.networks.embedding_step import network_risk
from experiments.networks.network import (
    Design,
    Network,
    Tables,
    start,
    start_reduced,
    tables_of,
)
from jaxselect import from_sequences, gaussian, several_relevant
from tests.networks.base_model import with_base
from tests.tolerances import assert_close

SIZES = {"sequences": 20, "length": 8, "relevant": 3, "irrelevant": 6}
DRAW = partial(several_relevant, **SIZES, per_sequence=3, purity=0.5)
CORPUS = jax.jit(DRAW)(jax.random.key(7))
# Each layer, way to attend, activation and number of heads once.
DESIGNS = {
    "product": Design(1, "product"),
    "two layers, no residual, tied": Design(2, "tied", residual=False),
    "two layers, separate": Design(2, "separate"),
    "two layers, MLP": Design(2, activation="gelu"),
    "tanh": Design(activation="tanh"),
    "three heads": Design(heads=3),
    "three heads, relu": Design(heads=3, activation="relu"),
}


# A network is what a program is compiled for.
compiled = partial(jax.jit, static_argnums=0)
begin, tables, apply = compiled(start), compiled(tables_of), compiled(Network.apply)


def drawn(design, dim=7, seed=3, corpus=CORPUS):
    network = Network(corpus.vocabulary, dim, design)
    return network, begin(network, jax.random.key(seed))


def disturbed(variables, seed=4):
    """Away from W = I and from zero biases, where gradients are special."""
    rng = np.random.default_rng(seed)
    return jax.tree.map(
        lambda leaf: np.asarray(leaf) + 0.3 * rng.normal(size=leaf.shape), variables
    )


@pytest.mark.parametrize("name", DESIGNS)
def test_gradient_against_finite_differences(name):
    design = DESIGNS[name]
    network, variables = drawn(design)
    corpus = CORPUS
    if design.heads > 1:
        labels = jnp.arange(len(CORPUS.labels), dtype=jnp.int32) % design.heads
        corpus = type(CORPUS)(CORPUS.tokens, CORPUS.counts, labels, CORPUS.vocabulary)
    variables = disturbed(variables)
    ray = disturbed(jax.tree.map(np.zeros_like, variables), seed=5)

    def along(t):
        moved = jax.tree.map(lambda leaf, step: leaf + t * step, variables, ray)
        return network_risk(network, moved, corpus)

    steps = np.array([-2.0, -1.0, 0.0, 1.0, 2.0]) * 1e-3
    values, slopes = jax.jit(jax.vmap(jax.value_and_grad(along)))(steps)
    slope = slopes[2]
    finite = (values[0] - 8 * values[1] + 8 * values[3] - values[4]) / 12e-3
    # Fourth order at h = 10⁻³: h⁴ times a fifth derivative, and 10⁻¹³ of rounding.
    assert abs(slope - finite) < 1e-9 * max(1, abs(slope))


@pytest.mark.parametrize("name", DESIGNS)
def test_bags_are_sequences_in_any_order(name):
    """One bag against attention over shuffled positions, written out at length."""
    network, variables = drawn(DESIGNS[name])
    variables = disturbed(variables)
    looked_up = tables(network, variables)
    sequence = jnp.array([4, 1, 1, 8, 4, 4, 0])
    bag = from_sequences([sequence], [1], vocabulary=CORPUS.vocabulary)
    got = apply(network, variables, bag)[0]
    for seed in range(3):
        order = jax.random.permutation(jax.random.key(seed), sequence)
        wanted = by_position(looked_up, order, DESIGNS[name])
        assert_close(got, wanted, worse=10)


@partial(jax.jit, static_argnames="design")
def by_position(tables: Tables, sequence, design):
    """The network over positions, with no counts."""
    scores, values = tables.scores[sequence], tables.values[sequence]
    if design.layers == 2:
        keys = tables.queries if tables.keys is None else tables.keys
        logits = tables.queries[sequence] @ keys[sequence].T
        mixing = jax.nn.softmax(logits, axis=1)
        residual = float(design.residual)
        scores = residual * scores + mixing @ scores
        values = residual * values + mixing @ values
    average = jax.nn.softmax(scores) @ values
    if design.activation is None:
        return average
    act = {"relu": jax.nn.relu, "gelu": jax.nn.gelu, "tanh": jnp.tanh}
    return tables.heads @ act[design.activation](tables.hidden @ average + tables.bias)


@pytest.mark.parametrize(
    "design",
    [
        Design(),
        Design(key_query="separate"),
        Design(key_query="tied"),
        Design(key_query="product"),
        Design(activation="identity", hidden="identity"),
    ],
)
def test_without_its_extra_part_a_network_is_the_base_model(design):
    """W = I, one layer, identity for the MLP: outputs, risk and gradient agree."""
    base = gaussian(jax.random.key(1), vocabulary=CORPUS.vocabulary, dim=7)
    network, variables = drawn(design)
    variables = with_base(variables, base)
    assert_close(
        apply(network, variables, CORPUS)[:, 0],
        jax.jit(objective.outputs)(base, CORPUS),
    )
    wanted = jax.jit(jax.grad(objective.empirical_risk))(base, CORPUS)
    slope = compiled(jax.grad(network_risk, argnums=1))
    got = slope(network, variables, CORPUS)["params"]
    assert_close(got["embeddings"], wanted.embeddings)
    assert_close(got["cls"], wanted.query)
    assert_close(got["heads"][0], wanted.head)


def test_reduced_start_has_the_law_of_the_start():
    """Second moments of E, p and the heads at d = 12, within five standard errors."""
    design, draws = Design(heads=2), 2000
    wide, small = Network(4, 12, design), Network(4, 7, design)

    def gram(variables):
        inner = variables["params"]
        rows = (inner["embeddings"], inner["cls"][None], inner["heads"])
        rows = jnp.concatenate(rows)
        return rows @ rows.T, inner["heads"]

    keys = jax.random.split(jax.random.key(0), (2, draws))
    here, there = jax.jit(
        lambda keys: (
            jax.vmap(lambda key: gram(start(wide, key)))(keys[0]),
            jax.vmap(lambda key: gram(start_reduced(small, key, 12.0)))(keys[1]),
        )
    )(keys)
    (here, heads), (there, _) = jax.tree.map(np.asarray, (here, there))
    assert_close(np.linalg.norm(heads, axis=-1), np.ones((draws, 2)))
    # Uniform on the sphere: no side is preferred.
    assert np.abs(heads.mean(axis=0)).max() < 5 / np.sqrt(12 * draws)
    for moment in (1, 2):
        one, other = here**moment, there**moment
        error = np.sqrt((one.var(axis=0) + other.var(axis=0)) / draws) + 1e-9
        distance = np.abs(one.mean(axis=0) - other.mean(axis=0)) / error
        assert distance.max() < 5


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("key_query", ["product", "tied", "separate"])
def test_logits_go_through_their_own_matrix(layers, key_query):
    """W is itself, MᵀM or QᵀK; scores are E W²p and queries E W¹, away from W = I."""
    network, variables = drawn(Design(layers, key_query))
    inner = jax.tree.map(np.asarray, disturbed(variables)["params"])

    def matrix(number):
        if key_query == "separate":
            return inner[f"query_{number}"].T @ inner[f"key_{number}"]
        factor = inner[f"{key_query}_{number}"]
        return factor if key_query == "product" else factor.T @ factor

    got, embeddings = tables(network, {"params": inner}), inner["embeddings"]
    assert_close(got.scores, embeddings @ matrix(2) @ inner["cls"])
    if layers == 2:
        assert_close(got.queries, embeddings @ matrix(1))
        assert_close(got.keys, embeddings)
