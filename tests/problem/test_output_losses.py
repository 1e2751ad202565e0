"""Losses of K outputs: their derivatives, certified ends, and what is refused.

The flow is SciPy's of the definition, the direction quadprog's (mathematics, 1c.3).
"""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import softmax

from jaxselect import (
    LOGISTIC,
    SQUARED_PROBABILITY,
    certify_at,
    cross_attention,
    label_smoothing,
    output_loss,
    solve,
    squared_error,
)
from jaxselect.checks import BadInput
from jaxselect.margin.certificate import _gross_forces, selection
from jaxselect.margin.minimum import change_of_curvature
from jaxselect.margin.pairs import pair_strength, pairs_of
from jaxselect.margin.risk import best_entries
from jaxselect.model.attention import functional_margin
from jaxselect.model.curvature import query_curvature
from jaxselect.stages import Proof
from jaxselect.ties import contract, ties_of
from tests.problem.independent import Model, flow
from tests.tolerances import assert_close

SEQUENCES, WIDTH, DIM, CLASSES = 4, 3, 9, 3
LOSSES = {
    "cross-entropy": label_smoothing(0.0),
    "smoothed": label_smoothing(0.2),
    "squared": squared_error(CLASSES),
}
TARGETS = np.eye(CLASSES)


def squared_probability(f, y):
    return (1 - jax.nn.softmax(f)[y]) ** 2


# The bounds: |∂π_y| ≤ 2 π_y (1 − π_y), and so on by the product rule.
OF_OUTPUTS = output_loss(
    "of outputs",
    squared_probability,
    jax.grad(squared_probability),
    second=1.7,
    third=7,
)


def by_hand(name, outputs, labels):
    """∂G/∂f in NumPy, by its definition."""
    if name == "squared":
        return outputs - TARGETS[labels]
    share = softmax(outputs, axis=-1)
    if name == "squared probability":
        own = np.take_along_axis(share, labels[:, None], axis=1)
        return -2 * (1 - own) * own * (TARGETS[labels] - share)
    epsilon = 0.2 * (name == "smoothed")
    return share - (1 - epsilon) * TARGETS[labels] - epsilon / CLASSES


def draws(seed, name="smoothed"):
    """Bags in which one entry is best and no mixture is better, first in each."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(SEQUENCES, WIDTH, DIM))
    labels = random.integers(0, CLASSES, SEQUENCES)
    values = random.normal(size=(SEQUENCES, WIDTH, CLASSES))
    values[:, 0] = TARGETS[labels] + 0.5 * values[:, 0]
    slope = by_hand(name, values[:, 0], labels)
    ahead = np.einsum("ik,itk->it", slope, values - values[:, :1])[:, 1:]
    # Where a mixture is better the other entry is reflected through the best.
    turned = 2 * values[:, :1] - values[:, 1:]
    values[:, 1:] = np.where((ahead < 0)[..., None], turned, values[:, 1:])
    return x, values, labels


def late_point(name, x, values, labels, until, start):
    """θ of the flow by Radau's method, in log-time, from the definition."""
    there = np.ones((*labels.shape, WIDTH), bool)
    return flow(Model(x, values, labels, there, partial(by_hand, name)), until, start)


@pytest.mark.parametrize("loss", [*LOSSES.values(), OF_OUTPUTS, SQUARED_PROBABILITY])
def test_forces_and_curvature_are_derivatives_of_the_risk(loss):
    x, values, labels = draws(3)
    problem = cross_attention(x, values, labels, loss=loss)
    theta = jnp.asarray(np.random.default_rng(4).normal(size=DIM))
    query = problem.coordinates(theta)
    logits = problem.logits(problem.scores(query))
    forces, curvature = query_curvature(
        problem.rows, [(logits, problem.values, problem.corpus)]
    )
    inside = jnp.eye(DIM) if problem.axes is None else problem.axes
    assert_close(-forces, inside.T @ jax.grad(problem.risk)(theta))
    assert_close(-curvature, inside.T @ jax.hessian(problem.risk)(theta) @ inside)


def test_a_loss_of_the_margin_has_one_end_as_a_loss_of_outputs():
    given = draws(0)
    for one, other in (
        (LOGISTIC, LOSSES["cross-entropy"]),
        (SQUARED_PROBABILITY, OF_OUTPUTS),
    ):
        ends = [solve(cross_attention(*given, loss=each)) for each in (one, other)]
        assert ends[0].status == ends[1].status and ends[0].proof == ends[1].proof
        assert_close(ends[1].direction, ends[0].direction, worse=1e3)
        constants = [each.error_constant for each in ends]
        np.testing.assert_allclose(*constants, rtol=1e-6)


