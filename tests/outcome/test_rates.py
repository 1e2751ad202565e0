"""Rates against the flow itself, against finite differences, and at kinks."""

from functools import partial
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import chi

from experiments.theory.problem import Problem
from jaxselect.flow.cls_flow import FlowSettings, FlowStatus, cls_flow
from jaxselect.flow.crossing import CrossingStatus, last_crossings
from jaxselect.flow.progress import (
    direction_error,
    excess_loss,
    local_exponents,
    velocity,
)
from jaxselect.margin.limit import Limit, LimitStatus
from jaxselect.margin.pair_strength import PairStrength
from jaxselect.model.corpus import Corpus, from_bags, from_sequences
from jaxselect.model.embedding_step import (
    alignment_error,
    embedding_step,
    embedding_steps,
)
from jaxselect.model.parameters import Parameters
from jaxselect.model.selection import competing_pairs
from jaxselect.outcome.rates import (
    REAL_RATES,
    final_loss,
    log_time_to_error,
    norm_to_error,
    rates,
)
from jaxselect.outcome.resolved_limit import RateSettings, nan_where, resolve_limit
from tests.outcome import derivatives
from tests.outcome.derivatives import Case, draw_wide

ARGUMENTS = derivatives.ARGUMENTS
PROBLEM = Problem(sequences=12, length=4, relevant=2, irrelevant=5)
# d = |S| + 2: what is drawn in R^d has the shapes of reduced coordinates.
SETTINGS = derivatives.Settings(problem=PROBLEM, dim=11, problems=4)


@pytest.fixture(scope="module")
def table():
    """Forward mode, reverse mode and finite differences of random problems.

    Two are drawn in reduced coordinates and two in R^d, and in one of each two, at
    least, the path decides a part of ρ.
    """
    return derivatives.table(SETTINGS)


def test_forward_mode_matches_finite_differences(table):
    """To 1e-5 of the derivative, or of a thousandth of the value where it is less."""
    assert set(table) == {f"{r} / {a}" for r in REAL_RATES for a in ARGUMENTS}
    for name, entry in table.items():
        share = 0.5 if name.endswith("log d") else 1.0
        assert entry["problems"] == share * SETTINGS.problems, name
        assert entry["with_history"] >= entry["problems"] / 2, name
        assert entry["largest_error"] < 1e-5, name


def test_reverse_mode_is_forward_mode(table):
    for name, entry in table.items():
        assert entry["forward_against_reverse"] < 1e-8, name


def test_derivatives_in_d_are_along_quantiles():
    """The entries of the triangle keep their quantiles as d moves, and the law of d."""
    case = jax.jit(partial(derivatives.draw, PROBLEM))(jnp.array(0))
    there = derivatives.transported(case, 0.1)
    back = derivatives.transported(there, -0.1)
    np.testing.assert_allclose(back.start.embeddings, case.start.embeddings, rtol=1e-9)
    sizes = [float(x.start.cls[1] * jnp.sqrt(x.dim)) for x in (case, there)]
    quantiles = [
        chi.cdf(size, float(x.dim) - 1)
        for size, x in zip(sizes, (case, there), strict=True)
    ]
    np.testing.assert_allclose(*quantiles, rtol=1e-9)


@pytest.fixture(scope="module")
def resolved():
    """A problem after its step, its rates, and what it settles on."""
    before, corpus = jax.jit(PROBLEM.draw)(0, 256.0)
    after = jax.jit(embedding_step)(before, corpus, 60.0)
    ((found, smooth),) = rates_tightly((before, corpus, 60.0))
    assert smooth
    return after, corpus, found, resolve_tightly(after, corpus)


# As tight as the flows that the rates are held against.
TIGHT = RateSettings(FlowSettings(1e-9, 1e-9))
resolve_tightly = jax.jit(partial(resolve_limit, settings=TIGHT))


def rates_tightly(*problems):
    """The real rates of (start, corpus, η₀) and whether they are smooth.

    In the shapes and by the program of the table: two problems, tighter still.
    """
    cases = [
        Case(
            start=start,
            corpus=corpus,
            dim=256.0,
            step_size=step_size,
            noise=(0 * start.embeddings, 0 * start.cls, 0 * corpus.counts),
        )
        for start, corpus, step_size in problems
    ]
    pair = jax.tree.map(lambda *x: np.stack(x), cases[0], cases[-1])
    still = np.zeros(len(ARGUMENTS))
    found, (smooth, *_) = derivatives.values(pair, still, pair.start)
    rows = zip(np.asarray(found), np.asarray(smooth), problems, strict=False)
    return [
        (SimpleNamespace(**dict(zip(REAL_RATES, row, strict=True))), kept)
        for row, kept, _ in rows
    ]


