"""Rates and the limit behind them: the flow, finite differences, kinks, breaks.

Source: mathematics, sections 3f and 4b.
"""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.common.rates import REAL_RATES
from jaxselect import Limit, Parameters, Reason, attention, competing_pairs
from jaxselect.convergence import (
    RateSettings,
    final_loss,
    log_time_to_error,
    norm_to_error,
    rates,
    resolve_limit,
)
from jaxselect.data.corpus import Corpus, from_bags, from_sequences
from jaxselect.flow.cls import cls_flow, direction_error
from jaxselect.margin.pairs import PairStrength
from jaxselect.model.step import alignment_error, embedding_step, embedding_steps
from tests.test_precision import rounded_products
from tests.trial.late import excess_loss
from tests.trial.rate_program import (
    DIM,
    STEP_SIZE,
    TIGHT,
    VOCABULARY,
    drawn,
    program,
    rates_of,
    resolve_tightly,
    run,
)
from tests.trial.test_stages import CHANGE, rounded

# Seeds: p_0 decides nothing of ρ in the first, one dimension of it in the other.
WITHOUT_HISTORY, WITH_HISTORY = 1, 5


@pytest.mark.parametrize("seed", [WITHOUT_HISTORY, WITH_HISTORY])
def test_derivatives_match_finite_differences_in_both_modes(seed):
    """All rates in all arguments at once, in one direction; to fourth order."""
    problem, step = drawn(seed), 2e-4
    ends = {k: run(k * step, 0.0, *problem) for k in (-2, -1, 1, 2)}
    values, _, (smooth, history) = run(0.0, 0.0, *problem)
    assert smooth and all(end[2] == (smooth, history) for end in ends.values())
    assert (history > 0) == (seed == WITH_HISTORY)
    near, far = ((ends[k][0] - ends[-k][0]) / (2 * k * step) for k in (1, 2))
    difference = (4 * near - far) / 3
    # A derivative that is nothing beside the value is compared with the value.
    scale = np.maximum(np.abs(difference), 1e-3 * np.abs(values))
    weights = np.cos(np.arange(len(values))) / scale
    _, (slopes, pulled), _ = run(0.0, weights, *problem)
    np.testing.assert_array_less(np.abs(slopes - difference), 1e-5 * scale)
    np.testing.assert_allclose(pulled, weights @ slopes, rtol=1e-8)


@pytest.mark.parametrize("seed", [WITHOUT_HISTORY, WITH_HISTORY])
def test_rates_do_not_follow_rounding(seed):
    before, *rest = drawn(seed)
    exact, _, where = run(0.0, 0.0, before, *rest)
    for signs in range(3):
        moved = rounded(before, jax.random.key(signs))
        found, _, there = run(0.0, 0.0, moved, *rest)
        assert there == where
        np.testing.assert_allclose(found, exact, rtol=CHANGE)


def test_their_program_rounds_no_product_and_calls_nothing_back():
    _, text = program()
    assert "dot_general" in text and "callback" not in text
    assert rounded_products(text) == []


@pytest.fixture(scope="module")
def resolved():
    """A problem after its step, its rates, and what it settles on."""
    before, corpus, *_ = drawn(WITHOUT_HISTORY)
    after = jax.jit(embedding_step)(before, corpus, STEP_SIZE)
    found, smooth = rates_of(before, corpus)
    assert smooth
    problem = attention(after, corpus)
    return problem, found, resolve_tightly(problem)


def flow_to(problem, until_norm=np.inf, until_log_time=1e15):
    bounds = jnp.asarray(until_norm, float), jnp.asarray(until_log_time, float)
    return _flow_to(problem, *bounds)


@jax.jit
def _flow_to(problem, until_norm, until_log_time):
    until = {"until_norm": until_norm, "until_log_time": until_log_time}
    return cls_flow(problem, **until, settings=TIGHT.flow)


def test_late_rates_are_those_of_the_flow(resolved):
    problem, found, end = resolved
    flow = flow_to(problem, found.norm_to_error)
    there = direction_error(flow.query, end.margin.direction)
    np.testing.assert_allclose(there, 1e-4, rtol=1e-5)
    np.testing.assert_allclose(flow.log_time, found.log_time_to_error, rtol=1e-6)
    pace = flow.log_time / jnp.linalg.norm(flow.query)
    np.testing.assert_allclose(pace, found.margin, rtol=1e-3)


