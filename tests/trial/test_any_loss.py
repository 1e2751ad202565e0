"""Flow, limit and certificate for a loss of heavy tails and weights, against a literal
model; those of the exponential loss are in `variants`.

Source: mathematics, section 1b.
"""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from jaxselect.convergence import final_loss
from jaxselect.data.corpus import from_bags
from jaxselect.data.loss import POLYNOMIAL
from jaxselect.flow.cls import cls_flow, excess_loss
from jaxselect.margin.certificate import TrialStatus, certify
from jaxselect.margin.limit import LimitStatus
from jaxselect.model.attention import empirical_risk
from jaxselect.model.parameters import Parameters
from jaxselect.problem import attention
from tests.flow.literal_cls import follow

# Log-time at which the late flow is a line to 1e-9, and the integrators' own errors.
LATE, AGREE = 60.0, 1e-6
TOKENS = np.array([[0, 2, 3], [0, 3, 4], [1, 2, 4], [1, 2, 3], [1, 0, 2]])
COUNTS = np.array([[1, 2, 1], [2, 1, 1], [1, 1, 3], [1, 1, 1], [1, 1, 0]])
LABELS = np.array([1, 1, -1, -1, 1])
# The last sequence would pull token 1 back: its weight is zero.
WEIGHTS = np.array([0.1, 0.4, 0.3, 0.2, 0.0])
VALUES = np.array([1.5, -0.8, 0.1, -0.2, 0.05])


def draw(seed):
    """E with given values, and p_0."""
    random = np.random.default_rng(seed)
    rows = np.eye(5) + 0.2 * random.normal(size=(5, 5))
    head = np.linalg.solve(rows, VALUES)
    return rows, 0.3 * random.normal(size=5), head


CORPUS = from_bags(
    TOKENS, COUNTS, LABELS, vocabulary=5, weights=WEIGHTS, loss=POLYNOMIAL
)


@jax.jit
def run(start, bags, until_log_time):
    """One program for all weights and parameters."""
    until = {"until_norm": 1e5, "until_log_time": until_log_time}
    problem = attention(start, bags)
    flow = cls_flow(problem, **until)
    found = certify(problem, flow)
    near = found.ending.late.query_at(3.0)
    left = excess_loss(problem, found.ending.selected, near)
    risk = empirical_risk(Parameters(start.embeddings, near, start.head), bags)
    last = final_loss(problem, found.ending.selected)
    return flow, found, left, risk - last


def test_the_late_flow_is_that_of_the_literal_model():
    rows, query, head = draw(3)
    start = Parameters(*map(jnp.asarray, (rows, query, head)))
    _, found, left, difference = run(start, CORPUS, 1e15)
    late = found.ending.late
    assert found.status == TrialStatus.SELECTED_ALL
    assert late.status == LimitStatus.PREDICTED
    bags = [
        [(t, c) for t, c in zip(*row, strict=True) if c]
        for row in zip(TOKENS, COUNTS, strict=True)
    ]
    kept = WEIGHTS > 0
    there = follow(
        rows,
        query,
        head,
        [bag for bag, here in zip(bags, kept, strict=True) if here],
        LABELS[kept],
        until=LATE,
        weights=WEIGHTS[kept],
        name="polynomial",
    )
    np.testing.assert_allclose(there, late.query_at(LATE), atol=AGREE)
    # The loss still to go, where subtraction leaves it ten digits.
    np.testing.assert_allclose(left, difference, rtol=1e-9)


def test_a_temperature_is_a_longer_query_and_another_time():
    """Softmax of τ a: p_τ(t) = P(τ² t)/τ, P the flow from τ p_0."""
    tau, late = 3.0, 2.0
    rows, query, head = draw(1)
    bags = [[(0, 1), (2, 2)], [(1, 1), (2, 1), (3, 1)]]
    literal = follow(
        tau * rows, query, head / tau, bags, [1, -1], until=late, name="polynomial"
    )
    tokens = np.array([[0, 2, 2], [1, 2, 3], *TOKENS[2:]])
    counts = np.array([[1, 2, 0], [1, 1, 1], *COUNTS[2:]])
    weights = np.array([0.5, 0.5, 0.0, 0.0, 0.0])
    padded = from_bags(
        tokens, counts, [1, -1, 1, 1, 1], vocabulary=5, weights=weights, loss=POLYNOMIAL
    )
    start = Parameters(*map(jnp.asarray, (rows, tau * query, head)))
    longer = np.log1p(tau**2 * np.expm1(late)).item()
    flow = run(start, padded, longer)[0]
    np.testing.assert_allclose(flow.query / tau, literal, atol=1e-4)


def test_zero_and_split_weights_leave_the_flow_as_it_is():
    """X_0 twice at half its weight in the place of a sequence of weight zero."""
    rows, query, head = draw(3)
    start = Parameters(*map(jnp.asarray, (rows, query, head)))
    absent = CORPUS
    order = jnp.array([0, 1, 2, 3, 0])
    again = [leaf[order] for leaf in (absent.tokens, absent.counts, absent.labels)]
    split = jnp.array([0.04, 0.4, 0.3, 0.2, 0.06])
    twice = replace(
        absent, tokens=again[0], counts=again[1], labels=again[2], weights=split
    )
    one, other = (run(start, bags, 1e15)[1] for bags in (absent, twice))
    assert one.status == other.status == TrialStatus.SELECTED_ALL
    assert (one.positive, one.negative) == (other.positive, other.negative) == (1, 1)
    late, wanted = one.ending.late, other.ending.late
    np.testing.assert_allclose(late.growth, wanted.growth, rtol=1e-9)
    np.testing.assert_allclose(late.offset, wanted.offset, atol=1e-9)
