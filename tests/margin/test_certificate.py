"""The bound on inactive pairs by hand: D = (1, 0), (2, ½), c = ¼ and −½.

Source: mathematics, section 3e.
"""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxselect import Parameters, attention, competing_pairs, max_margin
from jaxselect.data.corpus import from_bags, from_sequences
from jaxselect.data.loss import EXPONENTIAL, LOGISTIC, NEXT_TOKEN, POLYNOMIAL
from jaxselect.margin.certificate import PredictedEnd, _gross_forces, perturbations
from jaxselect.margin.limit import limit
from jaxselect.margin.minimum import Minimum
from jaxselect.margin.pairs import ROUNDINGS, pair_strength, pairs_of
from jaxselect.margin.perturbation import RestingTies
from jaxselect.model.attention import negative_gradient
from jaxselect.status import Reason

TOLERANCE = 1e-3
CHOSEN = np.array([[True, False], [True, False]])
LONG = np.hypot(2.0, 0.5)


def problem(second, labels):
    """Token 0 at the origin over −(1, 0) and −`second`, values −1 and −second_1.

    For each label after the first one there is a token in the second place.
    """
    tokens = -np.array([[0.0, 0.0], [1.0, 0.0], *[second] * (len(labels) - 1)])
    start = Parameters(*map(jnp.asarray, (tokens, [0.3, 0.2], [1.0, 0.0])))
    bags = [[0, token] for token in range(1, len(tokens))]
    return start, from_sequences(bags, labels, vocabulary=len(tokens))


def first_of(bags):
    """The selection of token 0 in every bag."""
    return jnp.zeros(bags.tokens.shape, bool).at[:, 0].set(True)


@jax.jit
def bound_of(start, bags, margin, late, query, log_time):
    end = PredictedEnd(first_of(bags), margin, late)
    come = perturbations(attention(start, bags), end, (query, log_time), TOLERANCE)
    return come.bound(end.late.basin)


def late_flow(start, bags, late_query, moved=(0.0, 0.0)):
    """Limits of no p, of a late one, and of two: the earlier one is so far from it."""
    late_query = np.asarray(late_query)
    found = _late_flow(start, bags, late_query, late_query - np.array(moved))
    return jax.tree.map(np.asarray, found)


@jax.jit
def _late_flow(start, bags, late_query, earlier_query):
    pairs = competing_pairs(first_of(bags), bags)
    margin = max_margin(start.embeddings, pairs)
    given = attention(start, bags), first_of(bags), margin
    known, read = limit(*given), limit(*given, late_query=late_query)
    seen = limit(*given, late_query=late_query, earlier_query=earlier_query)
    return margin, known, read, seen


def by_hand(s, offset_error, inactive):
    """p = (s + log c, 0): leads s + log c and twice that; σ = ½, spreads 1 and 2.

    The strengths are c = ½/n, and −2c of each inactive pair.
    """
    unit, margins = 0.5 / (1 + inactive), np.array([1.0, *[2.0] * inactive])
    weights = np.exp(-margins * (s + np.log(unit)))
    weights = weights / (1 + weights)
    growth = 2 * offset_error * LONG
    pull = inactive * 2 * unit * np.exp(s - 2 * (s + np.log(unit)))
    spent = pull * LONG * np.exp(growth + TOLERANCE) / (2 - 1)
    # The residual is σ(−y f) at f = q b, not its limit ½.
    values, labels = -margins, np.array([1, *[-1] * inactive])
    residual = 1 / (1 + np.exp(labels * weights * values))
    force = 2 * unit * np.exp(s) * residual * weights * -values
    unselected = weights * (1 - values)
    left_out = 4 * unselected @ force * np.exp(2 * (growth + TOLERANCE))
    return LONG * (spent + left_out * LONG)