@pytest.mark.parametrize("error", [1e-4, 0.1, 0.9])
def test_the_late_line_has_the_error_asked_for_where_it_is_said_to(error):
    """p_mm s + ρ with ρ across and along p_mm, for errors of any size."""
    growth, offset = jnp.array([0.6, 0.0, 0.8]), jnp.array([2.0, 3.0, -1.0])
    across = offset - growth * (growth @ offset)
    line = Limit(
        growth=2 * growth,
        offset=offset,
        error_constant=jnp.linalg.norm(across),
        strength=PairStrength(*[jnp.eye(2)] * 4),
        history=jnp.zeros(3),
        history_dim=jnp.array(0, jnp.int32),
        history_change=jnp.array(0.0),
        offset_error=jnp.array(0.0),
        basin=jnp.array(jnp.inf),
        status=jnp.array(Reason.NONE, jnp.int32),
    )
    there = line.query_at(log_time_to_error(line, error))
    np.testing.assert_allclose(direction_error(there, growth), error, rtol=1e-9)
    norm = jnp.linalg.norm(there)
    np.testing.assert_allclose(norm_to_error(line, error), norm, rtol=1e-12)


def test_the_error_of_the_lemma_is_that_of_the_step(resolved):
    _, found, _ = resolved
    before, corpus, *_ = drawn(WITHOUT_HISTORY)
    after = jax.jit(embedding_step)(before, corpus, STEP_SIZE)
    wanted = alignment_error(before, after, corpus, STEP_SIZE)
    np.testing.assert_allclose(found.lemma_error, wanted, rtol=1e-9)


def test_early_rates_are_those_of_the_flow(resolved):
    problem, found, end = resolved
    flow = flow_to(problem, until_log_time=found.early_log_time)
    there = direction_error(flow.query, end.margin.direction)
    np.testing.assert_allclose(there, 0.1, rtol=1e-5)
    pairs = competing_pairs(end.selected, problem.corpus)
    for factor, wanted in ((1.0, 0.0), (0.99, -1.0), (1.01, 1.0)):
        until = factor * found.selection_log_time
        flow = flow_to(problem, until_log_time=until)
        scores = problem.scores(flow.query)
        lead = jnp.where(pairs, scores[:, None] - scores[None, :], jnp.inf).min()
        assert jnp.abs(lead) < 1e-6 if wanted == 0 else lead * wanted > 0


def test_the_loss_still_to_go_falls_as_one_over_t(resolved):
    """t (L − L_∞) → ‖p_mm‖²."""
    problem, found, end = resolved
    assert end.late.status == Reason.NONE
    flow = flow_to(problem, until_log_time=600.0)
    to_go = excess_loss(problem, end.selected, flow.query)
    np.testing.assert_allclose(to_go * jnp.exp(600.0), found.loss_constant, rtol=1e-6)


def test_where_the_path_decides_the_late_flow_is_that_of_a_flow():
    """The end of a path is read, and the line through it holds for another flow."""
    start, corpus, *_ = drawn(WITH_HISTORY)
    after = jax.jit(embedding_step)(start, corpus, STEP_SIZE)
    problem = attention(after, corpus)
    line = resolve_tightly(problem).late
    assert line.history_dim > 0 and line.status == Reason.NONE
    flow = flow_to(problem, until_log_time=3e4)
    np.testing.assert_allclose(flow.query, line.query_at(3e4), atol=1e-5)
    # Without it p would be elsewhere.
    assert jnp.linalg.norm(line.history) > 0.1


def overtaken(off, behind):
    """Rates where token 0, from behind, overtakes tokens 1 and 2, nearly mirror images.

    The step on E moves both alike; their active pairs stay.
    """
    # Twelve times one bag, in the shapes of the problems above.
    tokens, counts = (
        jnp.tile(jnp.array(row), (12, 1)) for row in ([0, 1, 2, 2], [1.0, 1.0, 1.0, 0])
    )
    labels = jnp.ones(12, jnp.int32)
    corpus = Corpus(tokens.astype(jnp.int32), counts, labels, VOCABULARY)
    first, second = jnp.eye(DIM)[:2]
    rows = jnp.stack([first, second, -(1 + off) * second])
    embeddings = jnp.zeros((VOCABULARY, DIM)).at[:3].set(rows)
    return rates_of(Parameters(embeddings, -behind * first, first), corpus, 0.1)


@pytest.mark.parametrize(("off", "smooth"), [(0.0, False), (1e-3, True)])
def test_two_pairs_decided_at_once_are_a_kink(off, smooth):
    found, kept = overtaken(off, 2.0)
    assert found.selection_log_time > 0.1 and kept == smooth


def test_a_selection_too_sudden_for_its_time_voids_no_other_rate():
    """From 25 behind, the lead changes its sign within e^−25 of a log-time."""
    found, smooth = overtaken(0.3, 25.0)
    assert smooth and np.isfinite(found.log_time_to_error)
    assert np.isnan([found.selection_log_time, found.early_log_time]).all()


def test_tied_tokens_speak_by_their_occurrences():
    """Two tokens that stay selected, twice and once: b = (2 b_0 + b_1) / 3."""
    corpus = from_sequences([[0, 0, 1, 2]], [-1], vocabulary=3)
    after = Parameters(jnp.eye(3), jnp.zeros(3), jnp.array([1.0, -3.0, 9.0]))
    loss = final_loss(attention(after, corpus), jnp.array([[True, True, False]]))
    np.testing.assert_allclose(loss, np.log1p(np.exp(-1 / 3)), rtol=1e-12)


