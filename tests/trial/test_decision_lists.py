"""Which orders of tokens attract p, over all of them, where a list gives the labels.

Source: mathematics, section 3j.
"""

from dataclasses import replace
from itertools import permutations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.theory.joint_flow import joint_flow
from experiments.theory.lists import (
    alternating_list,
    list_agreement,
    whole_decision_list,
)
from jaxselect import Parameters, Reason, attention, predict_end
from jaxselect.data.corpus import Corpus, from_sequences

# Roundings of scores and strengths that are sums of some hundred terms.
ROUNDING = 1e-9


def every_order(size):
    """Scores in which each token in turn is first, second, …."""
    return np.argsort(list(permutations(range(size))), axis=1)[:, ::-1].astype(float)


def whole(depth, irrelevant, noise=0.0):
    """The whole list; where no label is turned, without sequences of weight zero.

    Each of the others is there twice then, at half its weight: lists with noise and
    without have one shape.
    """
    corpus = whole_decision_list(
        jax.random.key(0),
        depth=depth,
        irrelevant=irrelevant,
        length=depth + 1,
        noise=noise,
    )
    there = np.flatnonzero(np.asarray(corpus.weights) > 0)
    there = np.resize(there, len(corpus.labels))
    parts = (corpus.tokens, corpus.counts, corpus.labels)
    parts = [np.asarray(part)[there] for part in parts]
    weights = np.asarray(corpus.weights)[there]
    weights = jnp.asarray(weights / weights.sum())
    return Corpus(*map(jnp.asarray, parts), corpus.vocabulary, weights)


@jax.jit
def ends(values, scores, corpus, rule, part):
    """For each order: agreement, p_mm along v, and the least active strength.

    Scores are of an E whose rows are orthonormal but for a part of their values.
    """
    size = len(values)
    rows = jnp.concatenate([jnp.eye(size), part * values[:, None]], axis=1)
    head = jnp.zeros(size + 1).at[-1].set(1.0)
    begin = attention(Parameters(rows, jnp.zeros(size + 1), head), corpus)
    begin = replace(begin, values=corpus.gather(values))

    def one(scores):
        query = jnp.concatenate([scores, jnp.zeros(1)])
        end = predict_end(begin, query, jnp.zeros(()))
        strength = end.late.strength.factor
        active = end.margin.active
        least = jnp.where(active, strength, jnp.inf).min()
        found = list_agreement(scores, values, corpus, rule)
        return found, end.margin.direction[-1], least

    return jax.vmap(one)(scores)


def attracting(values, depth, irrelevant, noise=0.0, part=1.0):
    """Agreement of the attracting orders, vᵀp_mm of each, and their scores."""
    rule, scores = alternating_list(depth, irrelevant), every_order(len(values))
    found, drift, least = jax.device_get(
        ends(
            jnp.asarray(values),
            jnp.asarray(scores),
            whole(depth, irrelevant, noise),
            rule,
            part,
        )
    )
    return found, drift, np.asarray(least) > ROUNDING, scores


SMALL = {
    "depth 4": ([0.05, -0.06, 0.03, -0.02, 0.005], 4, 1),
    "two irrelevant": ([0.02, -0.05, 0.01, -0.004, 0.006], 3, 2),
}


@pytest.mark.parametrize("name", SMALL)
def test_of_all_orders_the_list_alone_attracts(name):
    """Values small, in the order of the list within each sign, irrelevant between."""
    values, depth, irrelevant = SMALL[name]
    found, _, attracts, _ = attracting(values, depth, irrelevant)
    assert (found.lead > 0).all() and 0 < found.same_list.sum() < len(attracts) / 4
    assert (attracts == found.same_list).all()


CAPTURED = {
    "by negative tokens": ([8.2, -0.4, 1.6, -0.34, 1.2], 0),
    "by positive ones": ([6.0, -26.0, 2.7, -25.7, -12.3], 1),
    "by irrelevant ones": ([2.7, -1.8, 1.3, -0.1, 1.2], 1),
}


@pytest.mark.parametrize("name", CAPTURED)
def test_a_wrong_order_attracts_only_against_the_drift_along_v(name):
    """Large values: the first token that loses has s vᵀp_mm < 0; left out of E Eᵀ they
    let no wrong order attract."""
    values, loser = CAPTURED[name]
    found, _, attracts, _ = attracting(values, 4, 1, part=0.0)
    assert (attracts == found.same_list).all()
    found, drift, attracts, scores = attracting(values, 4, 1)
    assert attracts[found.same_list].all() and (found.lead > 0).all()
    wrong = np.flatnonzero(attracts & ~found.same_list)
    assert len(wrong) > 0
    for row in wrong:
        beaten = [(scores[row, k + 1 :] > scores[row, k]).any() for k in range(4)]
        assert beaten.index(True) == loser
        assert (1 - 2 * (loser % 2)) * drift[row] < 0


def test_without_the_order_of_values_wrong_lists_attract():
    """0 > 2 > 3 > 1 where |b_3| > |b_1|: 3 beats 1 with the right sign."""
    values = [0.05, -0.01, 0.02, -0.06, 0.0]
    found, _, attracts, scores = attracting(values, 4, 1)
    assert (found.lead < 0).all()
    wrong = scores[attracts & ~found.same_labels]
    assert any((np.argsort(-one)[:4] == [0, 2, 3, 1]).all() for one in wrong)


@pytest.mark.parametrize(("share", "attracts"), [(0.9, True), (1.1, False)])
def test_noise_bounds_the_values_with_which_the_list_attracts(share, attracts):
    """y b < log((1 − ν)/ν) of every deciding token."""
    most = share * np.log(0.9 / 0.1)
    values = np.array([0.5, -1.0, 0.3, -0.4, 0.0]) * most
    found, _, held, _ = attracting(values, 4, 1, noise=0.1)
    assert bool(held[found.same_list].all()) is attracts


# Three bags {0, 1, a} of one label and three {0, 1, b} of the other; all a, b differ.
CROSSED = from_sequences(
    [[0, 1, 2 + i] for i in range(6)], [1] * 3 + [-1] * 3, vocabulary=8
)


def test_a_joint_flow_ends_at_the_shortest_list_and_not_at_the_smallest_cover():
    """Tokens 0 and 1 cover all bags, one class each; an order needs four tokens."""

    @jax.jit
    @jax.vmap
    def selected(key, scale):
        rows = scale * jax.random.normal(key, (10, 12))
        start = Parameters(rows[:8], rows[8], rows[9])
        end = joint_flow(start, CROSSED, until_log_time=1e4)
        scores = end.embeddings @ end.query
        top = CROSSED.tokens[jnp.arange(6), scores[CROSSED.tokens].argmax(axis=1)]
        return end.status, top

    keys, scales = jax.random.split(jax.random.key(0), 2), jnp.array([0.1, 1.0])
    status, top = selected(keys, scales)
    assert (status == Reason.NONE).all()
    assert [len(set(row)) for row in top.tolist()] == [4, 4]
