"""K classes: flow, limit, certificate and trial, against a literal model and K = 2."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxselect.flow.cls_flow import FlowStatus, cls_flow
from jaxselect.flow.progress import excess_loss
from jaxselect.margin.limit import LimitStatus
from jaxselect.model.corpus import Corpus, from_bags
from jaxselect.model.objective import accuracy, empirical_risk
from jaxselect.model.parameters import Parameters
from jaxselect.model.synthetic import multi_class
from jaxselect.outcome.rates import final_loss, rates
from jaxselect.outcome.trial import run_trial
from jaxselect.outcome.trial_status import TrialStatus
from jaxselect.outcome.verdict import certify
from tests.flow.literal_cls import follow

# Log-time at which the late flow is a line to 1e-9, and the integrators' own errors.
LATE, AGREE = 60.0, 1e-6
TOKENS = np.array([[0, 3, 4], [1, 3, 5], [2, 4, 5], [0, 5, 4]])
COUNTS = np.array([[1, 2, 1], [1, 1, 2], [2, 1, 1], [1, 1, 0]])
LABELS = np.array([0, 1, 2, 0])
WEIGHTS = np.array([0.1, 0.4, 0.3, 0.2])
# Of each token for each class; tokens 0, 1 and 2 are important.
VALUES = np.array(
    [
        [1.5, -0.3, -0.2],
        [-0.4, 0.9, 0.1],
        [0.2, -0.5, 1.1],
        [0.1, 0.0, -0.1],
        [-0.1, 0.2, 0.05],
        [0.0, -0.05, 0.1],
    ]
)


def draw(seed, values=VALUES):
    """E with given values, and p_0."""
    random = np.random.default_rng(seed)
    rows = np.eye(6) + 0.2 * random.normal(size=(6, 6))
    head = np.linalg.solve(rows, values)
    return tuple(map(jnp.asarray, (rows, 0.3 * random.normal(size=6), head)))


@jax.jit
def run(start, bags):
    flow = cls_flow(start, bags, until_norm=1e5)
    found = certify(start, bags, flow)
    near = found.ending.late.cls_at(3.0)
    left = excess_loss(start, bags, found.ending.selected, near)
    near = Parameters(start.embeddings, near, start.head)
    last = final_loss(start, bags, found.ending.selected)
    return found, accuracy(near, bags), left, empirical_risk(near, bags) - last


def literal_bags():
    return [
        [(t, c) for t, c in zip(*row, strict=True) if c]
        for row in zip(TOKENS, COUNTS, strict=True)
    ]


def test_three_classes_end_on_the_predicted_line():
    rows, cls, head = draw(0)
    corpus = from_bags(TOKENS, COUNTS, LABELS, vocabulary=6, classes=3, weights=WEIGHTS)
    found, right, left, difference = run(Parameters(rows, cls, head), corpus)
    late = found.ending.late
    assert found.status == TrialStatus.SELECTED_ALL
    assert late.status == LimitStatus.PREDICTED and late.history_dim == 0
    assert found.coverage.tolist() == [1.0, 1.0, 1.0]
    assert np.isnan(found.positive) and np.isnan(found.negative)
    assert right == 1.0
    there = follow(
        *map(np.asarray, (rows, cls, head)),
        literal_bags(),
        LABELS,
        until=LATE,
        weights=WEIGHTS,
    )
    np.testing.assert_allclose(there, late.cls_at(LATE), atol=AGREE)
    # The loss still to go, where subtraction leaves it ten digits.
    np.testing.assert_allclose(left, difference, rtol=1e-9)


def test_two_classes_are_two_signs():
    """Heads v/2 and −v/2 with labels 0 and 1: f_0 − f_1 = f."""
    value = VALUES[:, 0] - VALUES[:, 1]
    rows, cls, head = draw(1, value)
    signs = from_bags(TOKENS, COUNTS, [1, -1, -1, 1], vocabulary=6, weights=WEIGHTS)
    labels = jnp.array([0, 1, 1, 0], jnp.int32)
    pairs = Corpus(
        signs.tokens, signs.counts, labels, 6, weights=signs.weights, classes=2
    )
    both = jnp.stack([head / 2, -head / 2], axis=1)
    one, *rest = run(Parameters(rows, cls, head), signs)
    two, *others = run(Parameters(rows, cls, both), pairs)
    assert one.status == two.status
    assert (one.coverage == two.coverage).all()
    np.testing.assert_allclose(
        two.ending.late.growth, one.ending.late.growth, atol=1e-9
    )
    # Two integrations, each to 3e-5 of a score where only the path decides.
    np.testing.assert_allclose(
        two.ending.late.offset, one.ending.late.offset, atol=1e-4
    )
    np.testing.assert_allclose(others, rest, rtol=1e-4)


@jax.jit
def _trial(key):
    sizes = {"sequences": 24, "length": 4, "relevant": 2, "irrelevant": 5}
    family = partial(multi_class, **sizes, classes=3)
    return run_trial(key, family, 1e6, 100.0, until_norm=1e4)


def test_a_trial_of_three_classes():
    trial = jax.vmap(_trial)(jax.random.split(jax.random.key(0), 4))
    assert (trial.status == TrialStatus.SELECTED_ALL).all()
    assert (trial.important_selected == 1.0).all()
    assert np.isnan(trial.positive_selected).all()
    # Lemma 4.1: each important token is in 4 of 24 sequences, at a share of ¼.
    np.testing.assert_allclose(trial.alignment, 100 * (2 / 3) / 24, rtol=1e-2)
    assert (trial.alignment_error < 0.02).all()
    measured = trial.direction_error * trial.cls_norm
    np.testing.assert_allclose(measured, trial.error_constant, rtol=1e-3)


def test_rates_of_three_classes():
    sizes = {"sequences": 12, "length": 3, "relevant": 1, "irrelevant": 3}
    corpus = multi_class(jax.random.key(2), **sizes, classes=3)
    rows, cls, head = draw(0)
    start = Parameters(rows, cls, jnp.linalg.qr(head)[0])
    found = jax.jit(rates)(start, corpus, 20.0)
    assert found.status == LimitStatus.PREDICTED
    assert found.log_time_to_error > found.selection_log_time
    # The loss of guessing is log 3; attention does better.
    assert 0 < found.final_loss < np.log(3.0)


@pytest.mark.parametrize("late", [0.0, 200.0])
def test_the_excess_of_several_heads_has_digits(late):
    """Where L(p) − L_∞ underflows on subtraction it still halves with the weight."""
    rows, cls, head = draw(0)
    corpus = from_bags(TOKENS, COUNTS, LABELS, vocabulary=6, classes=3)
    start = Parameters(rows, cls, head)
    chosen = jnp.zeros((4, 3), bool).at[:, 0].set(True)
    scores = jnp.array([late + 40, late + 40, late + 40, 0.0, 0.0, 0.0])
    solve = jnp.linalg.solve(rows, scores)
    further = jnp.linalg.solve(
        rows, jnp.where(scores > 0, scores + np.log(2.0), scores)
    )
    one, other = (excess_loss(start, corpus, chosen, p) for p in (solve, further))
    np.testing.assert_allclose(one / other, 2.0, rtol=1e-9)


def test_a_balance_of_classes_is_held():
    """One pair under two labels of three: p rests, and the forces cancel."""
    corpus = from_bags(
        [[0, 1], [0, 1]], [[1, 1], [1, 1]], [0, 1], vocabulary=2, classes=3
    )
    values = jnp.array([[1.0, -1.0, 0.2], [-1.0, 1.0, 0.1]])
    start = Parameters(jnp.eye(2), jnp.array([0.5, 0.0]), values)
    flow = jax.jit(cls_flow)(start, corpus, until_norm=1e4)
    assert flow.status == FlowStatus.TIES_UNPROVED
