"""The phase diagram's edges: against an independent solver, limits, and differences."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.special import expit

from jaxselect.model.embedding_step import embedding_step, predicted_alignment
from jaxselect.model.parameters import gaussian_reduced
from jaxselect.model.synthetic import assumption_one, independent_tokens
from jaxselect.outcome import phases
from jaxselect.outcome.asymmetry import noise, start_asymmetry
from jaxselect.outcome.race import _mean_exp, race
from jaxselect.outcome.two_classes import (
    Ensemble,
    alignment,
    amplification,
    critical_alignment,
    step_size,
)
from tests.tolerances import assert_close

BASE = Ensemble(200.0, 8.0, 8.0, 48.0)
race_of = jax.jit(partial(race, BASE))


def pulls(scores, gamma):
    weight = expit(scores - np.log(7.0))
    return 0.5 * gamma * expit(-gamma * weight) * weight * (1 - weight)


def two_class_field(log_time, scores, gamma):
    """du±/ds in the two scores themselves, s = log(1+t)."""
    pull = pulls(scores, gamma)
    change = pull / 8 + pull.sum() / 48 + gamma**2 * (pull - pull[::-1])
    return np.exp(log_time) * change


def returned(log_time, scores, gamma):
    return scores[1] - np.log(7.0)


returned.terminal, returned.direction = True, 1.0


@pytest.mark.parametrize("gamma", [1.23, 3.9, 7.0])
def test_a_race_is_the_flow_of_both_scores(gamma):
    """SciPy's stiff solver, in time, without the orbit's one equation."""
    delta = 1e-3
    found = solve_ivp(
        two_class_field,
        (0.0, 60.0),
        [delta, -delta],
        "LSODA",
        args=(gamma,),
        events=returned,
        rtol=1e-10,
        atol=1e-12,
    )
    wanted = np.log(expit(found.y - np.log(7.0)))
    here = race_of(gamma, delta)
    # The orbit has 32 points to a unit of the scores.
    np.testing.assert_allclose(here.log_time, found.t_events[0][0], rtol=1e-4)
    np.testing.assert_allclose(here.ratio, (wanted[0] - wanted[1]).max(), atol=1e-3)


def test_a_mean_exponential_has_its_digits_and_its_slope_everywhere():
    """∫₀¹ e^{xt} dt and its derivative ∫₀¹ t e^{xt} dt, also at zero."""
    rate = jnp.array([-3.0, -1e-3, -1e-5, -1e-8, 0.0, 1e-8, 1e-5, 1e-3, 3.0])
    node, weight = np.polynomial.legendre.leggauss(20)
    node, weight = 0.5 + 0.5 * node, 0.5 * weight
    power = weight * np.exp(np.asarray(rate)[:, None] * node)
    assert_close(jax.vmap(_mean_exp)(rate), power.sum(axis=1))
    # Between the two forms a derivative loses half of its digits.
    slope = jax.vmap(jax.grad(_mean_exp))(rate)
    np.testing.assert_allclose(slope, power @ node, rtol=1e-5)


def test_small_asymmetries_grow_as_predicted():
    """To first order by e^A, and the less, the nearer γ is to γ_c."""
    delta = 1e-12
    for gamma in (1.0, 2.0):
        grown = np.log(race_of(gamma, delta).ratio / (2 * delta))
        # Weights part by (1 − q) times the scores' difference, before and at q*.
        gain = amplification(BASE, gamma)
        assert gain - 2 < grown < gain
    edge = critical_alignment(BASE)
    assert amplification(BASE, 1.001 * edge) == 0 < amplification(BASE, 0.99 * edge)


def test_critical_alignment_and_its_derivative():
    """γ σ(γ/T) = T − T/(T − 1), with the derivative in T by the implicit function."""
    gamma = critical_alignment(BASE)
    assert_close(gamma * expit(gamma / 8), 8 - 8 / 7)
    length = jnp.linspace(7.99, 8.01, 3)
    values = [critical_alignment(BASE._replace(length=x)) for x in length]
    slope = jax.grad(lambda x: critical_alignment(BASE._replace(length=x)))(8.0)
    np.testing.assert_allclose(slope, (values[2] - values[0]) / 0.02, rtol=1e-5)
    assert jax.grad(lambda x: critical_alignment(BASE._replace(relevant=x)))(8.0) == 0


@pytest.fixture(scope="module")
def draws():
    """Values and scores after the step, over 300 draws at d = 10⁶, γ = 2."""
    bags = partial(assumption_one, sequences=40, length=5, relevant=4, irrelevant=12)

    def draw(key):
        first, second = jax.random.split(key)
        corpus = bags(first)
        before = gaussian_reduced(second, vocabulary=20, dim=1e6)
        after = embedding_step(before, corpus, 160.0)
        return after.embeddings @ after.head, after.embeddings @ after.cls

    return jax.jit(jax.vmap(draw))(jax.random.split(jax.random.key(0), 300))


SMALL = Ensemble(40.0, 5.0, 4.0, 12.0)


def test_the_step_lowers_the_noise_of_irrelevant_tokens(draws):
    values = np.asarray(draws[0])[:, 8:]
    measured = 1e3 * np.sqrt(values.var(axis=1, ddof=1).mean())
    # A standard error of 1/√(2 · 300 · 11), and of second order in 1/N_r = 0.15.
    np.testing.assert_allclose(measured, noise(SMALL, 2.0), rtol=0.1)
    assert measured < 0.9
    np.testing.assert_allclose(np.abs(draws[0][:, :8]).mean(), 2.0, rtol=1e-3)


def test_the_start_alone_is_less_than_what_noise_makes_of_it(draws):
    scores = np.asarray(draws[1])
    delta = 0.5 * (scores[:, :4].mean(axis=1) - scores[:, 4:8].mean(axis=1))
    start = 1e3 * delta.std()
    assert start < start_asymmetry(SMALL, 2.0) < 3 * start


def test_alignment_is_that_of_the_step_on_each_family():
    """Lemma 4.1, averaged over important tokens; to first order in what they share."""
    assert_close(step_size(BASE, alignment(BASE, 77.0)), 77.0)
    exact = BASE._replace(irrelevant_share=63 / 64)
    assert_close(jnp.stack([*map(jnp.asarray, (exact.odds, exact.strength))]), [7, 1])
    corpus = independent_tokens(
        jax.random.key(1),
        sequences=4000,
        length=8,
        relevant=8,
        irrelevant=48,
        irrelevant_share=0.5,
    )
    drawn = jnp.abs(predicted_alignment(corpus, 256.0)[:16]).mean()
    wanted = alignment(BASE._replace(irrelevant_share=0.5), 256.0)
    # A token's count among 4,000 sequences, and 16 of them.
    np.testing.assert_allclose(drawn, wanted, rtol=0.02)


def test_the_lower_line_is_an_extreme_value_law():
    """∝ d^{−1/2}; with many tokens per class (2 log 2R)^{1/2}, slowly."""
    edge = partial(phases.selection_edge, BASE)
    assert_close(edge(1e8), edge(1e4) / 100)
    many = BASE._replace(relevant=1e12, sequences=1e14)
    bound = np.sqrt(2 * np.log(2e12)) * step_size(many, 1.0) / 100
    np.testing.assert_allclose(phases.selection_edge(many, 1e4), bound, rtol=0.06)


@pytest.mark.parametrize(("share", "back"), [(0.98, True), (1.02, False)])
def test_noise_wins_at_its_critical_variance(share, back):
    """1/z of d log z/dr = z − V, V ∝ e^{2r}, reaches zero below 2 e^{−γ_E} alone."""
    variance = share * phases.NOISE_WINS

    def inverse(r, value):
        return -1.0 + variance * np.exp(2 * r) * value

    def blows_up(r, value):
        return value[0]

    blows_up.terminal = True
    found = solve_ivp(
        inverse, (-12.0, 2.5), [12.0], "LSODA", events=blows_up, rtol=1e-10, atol=1e-12
    )
    assert (len(found.t_events[0]) > 0) == back


EDGES = {
    "selection": lambda of, dim: phases.selection_edge(of, dim)[None],
    "breaking": lambda of, dim: jnp.stack(phases.breaking_edges(of, dim)),
    "capture": lambda of, dim: jnp.stack(phases.capture_edges(of, dim)),
}
# A fourth-order difference quotient, and the place itself.
NEAR = 2e-3 * np.array([-2.0, -1.0, 0.0, 1.0, 2.0])


@cache
def near(name):
    """An edge and its slope, as R and d grow together, at `NEAR`; one program."""

    def along(x):
        return EDGES[name](BASE._replace(relevant=8.0 * (1 + x)), 1e4 * (1 + 2 * x))

    @jax.jit
    @jax.vmap
    def both(x):
        return jax.jvp(along, (x,), (jnp.ones(()),))

    return both(jnp.asarray(NEAR))


@pytest.mark.parametrize("name", EDGES)
def test_derivatives_of_edges_are_difference_quotients(name):
    at, slope = near(name)
    quotient = (at[0] - 8 * at[1] + 8 * at[3] - at[4]) / (12 * NEAR[3])
    np.testing.assert_allclose(slope[2], quotient, rtol=1e-6, atol=1e-6 * abs(at).max())


def test_edges_are_in_order_and_close_at_the_largest_dimension():
    selection, breaking, capture = (near(name)[0][2] for name in EDGES)
    order = [*selection, breaking[0], *capture, breaking[1]]
    assert order == sorted(order)
    assert order[-1] < step_size(BASE, critical_alignment(BASE))
    largest = jax.jit(jax.vmap(partial(phases.largest_captured_dim, BASE)))
    found = largest(jnp.array([*capture, 2500.0]))
    np.testing.assert_allclose(found[:2], 1e4, rtol=1e-5)
    assert np.isnan(found[2])


def test_an_edge_is_a_change_of_sign_within_its_bracket():
    """None where a condition holds from the start, to the end, throughout or never."""

    @jax.jit
    def edges(sign, place):
        def condition(x):
            return sign * (x - place)

        return jnp.stack(
            [
                phases._edge(condition, 0.0, 1.0, jnp.array(last))
                for last in (False, True)
            ]
        )

    for sign, place, wanted in (
        (1.0, 0.3, [0.3, np.nan]),
        (-1.0, 0.3, [np.nan, 0.3]),
        (1.0, 2.0, [np.nan, np.nan]),
        (1.0, -1.0, [np.nan, np.nan]),
    ):
        np.testing.assert_allclose(edges(sign, place), wanted, atol=1e-9)
