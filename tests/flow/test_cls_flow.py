"""The flow of p against independent integrators, its invariances and its statuses.

Source: mathematics, sections 3a, 3g and 4b.
"""

from dataclasses import replace
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxselect import assumption_one, attention, embedding_step, from_bags
from jaxselect.flow import integration
from jaxselect.flow.cls import FlowSettings, cls_flow
from jaxselect.model.parameters import Parameters, gaussian
from jaxselect.status import Reason
from tests.flow.cls_runs import PATH, TIGHT, by_every_stepper, risk_of_query, run
from tests.theory import literal_joint

DRAW = partial(assumption_one, sequences=20, length=5, relevant=2, irrelevant=8)
DIM = 16


@cache
def problem(seed=0, step_size=30.0):
    return _problem(jax.random.key(seed), jnp.array(step_size))


@jax.jit
def _problem(key, step_size):
    corpus_key, key = jax.random.split(key)
    corpus = DRAW(corpus_key)
    start = gaussian(key, vocabulary=corpus.vocabulary, dim=DIM)
    return embedding_step(start, corpus, step_size), corpus


@by_every_stepper
def test_agrees_with_scipy_late(stepper):
    """LSODA of SciPy on an independent, literal field."""
    wanted = literal_joint.integrate(*problem(), (0.0, 1.0, 0.0), 25.0)[-2]
    flow = run(*problem(), until_log_time=25.0, settings=TIGHT, stepper=stepper)
    np.testing.assert_allclose(flow.query, wanted, atol=1e-7)


@by_every_stepper
def test_tolerance_controls_the_error_in_every_regime(stepper):
    """In scores: the default is used, and its steps' errors do not add up to many."""
    for step_size in (3.0, 300.0, 3000.0):
        start, corpus = problem(1, step_size)
        coarse, fine = (
            start.embeddings
            @ run(start, corpus, until_log_time=50.0, **settings, stepper=stepper).query
            for settings in ({}, {"settings": TIGHT})
        )
        assert 1e-8 < jnp.abs(coarse - fine).max() < 10 * FlowSettings().atol


@by_every_stepper
def test_nothing_happens_in_no_time(stepper):
    parameters, corpus = problem()
    flow = run(parameters, corpus, until_log_time=0.0, stepper=stepper)
    np.testing.assert_allclose(flow.query, parameters.query, rtol=1e-12)
    norm = jnp.linalg.norm(parameters.query)
    for bound, begin in ((1e-3, 0.0), ((1 - 1e-9) * norm, 0.0), (1e-3, 7.0)):
        at_once = run(
            parameters, corpus, until_norm=bound, from_log_time=begin, stepper=stepper
        )
        np.testing.assert_allclose(at_once.query, parameters.query, rtol=1e-12)
        assert at_once.status == Reason.NONE and at_once.log_time == begin


@by_every_stepper
def test_the_norm_asked_for_is_the_norm_reached(stepper):
    parameters, corpus = problem()
    for norm in (3.0, 1e3, 1e6):
        flow = run(parameters, corpus, until_norm=norm, stepper=stepper)
        assert flow.status == Reason.NONE
        np.testing.assert_allclose(jnp.linalg.norm(flow.query), norm, rtol=1e-12)


@by_every_stepper
def test_the_path_is_the_flow_and_the_risk_falls_along_it(stepper):
    parameters, corpus = problem()
    flow = jax.tree.map(
        np.asarray, run(parameters, corpus, until_norm=100.0, stepper=stepper)
    )
    reached = np.isfinite(flow.path_log_times)
    assert 5 < reached.sum() < 15
    np.testing.assert_array_equal(reached, flow.log_time >= PATH)
    assert np.isinf(flow.path_query[~reached]).all()
    risks = jax.jit(jax.vmap(risk_of_query(parameters, corpus)))(
        flow.path_query[reached]
    )
    assert (np.diff(risks) < 0).all()
    some = flow.path_log_times[4]
    there = run(parameters, corpus, until_log_time=some, stepper=stepper)
    np.testing.assert_allclose(flow.path_query[4], there.query, atol=2e-5)


def end(size, start, corpus, change, weights):
    """A part of p and the log-time at ‖p‖ = 20, or at ties before, and the status."""
    moved = jax.tree.map(lambda x, dx: x + size * dx, start, change)
    problem = attention(moved, corpus)
    flow = cls_flow(problem, until_norm=20.0, settings=TIGHT)
    part = weights @ problem.lift(flow.query)
    return jnp.stack([part, flow.log_time]), flow.status


