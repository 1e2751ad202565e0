"""Flows of any of E, p and v, and of W before p, against independent integrators.

Source: mathematics, sections 3h and 3i.
"""

import functools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from experiments.theory.joint_flow import LearningRates, joint_flow, key_query_at
from jaxselect import assumption_one, attention, embedding_step, max_margin
from jaxselect.compilation import compile_options
from jaxselect.flow.cls import FlowSettings, velocity
from jaxselect.model.parameters import Parameters, gaussian
from jaxselect.model.selection import competing_pairs, coverage, selected_tokens
from jaxselect.status import Reason
from tests.theory import literal_joint
from tests.tolerances import TOLERANCE

# Enough for every end here but the last.
TIGHT = FlowSettings(rtol=1e-9, atol=1e-9, max_steps=1000)


# Every subset of {E, p, v}, and rates far apart.
SUBSETS = [
    (1.0, 1.0, 1.0),
    (0.01, 1.0, 1.0),
    (100.0, 1.0, 3.0),
    (1.0, 1.0, 0.0),
    (1.0, 0.0, 1.0),
    (1.0, 0.0, 0.0),
    (0.0, 1.0, 1.0),
    (0.0, 1.0, 0.0),
    (0.0, 0.0, 1.0),
]
PATH = jnp.array([1.0, 10.0, 50.0, 1e5, 1e6])


def joint(parameters, corpus, rates, path=PATH, until_log_time=None):
    until = path[-1] if until_log_time is None else jnp.asarray(until_log_time)
    return _joint(parameters, corpus, LearningRates(*rates), path, until)


@partial(jax.jit, compiler_options=compile_options(fast=True))
def _joint(parameters, corpus, rates, path, until_log_time):
    return joint_flow(
        parameters,
        corpus,
        rates=rates,
        until_log_time=until_log_time,
        path_log_times=path,
        settings=TIGHT,
    )


@functools.cache
def drawn():
    """Wide parameters after a step, and bags of three tokens."""
    corpus = assumption_one(
        jax.random.key(3), sequences=12, length=3, relevant=2, irrelevant=4
    )
    start = gaussian(jax.random.key(5), vocabulary=8, dim=30)
    return embedding_step(start, corpus, 20.0), corpus


@functools.cache
def followed(rates):
    return joint(*drawn(), rates)


def rows(flow, place):
    both = flow.path_query[place], flow.path_head[place]
    return np.vstack([flow.path_embeddings[place], *both])


