"""K classes and other losses: from flow to trial, against a literal model and K = 2.

Source: mathematics, sections 1b and 1c.
"""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.common.model import accuracy, empirical_risk
from jaxselect import Parameters, attention, from_bags, multi_class, run_trial
from jaxselect.convergence import final_loss
from jaxselect.data.loss import EXPONENTIAL, POLYNOMIAL
from jaxselect.flow.cls import cls_flow
from jaxselect.margin.certificate import TrialStatus, _gross_forces, certify
from jaxselect.margin.limit import limit
from jaxselect.margin.pairs import pair_strength, pairs_of
from jaxselect.model.attention import log_strongest_pull, negative_gradient
from jaxselect.model.curvature import score_curvature
from jaxselect.model.selection import coverage, selected_tokens
from jaxselect.status import Reason
from tests.problem.independent import LOG_SLOPES, flow, of_bags
from tests.tolerances import assert_close
from tests.trial.late import excess_loss

# Log-time at which the late flow is a line to 1e-9, and the integrators' own errors.
LATE, AGREE = 60.0, 1e-6
TOKENS = np.array([[0, 3, 4], [1, 3, 5], [2, 4, 5], [0, 5, 4]])
COUNTS = np.array([[1, 2, 1], [1, 1, 2], [2, 1, 1], [1, 1, 0]])
LABELS = np.array([0, 1, 2, 0])
WEIGHTS = np.array([0.1, 0.4, 0.3, 0.2])
# Values of each token for each class; tokens 0, 1 and 2 are important.
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
    problem = attention(start, bags)
    flow = cls_flow(problem, until_norm=1e5)
    found = certify(problem, flow)
    near = found.ending.late.query_at(3.0)
    left = excess_loss(problem, found.ending.selected, near)
    near = Parameters(start.embeddings, near, start.head)
    last = final_loss(problem, found.ending.selected)
    return found, accuracy(near, bags), left, empirical_risk(near, bags) - last


def test_the_worst_class_decides():
    """Token 4 serves class 2 better than its own token: two classes of three."""
    rows, query, head = draw(
        0, VALUES + np.eye(6)[:, [2]] * [0, 0, -1.3] + np.eye(6)[:, [4]] * [-1, -1, 1]
    )
    corpus = from_bags(TOKENS, COUNTS, LABELS, vocabulary=6, classes=3, weights=WEIGHTS)
    found, *_ = run(Parameters(rows, query, head), corpus)
    assert found.coverage.tolist() == [1.0, 1.0, 0.0]
    assert found.status == TrialStatus.PARTIAL


def heavy_tails():
    """A loss of heavy tails; a sequence of weight zero would pull token 1 back."""
    tokens = [[0, 2, 3], [0, 3, 4], [1, 2, 4], [1, 2, 3], [1, 0, 2]]
    counts = [[1, 2, 1], [2, 1, 1], [1, 1, 3], [1, 1, 1], [1, 1, 0]]
    weights, values = [0.1, 0.4, 0.3, 0.2, 0.0], [1.5, -0.8, 0.1, -0.2, 0.05, 0.0]
    bags = from_bags(
        *(tokens, counts, [1, 1, -1, -1, 1]),
        vocabulary=6,
        weights=weights,
        loss=POLYNOMIAL,
    )
    return draw(3, np.array(values)), bags


def three_classes():
    return draw(0), from_bags(
        TOKENS, COUNTS, LABELS, vocabulary=6, classes=3, weights=WEIGHTS
    )


@pytest.mark.parametrize("made", [three_classes, heavy_tails])
def test_a_run_ends_on_the_line_of_the_literal_model(made):
    start, corpus = made()
    found, right, left, difference = run(Parameters(*start), corpus)
    late = found.ending.late
    assert found.status == TrialStatus.SELECTED_ALL
    assert late.status == Reason.NONE
    if made is three_classes:
        assert late.history_dim == 0 and right == 1.0
        assert found.coverage.tolist() == [1.0, 1.0, 1.0]
    rows, query, head = map(np.asarray, start)
    slope = None if made is three_classes else LOG_SLOPES["polynomial"]
    there = flow(of_bags(rows, rows @ head, corpus, slope), LATE, query, 1e-11)
    np.testing.assert_allclose(there, late.query_at(LATE), atol=AGREE)
    # The loss still to go, where subtraction leaves it ten digits.
    np.testing.assert_allclose(left, difference, rtol=1e-9)


