"""Text with another loss: forces and curvature, and what is proved without bounds.

Source: mathematics, section 1b.
"""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxselect.checks import BadInput
from jaxselect.data import sparse
from jaxselect.data.loss import EXPONENTIAL, POLYNOMIAL
from jaxselect.model.attention import empirical_risk, negative_gradient
from jaxselect.model.parameters import Parameters
from jaxselect.model.sparse_objective import risk_and_score_descent
from jaxselect.sparse.bags import RaggedBags, curvature, descent
from jaxselect.sparse.bags import risk as host_risk
from jaxselect.sparse.end import End, flow_end
from jaxselect.sparse.flow import sparse_flow
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


def test_weights_of_sequences_are_refused():
    _, dense, _ = problem(0)
    weights = jnp.full(len(dense.labels), 1 / len(dense.labels))
    with pytest.raises(BadInput, match=r"weights in a corpus .*: wanted none"):
        sparse.from_corpus(replace(dense, weights=weights))