@pytest.mark.parametrize("rates", SUBSETS, ids=str)
def test_every_subset_agrees_with_an_independent_integrator(rates):
    """All of E, p and v in R^30, literally, to log t = 50."""
    flow = followed(rates)
    assert flow.status == Reason.NONE and flow.log_time == 1e6
    wanted = literal_joint.integrate(*drawn(), rates, 50.0)
    # LSODA's 10⁻¹⁰ a step, and ours of 10⁻⁹.
    np.testing.assert_allclose(rows(flow, 2), wanted, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("rates", SUBSETS, ids=str)
def test_what_is_not_trained_stays_and_the_rest_keeps_its_form(rates):
    """EᵀE/η − ppᵀ/r_p − vvᵀ/r_v stays where all rates are positive, to log t = 10⁶.

    In general Z Z_0⁺ = U has U Δ Uᵀ = Δ, Δ = diag(η, −r_p, −r_v): to rounding where
    `corrected` can move all rows, else to the tolerance of the steps.
    """
    flow, (parameters, _) = followed(rates), drawn()
    for rate, name in zip(rates, ("embeddings", "query", "head"), strict=True):
        moved = np.abs(getattr(flow, name) - getattr(parameters, name)).max()
        assert (moved > 1e-3) if rate else (moved < 1e-12)
    start = np.vstack([parameters.embeddings, parameters.query, parameters.head])
    form = np.diag([rates[0]] * 8 + [-rates[1], -rates[2]])
    for place in range(len(PATH)):
        propagator = rows(flow, place) @ np.linalg.pinv(start)
        size = np.abs(propagator @ np.abs(form) @ propagator.T).max()
        off = propagator @ form @ propagator.T - form
        bound = TOLERANCE[off.dtype] if min(rates) > 0 else 1e-8
        assert np.abs(off).max() <= bound * size
    if min(rates) > 0:
        weights = np.array([1 / rates[0]] * 8 + [-1 / rates[1], -1 / rates[2]])
        now = rows(flow, len(PATH) - 1)
        off = (now.T * weights) @ now - (start.T * weights) @ start
        assert np.abs(off).max() <= 1e-8 * np.abs((now.T * abs(weights)) @ now).max()


def test_a_key_query_matrix_follows_the_gradient_in_plain_time():
    """With W p = p at the start, W p is the p of a flow of p alone."""
    parameters, corpus = drawn()
    size, query = len(parameters.query), np.asarray(parameters.query)
    start = np.random.default_rng(3).normal(size=(size, size)) / size
    start += np.outer(query - start @ query, query) / (query @ query)
    embeddings = np.asarray(parameters.embeddings)
    values = embeddings @ np.asarray(parameters.head)

    def field(_, flat):
        turned = flat.reshape(size, size) @ query
        pull, _ = literal_joint.descent(embeddings @ turned, values, corpus, 0.0)
        return np.outer(embeddings.T @ pull, query).ravel()

    time = np.expm1(4.0) / (query @ query)
    direct = solve_ivp(field, (0, time), start.ravel(), rtol=1e-9, atol=1e-10)
    begun = jnp.asarray(start @ query)
    turned = Parameters(parameters.embeddings, begun, parameters.head)
    end = joint(turned, corpus, (0.0, 1.0, 0.0), HEAD_PATH).path_query[0]
    matrix = key_query_at(jnp.asarray(start), parameters.query, end)
    np.testing.assert_allclose(matrix, direct.y[:, -1].reshape(size, size), atol=1e-6)
    np.testing.assert_allclose(matrix @ parameters.query, end, atol=1e-10)


HEAD_PATH = jnp.array([4.0, 1e2, 1e4, 1e6, 1e8])


@functools.cache
def headed(until_log_time=1e8):
    """p and v trained."""
    return joint(*drawn(), (0.0, 1.0, 1.0), HEAD_PATH, until_log_time)


def test_training_the_head_leaves_the_bias_of_p_unchanged():
    """p = p_mm τ + ρ in the time τ = log(½ log² t): dp/dτ is p_mm.

    ‖p‖ grows like log log t: from t = e^10² to e^10⁸ it gets a few times longer and
    its direction error, a constant over ‖p‖, falls by as much.
    """
    parameters, corpus = drawn()
    flow, marks = headed(), np.asarray(HEAD_PATH[1:])
    assert flow.status == Reason.NONE

    @jax.jit
    def judged(flow):
        selected = selected_tokens(parameters.embeddings @ flow.query, corpus)
        margin = max_margin(parameters.embeddings, competing_pairs(selected, corpus))

        def pace(mark, query, head):
            here = attention(Parameters(parameters.embeddings, query, head), corpus)
            return here.lift_direction(velocity(here, mark, here.start))

        headings = jax.vmap(pace)(HEAD_PATH, flow.path_query, flow.path_head)[1:]
        return coverage(selected, corpus), margin, headings

    shares, margin, headings = jax.tree.map(np.asarray, judged(flow))
    assert (shares == 1).all()
    headings = headings * marks[:, None] / 2
    off = np.linalg.norm(headings - margin.direction, axis=1) / margin.norm
    query = np.asarray(flow.path_query[1:])
    lengths = np.linalg.norm(query, axis=1)
    units = query / lengths[:, None]
    errors = np.linalg.norm(units - margin.direction / margin.norm, axis=1)
    assert (np.diff(off) < 0).all() and off[-1] < 1e-4
    assert (np.diff(errors) < 0).all()
    # Between the last marks τ grows by 2 log 100; ρ's part across p_mm bends ‖p‖.
    grown = lengths[-1] - lengths[-2]
    np.testing.assert_allclose(grown, margin.norm * 2 * np.log(100), rtol=0.01)
    constants = errors * lengths
    np.testing.assert_allclose(constants[2], constants[3], rtol=0.01)


def test_the_path_is_where_shorter_flows_end():
    flow = headed()
    for number in (0, 2):
        short = headed(float(HEAD_PATH[number]))
        np.testing.assert_allclose(flow.path_query[number], short.query, atol=1e-6)
        # v grows like log t.
        np.testing.assert_allclose(flow.path_head[number], short.head, rtol=1e-6)
        assert np.isinf(short.path_query[number + 1 :]).all()


def test_a_flow_that_breaks_off_says_so():
    assert headed(1e12).status == Reason.OUT_OF_STEPS
    parameters, corpus = drawn()
    head = parameters.head.at[0].set(jnp.nan)
    broken = Parameters(parameters.embeddings, parameters.query, head)
    assert joint(broken, corpus, (0.0, 1.0, 1.0)).status != Reason.NONE


def seen_at(eta, start):
    """A value, ‖p‖² and an entry of E at log t = 30."""
    flow = joint_flow(
        *start, rates=LearningRates(embeddings=eta), until_log_time=30.0, settings=TIGHT
    )
    value = flow.embeddings[0] @ flow.head
    return jnp.stack([value, flow.query @ flow.query, flow.embeddings[0, 1]])


@pytest.mark.slow
def test_a_derivative_in_the_rate_of_e_is_that_of_differences_in_both_modes():
    eta, step, at = jnp.array(0.7), 1e-4, partial(seen_at, start=drawn())
    forward = jax.jit(lambda eta: jax.jvp(at, (eta,), (jnp.ones(()),)))
    (above, _), (below, _) = forward(eta + step), forward(eta - step)
    slope = forward(eta)[1]
    # The difference itself is good to tolerance over step.
    wanted = (above - below) / (2 * step)
    np.testing.assert_allclose(slope, wanted, rtol=2e-4, atol=1e-5)
    back = jax.jit(jax.grad(lambda eta: at(eta).sum()))(eta)
    np.testing.assert_allclose(back, slope.sum(), rtol=1e-6)