def flow_to(after, corpus, until_norm=np.inf, until_log_time=1e15):
    bounds = jnp.asarray(until_norm, float), jnp.asarray(until_log_time, float)
    return _flow_to(after, corpus, *bounds)


@jax.jit
def _flow_to(after, corpus, until_norm, until_log_time):
    until = {"until_norm": until_norm, "until_log_time": until_log_time}
    return cls_flow(after, corpus, **until, settings=TIGHT.flow)


def test_late_rates_are_those_of_the_flow(resolved):
    after, corpus, found, end = resolved
    flow = flow_to(after, corpus, found.norm_to_error)
    there = direction_error(flow.cls, end.margin.direction)
    np.testing.assert_allclose(there, 1e-4, rtol=1e-5)
    np.testing.assert_allclose(flow.log_time, found.log_time_to_error, rtol=1e-6)
    pace = flow.log_time / jnp.linalg.norm(flow.cls)
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
        strength=PairStrength(jnp.eye(2), jnp.eye(2), jnp.eye(2)),
        history=jnp.zeros(3),
        history_dim=jnp.array(0, jnp.int32),
        history_change=jnp.array(0.0),
        offset_error=jnp.array(0.0),
        basin=jnp.array(jnp.inf),
        status=jnp.array(LimitStatus.PREDICTED, jnp.int32),
    )
    there = line.cls_at(log_time_to_error(line, error))
    np.testing.assert_allclose(direction_error(there, growth), error, rtol=1e-9)
    norm = jnp.linalg.norm(there)
    np.testing.assert_allclose(norm_to_error(line, error), norm, rtol=1e-12)


def test_the_error_of_the_lemma_is_that_of_the_step(resolved):
    after, corpus, found, _ = resolved
    before, _ = jax.jit(PROBLEM.draw)(0, 256.0)
    wanted = alignment_error(before, after, corpus, 60.0)
    np.testing.assert_allclose(found.lemma_error, wanted, rtol=1e-9)


def test_early_rates_are_those_of_the_flow(resolved):
    after, corpus, found, end = resolved
    flow = flow_to(after, corpus, until_log_time=found.early_log_time)
    there = direction_error(flow.cls, end.margin.direction)
    np.testing.assert_allclose(there, 0.1, rtol=1e-5)
    pairs = competing_pairs(end.selected, corpus)
    for factor, wanted in ((1.0, 0.0), (0.99, -1.0), (1.01, 1.0)):
        until = factor * found.selection_log_time
        flow = flow_to(after, corpus, until_log_time=until)
        scores = after.embeddings @ flow.cls
        lead = jnp.where(pairs, scores[:, None] - scores[None, :], jnp.inf).min()
        assert jnp.abs(lead) < 1e-6 if wanted == 0 else lead * wanted > 0


def test_the_loss_still_to_go_falls_as_one_over_t(resolved):
    """t (L − L_∞) → ‖p_mm‖²."""
    after, corpus, found, end = resolved
    assert end.late.status == LimitStatus.PREDICTED
    flow = flow_to(after, corpus, until_log_time=600.0)
    to_go = excess_loss(after, corpus, end.selected, flow.cls)
    np.testing.assert_allclose(to_go * jnp.exp(600.0), found.loss_constant, rtol=1e-6)


def test_local_exponents_are_the_slopes_of_the_path(resolved):
    after, corpus, _, end = resolved
    direction = end.margin.direction
    times = jnp.array([5.0, 5.0 * (1 + 1e-4), 1e5])
    ends = [flow_to(after, corpus, until_log_time=time).cls for time in times]
    logs = [
        jnp.log(jnp.stack([direction_error(p, direction), jnp.linalg.norm(p), s]))
        for p, s in zip(ends, times, strict=True)
    ]
    error, norm, time = logs[1] - logs[0]
    middle = jnp.sqrt(times[0] * times[1]), (ends[0] + ends[1]) / 2
    by_norm, by_time = local_exponents(after, corpus, direction, *middle)
    np.testing.assert_allclose(by_norm, error / norm, rtol=1e-4)
    np.testing.assert_allclose(by_time, error / time, rtol=1e-4)
    late = local_exponents(after, corpus, direction, times[2], ends[2])
    np.testing.assert_allclose(jnp.stack(late), -1.0, rtol=1e-3)


