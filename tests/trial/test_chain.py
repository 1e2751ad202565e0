"""The whole chain from p_0 to the verdict: its symmetries, and what each part knows.

Source: mathematics, sections 3e and 4b.
"""

import dataclasses
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxselect import assumption_one, attention, embedding_step
from jaxselect.flow.cls import FlowSettings, cls_flow
from jaxselect.margin.certificate import (
    TrialStatus,
    certify,
    late_flow_residual,
    perturbations,
)
from jaxselect.model.parameters import Parameters, gaussian_reduced

pytestmark = pytest.mark.bounds

DRAW = partial(assumption_one, sequences=20, length=5, relevant=2, irrelevant=8)
# All selected, captured, a part of it, and all again.
CASES = [(0, 10.0), (1, 3.0), (2, 3.0), (3, 3.0), (4, 1000.0)]
MIRRORED = {
    TrialStatus.CAPTURED_POSITIVE: TrialStatus.CAPTURED_NEGATIVE,
    TrialStatus.CAPTURED_NEGATIVE: TrialStatus.CAPTURED_POSITIVE,
}


@jax.jit
def problem(seed, step_size):
    """In R^40, on the first fourteen axes."""
    corpus_key, key = jax.random.split(jax.random.key(seed))
    corpus = DRAW(corpus_key)
    start = gaussian_reduced(key, vocabulary=corpus.vocabulary, dim=100.0)
    start = jax.tree.map(lambda x: x @ jnp.eye(14, 40), start)
    return embedding_step(start, corpus, step_size), corpus


def chain(parameters, corpus, begin=0.0, until_log_time=2e3):
    """The flow and its certificate, in the coordinates of `attention`."""
    bounds = jnp.asarray(begin, float), jnp.asarray(until_log_time, float)
    flow = follow(parameters, corpus, *bounds)
    return flow, certified(parameters, corpus, flow)


@jax.jit
def follow(parameters, corpus, begin, until_log_time):
    return cls_flow(
        attention(parameters, corpus),
        from_log_time=begin,
        until_log_time=until_log_time,
        settings=FlowSettings(rtol=1e-8, atol=1e-8),
    )


@jax.jit
def certified(parameters, corpus, flow):
    return certify(attention(parameters, corpus), flow)


def mirrored(parameters, corpus):
    """(y, v) → (−y, −v): the same losses, the classes exchanged."""
    turned = Parameters(parameters.embeddings, parameters.query, -parameters.head)
    return turned, dataclasses.replace(corpus, labels=-corpus.labels)


def multiplied(parameters, corpus):
    """C → 7 C, exactly: attention knows shares only."""
    return parameters, dataclasses.replace(corpus, counts=7 * corpus.counts)


CHANGES = {"mirrored": mirrored, "multiplied": multiplied}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", CHANGES)
def test_the_chain_is_symmetric(case, name):
    flow, found = chain(*problem(*case))
    other, seen = chain(*CHANGES[name](*problem(*case)))
    np.testing.assert_allclose(other.query, flow.query, rtol=1e-7, atol=1e-5)
    assert other.status == flow.status
    np.testing.assert_array_equal(seen.ending.selected, found.ending.selected)
    wanted, status = TrialStatus(found.status.item()), TrialStatus(seen.status.item())
    if name == "mirrored":
        assert status == MIRRORED.get(wanted, wanted)
        np.testing.assert_array_equal(seen.coverage, found.coverage[::-1])
    else:
        assert status == wanted
    late, there = found.ending.late, seen.ending.late
    np.testing.assert_allclose(there.growth, late.growth, atol=1e-9)
    np.testing.assert_allclose(there.offset, late.offset, rtol=1e-6, atol=1e-5)
    np.testing.assert_allclose(there.error_constant, late.error_constant, rtol=1e-5)


