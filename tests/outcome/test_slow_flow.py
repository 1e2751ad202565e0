"""Ties at rest while bags of large margin are undecided: the flow goes on."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.sparse import csr_array
from scipy.special import expit, log_expit

from jaxselect.corpora.sparse import from_csr
from jaxselect.errors import BadInput
from jaxselect.flow.bdf import BdfSettings
from jaxselect.flow.result import FlowStatus
from jaxselect.flow.sparse_flow import sparse_flow
from jaxselect.model.parameters import Parameters
from jaxselect.outcome.flow_end import flow_end
from jaxselect.outcome.slow_flow import slow_flow
from jaxselect.outcome.trajectory import trajectory
from jaxselect.outcome.trial_status import End
from tests.outcome import attacks
from tests.outcome.truth import refuted
from tests.tolerances import assert_close

CLOSE = BdfSettings(tolerance=1e-6)


def apart(value):
    """Tokens 0 and 1 tied at weights ⅔ and ⅓; apart from these a bag of two tokens.

    Its margin is f = value + 2 q_2, its lead z = a_2 − a_3, and
    dz/dt = 2/3 σ(−f) q_2 (1 − q_2) 2.
    """
    counts = csr_array([[2.0, 1.0, 0, 0], [2.0, 1.0, 0, 0], [0, 0, 1.0, 1.0]])
    head = jnp.array([1.0, -1.0, value + 2.0, value])
    start = Parameters(jnp.eye(4), jnp.array([1.0, 0.0, 0.0, 0.0]), head)
    return start, from_csr(counts, np.array([1.0, -1.0, 1.0]))


def log_time_of(lead, value):
    """log t at which the lead is z, by quadrature of dt/dz."""

    def slowness(z):
        decay = -log_expit(-(value + 2 * expit(z))) + log_expit(-(value + 2))
        return np.exp(decay - log_expit(z) - log_expit(-z)) * 3 / 4

    return np.log(quad(slowness, 0, lead, epsrel=1e-11)[0]) - log_expit(-(value + 2))


def test_a_bag_decided_late_is_that_of_the_closed_form():
    """Margins of 42 and 44, beside a tie that rests from log t = 5 on."""
    start, corpus = apart(42.0)
    times = np.array([41.0, 44.0, 48.0, 55.0])
    found = trajectory(start, corpus, path_log_times=times)
    assert found.ending.status is End.TIED and found.log_time > 55
    for time, cls in zip(found.path_log_times, found.path_cls, strict=True):
        assert abs(log_time_of(cls[2] - cls[3], 42.0) - time) < 1e-4
        # The tie: f = 0, where the twins' forces are the same.
        assert_close(cls[0] - cls[1], np.log(0.5))
    assert len(found.path_cls) == 4


def decided_early_and_late(seed):
    """Seven tokens at random: a tie of strong bags, and bags of values around 12."""
    rng = np.random.default_rng(seed)
    counts = np.zeros((5, 7))
    for row, tokens in enumerate(([0, 1], [0, 1, 2], [2, 3, 4], [4, 5, 6], [1, 5, 6])):
        counts[row, tokens] = 1
    counts[0, 0] = 3
    embeddings = rng.normal(size=(7, 7))
    values = np.array([1.0, -1.0, 0.5, 9.0, 10.0, 12.0, 13.0])
    head = np.linalg.solve(embeddings, values)
    start = Parameters(*map(jnp.asarray, (embeddings, np.zeros(7), head)))
    return start, from_csr(csr_array(counts), np.array([1.0, -1.0, 1.0, 1.0, 1.0]))


@pytest.mark.parametrize("seed", range(3))
def test_where_the_full_flow_reaches_it_is_that(seed):
    start, corpus = decided_early_and_late(seed)
    begun, full = (
        sparse_flow(start, corpus, until_log_time=time, settings=CLOSE)
        for time in (20.0, 26.0)
    )
    there = Parameters(start.embeddings, begun.cls, start.head)
    ending = flow_end(start, corpus, begun)
    slow = slow_flow(there, corpus, ending, from_log_time=20.0, until_log_time=26.0)
    assert slow is not None and int(full.status) == FlowStatus.REACHED
    moved = np.linalg.norm(full.cls - begun.cls)
    assert moved > 1
    assert np.linalg.norm(slow.cls - full.cls) < 1e-4 * moved


def test_ties_come_to_rest_and_it_stops_before_others_would_cancel():
    start, corpus = apart(60.0)
    flow = sparse_flow(start, corpus)
    moved = Parameters(start.embeddings, flow.cls.at[0].add(1e-3), start.head)
    ending = flow_end(start, corpus, flow)
    asked = {"from_log_time": 34.0, "until_log_time": 300.0}
    found = slow_flow(moved, corpus, ending, **asked)
    assert_close(found.log_time, 51.0)
    assert_close(found.cls[0] - found.cls[1], np.log(0.5))


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"until_log_time": 30.0}, "from 34.0 until 30.0: wanted log-times in order"),
        ({"until_log_time": 800.0}, r"within 0 … 709"),
        ({"path_log_times": jnp.array([40.0, 38.0])}, "path_log_times"),
    ],
)
def test_log_times_out_of_order_are_refused(asked, said):
    start, corpus = apart(60.0)
    ending = flow_end(start, corpus, sparse_flow(start, corpus))
    times = {"from_log_time": 34.0, "until_log_time": 51.0}
    with pytest.raises(BadInput, match=said):
        slow_flow(start, corpus, ending, **(times | asked))


def test_without_an_undecided_bag_or_a_proved_rest_there_is_none():
    asked = {"from_log_time": 34.0, "until_log_time": 51.0}
    start, corpus = apart(5.0)
    flow = sparse_flow(start, corpus)
    ending = flow_end(start, corpus, flow)
    there = Parameters(start.embeddings, flow.cls, start.head)
    assert slow_flow(there, corpus, ending, **asked) is None
    start, corpus = apart(60.0)
    # Tokens 0 and 1 of one value: no force holds their odds.
    level = Parameters(start.embeddings, start.cls, start.head.at[1].set(1.0))
    flow = sparse_flow(level, corpus)
    ending = flow_end(level, corpus, flow)
    assert ending.selected[:4].all()
    there = Parameters(level.embeddings, flow.cls, level.head)
    assert slow_flow(there, corpus, ending, **asked) is None


@pytest.mark.parametrize("seed", range(3))
def test_ends_of_large_margins_are_not_refuted(seed):
    """Random bags, values to 60; followed to log t = 10⁴."""
    problem = attacks.draw("large margins", seed)
    end = attacks.followed(problem)
    assert end.ending.status != End.UNPROVED
    assert not refuted(problem, end)
