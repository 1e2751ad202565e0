"""What every gradient flow obeys, and a flow that comes to rest in every direction.

Source: mathematics, propositions 3a.5 and 3g.6.
"""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxselect import stages
from jaxselect.flow.cls import cls_flow
from jaxselect.flow.dissipation import dissipates
from jaxselect.margin.certificate import TrialStatus
from jaxselect.problem import cross_attention
from jaxselect.stages import beginning, certify_stage, flow_to_end
from jaxselect.status import Reason

# Eight bags of four features in R^5: p converges to a strict minimum of the risk, at
# which some scores are 18 apart, so that their tokens are not selected by ½ log t.
FEATURES = np.array([
    0.327, 0.337, -0.27, -1.16, -0.741, -0.314, -0.876, -1.92, -0.769, -0.062,
    -0.507, -0.076, 0.084, 0.897, 2.204, 0.732, -1.404, -2.657, -0.094, 0.071,
    -1.162, 0.272, -0.767, 0.403, -0.326, 0.397, -1.743, -0.438, -0.149, -1.425,
    1.882, -0.541, 1.39, -0.664, -0.23, 1.184, 0.304, 0.192, 0.266, -1.366,
    -0.39, -0.956, 0.197, -0.544, -0.044, -0.077, -0.036, -0.035, -0.652, -1.054,
    -0.664, 1.072, 0.374, 0.587, 1.38, -1.179, 0.51, -1.075, -0.334, 0.484,
    1.614, -0.782, -0.095, 1.156, -1.49, 0.362, -0.308, -0.882, 0.147, 0.595,
    -0.912, 0.38, 0.173, -1.242, 1.553, 1.09, -0.86, -0.587, 0.771, -0.495,
    -1.84, 1.049, 0.009, 1.907, 0.357, 0.191, 2.875, -0.172, -0.952, 0.229,
    1.136, -1.165, -0.908, 0.45, -3.197, -1.093, 0.795, -0.587, -1.626, 1.926,
    -1.411, -0.523, -0.373, 0.083, -0.37, -0.081, 0.057, -0.087, 0.093, -2.379,
    0.441, -1.404, -2.167, 1.381, -1.286, 0.18, -0.773, -0.678, 0.484, -1.048,
    0.373, 0.381, 1.164, -0.336, 1.047, 1.721, 1.587, 0.586, 0.449, 2.849,
    2.232, -0.767, 0.924, 0.602, 0.072, 0.153, 0.488, 0.937, 0.219, 0.34,
    1.392, 0.318, 0.545, 0.99, 1.633, 1.227, 0.377, 0.208, -1.224, 0.292,
    -1.037, -1.024, 0.651, -0.101, 0.472, -0.627, 1.201, 0.144, 1.188, 0.673,
]).reshape(8, 4, 5)  # fmt: skip
HEAD = np.array([0.513, -0.298, -0.53, -0.236, 1.816])
LABELS = np.array([1, -1, 1, -1, 1, -1, 1, -1])
VALUES = FEATURES @ HEAD
PROBLEM = cross_attention(FEATURES, VALUES, LABELS)


@jax.jit
def ended(start):
    given = PROBLEM.starting_at(start)
    stage = flow_to_end(given, until_norm=1e4)
    return stage, certify_stage(given, stage).status


def forces(p):
    """(−ℓ′) y cov(b, x) of every bag, literally."""
    weight = np.exp(FEATURES @ p)
    weight /= weight.sum(axis=1, keepdims=True)
    outputs = (weight * VALUES).sum(axis=1)
    bend = weight * (VALUES - outputs[:, None])
    slope = LABELS / (1 + np.exp(LABELS * outputs))
    return slope[:, None] * np.einsum("nt,ntd->nd", bend, FEATURES)


def test_what_rests_in_every_direction_is_certified_at_rest():
    """From the start, and from the rest: no direction is left but for roundings."""
    found, p = [], jnp.zeros(5)
    for _ in range(2):
        stage, status = ended(p)
        p = stage.point.query
        assert TrialStatus(int(status)) == TrialStatus.AT_REST
        found.append(np.asarray(PROBLEM.lift(p)))
    each = forces(found[0])
    assert np.abs(each.sum(axis=0)).max() < 1e-12 * np.abs(each).max()
    np.testing.assert_allclose(found[1], found[0], rtol=1e-9)


@pytest.fixture(scope="module")
def first():
    """The first stage, which ends as forces cancel."""
    return jax.jit(partial(flow_to_end, PROBLEM, until_norm=1e4, stages=1))()


def test_no_flow_ends_where_the_risk_is_higher_or_too_far_away(first):
    assert Reason(int(first.flow.status)) == Reason.FORCES_CANCEL
    end, now = first.point.query, float(first.flow.log_time)
    follows = jax.jit(
        lambda p, begin, until: dissipates(PROBLEM, p, (begin, until), 123, 3e-5)
    )
    assert follows(end, 0.0, now)
    # ‖p‖² = 103 for a risk that falls by 0.12 takes a time of 850 at least, and the
    # largest displacement of a score, by the lengths of its rows, a tenth of that.
    assert not follows(end, 0.0, 4.0) and not follows(end, now - 1e-12, now)
    assert not follows(-end, 0.0, now)


def test_a_stage_that_is_no_gradient_flow_has_failed(first, monkeypatch):
    """In a batch, and the run ends where that stage began."""

    def wrong(early, late, problem, *, from_log_time, **rest):
        flow = cls_flow(problem, from_log_time=from_log_time, **rest)
        moved = jnp.where(from_log_time > 0, late * 5.0, -early * 2 * flow.query)
        return dataclasses.replace(flow, query=flow.query + moved)

    @jax.jit
    @jax.vmap
    def ends(early, late):
        monkeypatch.setattr(stages, "cls_flow", partial(wrong, early, late))
        # Not the program that was traced before.
        monkeypatch.setattr(stages, "_stage", stages._stage.__wrapped__)
        return flow_to_end(PROBLEM, beginning(PROBLEM), until_norm=1e4)

    stage = ends(jnp.array([0.0, 1.0, 0.0]), jnp.array([0.0, 0.0, 1.0]))
    names = [Reason(int(status)).name for status in stage.flow.status]
    assert names == ["NORM_NOT_REACHED", "FAILED", "FAILED"]
    kept = [0.0, float(first.flow.log_time)]
    np.testing.assert_allclose(stage.flow.log_time[1:], kept, rtol=1e-9)
    np.testing.assert_array_equal(stage.point.query[1], PROBLEM.start)
    np.testing.assert_allclose(stage.point.query[2], first.point.query, rtol=1e-6)