def test_where_the_origin_is_decides_no_verdict():
    """Tokens so far off that scores are −10¹¹: rounding excuses what it leaves."""
    parameters, corpus = problem(0, 10.0)
    flow, found = chain(parameters, corpus)
    assert found.status == TrialStatus.SELECTED_ALL
    query = attention(parameters, corpus).lift(flow.query)
    off_head = query - (query @ parameters.head) * parameters.head
    shift = -1e11 * off_head / (off_head @ query)
    moved = parameters.embeddings + shift[None]
    far = Parameters(moved, parameters.query, parameters.head)
    other, seen = chain(far, corpus)
    assert (moved @ attention(far, corpus).lift(other.query)).max() < -0.9e11
    np.testing.assert_array_equal(seen.ending.selected, found.ending.selected)
    assert seen.status == found.status


def test_some_case_is_captured_and_some_is_not():
    """Else the exchange of the captured statuses would not be seen above."""
    ends = [chain(*problem(*case))[1] for case in CASES]
    statuses = {found.status.item() for found in ends}
    assert statuses & set(MIRRORED)
    for found in ends:
        if found.status == TrialStatus.CAPTURED_NEGATIVE:
            assert found.coverage[1] == 1 and found.coverage[0] < 0.5
    assert TrialStatus.SELECTED_ALL in statuses


@pytest.mark.parametrize("case", CASES[:2])
def test_one_long_run_is_two_short_ones(case):
    parameters, corpus = problem(*case)
    begun = attention(parameters, corpus)
    whole, _ = chain(parameters, corpus, 0.0, 9.0)
    first, _ = chain(parameters, corpus, 0.0, 5.0)
    assert first.log_time == 5.0
    there = begun.lift(first.query)
    on = eqx.tree_at(lambda tree: tree.query, parameters, there)
    second, _ = chain(on, corpus, first.log_time, 9.0)
    end, again = begun.lift(whole.query), attention(on, corpus)
    np.testing.assert_allclose(again.lift(second.query), end, atol=1e-5)
    assert second.log_time == whole.log_time
    # As if p were there at once, it is elsewhere later.
    wrong, _ = chain(on, corpus, 0.0, 9.0)
    assert np.abs(again.lift(wrong.query) - end).max() > 1e-3


def test_the_residual_is_the_largest_distance_of_an_active_margin():
    """p = p_mm s + ρ + δ lies max |Dᵀδ| off its line, whatever else δ does."""
    parameters, corpus = problem(0, 10.0)
    _, found = chain(parameters, corpus)
    margin, late = found.ending.margin, found.ending.late
    embeddings = attention(parameters, corpus).rows
    log_time = jnp.array(50.0)
    for seed in range(5):
        off = 1e-2 * jax.random.normal(jax.random.key(seed), late.growth.shape)
        scores = np.asarray(embeddings @ off)
        wanted = max(
            abs(scores[s] - scores[r]) for s, r in np.argwhere(margin.active).tolist()
        )
        query = late.query_at(log_time) + off
        measured = late_flow_residual(embeddings, margin, late, query, log_time)
        np.testing.assert_allclose(measured, wanted, rtol=1e-10)


def inactive_bound(parameters, corpus, end, query, log_time):
    come = perturbations(attention(parameters, corpus), end, (query, log_time), 1e-3)
    return come.bound(end.late.basin)


def test_a_flow_must_stand_in_the_basin_of_its_offset():
    """The bound holds while distance and displacement fit into the basin."""
    parameters, corpus = problem(*CASES[1])
    _, found = chain(parameters, corpus)
    late = found.ending.late
    log_time = jnp.array(60.0)
    assert jnp.isinf(late.basin)
    query = late.query_at(log_time) + 1e-4 * late.growth / jnp.linalg.norm(late.growth)
    distance = 1e-4 + late.offset_error
    for basin, finite in ((0.99 * distance, False), (1.01 * distance, True)):
        end = eqx.tree_at(lambda end: end.late.basin, found.ending, basin)
        bound = inactive_bound(parameters, corpus, end, query, log_time)
        assert jnp.isfinite(bound) == finite
