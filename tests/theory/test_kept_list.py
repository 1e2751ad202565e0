"""Lists that joint training keeps for ever: the certificate, and flows followed on.

Source: mathematics, section 3i.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.common.model import attend_corpus
from experiments.theory.joint import kept_list
from experiments.theory.joint_flow import LearningRates, joint_flow
from jaxselect import POLYNOMIAL, BadInput, Parameters, from_sequences

# The list 0+, 1−, 2+; 3 and 4 decide nothing. One token of its sign in each.
SEQUENCES = [[0, 1, 3], [0, 1], [1, 2, 4], [1, 3], [2, 3, 4], [2, 4]]
LABELS = [1, 1, -1, -1, 1, 1]
WEIGHTS = [1, 2, 3, 1, 2, 3]
BAGS = from_sequences(SEQUENCES, LABELS, vocabulary=5, weights=WEIGHTS)
FIRST = np.array([0, 0, 1, 1, 2, 2], np.int32)
ORDER, SIGNS = np.array([2.0, 1.0, 0.0, -1.5, -1.5]), np.array([1.0, -1, 1, 0, 0])
KEPT = jax.jit(kept_list)


def at_the_list(value, lead, rates=(1.0, 1.0, 1.0), noise=0.0, seed=0, signs=SIGNS):
    """E, p, v of rank two with values ± β and scores that fall by the lead."""
    scores, values = lead * ORDER, value * signs
    pair = np.sqrt([np.linalg.norm(scores), np.linalg.norm(values)])
    pair *= (np.array(rates[1:]) / rates[0]) ** 0.25
    rows = np.zeros((7, 7))
    rows[:5, :2], rows[5:, :2] = np.stack([scores, values], 1) / pair, np.diag(pair)
    rows += noise * np.random.default_rng(seed).normal(size=rows.shape)
    return Parameters(*map(jnp.asarray, (rows[:5], rows[5], rows[6])))


RATES = 0.5, 2.0, 3.0


@pytest.mark.parametrize("rates", [(1.0, 1.0, 1.0), RATES])
def test_the_certificate_is_its_formula(rates):
    """Λ m̃ = √(η_v/η_p) |a| + |b| where E, p and v are balanced; m̃ by hand; j = 3."""
    start = at_the_list(400.0, 5.0, rates)
    found = KEPT(start, BAGS, LearningRates(*rates))
    scores, values = 5 * ORDER, 400 * SIGNS
    attention = attend_corpus(jnp.asarray(scores), jnp.asarray(values), BAGS)
    weights = np.asarray(BAGS.weights)
    margins = np.array(LABELS) * np.asarray(attention.output)
    loss = weights @ np.log1p(np.exp(-margins))
    margin = -np.log(np.expm1(loss / weights.min()))
    size = np.sqrt(rates[2] / rates[1]) * np.linalg.norm(scores)
    ratio = (size + np.linalg.norm(values)) / margin
    np.testing.assert_allclose(found.margin, margin, rtol=1e-12)
    np.testing.assert_allclose(found.excess, np.sqrt(ratio**2 - 3), rtol=1e-9)
    assert found.kept and found.selected.tolist() == [True] * 3 + [False] * 2


@jax.jit
@jax.vmap
def followed(start):
    """Certificates and deciding weights along flows to log t = 10⁵."""
    rates = LearningRates(*RATES)
    times = jnp.concatenate([jnp.zeros(1), jnp.geomspace(1e-3, 1e5, 25)])
    flow = joint_flow(
        start, BAGS, rates=rates, until_log_time=1e5, path_log_times=times
    )

    def at(*now):
        now = Parameters(*now)
        scores, values = now.embeddings @ now.query, now.embeddings @ now.head
        weights = jnp.exp(attend_corpus(scores, values, BAGS).log_weights)
        first = BAGS.tokens == jnp.asarray(FIRST)[:, None]
        deciding = jnp.where(first, weights, 0.0).sum(axis=1)
        return kept_list(now, BAGS, rates), deciding

    return jax.vmap(at)(flow.path_embeddings, flow.path_query, flow.path_head)


def test_certified_lists_stay_by_the_bounds_and_the_excess_vanishes():
    starts = [
        at_the_list(value, 5.0, RATES, 0.03, n)
        for n in range(4)
        for value in (300, 900)
    ]
    found, weights = followed(jax.tree.map(lambda *x: jnp.stack(x), *starts))
    found, weights = jax.tree.map(np.asarray, (found, weights))
    known = found.kept[:, 0]
    assert known.sum() >= 6
    found, weights = jax.tree.map(lambda x: x[known], (found, weights))
    assert found.kept.all() and (found.selected == (SIGNS != 0)).all()
    # x does not grow, m̃ does not fall, q is at least what was said at first.
    excess, margin = found.excess, found.margin
    assert (np.diff(excess, axis=1) < 1e-6).all()
    assert (np.diff(margin, axis=1) > -1e-6 * margin[:, 1:]).all()
    assert (weights > found.weight[:, :1, None]).all()
    assert (excess[:, -1] < 0.1).all()
    np.testing.assert_allclose(margin[:, -1], 1e5, rtol=1e-3)


UNKEPT = {
    "two tokens that agree": ([[0, 2], *SEQUENCES[1:]], LABELS, 400.0, 5.0),
    "too soft": (SEQUENCES, LABELS, 400.0, 0.5),
    "scores as large as values": (SEQUENCES, LABELS, 20.0, 5.0),
    "not explained": ([[3, 4], *SEQUENCES[1:]], LABELS, 400.0, 5.0),
    # Token 2 ends the list of 0 and 1 alone: no sequence needs its value.
    "a value too many": (SEQUENCES[:4] + SEQUENCES[:2], LABELS[:4] * 2, 400.0, 5.0),
}


@pytest.mark.parametrize("case", UNKEPT)
def test_nothing_else_is_certified(case):
    sequences, labels, value, lead = UNKEPT[case]
    bags = from_sequences(sequences, labels[:6], vocabulary=5, weights=WEIGHTS)
    assert not KEPT(at_the_list(value, lead), bags).kept


def test_the_excess_has_a_bound_that_copies_lower():
    """C + 1 − x > C √(1 + x²): x < ¾ without copies, x < √(8/3) − 1 where C = 2."""
    twice = from_sequences([[0, 0, 1, 3], *SEQUENCES[1:]], LABELS, vocabulary=5)
    parts = dataclasses.replace(twice, counts=0.25 * twice.counts)
    bounds = 0.75, np.sqrt(8 / 3) - 1, np.sqrt(8 / 3) - 1
    for bags, bound in zip((BAGS, twice, parts), bounds, strict=True):
        found = [KEPT(at_the_list(value, 5.0), bags) for value in (120.0, 150.0, 200.0)]
        kept = [bool(one.kept) for one in found]
        assert kept == [bool(one.excess < bound) for one in found]
        assert True in kept and False in kept


def test_what_rounding_may_decide_is_not_certified():
    """Where x is ¾ to a few roundings, by the formula without an allowance."""

    def exceeds(value):
        signs, scores = value * SIGNS, 5 * ORDER
        output = attend_corpus(jnp.asarray(scores), jnp.asarray(signs), BAGS).output
        weights = np.asarray(BAGS.weights)
        loss = weights @ np.log1p(np.exp(-np.array(LABELS) * np.asarray(output)))
        margin = -np.log(np.expm1(loss / weights.min()))
        ratio = (np.linalg.norm(scores) + np.linalg.norm(signs)) / margin
        return ratio**2 - 3 >= 0.75**2

    low, high = 120.0, 200.0
    assert exceeds(low) and not exceeds(high)
    while (middle := 0.5 * (low + high)) not in (low, high):
        low, high = (middle, high) if exceeds(middle) else (low, middle)
    for part in (0.0, 1e-15, 1e-14, 3e-14):
        assert not KEPT(at_the_list(high * (1 + part), 5.0), BAGS).kept
    assert KEPT(at_the_list(high * (1 + 1e-11), 5.0), BAGS).kept


def test_a_value_below_the_margin_is_none_of_the_list():
    signs = SIGNS + np.array([0.0, 0.0, 0.0, 0.6, 0.0])
    found = KEPT(at_the_list(4000.0, 5.0, signs=signs), BAGS)
    assert found.selected.tolist() == [True] * 3 + [False] * 2
    assert found.excess > 0.6


def test_without_a_margin_nothing_is_certified():
    """Two bags of one token: y f = ½, but L/w > ℓ(0), so m̃ < 0."""
    bags = from_sequences([[0], [1]], [1, -1], vocabulary=2)
    root = 0.5**0.25
    rows = jnp.array([[0.5, 0.0], [-0.5, 0.0]]) / root
    found = KEPT(Parameters(rows, jnp.zeros(2), jnp.array([root, 0.0])), bags)
    assert found.margin < 0 and found.excess < 0.75 and not found.kept


def test_problems_of_which_it_is_not_proved_are_refused():
    start = at_the_list(400.0, 5.0)
    for bags, message in (
        (dataclasses.replace(BAGS, loss=POLYNOMIAL), "polynomial"),
        (from_sequences(SEQUENCES, LABELS, vocabulary=6), "vocabulary of 6"),
    ):
        with pytest.raises(BadInput, match=message):
            kept_list(start, bags)
    classes = from_sequences(SEQUENCES, [0, 1, 2, 0, 1, 2], vocabulary=5, classes=3)
    heads = dataclasses.replace(start, head=jnp.ones((7, 3)))
    with pytest.raises(BadInput, match="3 classes"):
        kept_list(heads, classes)