@pytest.mark.parametrize("name", LOSSES)
def test_falls_have_no_cancellation(name):
    """Small and large changes of outputs meet, and a tiny one has all its digits."""
    _, values, labels = draws(5)
    margin = functional_margin(
        jnp.asarray(labels), jnp.asarray(values[:, 1]), LOSSES[name]
    )
    change = np.random.default_rng(6).uniform(0.5, 1.0, size=(SEQUENCES, CLASSES))
    below, above = (
        margin.fall(jnp.asarray(size * change / change.max(axis=1, keepdims=True)))
        for size in (1e-2 * (1 - 1e-12), 1e-2 * (1 + 1e-12))
    )
    assert_close(below, above)
    tiny = 1e-200 * change
    slope = by_hand(name, values[:, 1], labels)
    assert_close(
        np.asarray(margin.fall(jnp.asarray(tiny))) * 1e200,
        -np.einsum("ik,ik->i", slope, change),
    )


@pytest.mark.parametrize("name", LOSSES)
def test_forces_on_outputs_change_by_no_more_than_the_largest_ratio(name):
    random = np.random.default_rng(7)
    labels = jnp.asarray(random.integers(0, CLASSES, 2000))
    outputs = random.normal(size=(2000, CLASSES))
    here = functional_margin(labels, jnp.asarray(outputs), LOSSES[name])
    ratio = np.asarray(here.largest_ratio(LOSSES[name]))
    far = random.uniform(-1, 1, size=outputs.shape) / ratio[:, None]
    there = functional_margin(labels, jnp.asarray(outputs + far), LOSSES[name])
    moved = np.abs(np.asarray(there.gradient - here.gradient)).sum(axis=1)
    size = np.abs(far).max(axis=1)
    least = np.minimum(here.steepness, there.steepness)
    assert (moved <= ratio * least * size * (1 + 1e-9)).all()


def test_ties_of_a_loss_of_outputs_have_a_bound_of_the_third_derivative():
    x, values, labels = draws(8)
    problem = cross_attention(x, values, labels, loss=OF_OUTPUTS)
    unknown = dataclasses.replace(
        OF_OUTPUTS, outputs=dataclasses.replace(OF_OUTPUTS.outputs, third=np.inf)
    )
    widest = jnp.full(SEQUENCES, 9.0)
    for loss, proves in ((OF_OUTPUTS, True), (unknown, False)):
        bags = dataclasses.replace(problem.corpus, loss=loss)
        logits = problem.logits(problem.scores(problem.start))
        given = problem.rows, logits, problem.values, bags, widest
        assert (change_of_curvature(*given)[1] > 0) == proves


def test_ten_times_the_loss_has_ten_times_the_bounds_of_its_forces():
    x, values, labels = draws(8)
    outputs = OF_OUTPUTS.outputs
    tenfold = output_loss(
        "ten times",
        lambda f, y: 10 * outputs.value(f, y),
        lambda f, y: 10 * outputs.gradient(f, y),
        second=10 * outputs.second,
        third=10 * outputs.third,
    )
    found = []
    for loss in (OF_OUTPUTS, tenfold):
        problem = cross_attention(x, values, labels, loss=loss)
        errors = jnp.full((SEQUENCES, WIDTH), 1e-3)
        problem = dataclasses.replace(problem, offset_errors=errors)
        query = np.random.default_rng(0).normal(size=len(problem.start))
        query = jnp.asarray(100 * query)
        chosen = selection(problem, query, 30.0)
        pairs = pairs_of(chosen, problem.corpus)
        strength = pair_strength(problem, chosen, pairs)
        gross = _gross_forces(problem, chosen, query, jnp.asarray(1.0))
        found.append((strength.factor, strength.magnitude, strength.error, gross.force))
    for one, other in zip(*found, strict=True):
        assert_close(10 * one / other.max(), other / other.max())
        assert one.any()


def test_ten_times_the_loss_is_the_flow_of_ties_at_a_tenth_of_the_time():
    """Two entries of each bag tie, on both sides of the target; the third one loses."""
    random = np.random.default_rng(1)
    x, _, labels = draws(1)
    off, aside = random.normal(size=(2, SEQUENCES, CLASSES))
    pair = (
        0.3 * aside[:, None]
        + TARGETS[labels][:, None]
        + off[:, None] * np.array([1.0, -0.7])[:, None]
    )
    values = np.concatenate([pair, random.normal(size=pair[:, :1].shape)], axis=1)
    squared = LOSSES["squared"].outputs
    tenfold = output_loss(
        "ten times the square",
        lambda f, y: 10 * squared.value(f, y),
        lambda f, y: 10 * squared.gradient(f, y),
        second=30,
        third=0,
    )
    # Beyond half of the log-time, so that no rounding selects it.
    equal, last = x[:, 0] - x[:, 1], x[:, 0] - x[:, 2]
    rows, leads = np.concatenate([equal, last]), np.repeat([0.0, 18.0], SEQUENCES)
    theta, found = np.linalg.pinv(rows) @ leads, []
    for loss, size in ((LOSSES["squared"], 1.0), (tenfold, 10.0)):
        problem = cross_attention(x, values, labels, loss=loss)
        query = problem.coordinates(jnp.asarray(theta))
        problem = problem.starting_at(query)
        ties = ties_of(problem, selection(problem, query, 30.0))
        assert ties.tied.all() and ties.rest.proved
        few, tie_bounds = contract(problem, ties)
        parts = few.parts(few.scores(few.start))
        late = 30.0 - np.log(size)
        found.append(float(jnp.exp(tie_bounds.excess(late, few.rows, parts)[2])))
    assert found[0] > 0
    np.testing.assert_allclose(found[1], found[0], rtol=1e-6)


