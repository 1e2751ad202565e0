"""Betweenness: the sign of a pair's strength, and several pairs that act together.

Source: mathematics, sections 3j and 3l.
"""

from functools import partial
from itertools import combinations

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given

from experiments.theory.betweenness import (
    asked_value,
    between,
    foreseen,
    log_odds,
    negative_load,
    step_window,
)
from jaxselect import Corpus, from_sequences, importance
from jaxselect.data.loss import EXPONENTIAL, LOGISTIC, POLYNOMIAL
from jaxselect.margin.pairs import laplacian, pair_strength, pairs_of
from jaxselect.model.step import start_slope
from tests.tolerances import assert_close
from tests.valued import valued

LOSSES = {loss.name: loss for loss in (LOGISTIC, EXPONENTIAL, POLYNOMIAL)}
TOKENS, BAGS = 4, 12


def drawn(seed, loss=LOGISTIC):
    """Bags of uneven counts and weights whose winners follow an order of the tokens."""
    rng = np.random.default_rng(seed)
    tokens = np.array([rng.permutation(TOKENS)[:3] for _ in range(BAGS)], np.int32)
    counts = rng.integers(0, 3, tokens.shape).astype(float)
    counts[:, 0] += 1
    weights = rng.dirichlet(np.ones(BAGS))
    weights[0] = 0.0
    labels = rng.choice([-1, 1], BAGS).astype(np.int32)
    parts = map(jnp.asarray, (tokens, counts, labels))
    corpus = Corpus(*parts, TOKENS, jnp.asarray(weights / weights.sum()), loss)
    top = np.where(counts > 0, rng.permutation(TOKENS)[tokens], -1).argmax(axis=1)
    selected = jnp.asarray(np.arange(3) == top[:, None]) & corpus.present
    return corpus, selected, jnp.asarray(3 * rng.normal(size=TOKENS))


@jax.jit
def signs(values, corpus, selected):
    odds = log_odds(corpus, selected)
    strength = pair_strength(
        valued(values, corpus), selected, pairs_of(selected, corpus)
    ).factor
    return strength, between(values, odds, corpus.loss), odds


@pytest.mark.parametrize("name", LOSSES)
@given(st.integers(0, 2**32 - 1))
def test_a_strength_is_positive_where_its_winner_lies_between(name, seed):
    corpus, selected, values = drawn(seed, LOSSES[name])
    strength, held, _ = signs(values, corpus, selected)
    np.testing.assert_array_equal(strength > 0, held)
    # Strictly: with values alike nothing is kept away.
    assert not signs(jnp.zeros(TOKENS), corpus, selected)[1].any()


@pytest.mark.parametrize("name", LOSSES)
def test_the_asked_value_balances_both_labels(name):
    loss, odds = LOSSES[name], jnp.array([-40.0, -3.0, 0.0, 0.1, 7.0, 60.0])
    value = jax.jit(partial(asked_value, loss=loss))(odds)
    assert_close(loss.log_slope(-value) - loss.log_slope(value), odds, worse=10)
    assert (jnp.sign(value) == jnp.sign(odds)).all()


@pytest.mark.parametrize("name", LOSSES)
@given(st.integers(0, 2**32 - 1))
def test_the_window_of_step_sizes_is_where_the_strength_is_positive(name, seed):
    corpus, selected, _ = drawn(seed, LOSSES[name])
    # A law for any α; a token without importance has no edge of its own.
    alpha = importance(corpus).at[0].set(0.0)
    window = WINDOW(alpha, corpus, selected)
    assert (window.least >= 0).all() and (window.most >= 0).all()
    edges = np.concatenate([np.ravel(window.least), np.ravel(window.most)])
    edges = np.unique(edges[np.isfinite(edges) & (edges > 0)])
    sizes = np.sort(np.concatenate([edges * 0.999, edges * 1.001, [1e-3, 1e6]]))
    for size in sizes:
        values = start_slope(corpus.loss) * size * alpha
        inside = (window.least < size) & (size < window.most)
        strength, *_ = signs(values, corpus, selected)
        # A slope of e^{−10⁶} underflows; its scale apart, it has a sign.
        np.testing.assert_array_equal(strength > 0, inside)


@jax.jit
def WINDOW(alpha, corpus, selected):
    return step_window(alpha, log_odds(corpus, selected), corpus.loss)