@pytest.mark.parametrize("log_time", [0.0, 500.0])
def test_two_classes_are_two_signs(log_time):
    """Heads v/2 and −v/2 with labels 0 and 1: f_0 − f_1 = f, at any time."""
    value = jnp.asarray(VALUES[:, 0] - VALUES[:, 1])
    pair = jnp.stack([value / 2, -value / 2], axis=1)
    signs = from_bags(TOKENS, COUNTS, [1, -1, -1, 1], vocabulary=6, weights=WEIGHTS)
    labels = jnp.array([0, 1, 1, 0], jnp.int32)
    pairs = replace(signs, labels=labels, classes=2)
    scores = log_time * jnp.linspace(1.0, -1.0, 6)
    chosen = selected_tokens(scores, signs)

    query = jnp.array([20.0, 0.0, 0.0])
    top = selected_tokens(jnp.arange(6.0), signs)

    def all_of(values, corpus):
        columns = values.reshape(6, -1)
        rows = jnp.stack([jnp.arange(6.0), columns[:, 0], columns[:, -1]], axis=1)
        heads = jnp.eye(3)[1] if values.ndim == 1 else jnp.eye(3)[:, 1:]
        problem = attention(Parameters(rows, query, heads), corpus)
        entries = corpus.logits(scores), corpus.gather(values), corpus
        push = negative_gradient(scores, values, corpus, log_time)
        strength = pair_strength(problem, chosen, pairs_of(chosen, problem.corpus))
        return (
            push.scores,
            score_curvature(*entries, log_time),
            log_strongest_pull(*entries),
            strength.factor * jnp.exp(strength.log_scale),
            coverage(chosen, corpus),
            _gross_forces(problem, top, query, jnp.array(40.0)).omitted,
            push.values[:, 0] if values.ndim > 1 else push.values,
        )

    one, two = jax.jit(all_of)(value, signs), jax.jit(all_of)(pair, pairs)
    jax.tree.map(assert_close, two, one)


def test_a_trial_of_three_classes():
    sizes = {"sequences": 24, "length": 4, "relevant": 2, "irrelevant": 5}
    family = partial(multi_class, **sizes, classes=3)

    @jax.jit
    def trials(keys):
        run = partial(run_trial, dim=1e6, step_size=100.0, until_norm=1e4)
        return jax.lax.map(lambda key: run(key, family), keys)

    trial = trials(jax.random.split(jax.random.key(0), 4))
    assert (trial.status == TrialStatus.SELECTED_ALL).all()
    assert (trial.important_selected == 1.0).all()
    assert np.isnan(trial.positive_selected).all()
    # Lemma 4.1: each important token is in 4 of 24 sequences, at a share of ¼.
    np.testing.assert_allclose(trial.alignment, 100 * (2 / 3) / 24, rtol=1e-2)
    assert (trial.alignment_error < 0.02).all()
    measured = trial.direction_error * trial.cls_norm
    np.testing.assert_allclose(measured, trial.error_constant, rtol=1e-3)


def test_late_constants_move_with_weights_as_differences_say():
    """Three classes, exponential loss and resampled sequences, in a batch."""
    start = Parameters(*draw(0))
    corpus = from_bags(TOKENS, COUNTS, LABELS, vocabulary=6, classes=3, weights=WEIGHTS)
    found, *_ = run(start, corpus)
    end, corpus = found.ending, replace(corpus, loss=EXPONENTIAL)

    def constants(weights):
        problem = attention(start, replace(corpus, weights=weights))
        late = limit(problem, end.selected, end.margin)
        return late.error_constant, final_loss(problem, end.selected)

    @jax.jit
    @jax.vmap
    def both_modes(weights):
        values, slopes = jax.jvp(constants, (weights,), (towards,))
        pulled = jax.vjp(constants, weights)[1]((jnp.ones(()), jnp.ones(())))[0]
        return jnp.stack(values), jnp.stack(slopes), pulled @ towards

    # One sequence was not drawn; the others move.
    weights, move = np.array([0.5, 0.25, 0.25, 0.0]), 1e-4
    towards = jnp.array([0.3, -0.2, -0.1, 0.0])
    near = np.stack([weights + step * towards for step in (-move, 0.0, move)])
    values, slopes, pulled = both_modes(jnp.asarray(near))
    wanted = (values[2] - values[0]) / (2 * move)
    np.testing.assert_allclose(slopes[1], wanted, rtol=1e-6)
    np.testing.assert_allclose(pulled[1], slopes[1].sum(), rtol=1e-9)
