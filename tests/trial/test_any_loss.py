"""Flow, limit and certificate for a loss of heavy tails and weights, against a literal
model; those of the exponential loss are in `variants`.

Source: mathematics, section 1b.
"""

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