def test_rates_of_a_flow_that_breaks_off_are_no_numbers():
    """Neither are their derivatives; the error of the step on E came before."""
    start, *others = drawn(WITHOUT_HISTORY)
    far = Parameters(start.embeddings, 100 * start.query, start.head)
    found, (slopes, pulled), (smooth, _) = run(0.0, 1.0, far, *others)
    assert not smooth and REAL_RATES[0] == "lemma_error"
    assert np.isnan(found[1:]).all() and np.isnan(slopes[1:]).all()
    assert np.isfinite(found[0]) and np.isfinite(slopes[0]) and np.isnan(pulled)


def three_tokens(sideways, start):
    """Tokens 1 and 2 lose to 0; at sideways = 0 the second has no say, but just so."""
    # Twelve times one bag, in the shapes of the problems above.
    along, across = np.eye(DIM)[:2]
    embeddings = np.zeros((VOCABULARY, DIM))
    embeddings[[0, 2]] = along, sideways * along - across
    bag = np.tile([[0, 1, 2, 2]], (12, 1)), np.tile([[1, 1, 1, 0]], (12, 1))
    corpus = from_bags(*bag, np.ones(12), vocabulary=VOCABULARY)
    after = Parameters(*map(jnp.asarray, (embeddings, start * along, along)))
    return resolve_tightly(attention(after, corpus))


@pytest.mark.parametrize(
    ("sideways", "kink"), [(0.0, True), (-1e-8, True), (-1e-3, False), (-0.1, False)]
)
def test_a_kink_is_flagged(sideways, kink):
    assert three_tokens(sideways, 0.0).kink == kink


def test_a_flow_that_breaks_off_settles_on_nothing():
    """From p_0 far on the wrong side the change of places is too sudden to follow."""
    end, far = three_tokens(-0.1, 0.0), three_tokens(-0.1, -1e3)
    assert end.path.status == Reason.NONE
    assert end.late.status == Reason.NONE
    assert far.path.status == Reason.TIME_UNRESOLVED
    assert far.late.status == Reason.TIME_UNRESOLVED
    assert jnp.isnan(far.late.growth).all() and jnp.isnan(far.margin.norm)


def test_a_flow_that_will_leave_its_line_is_not_predicted():
    """Φ has a minimum, and a force of weight e^−110 grows until log t = 12,249.

    Token 3, of margin 1.0001, pulls towards itself while p drifts along the second
    axis: only the certificate of the end of the path, at log t = 10⁴, sees it.
    """
    early = RateSettings(until_log_time=1e4)
    rows = np.array([[0.0, 0.0], [-1.0, 0.0], [-1.0, -1.0], [-1.0001, 10.0]])
    bags = from_sequences([[0, 1], [0, 2], [0, 3]], [1, 1, 1], vocabulary=4)
    weights = np.exp([0.0, 0.0, -110.0])
    corpus = replace(bags, weights=jnp.asarray(weights / weights.sum()))

    @jax.jit
    def resolve(across):
        embeddings = jnp.asarray(rows).at[1, 1].set(across)
        after = Parameters(embeddings, jnp.array([1.0, 0.0]), jnp.array([1.0, 0.5]))
        found = resolve_limit(attention(after, corpus), settings=early)
        numbers = log_time_to_error(found.late, 1e-6), found.late.error_constant
        return numbers, (found.late.status, found.path.status)

    drifts, stays = resolve(1e-7), resolve(0.5)
    assert drifts[1] == (Reason.LINE, Reason.NONE)
    assert np.isnan(drifts[0]).all()
    # Without the drift token 3 does no harm.
    assert stays[1] == (Reason.NONE, Reason.NONE)
    assert np.isfinite(stays[0]).all()


@pytest.mark.slow
def test_rates_are_differentiated_through_how_e_is_made():
    """With three steps on E: against central differences; Lemma 4.1 says nothing."""
    before, corpus, *_ = drawn(0)

    def real(step_size):
        found = rates(before, corpus, step_size, embed=embedding_steps(3))
        return jnp.stack([getattr(found, name) for name in REAL_RATES])

    both = jax.jit(lambda x: jax.jvp(real, (x,), (jnp.ones_like(x),)))
    value, slope = both(jnp.array(60.0))
    (up, _), (down, _) = (both(jnp.array(60.0 + x)) for x in (1e-3, -1e-3))
    lemma = np.array(REAL_RATES) == "lemma_error"
    assert np.isnan(value[lemma]).all() and np.isnan(slope[lemma]).all()
    differences = (up - down)[~lemma] / 2e-3
    np.testing.assert_allclose(slope[~lemma], differences, rtol=1e-5)
