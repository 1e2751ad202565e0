"""The predicted late flow against the flow itself, and against its own optimality.

Source: mathematics, section 3b.
"""

from functools import cache, partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxselect import Corpus, assumption_one, attention, embedding_step, max_margin
from jaxselect.flow.cls import FlowSettings, cls_flow
from jaxselect.margin.limit import Limit
from jaxselect.margin.limit import limit as library_limit
from jaxselect.model.parameters import Parameters, gaussian_reduced
from jaxselect.model.selection import competing_pairs, selected_tokens
from jaxselect.status import Reason

DRAW = partial(assumption_one, sequences=40, length=6, relevant=3, irrelevant=12)
# γ from 0.4 to 250: below capture, in it, and beyond it.
STEP_SIZES = (50.0, 200.0, 2000.0, 30000.0)


def in_numpy(function):
    """One program for a call, whose results cost none where they are compared."""
    program = eqx.filter_jit(function)
    return lambda *inputs: jax.tree.map(np.asarray, program(*inputs))


@in_numpy
def limit(start, corpus, selected, margin, late_query):
    problem = attention(start, corpus)
    return library_limit(problem, selected, margin, late_query=late_query)


@in_numpy
def solve(start, corpus, selected):
    return max_margin(start.embeddings, competing_pairs(selected, corpus))


@cache
def late_problem(step_size):
    start, corpus, flow, selected = _late_problem(jnp.array(step_size))
    return start, corpus, flow, selected, solve(start, corpus, selected)


@in_numpy
def _late_problem(step_size):
    corpus_key, key = jax.random.split(jax.random.key(0))
    corpus = DRAW(corpus_key)
    start = gaussian_reduced(key, vocabulary=corpus.vocabulary, dim=256.0)
    start = embedding_step(start, corpus, step_size)
    times = jnp.array([1e4, 1e5])
    flow = cls_flow(
        attention(start, corpus),
        until_norm=1e6,
        path_log_times=times,
        settings=FlowSettings(1e-8, 1e-8),
    )
    selected = selected_tokens(start.embeddings @ flow.query, corpus, flow.log_time)
    return start, corpus, flow, selected


@pytest.mark.parametrize("step_size", STEP_SIZES)
def test_the_flow_ends_on_the_prediction(step_size):
    """Every margin, the norm, the constant: six digits or better, in every regime."""
    start, corpus, flow, selected, margin = late_problem(step_size)
    late = limit(start, corpus, selected, margin, flow.query)
    assert late.status == Reason.NONE
    on_the_line = late.growth * flow.log_time + late.offset
    scores, predicted = (
        start.embeddings @ query for query in (flow.query, on_the_line)
    )
    winner, loser = np.nonzero(margin.active)
    assert len(winner) > 10
    offset = (scores[winner] - scores[loser]) - flow.log_time
    wanted = (predicted[winner] - predicted[loser]) - flow.log_time
    np.testing.assert_allclose(offset, wanted, atol=1e-6)
    apart = flow.query / np.linalg.norm(flow.query) - margin.direction / margin.norm
    constant = np.linalg.norm(apart) * 1e6
    np.testing.assert_allclose(constant, late.error_constant, rtol=1e-6)
    there = jax.jit(log_time_at)(late, 1e6)
    np.testing.assert_allclose(there, flow.log_time, rtol=1e-9)
    at_the_end = jax.jit(Limit.query_at)(late, there)
    np.testing.assert_allclose(at_the_end, on_the_line, rtol=1e-6)


def log_time_at(late, norm):
    """The late log-time at which ‖p_mm log t + ρ‖ is the given norm."""
    square, mixed = late.growth @ late.growth, late.growth @ late.offset
    deficit = norm**2 - late.offset @ late.offset
    return (jnp.sqrt(mixed**2 + square * deficit) - mixed) / square


@in_numpy
def growing(strength, start, offset):
    """c_k e^{−D_kᵀρ}."""
    scores = start.embeddings @ offset
    return strength.times_exp(scores[None, :] - scores[:, None])


def test_without_path_dependence_p_is_not_read():
    """The same to the bit with any late p, where no dimension is left to the path."""
    corpus = two_bags([1, 2, 0], 1, 1)
    start = parameters(np.diag([2.0, -1.0, 0.0]), [0.1, 0.2, 0.3], [1.0, 0.0, 0.0])
    chosen = choose(*2 * ([True, False, False],))
    margin = solve(start, corpus, chosen)
    one, other = (
        limit(start, corpus, chosen, margin, padded(late, 20))
        for late in ([0.1, 0.2, 0.3], [7.0, -3.0, 0.1])
    )
    assert one.history_dim == 0 and one.history_change == 0
    assert (one.offset == other.offset).all()
    assert one.error_constant == other.error_constant


def padded(array, *shape):
    """In the shape of the drawn problem, by whose programs all by hand are solved."""
    array = np.asarray(array)
    return np.pad(array, [(0, n - m) for n, m in zip(shape, array.shape, strict=True)])


def parameters(embeddings, query, head):
    rows = padded(np.asarray(embeddings, float), 18, 20), padded(query, 20)
    return Parameters(*map(jnp.asarray, (*rows, padded(head, 20))))