@jax.jit
def both_modes(size, *problem):
    """The end; its slopes, and that of its sum in reverse mode; the status."""
    ends, push, status = jax.linearize(
        lambda size: end(size, *problem), size, has_aux=True
    )
    pull = jax.linear_transpose(push, size)
    return ends, push(jnp.ones_like(size)), *pull(jnp.ones(2)), status


@cache
def moving():
    """Problems that end at the norm and at ties, in one shape, and how they move."""
    start, corpus = problem()
    change = gaussian(jax.random.key(2), vocabulary=corpus.vocabulary, dim=DIM)
    weights = np.random.default_rng(1).normal(size=DIM)
    width = corpus.counts.shape[1]
    pair = [0, *(width - 1) * [1]], [1, 1, *(width - 2) * [0]]
    bags = from_bags(*(20 * [row] for row in pair), 14 * [1] + 6 * [-1], vocabulary=12)
    axes = jnp.eye(DIM)
    # Rows that depend on each other would have no derivatives.
    tied = axes[:2] * jnp.array([[3.0], [-1.0]])
    tokens = start.embeddings.at[:2].set(tied)
    tied = Parameters(tokens, axes[:3].sum(axis=0), axes[0] + axes[1])
    larger = jax.tree.map(lambda x, dx: x + dx, tied, change)
    return (start, corpus, change, weights), (tied, bags, larger, weights)


@pytest.mark.parametrize("which, status", [(0, "NONE"), (1, "FORCES_CANCEL")])
def test_derivatives_match_finite_differences_in_both_modes(which, status):
    """Where a flow ends, and when: at a norm, and where opposing gradients hide."""
    problem, step = moving()[which], 1e-4
    (plus, *_), (minus, *_) = (both_modes(x, *problem) for x in (step, -step))
    _, slopes, pulled, ended = both_modes(0.0, *problem)
    assert Reason(ended.item()).name == status and jnp.abs(slopes).min() > 0.1
    np.testing.assert_allclose(slopes, (plus - minus) / (2 * step), rtol=1e-5)
    np.testing.assert_allclose(pulled, slopes.sum(), rtol=1e-8)


@by_every_stepper
def test_numbers_that_are_none_are_a_status(stepper):
    parameters, corpus = problem()
    for broken in (
        replace(parameters, embeddings=jnp.nan * parameters.embeddings),
        replace(parameters, head=jnp.inf * parameters.head),
    ):
        assert (
            run(broken, corpus, until_norm=10.0, stepper=stepper).status
            == Reason.FAILED
        )


def test_a_norm_that_was_missed_is_not_reached_and_steps_are_bounded(monkeypatch):
    """Whatever the search for it says: here any point of the step will do for it."""
    monkeypatch.setattr(integration, "_CLOSE", jnp.inf)
    parameters, corpus = problem()
    few = partial(cls_flow, settings=FlowSettings(max_steps=48))
    follow = jax.jit(lambda to: few(attention(parameters, corpus), until_norm=to))
    flow = follow(10.0)
    assert abs(jnp.linalg.norm(flow.query) / 10 - 1) > 1e-6
    assert flow.status == Reason.TIME_UNRESOLVED
    short = follow(1e6)
    assert short.status == Reason.OUT_OF_STEPS
    assert short.num_steps == 48 and jnp.isfinite(short.query).all()


def test_a_traced_bound_that_is_no_number_is_never_reached():
    parameters, corpus = problem()
    flow = run(parameters, corpus, until_norm=jnp.nan, until_log_time=1e6)
    assert flow.status == Reason.NORM_NOT_REACHED


@by_every_stepper
def test_an_earlier_point_is_one_of_the_flow(stepper):
    """No later than at three quarters of its log-time."""
    end, given = 100.0, problem()
    for _ in range(2):
        flow = run(*given, until_log_time=end, stepper=stepper)
        assert 0 < flow.earlier_log_time <= 0.75 * end
        there = run(*given, until_log_time=flow.earlier_log_time, stepper=stepper)
        np.testing.assert_allclose(flow.earlier_query, there.query, atol=2e-5)
        # A point that is early enough for one end is too late for another.
        end = 1.2 * flow.earlier_log_time


@by_every_stepper
def test_what_is_orthogonal_to_every_difference_never_moves(stepper):
    """The part of p orthogonal to all E_s − E_r is conserved, to rounding of 10⁶."""
    parameters, corpus = problem()
    flow = run(parameters, corpus, until_norm=1e6, stepper=stepper)
    differences = parameters.embeddings[1:] - parameters.embeddings[:1]
    basis = np.linalg.svd(differences, full_matrices=True)[2][len(differences) :]
    moved = basis @ np.asarray(flow.query - parameters.query)
    assert len(basis) > 0
    np.testing.assert_allclose(moved, 0.0, atol=1e-9)
