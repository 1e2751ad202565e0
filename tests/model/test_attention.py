"""Attention over bags is the paper's definition, token by token.

Source: mathematics, section 1.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.common.model import attend_corpus, outputs
from jaxselect import Corpus, from_sequences, gaussian
from tests.tolerances import assert_close

VOCABULARY, DIM = 5, 7
# Every token once, then some more: one width, so that nothing is compiled twice.
sequence = st.lists(st.integers(0, VOCABULARY - 1), max_size=6).map(
    lambda more: [*range(VOCABULARY), *more]
)
seeds = st.integers(0, 2**31)
drawn = jax.jit(gaussian, static_argnames=("vocabulary", "dim"))
read = jax.jit(outputs)


@jax.jit
def bag_of(scores, values, counts):
    """Attention over one bag."""
    ids, label = jnp.arange(len(scores))[None], jnp.ones(1, int)
    one = Corpus(ids, counts[None], label, len(scores))
    return jax.tree.map(lambda each: each[0], attend_corpus(scores, values, one))


def literal_output(parameters, tokens):
    """The definition of the paper: a sum over positions."""
    rows = np.asarray(parameters.embeddings)[tokens]
    weights = np.exp(rows @ np.asarray(parameters.query))
    return weights @ (rows @ np.asarray(parameters.head)) / weights.sum()


@given(seeds, st.lists(sequence, min_size=3, max_size=3))
def test_bags_agree_with_positions(seed, sequences):
    parameters = drawn(jax.random.key(seed), vocabulary=VOCABULARY, dim=DIM)
    corpus = from_sequences(sequences, [1] * len(sequences), vocabulary=VOCABULARY)
    wanted = [literal_output(parameters, np.array(tokens)) for tokens in sequences]
    assert_close(read(parameters, corpus), wanted)


@given(seeds, st.floats(-1e3, 1e3))
def test_only_score_differences_matter(seed, shift):
    uniform = jax.random.uniform(jax.random.key(seed), (3, VOCABULARY))
    scores, values, counts = np.asarray(uniform)
    here, there = (bag_of(scores + c, values, counts) for c in (0.0, shift))
    # The shift itself rounds the scores at 1000 times their own size.
    assert_close(there.output, here.output, worse=1e3)
    assert_close(there.advantage, here.advantage, worse=1e3)


@given(seeds)
def test_advantages_average_to_zero(seed):
    normal = jax.random.normal(jax.random.key(seed), (3, VOCABULARY))
    scores, values, counts = np.asarray(normal)
    bag = bag_of(10 * scores, values, np.abs(counts))
    assert_close(np.sum(np.exp(bag.log_weights) * bag.advantage), 0.0)
    assert_close(values - bag.output, bag.advantage)


def test_advantages_stay_exact_where_weights_underflow():
    """For two tokens b_s − f has closed forms: −q_r (b_r − b_s) on top, b_r − b_s."""
    for gap in [1.0, 30.0, 300.0]:
        bag = bag_of(jnp.array([gap, 0.0]), jnp.array([1.0, 3.0]), jnp.ones(2))
        # With a tail of e^{-300} a relative error is asked for, not an absolute one.
        wanted = 2 * np.exp(-gap) / (1 + np.exp(-gap))
        np.testing.assert_allclose(bag.advantage[0], -wanted, rtol=1e-12)
        assert_close(bag.advantage[1], 2 - wanted)


@pytest.mark.parametrize(("present", "padding"), [(1, 3), (4, 1), (4, 0)])
def test_padding_is_not_there(present, padding):
    scores, values = jax.random.normal(jax.random.key(3), (2, present + padding))
    counts = jnp.arange(1.0, present + padding + 1)
    padded = bag_of(
        scores, values, jnp.where(jnp.arange(len(counts)) < present, counts, 0.0)
    )
    bare = bag_of(scores[:present], values[:present], counts[:present])
    assert_close(padded.output, bare.output)
    assert (padded.log_weights[present:] == -jnp.inf).all()


def test_derivatives_are_finite_on_padding():
    counts = jnp.array([1.0, 0.0])
    slope = jax.grad(lambda a, c: bag_of(a, jnp.array([1.0, 2.0]), c).output, (0, 1))
    for gradient in slope(jnp.zeros(2), counts):
        assert jnp.isfinite(gradient).all()
