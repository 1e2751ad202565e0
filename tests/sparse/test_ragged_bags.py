"""Pulls and curvature of the risk in p on sparse counts, against autodiff.

Source: mathematics, section 7a.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.sparse import csr_array

from jaxselect.model import attention as padded_attention
from jaxselect.model.attention import empirical_risk
from jaxselect.model.parameters import Parameters
from jaxselect.sparse.bags import (
    LEFT_OUT,
    RaggedBags,
    attention,
    curvature,
    descent,
    sized_score_gradient,
)
from tests.sparse.problems import VOCABULARY, on_host, problem, stacked
from tests.tolerances import assert_close

SEEDS = tuple(range(6))
# From where every word counts to where few do.
POINTS = (
    np.random.default_rng(0).normal(size=(len(SEEDS), 6))
    * np.logspace(-1, 1.5, 6)[:, None]
)


@pytest.fixture(scope="module")
def derivatives():
    """Gradient and Hessian in p, and the gradient in scores, by autodiff."""
    models, corpora = stacked(SEEDS)

    def each(model, corpus, query):
        def risk(p):
            return empirical_risk(Parameters(model.embeddings, p, model.head), corpus)

        return jax.grad(risk)(query), jax.hessian(risk)(query)

    found = jax.jit(jax.vmap(each))(models, corpora, jnp.asarray(POINTS))
    return jax.tree.map(np.asarray, found)


@pytest.mark.parametrize("seed", SEEDS)
def test_descent_and_curvature_are_those_of_autodiff(derivatives, seed):
    bags, query = on_host(seed), POINTS[seed]
    gradient, hessian = (part[seed] for part in derivatives)
    size = np.abs(hessian).max()
    got, rounding = descent(bags, query)
    assert np.linalg.norm(got + gradient) <= rounding + 1e-15
    assert rounding < 1e-12
    found = curvature(bags, query)
    assert_close(found / size, hessian / size)
    assert_close(found / size, found.T / size)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_bag_pulls_as_much_up_as_down(seed):
    """A shift of all scores changes no weight; and together pulls are the descent."""
    bags, query = on_host(seed), POINTS[seed]
    pull, row = sized_score_gradient(bags, query)[0], bags.row
    total = np.bincount(row, pull)
    assert (np.abs(total) <= 1e-15).all() and np.abs(pull).max() > 1e-4
    in_scores = np.bincount(bags.counts.indices, pull, VOCABULARY)
    assert_close(in_scores @ bags.embeddings, descent(bags, query)[0])


def test_rounding_of_the_descent_is_bounded():
    """Against longer numbers, where pulls cancel most: at a thousandth of a score."""
    if np.finfo(np.longdouble).eps > 1e-18:
        pytest.skip("long doubles no longer than double ones")
    for seed in SEEDS:
        bags, query = on_host(seed), 1e-3 * POINTS[seed]
        counts = bags.counts.toarray().astype(np.longdouble)
        embeddings, values = (
            x.astype(np.longdouble) for x in (bags.embeddings, bags.values)
        )
        share = counts * np.exp(embeddings @ query)
        share /= share.sum(axis=1, keepdims=True)
        ahead = values - (share @ values)[:, None]
        slope = bags.labels / (1 + np.exp(bags.labels * (share @ values)))
        exact = ((slope[:, None] * share * ahead).mean(axis=0)) @ embeddings
        got, rounding = descent(bags, query)
        assert np.linalg.norm((got - exact).astype(float)) <= rounding


def test_attention_is_the_padded_one_at_scores_of_thousands():
    model, dense, _ = problem(1)
    bags, query = on_host(1), 30_000 * POINTS[0]
    scores = model.embeddings @ query
    assert np.ptp(scores) > 2000
    weights = padded_attention.attend_corpus(scores, scores, dense).log_weights
    wanted = np.zeros((len(dense.labels), VOCABULARY))
    rows = np.arange(len(dense.labels))[:, None]
    np.add.at(wanted, (rows, np.asarray(dense.tokens)), np.exp(weights))
    share, row = attention(bags.counts, bags.embeddings @ query)
    got = np.zeros_like(wanted)
    got[row, bags.counts.indices] = share
    assert_close(got, wanted)


def removed(bags, query, time):
    """The change of t ∂²L/∂p² without the words left out; how many stay."""
    kept = curvature(bags, query, time)
    return time * np.linalg.norm(curvature(bags, query) - kept, 2), kept


def test_what_is_left_out_weighs_less_than_it_may():
    for seed in SEEDS[:3]:
        bags, out = on_host(seed), []
        for scale in (3.0, 10.0, 30.0):
            for time in np.logspace(-6, 12, 19):
                change, kept = removed(bags, scale * POINTS[0], time)
                assert change <= LEFT_OUT
                out.append(np.linalg.matrix_rank(kept))
        # Now and then everything is left out, now and then a part, or nothing.
        assert min(out) == 0 and max(out) == 6 and len(set(out)) > 2


def test_a_word_without_a_pull_is_a_partner_still():
    """Its value is the mean: h_s = 0, and u_s h_r is all that M holds of it."""
    bags = RaggedBags(
        csr_array([[1.0, 1.0, 1.0]]),
        np.ones(1),
        np.array([[1.0], [0.5], [0.0]]),
        np.array([0.0, 1.0, -1.0]),
        1,
    )
    for time in np.logspace(-4, 4, 33):
        assert removed(bags, np.zeros(1), time)[0] <= LEFT_OUT
