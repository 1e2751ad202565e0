"""Pairs of tokens as a graph, and their strength: definition, scale, derivative."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxselect.data.corpus import Corpus, from_sequences
from jaxselect.margin.pairs import (
    PairMask,
    _listed,
    concrete_pairs,
    laplacian,
    pair_strength,
    pairs_of,
)
from tests.tolerances import assert_close
from tests.valued import valued

BAGS = from_sequences([[0, 1, 1, 2], [0, 1, 3], [3, 0]], [1, -1, 1], vocabulary=4)
CHOSEN = np.array(3 * [[True, False, False]])
VALUES = np.array([0.7, -0.2, 0.4, -1.3])


@jax.jit
def strength(values, bags, chosen, exponent=0.0):
    """The factor of every pair, and c e^{exponent}."""
    found = pair_strength(valued(values, bags), chosen, pairs_of(chosen, bags))
    return found.factor, found.times_exp(jnp.asarray(exponent, values.dtype))


def by_definition(values):
    wanted = np.zeros((4, 4))
    for bag, label in (([0, 1, 1, 2], 1), ([0, 1, 3], -1), ([0, 3], 1)):
        winner, residual = bag[0], 1 / (1 + np.exp(label * values[bag[0]]))
        for token in bag[1:]:
            ahead = label * (values[winner] - values[token])
            wanted[winner, token] += residual * ahead / 3
    return wanted


def test_is_the_sum_over_the_sequences_where_a_pair_meets():
    assert_close(strength(VALUES, BAGS, CHOSEN)[1], by_definition(VALUES))


def test_does_not_underflow_where_the_residual_does():
    values = np.float32([400.0, 0.0, 0.0, -400.0])
    bags = from_sequences([[0, 1, 2], [3, 1, 2]], [1, -1], vocabulary=4)
    chosen = np.array([[True, False, False], [False, False, True]])
    factor, scaled = map(np.asarray, strength(values, bags, chosen, np.float32(400.0)))
    assert factor.dtype == np.float32
    assert_close(factor[[0, 3], 1:3], np.full((2, 2), 200.0))
    assert_close(scaled[0, 1], np.float32(200.0))


def test_padding_decides_no_scale():
    """Token 1 is padding where the residual is large, and loses where it is tiny."""
    bags = Corpus(
        jnp.asarray([[0, 1], [0, 1]]),
        jnp.asarray([[1.0, 1.0], [1.0, 0.0]]),
        jnp.asarray([1, -1]),
        2,
    )
    values, chosen = np.array([800.0, 0.0]), np.array([[True, False]] * 2)
    _, scaled = map(np.asarray, strength(values, bags, chosen, 800.0))
    assert_close(scaled[0, 1], 400.0)


def test_values_that_differ_by_rounding_have_no_strength():
    """The difference of two large values is known to their rounding."""
    bags = from_sequences([[0, 1]], [1], vocabulary=2)
    for apart, known in ((1e-15, False), (1e-9, True)):
        values = np.array([3.0, 3.0 - apart])
        factor, _ = strength(values, bags, np.array([[True, False]]))
        assert (factor[0, 1] > 0) == known and (known or factor[0, 1] == 0)


def test_derivative_matches_finite_differences():
    towards = np.array([0.3, -1.0, 0.5, 2.0])

    @jax.jit
    @jax.value_and_grad
    def both(x):
        _, scaled = strength(VALUES + x * towards, BAGS, CHOSEN)
        return jnp.sum(scaled * np.arange(16.0).reshape(4, 4))

    step = 1e-5
    difference = (both(step)[0] - both(-step)[0]) / (2 * step)
    np.testing.assert_allclose(both(0.0)[1], difference, rtol=1e-8)


def test_only_ratios_of_counts_matter():
    """A winner that stands three times pulls a third as hard on each of the others."""
    chosen = np.array([[True, False, False]])

    def of(sequence):
        bags = from_sequences([sequence], [1], vocabulary=3)
        return np.asarray(strength(VALUES[:3], bags, chosen)[1])

    once = of([0, 1, 2])
    assert_close(of([0, 0, 0, 1, 2]), once / 3)
    assert_close(of([0, 0, 1, 1, 2, 2]), once)


def test_laplacian_is_the_energy_of_the_pairs():
    rng = np.random.default_rng(0)
    weights, scores = rng.random((6, 6)), rng.normal(size=6)
    ahead = scores[:, None] - scores[None, :]
    assert_close(
        scores @ laplacian(jnp.asarray(weights)) @ scores, (weights * ahead**2).sum()
    )


def test_centred_tokens_span_the_differences_and_keep_their_scores():
    """Two chains, one running backwards through the names, and a token in no pair."""
    pairs = np.zeros((9, 9), bool)
    for s, r in ((8, 6), (6, 4), (2, 4), (2, 0), (1, 3), (5, 3)):
        pairs[s, r] = True
    tokens = jax.random.normal(jax.random.key(0), (9, 12))
    graph = PairMask(jnp.asarray(pairs))
    rows = graph.centred(tokens, graph.held)
    winner, loser = np.nonzero(pairs)
    assert_close(rows[winner] - rows[loser], tokens[winner] - tokens[loser])
    differences = tokens[winner] - tokens[loser]
    assert jnp.linalg.matrix_rank(rows) == len(winner)
    both = jnp.concatenate([rows, differences])
    assert jnp.linalg.matrix_rank(both) == len(winner)
    assert not rows[7].any()


def test_without_pairs_no_lead_is_smallest():
    pairs = jnp.zeros((3, 3), bool)
    scores = jnp.array([2.0, 5.0, 1.0])
    assert PairMask(pairs).least(scores) == 0
    assert PairMask(pairs.at[0, 1].set(True)).least(scores) == -3


def test_a_list_indexes_pairs_of_the_entries_that_it_was_made_for():
    """Of the other entries of the same sequences it holds none."""
    bags = from_sequences([[0, 1], [1, 2]], [1, -1], vocabulary=3)
    listed = _listed(jnp.array([[True, False], [True, False]]), bags, 2)
    found = listed.places(bags, jnp.array([0, 0]))[:, 1]
    edges = listed.winner[found].tolist(), listed.loser[found].tolist()
    assert edges == ([0, 1], [1, 2])
    assert (listed.places(bags, jnp.array([1, 1])) == len(listed.held)).all()


@pytest.mark.parametrize("several", [False, True])
def test_pairs_whose_number_is_known_are_those_of_any_number(several):
    """In the same order, and of the same entries."""
    random = np.random.default_rng(several)
    bags = from_sequences(random.integers(400, size=(9, 6)), [1] * 9, vocabulary=400)
    chosen = bags.present & (random.random(bags.tokens.shape) < 0.4)
    if not several:
        chosen = bags.marks(jnp.argmax(chosen, axis=1))
    few, many = concrete_pairs(chosen, bags), pairs_of(chosen, bags)
    number = int(many.held.sum())
    assert number == few.held.sum() <= len(few.held) < min(2 * number, len(many.held))
    first = jnp.argmax(chosen, axis=1)

    def ends(pairs):
        found = np.asarray(pairs.places(bags, first))
        there = found < len(pairs.held)
        at = (np.asarray(each) for each in (pairs.winner, pairs.loser))
        kept = np.stack([pairs.winner[:number], pairs.loser[:number]])
        return there, *(each[found[there]] for each in at), kept

    for one, other in zip(ends(few), ends(many), strict=True):
        np.testing.assert_array_equal(one, other)