def test_the_velocity_is_late_p_mm(resolved):
    after, corpus, _, end = resolved
    late = velocity(after, corpus, 1e8, end.late.cls_at(1e8))
    np.testing.assert_allclose(late, end.margin.direction, atol=1e-6)


def test_crossings_say_whether_they_happened(resolved):
    after, corpus, _, end = resolved
    levels = {
        -1.0: CrossingStatus.ALREADY_CROSSED,
        20.0: CrossingStatus.CROSSED,
        1e9: CrossingStatus.NOT_CROSSED,
    }
    marks = [lambda p, level=level: jnp.linalg.norm(p) - level for level in levels]
    found = jax.jit(lambda path: last_crossings(after, corpus, path, marks))(end.path)
    assert [crossing.status for crossing in found] == list(levels.values())
    assert found[0].log_time == 0 and jnp.isinf(found[2].log_time)
    flow = flow_to(after, corpus, until_norm=20.0)
    np.testing.assert_allclose(found[1].log_time, flow.log_time, rtol=1e-5)


def test_where_the_path_decides_the_late_flow_is_that_of_a_flow():
    """The end of a path is read, and the line through it holds for another flow."""

    @jax.jit
    def drawn(seed):
        case = draw_wide(PROBLEM, SETTINGS.dim, seed)
        return embedding_step(case.start, case.corpus, case.step_size), case.corpus

    for seed in range(2):
        after, corpus = drawn(seed)
        line = resolve_tightly(after, corpus).late
        assert line.history_dim > 0 and line.status == LimitStatus.PREDICTED
        flow = flow_to(after, corpus, until_log_time=3e4)
        np.testing.assert_allclose(flow.cls, line.cls_at(3e4), atol=1e-5)
        # Without it p would be elsewhere.
        assert jnp.linalg.norm(line.history) > 0.1


def test_two_pairs_decided_at_once_are_a_kink():
    """Tokens 1 and 2 are mirror images, and 0 overtakes both in the same instant.

    So they are after the step on E, which moves them alike; their active pairs stay.
    """
    # Twelve times one bag, in the shapes of the problems above.
    tokens, counts = (
        jnp.tile(jnp.array(row), (12, 1)) for row in ([0, 1, 2, 2], [1.0, 1.0, 1.0, 0])
    )
    labels = jnp.ones(12, jnp.int32)
    corpus = Corpus(tokens.astype(jnp.int32), counts, labels, 9)
    along, across = jnp.eye(11)[:2]
    problems = []
    for apart in (0.0, 1e-3):
        rows = jnp.stack([along, across, -(1 + apart) * across])
        embeddings = jnp.zeros((9, 11)).at[:3].set(rows)
        start = Parameters(embeddings, -2 * along, along)
        problems.append((start, corpus, 0.1))
    found, kept = zip(*rates_tightly(*problems), strict=True)
    assert all(rates.selection_log_time > 0.1 for rates in found)
    assert kept == (False, True)


def test_tied_tokens_speak_by_their_occurrences():
    """Two tokens that stay selected, twice and once: b = (2 b_0 + b_1) / 3."""
    corpus = from_sequences([[0, 0, 1, 2]], [-1], vocabulary=3)
    after = Parameters(jnp.eye(3), jnp.zeros(3), jnp.array([1.0, -3.0, 9.0]))
    loss = final_loss(after, corpus, jnp.array([[True, True, False]]))
    np.testing.assert_allclose(loss, np.log1p(np.exp(-1 / 3)), rtol=1e-12)