def hull_gaps(problem, query):
    """Q, Q̄, and lower bounds of the excess at both of every bag (theorem 3n.5)."""
    values, labels = np.asarray(problem.values), np.asarray(problem.corpus.labels)
    outputs = problem.corpus.loss.outputs
    weights = softmax(np.asarray(problem.logits(problem.scores(query))), axis=1)
    slope = np.array(
        [outputs.gradient(b[0], y) for b, y in zip(values, labels, strict=True)]
    )
    gain = np.einsum("ik,itk->it", slope, values - values[:, :1])[:, 1:]
    terms = np.abs(slope)[:, None] * np.abs(values - values[:, :1])
    far = np.abs(values - values[:, :1]).max(axis=(1, 2))
    bent = outputs.second * far**2
    most = gain.min(axis=1) / (terms.sum(axis=2).max(axis=1) + 2 * bent)
    share = 1 - weights[:, 0]
    gaps = (gain.min(axis=1) * part - bent * part**2 / 2 for part in (share, most))
    return share, most, *gaps


@pytest.mark.parametrize("name", LOSSES)
def test_below_the_barrier_the_force_leads_to_the_best_entries(name):
    x, values, labels = draws(9, name)
    problem = cross_attention(x, values, labels, loss=LOSSES[name])
    rows = np.concatenate([own[:1] - own[1:] for own in x])
    best = np.asarray(
        problem.coordinates(jnp.asarray(np.linalg.pinv(rows).sum(axis=1)))
    )
    random, both = np.random.default_rng(10), set()
    judge, slope = jax.jit(best_entries), jax.jit(jax.grad(problem.risk))
    for size in np.repeat([0.5, 2.0, 4.0, 8.0, 16.0], 4):
        query = jnp.asarray(size * best + random.normal(size=best.shape))
        found = judge(problem, query)
        share, most, least, most_gap = hull_gaps(problem, query)
        assert found.attained and np.asarray(found.selected)[:, 0].all()
        gain = np.asarray(found.excess) * SEQUENCES
        inside = share < most
        assert (np.asarray(found.barrier) * SEQUENCES <= most_gap).all()
        assert (np.isfinite(gain) == inside).all()
        assert (gain[inside] >= least[inside] * (1 - 1e-9)).all()
        if inside.all():
            assert -slope(problem.lift(query)) @ problem.lift(jnp.asarray(best)) > 0
        both.add(bool(found.below))
    assert both == {True, False}


def test_a_point_below_the_barrier_is_certified_by_its_risk_and_its_flow():
    x, values, labels = draws(11, "squared")
    rows = np.concatenate([own[:1] - own[1:] for own in x])
    start = 12 * np.linalg.pinv(rows).sum(axis=1)
    problem = cross_attention(x, values, labels, start=start, loss=LOSSES["squared"])
    assert best_entries(problem, problem.start).below
    assert certify_at(problem, start).proof == Proof.RISK
    end = late_point("squared", x, values, labels, 30.0, start)
    assert ((x @ end).argmax(axis=1) == 0).all()


FALSE = {
    "shape": ({"gradient": lambda f, y: f.sum()}, r"of shape \(\) for 3 outputs"),
    "gradient": (
        {"gradient": lambda f, y: f - jnp.eye(CLASSES)[y] / 2},
        "gradient of the loss own is off",
    ),
    "second": ({"second": 2.9}, "second=2.9 of the loss own"),
    "third": (
        {"value": squared_probability, "gradient": jax.grad(squared_probability)}
        | {"second": 1.7, "third": 0.1},
        "third=0.1 of the loss own",
    ),
}


@pytest.mark.parametrize("fault", FALSE)
def test_a_false_derivative_or_bound_is_refused(fault):
    given = LOSSES["squared"].outputs
    right = {"value": given.value, "gradient": given.gradient, "second": 3.0}
    x, values, labels = draws(12)
    loss = output_loss("own", **(right | FALSE[fault][0]))
    with pytest.raises(BadInput, match=FALSE[fault][1]):
        cross_attention(x, values, labels, loss=loss)
    cross_attention(x, values, labels, loss=output_loss("own", **right))


def test_a_loss_of_outputs_needs_an_axis_of_them():
    x, values, _ = draws(13)
    with pytest.raises(BadInput, match="wanted values with an axis of classes"):
        cross_attention(x, values[..., 0], np.ones(SEQUENCES), loss=LOSSES["squared"])
