"""The strength of pairs: its definition, its scale, its derivative."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxselect.margin.pair_strength import pair_strength
from jaxselect.model.corpus import Corpus, from_sequences
from tests.tolerances import assert_close

BAGS = from_sequences([[0, 1, 1, 2], [0, 1, 3], [3, 0]], [1, -1, 1], vocabulary=4)
CHOSEN = jnp.array([[True, False, False], [True, False, False], [True, False, False]])


def by_definition(values):
    strength = np.zeros((4, 4))
    for bag, label in (([0, 1, 1, 2], 1), ([0, 1, 3], -1), ([0, 3], 1)):
        winner, residual = bag[0], 1 / (1 + np.exp(label * values[bag[0]]))
        for token in bag[1:]:
            ahead = label * (values[winner] - values[token])
            strength[winner, token] += residual * ahead / 3
    return strength


def test_is_the_sum_over_the_sequences_where_a_pair_meets():
    values = jnp.array([0.7, -0.2, 0.4, -1.3])
    found = pair_strength(values, BAGS, CHOSEN)
    assert_close(found.times_exp(jnp.array(0.0)), by_definition(np.asarray(values)))


def test_does_not_underflow_where_the_residual_does():
    values = jnp.float32([400.0, 0.0, 0.0, -400.0])
    bags = from_sequences([[0, 1, 2], [3, 1, 2]], [1, -1], vocabulary=4)
    chosen = jnp.array([[True, False, False], [False, False, True]])
    found = pair_strength(values, bags, chosen)
    assert found.factor.dtype == jnp.float32
    assert_close(found.factor[jnp.array([0, 3])][:, 1:3], np.full((2, 2), 200.0))
    assert_close(found.times_exp(jnp.float32(400.0))[0, 1], 200.0)


def test_padding_decides_no_scale():
    """Token 1 is padding where the residual is large, and loses where it is tiny."""
    bags = Corpus(
        jnp.array([[0, 1], [0, 1]]),
        jnp.array([[1.0, 1.0], [1.0, 0.0]]),
        jnp.array([1, -1]),
        2,
    )
    values, chosen = jnp.array([800.0, 0.0]), jnp.array([[True, False]] * 2)
    found = pair_strength(values, bags, chosen)
    assert_close(found.times_exp(jnp.array(800.0))[0, 1], 400.0)


def test_derivative_matches_finite_differences():
    towards = jnp.array([0.3, -1.0, 0.5, 2.0])

    def value(x):
        values = jnp.array([0.7, -0.2, 0.4, -1.3]) + x * towards
        strength = pair_strength(values, BAGS, CHOSEN).times_exp(jnp.array(0.0))
        return jnp.sum(strength * jnp.arange(16.0).reshape(4, 4))

    step = 1e-5
    difference = (value(step) - value(-step)) / (2 * step)
    np.testing.assert_allclose(jax.grad(value)(0.0), difference, rtol=1e-8)


def test_only_ratios_of_counts_matter():
    """A winner that stands three times pulls a third as hard on each of the others."""
    values = jnp.array([0.7, -0.2, 0.4])
    chosen = jnp.array([[True, False, False]])

    def strength(sequence):
        bags = from_sequences([sequence], [1], vocabulary=3)
        return pair_strength(values, bags, chosen).times_exp(jnp.array(0.0))

    once = strength([0, 1, 2])
    assert_close(strength([0, 0, 0, 1, 2]), once / 3)
    assert_close(strength([0, 0, 1, 1, 2, 2]), once)