def three_tokens(sideways, start):
    """Tokens 1 and 2 lose to 0; at sideways = 0 the second has no say, but just so."""
    # Twelve times one bag, in the shapes of the problems above.
    along, across = np.eye(11)[:2]
    embeddings = np.zeros((9, 11))
    embeddings[[0, 2]] = along, sideways * along - across
    bag = np.tile([[0, 1, 2, 2]], (12, 1)), np.tile([[1, 1, 1, 0]], (12, 1))
    corpus = from_bags(*bag, np.ones(12), vocabulary=9)
    after = Parameters(*map(jnp.asarray, (embeddings, start * along, along)))
    return resolve_tightly(after, corpus)


@pytest.mark.parametrize(
    ("sideways", "kink"), [(0.0, True), (-1e-8, True), (-1e-3, False), (-0.1, False)]
)
def test_a_kink_is_flagged(sideways, kink):
    assert three_tokens(sideways, 0.0).kink == kink


def test_a_flow_that_breaks_off_settles_on_nothing():
    """From p_0 far on the wrong side the change of places is too sudden to follow."""
    end, far = three_tokens(-0.1, 0.0), three_tokens(-0.1, -1e3)
    assert end.path.status == FlowStatus.REACHED
    assert end.late.status == LimitStatus.PREDICTED
    assert far.path.status == FlowStatus.TIME_UNRESOLVED
    assert far.late.status == LimitStatus.NOT_SETTLED
    assert jnp.isnan(far.late.growth).all() and jnp.isnan(far.margin.norm)


def test_a_void_number_voids_no_gradient_but_its_own():
    def both(x):
        return nan_where(x < 0, x**2), x**3

    no, one = jnp.zeros(()), jnp.ones(())
    for x, own in ((-2 * one, jnp.nan), (3 * one, 6.0)):
        values, slopes = jax.jvp(both, (x,), (one,))
        assert jnp.isnan(values[0]) == (x < 0) and values[1] == x**3
        back = jax.vjp(both, x)[1]
        for side in (slopes[1], back((no, one))[0]):
            np.testing.assert_allclose(side, 3 * x**2)
        for side in (slopes[0], back((one, no))[0]):
            np.testing.assert_allclose(side, own)
    batch = jax.vmap(jax.grad(lambda x: both(x)[1]))(jnp.array([-2.0, 3.0]))
    np.testing.assert_allclose(batch, [12.0, 27.0])


def test_rates_of_a_flow_that_breaks_off_are_no_numbers():
    """Nor are their derivatives; the error of the step on E came before."""
    draw = partial(draw_wide, PROBLEM, SETTINGS.dim)
    cases = jax.jit(jax.vmap(draw))(jnp.arange(SETTINGS.problems // 2))
    far = eqx.tree_at(lambda case: case.start.cls, cases, 100 * cases.start.cls)
    still, none = jnp.zeros(len(ARGUMENTS)), jax.tree.map(jnp.zeros_like, cases.start)
    found, slopes, (smooth, *_) = derivatives.forward(
        far, still, none, still.at[0].set(1.0)
    )
    assert not smooth.any() and REAL_RATES[0] == "lemma_error"
    assert jnp.isnan(found[:, 1:]).all() and jnp.isnan(slopes[:, 1:]).all()
    assert jnp.isfinite(found[:, 0]).all() and jnp.isfinite(slopes[:, 0]).all()


@pytest.mark.slow
def test_a_batch_over_seeds_is_its_lanes():
    """Rates and their gradients, under vmap and one by one.

    Rounding decides on the lengths of late steps, which move a gradient by some
    hundredths of the flow's tolerance: a tight one leaves only rounding.
    """
    tight = RateSettings(FlowSettings(1e-9, 1e-9))

    def study(seed):
        before, corpus = PROBLEM.draw(seed, 256.0)
        run = lambda x: rates(before, corpus, x, settings=tight)  # noqa: E731
        slope = jax.grad(lambda x: run(x).selection_log_time)(60.0)
        found = run(60.0)
        return slope, *(getattr(found, name) for name in REAL_RATES)

    seeds = jnp.arange(3)
    lane = jax.jit(study)
    alone = jnp.array([lane(seed) for seed in seeds])
    batch = jnp.stack(jax.jit(jax.vmap(study))(seeds), axis=1)
    np.testing.assert_allclose(batch, alone, rtol=1e-8)


@pytest.mark.slow
def test_rates_are_differentiated_through_how_e_is_made():
    """Of three steps on E: against central differences; Lemma 4.1 says nothing."""
    before, corpus = jax.jit(PROBLEM.draw)(0, 1e4)

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
