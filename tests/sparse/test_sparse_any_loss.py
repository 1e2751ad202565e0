"""Text with another loss: forces and curvature, and what is proved without bounds.

Source: mathematics, section 1b.
"""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.sparse import csr_array

from jaxselect.checks import BadInput
from jaxselect.data import sparse
from jaxselect.data.loss import EXPONENTIAL, POLYNOMIAL, Bounds
from jaxselect.model.attention import empirical_risk, negative_gradient
from jaxselect.model.parameters import Parameters
from jaxselect.model.sparse_objective import risk_and_score_descent
from jaxselect.sparse.bags import RaggedBags, curvature, descent
from jaxselect.sparse.bags import risk as host_risk
from jaxselect.sparse.end import End, flow_end
from jaxselect.sparse.flow import sparse_flow
from jaxselect.sparse.rest import certified_minimum
from tests.sparse.few_words import change_at
from tests.sparse.problems import SELECTED, TIED, problem
from tests.tolerances import assert_close

OTHERS = (EXPONENTIAL, POLYNOMIAL)


def with_loss(seed, loss):
    model, dense, _ = problem(seed)
    dense = replace(dense, loss=loss)
    return model, dense, sparse.from_corpus(dense)


@pytest.mark.parametrize("loss", OTHERS, ids=lambda loss: loss.name)
def test_sparse_counts_give_what_padded_bags_give(loss):
    model, dense, corpus = with_loss(0, loss)
    query = jnp.linspace(-1.0, 1.0, 6)
    scores, values = model.embeddings @ query, model.embeddings @ model.head

    def risk(p):
        return empirical_risk(Parameters(model.embeddings, p, model.head), dense)

    wanted = negative_gradient(scores, values, dense)
    found = RaggedBags.of_corpus(model, corpus)
    level, got = risk_and_score_descent(scores, values, corpus)
    assert_close(got.scores, wanted.scores)
    assert_close(got.values, wanted.values)
    assert_close(level, risk(query))
    assert_close(np.array(host_risk(found, np.asarray(query))), level)
    slope, second = jax.jit(lambda p: (jax.grad(risk)(p), jax.hessian(risk)(p)))(query)
    assert_close(descent(found, np.asarray(query))[0], -slope)
    assert_close(curvature(found, np.asarray(query)), second)


@pytest.mark.parametrize("loss", OTHERS, ids=lambda loss: loss.name)
def test_a_selection_is_certified_with_either(loss):
    model, _, corpus = with_loss(SELECTED[0], loss)
    end = flow_end(model, corpus, sparse_flow(model, corpus))
    assert end.status == End.SELECTED


def test_ties_are_proved_by_bounds_on_a_ball():
    """The derivatives of the exponential loss are bounded near a margin alone."""
    ends = {}
    for loss in OTHERS:
        model, _, corpus = with_loss(TIED[0], loss)
        ends[loss] = flow_end(model, corpus, sparse_flow(model, corpus))
        assert ends[loss].tied.size
    assert ends[POLYNOMIAL].status == ends[EXPONENTIAL].status == End.TIED


def test_the_bound_of_third_derivatives_holds_with_other_bounds():
    """Two tokens at ± scale: y f = value tanh(scale p), at centres and on the ball."""

    def risk(p, value):
        return POLYNOMIAL.value(value * jnp.tanh(p))

    third = jax.jit(jax.vmap(jax.grad(jax.grad(jax.grad(risk))), (0, None)))
    for value in (1.5, -0.4, -9.0, 20.0):
        given = RaggedBags(
            csr_array([[1.0, 1.0]]),
            np.array([np.sign(value)]),
            np.array([[1.0], [-1.0]]),
            np.array([abs(value), -abs(value)]),
            1,
            POLYNOMIAL,
        )
        for centre in np.linspace(-3.0, 3.0, 25):
            form, ball = change_at(given, np.array([centre]))
            inside = centre + ball * np.linspace(-1.0, 1.0, 9)
            assert np.abs(third(inside, value)).max() <= form[0, 0]
    assert not certified_minimum(replace(given, loss=EXPONENTIAL), np.zeros(1)).proved
    # At a margin below zero the bounds are those that hold everywhere.
    twice = replace(POLYNOMIAL, bounds=Bounds(*(2 * x for x in POLYNOMIAL.bounds)))
    low = np.array([-3.0])
    form, _ = change_at(given, low)
    double, _ = change_at(replace(given, loss=twice), low)
    assert np.all(form < double) and np.all(double <= 2 * form)


def test_weights_of_sequences_are_refused():
    _, dense, _ = problem(0)
    weights = jnp.full(len(dense.labels), 1 / len(dense.labels))
    with pytest.raises(BadInput, match=r"weights in a corpus .*: wanted none"):
        sparse.from_corpus(replace(dense, weights=weights))