def two_bags(counts, *labels):
    """Tokens 0, 1, 2, … so many times, twice; and both bags twenty times."""
    tokens = np.tile(np.arange(6, dtype=np.int32), (40, 1))
    rows = np.tile(padded(np.asarray(counts, float), 6), (40, 1))
    return Corpus(*map(jnp.asarray, (tokens, rows, np.int32(20 * labels))), 18)


def choose(*bags):
    """The selection of both bags."""
    return padded(np.asarray(20 * bags), 40, 6)


def test_one_pair_in_closed_form():
    """One sequence {0, 1}, y = +1: ρ = D log(c ‖D‖²) / ‖D‖² + what is orthogonal."""
    corpus = two_bags([1, 2, 0], 1, 1)
    embeddings = np.array([[2.0, 0.5, 0.0], [-1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    start = parameters(embeddings, [0.1, 0.2, 0.3], [1.0, 0.0, 0.0])
    chosen = choose(*2 * ([True, False, False],))
    margin = solve(start, corpus, chosen)
    late = limit(start, corpus, chosen, margin, start.query)
    difference = np.asarray(start.embeddings[0] - start.embeddings[1])
    size = difference @ difference
    strength = 1 / (1 + np.exp(2.0)) * 2 * 3.0
    along = difference * np.log(strength * size) / size
    across = start.query - difference * (difference @ start.query) / size
    np.testing.assert_allclose(margin.direction, difference / size, rtol=1e-12)
    np.testing.assert_allclose(late.offset, along + across, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(late.error_constant, np.linalg.norm(across), rtol=1e-9)
    assert late.history_dim == 0


def chosen_limit(labels, chosen):
    """The limit of a selection made by hand, of three orthonormal tokens."""
    corpus = two_bags([1, 1, 1], *labels)
    start = parameters(np.eye(3), [0.0, 0.0, 0.0], [1.0, -1.0, 0.0])
    chosen = choose(*chosen)
    margin = solve(start, corpus, chosen)
    return limit(start, corpus, chosen, margin, start.query).status


def test_several_selected_tokens_and_contradictions_say_so():
    one = chosen_limit([1, 1], 2 * ([True, False, False],))
    assert one == Reason.NONE
    several = chosen_limit([1, 1], 2 * ([True, True, False],))
    assert several == Reason.SEVERAL_SELECTED
    # Token 0 beats token 1, and token 1 beats token 0: no p does both.
    first, second = [True, False, False], [False, True, False]
    at_odds = chosen_limit([1, -1], [first, second])
    assert at_odds == Reason.INFEASIBLE
    # Nothing is beaten, so there is nothing to have a margin over.
    nothing = chosen_limit([1, 1], 2 * ([True, True, True],))
    assert nothing == Reason.SEVERAL_SELECTED


@pytest.mark.parametrize("loser", [-1.0, 1.0])
def test_a_winner_that_is_worth_no_more_than_the_loser_does_not_attract(loser):
    corpus = two_bags([1, 1, 0], -1, -1)
    losing = parameters(np.diag([1.0, loser, 0.0]), [0.0, 0.0, 0.0], [1.0, 1.0, 1.0])
    chosen = choose(*2 * ([True, False, False],))
    late = limit(losing, corpus, chosen, solve(losing, corpus, chosen), losing.query)
    assert late.status == Reason.NOT_ATTRACTING


def test_strengths_of_many_decades_are_balanced():
    """Three active pairs on a line, one of them e^x times as strong: damping is needed.

    Whole steps of Newton's method leave the range of numbers at x = 40.
    """
    tokens = np.array([[0.0, 0.0], [1.0, -1.0], [-0.5, -1.0], [-2.0, -1.0]])
    start = parameters(tokens, np.zeros(2), [0.0, 1.0])
    chosen = choose(*2 * ([True, False, False, False],))
    for decades in np.linspace(-40.0, 40.0, 9):
        corpus = two_bags([1, 1, np.exp(decades), 1], 1, 1)
        margin = solve(start, corpus, chosen)
        late = limit(start, corpus, chosen, margin, start.query)
        assert margin.active[0, 1:4].all() and late.status == Reason.NONE
        pull = np.where(margin.active, growing(late.strength, start, late.offset), 0.0)
        np.testing.assert_allclose(
            -pull[0] @ start.embeddings, margin.direction, atol=1e-9
        )


def test_active_pairs_whose_span_lacks_p_mm_predict_nothing():
    """Token 0 beats 1 and 2, but only the pair with 1 is called active."""
    corpus = two_bags([1, 1, 1], 1, 1)
    start = parameters(np.eye(3), [0.0, 0.0, 0.0], [1.0, -1.0, 0.0])
    chosen = choose(*2 * ([True, False, False],))
    margin = solve(start, corpus, chosen)
    late = limit(start, corpus, chosen, margin, start.query)
    assert late.status == Reason.NONE
    active = margin.active & (np.arange(18) != 2)
    fewer = eqx.tree_at(lambda m: m.active, margin, active)
    late = limit(start, corpus, chosen, fewer, start.query)
    assert late.status == Reason.NO_MINIMISER