@pytest.mark.parametrize("s", [8.0, 12.0])
@pytest.mark.parametrize("offset_error", [0.0, 0.2])
@pytest.mark.parametrize("inactive", [1, 2])
def test_every_term_of_the_bound_counts(s, offset_error, inactive):
    """Pairs of the wrong sign, the terms off the pair sum, and the error of ρ."""
    start, bags = problem([2.0, 0.5], [1, *[-1] * inactive])
    query = np.array([s + np.log(0.5 / (1 + inactive)), 0.0])
    margin, _, late, _ = late_flow(start, bags, query)
    assert late.status == Reason.NONE and margin.active.sum() == 1
    late = eqx.tree_at(lambda late: late.offset_error, late, np.array(offset_error))
    bound = bound_of(start, bags, margin, late, query, np.array(s))
    np.testing.assert_allclose(bound, by_hand(s, offset_error, inactive), rtol=1e-6)


def test_a_pair_counts_by_what_its_strength_may_err():
    """Its bags may cancel: what is left is its blur, and a rounding of its terms."""
    start, bags = problem([2.0, 0.5], [1, -1])
    query = jnp.array([8.0 + np.log(0.25), 0.0])
    margin, _, late, _ = jax.tree.map(jnp.asarray, late_flow(start, bags, query))
    second = jnp.zeros((3, 3)).at[0, 2].set(1.0)

    @jax.jit
    def inactive(factor, magnitude, blur, active):
        strength = late.strength._replace(
            factor=factor * second, magnitude=magnitude * second, error=blur * second
        )
        known = eqx.tree_at(lambda late: late.strength, late, strength)
        held = eqx.tree_at(lambda margin: margin.active, margin, active)
        end = PredictedEnd(jnp.asarray(CHOSEN), held, known)
        given = attention(start, bags), end, (query, jnp.asarray(8.0)), TOLERANCE
        return perturbations(*given).inactive

    wanted = inactive(-0.5, 0.0, 0.0, margin.active)
    rounding = ROUNDINGS * np.finfo(float).eps
    assert wanted > 0
    for given in ((0.0, 0.0, 0.5), (0.0, 0.5 / rounding, 0.0)):
        found = inactive(*given, margin.active)
        np.testing.assert_allclose(found, wanted, rtol=1e-12)


def test_an_inactive_pair_that_does_not_fade_has_no_bound():
    """That of the active pair, which has margin one, if it is not taken for active."""
    start, bags = problem([2.0, 0.5], [1, -1])
    query = np.array([8.0 + np.log(0.25), 0.0])
    margin, _, late, _ = late_flow(start, bags, query)
    none = np.zeros_like(margin.active)
    missed = eqx.tree_at(lambda margin: margin.active, margin, none)
    assert np.isfinite(bound_of(start, bags, margin, late, query, np.array(8.0)))
    assert np.isinf(bound_of(start, bags, missed, late, query, np.array(8.0)))


@pytest.mark.parametrize(("offset_error", "bounded"), [(0.1, True), (0.2, False)])
def test_forces_of_a_loss_with_a_domain_may_grow_fourfold(offset_error, bounded):
    """κ̄ of −log m is that of margins above half of m: beyond, nothing is bounded."""
    start, bags = problem([2.0, 0.5], [1, -1])
    query = jnp.array([12.0 + np.log(0.25), 0.0])
    margin, _, late, _ = jax.tree.map(jnp.asarray, late_flow(start, bags, query))
    growth = np.exp(2 * (2 * offset_error * LONG + TOLERANCE))
    assert (growth < 4) == bounded

    @jax.jit
    def omitted(offset_error):
        labels = jnp.ones_like(bags.labels)
        corpus = dataclasses.replace(bags, labels=labels, loss=NEXT_TOKEN)
        values = jnp.where(corpus.tokens == 0, 1.0, 0.0)
        given = dataclasses.replace(attention(start, corpus), values=values)
        off = eqx.tree_at(lambda late: late.offset_error, late, offset_error)
        end = PredictedEnd(jnp.asarray(CHOSEN), margin, off)
        return perturbations(given, end, (query, jnp.asarray(12.0)), TOLERANCE).omitted

    assert bool(np.isfinite(omitted(jnp.asarray(offset_error)))) is bounded


