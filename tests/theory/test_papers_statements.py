"""The paper's lemmas and theorem for the flow of p, and where they end.

Source: mathematics, sections 3m and 6b.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.common.model import attend_corpus
from jaxselect import Reason, attention, from_bags, independent_tokens
from jaxselect.flow.cls import cls_flow, direction_error
from jaxselect.margin.certificate import TrialStatus, certify, predict_end
from jaxselect.model.attention import negative_gradient
from jaxselect.model.parameters import Parameters, gaussian_reduced
from jaxselect.model.selection import important_tokens
from jaxselect.model.step import embedding_step, predicted_alignment
from tests.tolerances import assert_close


def bags(tokens, counts, weights):
    """Two positive sequences and two negative ones: one shape for every program."""
    labels = [1, 1, -1, -1]
    return from_bags(tokens, counts, labels, vocabulary=6, weights=weights)


# Tokens 0 and 1 with label +, token 2 with −.
EQUAL = [0.25] * 4
UNEVEN = bags([[s, 3, 3] for s in (0, 1, 2, 2)], [[1, 1, 0]] * 4, EQUAL)
COPIES = bags([[s, 4, 4] for s in range(4)], [[1, 15, 0]] * 4, [0.35, 0.15, 0.26, 0.24])
# Equally frequent important tokens, and irrelevant ones that are not.
EVEN = bags([[s, 4, 5] for s in range(4)], [[1, 1, 1], [1, 2, 0]] * 2, EQUAL)


def infinite(corpus, step_size, along=0.0, scores=0.0):
    """E_s = e_s + b_s v; p_0 = along v, and scores of its own; one axis is empty."""
    important = important_tokens(corpus)
    values = jnp.where(important, predicted_alignment(corpus, step_size), 0.0)
    rows = jnp.column_stack([jnp.eye(6, 7), values])
    start = jnp.zeros(8).at[:6].set(scores).at[-1].set(along)
    return Parameters(rows, start, jnp.eye(8)[-1])


def certified(start, corpus):
    """The status and the certificate of a flow to ‖p‖ = 10⁴."""
    problem = attention(start, corpus)
    found = CERTIFY(problem, FLOW(problem))
    return TrialStatus(found.status.item()), found


FLOW = jax.jit(partial(cls_flow, until_norm=1e4))
CERTIFY, END = jax.jit(certify), jax.jit(predict_end)


@jax.jit
def PATH(problem, times):
    return cls_flow(problem, until_log_time=times[-1], path_log_times=times)


def test_the_sum_of_important_scores_grows_by_the_formula_of_lemma_3m_1():
    """p∗ᵀ(−∇L) = Σ w g q_s Σ_r q_r y (b_s − b_r), whatever scores and values."""
    sizes = {"sequences": 12, "length": 5, "relevant": 2, "irrelevant": 5}
    corpus = independent_tokens(jax.random.key(1), **sizes, irrelevant_share=8 / 9)
    scores, values = jax.random.normal(jax.random.key(2), (2, 9))
    important = important_tokens(corpus)
    forces = negative_gradient(scores, values, corpus).scores
    attended = attend_corpus(scores, values, corpus)
    weights, label = np.exp(attended.log_weights), np.asarray(corpus.labels)
    slope = 1 / (1 + np.exp(label * np.asarray(attended.output)))
    total = 0.0
    for row, (tokens, here) in enumerate(zip(corpus.tokens, weights, strict=True)):
        own = np.asarray(important[tokens] & corpus.present[row])
        here_values = np.asarray(values[tokens])
        gap = np.subtract.outer(here_values[own], here_values[~own])
        share = np.outer(here[own], here[~own])
        total += label[row] * slope[row] * (share * gap).sum() / len(label)
    assert_close(jnp.where(important, forces, 0.0).sum(), np.array(total))


@pytest.mark.parametrize("half", [2.0, 50.0])
def test_a_line_along_v_misses_the_frequent_token_for_ever(half):
    """b = (g, g, −2g, 0): p_mm = (1, 1, 0, −2, 2g)/(3 + 2g²)."""
    status, found = certified(infinite(UNEVEN, 16 * half, along=10.0), UNEVEN)
    assert status == TrialStatus.CAPTURED_POSITIVE
    wanted = np.array([1, 1, 0, -2, 0, 0, 0, 2 * half]) / (3 + 2 * half**2)
    assert_close(found.ending.margin.direction, wanted)
    # Below √(5/2) there is no such line.
    assert certified(infinite(UNEVEN, 16 * 1.0, 10.0), UNEVEN)[0] == 0


@pytest.mark.parametrize("step_size", [60.0, 633.0, 4e4])
def test_a_class_is_captured_for_ever_from_the_gaussian_start_at_infinite_d(step_size):
    status, found = certified(infinite(COPIES, step_size), COPIES)
    if step_size == 633.0:
        assert status == TrialStatus.CAPTURED_POSITIVE and found.coverage[1] == 0
    else:
        assert status == TrialStatus.SELECTED_ALL


def test_so_it_is_at_large_d():
    for key in jax.random.split(jax.random.key(0), 8):
        before = gaussian_reduced(key, vocabulary=6, dim=1e9)
        after = embedding_step(before, COPIES, 633.0)
        assert certified(after, COPIES)[0] == TrialStatus.CAPTURED_POSITIVE


@pytest.mark.parametrize("along", [-6.0, 6.0])
def test_equally_frequent_tokens_are_selected_from_any_start(along):
    """The class that lost comes back (theorem 6b.2), and without an offset, in an exact
    tie, p still tends to the direction of p_mm (theorem 3m.3)."""
    start = infinite(EVEN, 100.0, along, jax.random.normal(jax.random.key(0), (6,)))
    problem = attention(start, EVEN)
    path = PATH(problem, jnp.geomspace(1e2, 1e8, 61))
    end = END(problem, path.query, path.log_time)
    assert end.late.status == Reason.NO_MINIMISER
    assert (end.selected & important_tokens(EVEN)[EVEN.tokens]).sum() == 4
    late = path.path_query[::20]
    errors = jax.vmap(direction_error, (0, None))(late, end.margin.direction)
    assert (errors[1:] < 0.05 * errors[:-1]).all() and errors[-1] < 1e-6


def test_scores_of_important_tokens_rise_and_those_of_others_fall():
    """Their parts off v, along flows that capture a class (theorem 6b.2)."""
    for corpus, step_size in ((UNEVEN, 32.0), (COPIES, 633.0)):
        problem = attention(infinite(corpus, step_size, 3.0), corpus)
        path = PATH(problem, jnp.geomspace(1e-2, 1e3, 61)).path_query[:, :6]
        rises = np.where(important_tokens(corpus), 1.0, -1.0)
        assert (np.diff(path, axis=0) * rises > -1e-9).all()