@given(st.integers(0, 2**32 - 1))
def test_what_counts_foresee_is_the_sign_of_strengths_of_the_largest_importance(seed):
    """Also in bags of padding alone, of weight zero, where nothing loses."""
    corpus, _, _ = drawn(seed)
    alpha, size = importance(corpus), 30.0
    found = FORESEEN(corpus, alpha, size)
    strength, *_ = signs(
        start_slope(corpus.loss) * size * alpha, corpus, found.selected
    )
    held = lost = 0
    rows = zip(*map(np.asarray, (corpus.tokens, corpus.present)), strict=True)
    for tokens, present in rows:
        if present.any():
            winner = max(tokens[present], key=lambda token: abs(alpha[token]))
            losers = [token for token in tokens[present] if token != winner]
            lost += len(losers)
            held += sum(bool(strength[winner, token] > 0) for token in losers)
    assert found.loses.sum() == lost
    assert_close(found.share, held / lost)


FORESEEN = jax.jit(foreseen)


def test_of_several_classes_a_strength_is_at_most_what_the_winner_explains_better():
    """c_sr ≤ R(b_r) − R(b_s), and c_sr is the slope of R along b_s − b_r."""
    rng = np.random.default_rng(0)
    bags = from_sequences(
        [[0, 1]] * 6, [0, 0, 1, 2, 2, 2], vocabulary=2, classes=3, weights=range(1, 7)
    )
    first = jnp.array([[True, False]] * 6)

    def risk(value):
        logs = jax.nn.log_softmax(value)
        return -corpus_mean(logs[bags.labels])

    corpus_mean = bags.mean

    @jax.jit
    @jax.vmap
    def both(values):
        pairs = pair_strength(valued(values, bags), first, pairs_of(first, bags))
        strength = pairs.times_exp(jnp.zeros(()))[0, 1]
        slope = jax.grad(risk)(values[0]) @ (values[1] - values[0])
        return strength, slope, risk(values[1]) - risk(values[0])

    strength, slope, better = both(jnp.asarray(3 * rng.normal(size=(200, 2, 3))))
    assert_close(strength, slope)
    assert (strength <= better + 1e-12).all() and (strength > 0).any()


def signed_graph(seed, negative):
    """Tokens in general position, a connected graph of positive pairs, others."""
    rng = np.random.default_rng(seed)
    duals = np.zeros((5, 5))
    for pair in list(combinations(range(5), 2)):
        duals[pair] = rng.uniform(0.2, 2.0) * (
            pair[1] == pair[0] + 1 or rng.random() < 0.4
        )
    for pair in rng.permutation(list(combinations(range(5), 2)))[:negative]:
        duals[tuple(pair)] = -rng.uniform(0.05, 1.0)
    return jnp.asarray(rng.normal(size=(5, 6))), jnp.asarray(duals)


LOAD = jax.jit(negative_load)


@given(st.integers(0, 2**32 - 1), st.integers(1, 4))
def test_the_hessian_is_positive_where_the_load_is_below_one(seed, negative):
    rows, duals = signed_graph(seed, negative)
    hessian = rows.T @ laplacian(duals) @ rows
    everything = rows.T @ laplacian(jnp.abs(duals)) @ rows
    size, axes = np.linalg.eigh(everything)
    axes = axes[:, size > 1e-9 * size[-1]]
    least = np.linalg.eigvalsh(axes.T @ hessian @ axes)[0]
    assert (LOAD(rows, duals) < 1) == (least > 0)


def test_the_load_of_one_pair_is_its_resistance_times_its_dual():
    rows, duals = signed_graph(3, 0)
    ends = np.array([1.0, 0, 0, 0, -1.0])
    one = LOAD(rows, duals.at[0, 4].set(-0.3))
    without = duals.at[0, 4].set(0.0)
    resistance = ends @ np.linalg.pinv(np.asarray(laplacian(without))) @ ends
    assert_close(one, 0.3 * resistance, worse=100)


def test_a_negative_pair_that_is_a_bridge_is_held_by_nothing():
    rows, duals = signed_graph(1, 0)
    bridge = jnp.zeros((5, 5)).at[:4, :4].set(duals[:4, :4]).at[1, 4].set(-1e-3)
    assert np.isinf(LOAD(rows, bridge)) and LOAD(rows, duals) == 0