@pytest.mark.parametrize("ranges", [[0.0, 0.0], [1.5, 2.5]])
def test_ties_that_are_not_at_rest_count(ranges):
    """D G² Σ Γ_X r_X Λ_X ∫‖δ‖ dτ from ϱ at τ_0 on, and Λ max ‖δ‖ beside it.

    The ranges of b are those over the tied tokens, too.
    """
    s, stiffness, moved = 8.0, 0.05, 1e-5
    start, bags = problem([2.0, 0.5], [1, -1])
    query = np.array([s + np.log(0.25), 0.0])
    margin, _, late, _ = late_flow(start, bags, query)
    found = jax.tree.map(jnp.asarray, (margin, late))
    end = PredictedEnd(jnp.asarray(CHOSEN), *found)
    widths = jnp.array([0.2, 0.4])
    here = jnp.asarray(query), jnp.asarray(s)
    given = attention(start, bags), end, here, TOLERANCE

    @jax.jit
    def with_ties(moved, stiffness):
        numbers = 0.0, stiffness, 1.0, 1.0, jnp.asarray(0.1)
        rest = Minimum(jnp.zeros(1), *numbers)
        ties = RestingTies(True, rest, moved, widths, jnp.array(ranges))
        return perturbations(*given, ties=ties)

    come, alone = with_ties(moved, stiffness), jax.jit(lambda: perturbations(*given))()
    weights = np.exp(-np.array([1.0, 2.0]) * (s + np.log(0.25)))
    weights = weights / (1 + weights)
    values, labels = np.array([-1.0, -2.0]), np.array([1, -1])
    residual = 1 / (1 + np.exp(labels * weights * values))
    wide = np.maximum(-values, ranges)
    gross = np.exp(s) / 2 * residual * weights * wide
    reach = widths * (4 + 1.3 * wide)
    push = 2 * gross @ reach * np.exp(2 * (2 * come.distance * LONG + TOLERANCE))
    soft = stiffness * np.exp(s) / 2
    largest = moved + push / soft
    # At τ_0 they may be off by all that a score's tolerance leaves.
    way = TOLERANCE / 0.4 * np.log1p(1 / soft) + push / soft
    np.testing.assert_allclose(come.displacement, 0.4 * largest, rtol=1e-6)
    np.testing.assert_allclose(come.ties, LONG * push * way, rtol=1e-6)
    everywhere = jnp.asarray(jnp.inf)
    more = come.bound(everywhere) - alone.bound(everywhere)
    np.testing.assert_allclose(more, LONG * come.ties, rtol=1e-6)
    assert alone.ties == alone.displacement == 0
    # Beyond half of a force by the ties, and out of their basin, nothing is bounded.
    assert np.isinf(with_ties(0.6 / reach.max(), stiffness).ties)
    assert np.isinf(with_ties(0.11, stiffness).displacement)


def test_path_dependence_is_known_where_it_was_watched():
    """D_2 is not in the span of the active D_1: its lead feels half of a move of p_2,
    and no move along p_mm."""
    start, bags = problem([2.0, 0.5], [1, -1])
    *_, known, read, seen = late_flow(start, bags, [9.0, 0.7], (3.0, -0.2))
    assert known.history_dim == seen.history_dim == 1
    assert np.isinf(known.history_change) and np.isinf(read.history_change)
    # It is read from a late p, and without one it is all that is missing.
    np.testing.assert_allclose(read.history, [0.0, 0.7], atol=1e-12)
    np.testing.assert_allclose(read.offset - known.offset, read.history, atol=1e-12)
    np.testing.assert_allclose(seen.history_change, 0.1, rtol=1e-9)


@pytest.mark.parametrize(
    ("loss", "classes"),
    [(LOGISTIC, 3), (EXPONENTIAL, 2), (POLYNOMIAL, 2)],
    ids=lambda given: getattr(given, "name", given),
)
def test_what_the_pair_sum_leaves_out_is_bounded(loss, classes):
    """Gradient less pair sum, token by token, from far to where nothing is claimed."""
    labels = [1, -1, 1, -1] if classes == 2 else [0, 1, 2, 0]
    bags = from_bags(
        [[0, 4, 5], [1, 4, 6], [2, 5, 6], [3, 6, 4]],
        [[1, 2, 1], [1, 1, 3], [2, 1, 1], [1, 1, 0]],
        labels,
        vocabulary=7,
        classes=classes,
        weights=[1, 2, 3, 4],
        loss=loss,
    )
    chosen = jnp.asarray(np.tile(np.arange(3) == 0, (4, 1)))
    shape = (7,) if classes == 2 else (7, 3)

    @jax.jit
    @jax.vmap
    def off(key, gap):
        scores = jax.random.normal(key, (7,)).at[:4].add(gap)
        values = 2 * jax.random.normal(jax.random.fold_in(key, 1), shape)
        rows = jnp.concatenate([scores[:, None], values.reshape(7, -1)], axis=1)
        axes = jnp.eye(rows.shape[1])
        head = axes[1] if classes == 2 else axes[:, 1:]
        problem = attention(Parameters(rows, axes[0], head), bags)
        pairs = pairs_of(chosen, problem.corpus)
        strength = pair_strength(problem, chosen, pairs)
        force = strength.times_exp(gap - pairs.leads(scores))
        pairs = force.sum(axis=1) - force.sum(axis=0)
        exact = negative_gradient(scores, values, bags, gap).scores
        bound = _gross_forces(problem, chosen, axes[0], gap).omitted
        # A force moves a winner and a loser.
        return jnp.abs(exact - pairs).sum() / 2, bound

    keys = jax.random.split(jax.random.key(0), 300)
    found, bound = map(np.asarray, off(keys, np.linspace(3.0, 12.0, 300)))
    assert (found <= bound).all()
    claimed = np.isfinite(bound)
    assert claimed.any() and not claimed.all()
    assert (found[claimed] > 1e-2 * bound[claimed]).any()


def test_a_steeper_log_slope_and_growing_weights_are_bounded_on_less():
    """G ε (1 + κ Δ) ≤ 1/8 with ε = 0.05 and Δ = 1.2: κ = 1 is within, 1.3 is not."""
    start = Parameters(*map(jnp.asarray, (np.eye(2), np.zeros(2), [1.2, 0.0])))
    query, chosen = np.array([np.log(19.0), 0.0]), np.array([[True, False]])
    cases = (LOGISTIC, 1.1, True), (POLYNOMIAL, 1.1, False), (LOGISTIC, 1.2, False)
    for loss, growth, claimed in cases:
        bags = from_sequences([[0, 1]], [1], vocabulary=2, loss=loss)
        given = attention(start, bags), chosen, query, 1.0
        bound = jax.jit(_gross_forces)(*given, growth**2).omitted
        assert bool(np.isfinite(bound)) == claimed


def test_the_share_of_the_next_token_is_not_halved():
    """κ̄ = 2/m where −log m may fall to half of m: ε (1 + 2/m) ≤ 1/8."""
    start = Parameters(*map(jnp.asarray, (np.eye(2), np.zeros(2), [1.0, 0.0])))
    bags = from_sequences([[0, 1]], [1], vocabulary=2, loss=NEXT_TOKEN)
    chosen = jnp.array([[True, False]])
    gross = jax.jit(
        lambda query: _gross_forces(attention(start, bags), chosen, query, jnp.ones(()))
    )
    for lost, wanted in ((0.035, True), (0.05, False)):
        mass = 1 - lost
        omitted = gross(jnp.array([np.log(mass / lost), 0.0])).omitted
        assert lost * (1 + 1 / mass) < 0.125
        bound = 4 * lost * (1 + 2 / mass) * np.e * lost / mass if wanted else np.inf
        np.testing.assert_allclose(omitted, bound, rtol=1e-12)
