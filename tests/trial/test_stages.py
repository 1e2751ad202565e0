"""Runs followed to their end in stages, against an integrator of another kind.

Source: mathematics, section 3g.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from jaxselect.data.synthetic import assumption_one
from jaxselect.flow.cls import FlowStatus, cls_flow
from jaxselect.margin.certificate import TrialStatus
from jaxselect.trial import (
    STAGES,
    beginning,
    certify_stage,
    flow_to_end,
    initialise,
    log_time_of,
)
from tests.attacks.literal_ties import Literal

SIZES = {"sequences": 200, "length": 8, "relevant": 8, "irrelevant": 48}
DRAW = partial(assumption_one, **SIZES)
NORM = 1e6


@jax.jit
def problem(seed, dim, step_size):
    return initialise(jax.random.key(seed), DRAW, dim, step_size)[1:]


@jax.jit
def onward(model, bags, point, stages):
    stage = flow_to_end(model, bags, point, until_norm=NORM, stages=stages)
    return stage, certify_stage(model, bags, stage)


def followed(model, bags, stages=STAGES):
    return onward(model, bags, beginning(model), stages)


@jax.jit
def at_sixty(stage, begin):
    """The contracted flow of a stage at log t = 60, from where its stage began."""
    flow = cls_flow(
        stage.parameters, stage.corpus, from_log_time=begin, until_log_time=60.0
    )
    return stage.ties.point + flow.query


# Runs of the default sweep: (d, η₀, seed), how they end, returns into tied bags.
RUNS = {
    (100.0, 0.1, 0): ("TIED", False),
    (100.0, 1.0, 7): ("TIED", False),
    (32.0, 31.62, 0): ("TIED", False),
    (100.0, 3.162, 6): ("TIED", True),
    (32.0, 3162.0, 3): ("AT_REST", False),
    (3162.0, 3.162, 0): ("PARTIAL", False),
    (100.0, 10.0, 1): ("TIES_UNPROVED", False),
}


@pytest.mark.parametrize("run", RUNS)
def test_how_runs_end(run):
    status, returns = RUNS[run]
    dim, step_size, seed = run
    model, bags = problem(seed, dim, step_size)
    stage, found = followed(model, bags)
    assert TrialStatus(found.status.item()).name == status
    assert bool(stage.contracted) == (status in ("TIED", "AT_REST"))
    assert (stage.point.origin_log_time > 36).item() == returns or status == "PARTIAL"
    if status == "TIED":
        late, query = found.ending.late, stage.point.query
        norm = jnp.linalg.norm(query)
        np.testing.assert_allclose(norm, NORM, rtol=1e-9)
        apart = query / norm - found.ending.margin.direction / found.ending.margin.norm
        constant = jnp.linalg.norm(apart) * norm
        np.testing.assert_allclose(constant, late.error_constant, rtol=1e-4)
        line = late.query_at(stage.flow.log_time)
        np.testing.assert_allclose(query, line, atol=1e-5)


@pytest.mark.parametrize("run", [(100.0, 0.1, 0), (32.0, 31.62, 0)])
def test_a_tied_run_follows_the_literal_model(run):
    """From the end of its first stage to log t = 60, by BDF on the literal model."""
    dim, step_size, seed = run
    model, bags = problem(seed, dim, step_size)
    first, _ = followed(model, bags, 1)
    assert FlowStatus(first.flow.status.item()).name == "TIES_UNPROVED"
    stage, _ = followed(model, bags)
    truth = Literal(model, bags, stage.ties)
    begin = first.point.own_log_time.item()
    p = np.asarray(first.point.query)
    free = p - (p @ truth.axes.T) @ truth.axes
    solved = solve_ivp(
        truth.field, (begin, 60.0), free, method="BDF", rtol=1e-8, atol=1e-8
    )
    assert solved.success
    end = truth.whole(solved.y[:, -1])
    off = np.asarray(model.embeddings @ (at_sixty(stage, begin) - end))
    # The tolerance of a step is 3e-5 of a score, and paths differ by a few.
    assert np.ptp(off) < 1e-3


def test_a_run_goes_on_from_any_point_of_it():
    """All stages in one call, and one by one, come to the same end."""
    model, bags = problem(6, 100.0, 3.162)
    whole, _ = followed(model, bags)
    point, steps, clocks = beginning(model), 0, []
    while not bool(point.finished):
        stage, _ = onward(model, bags, point, 1)
        point, steps = stage.point, steps + stage.flow.num_steps.item()
        clocks.append(log_time_of(point.origin_log_time, point.own_log_time).item())
    assert len(clocks) > 2 and clocks == sorted(clocks)
    assert steps == whole.flow.num_steps
    np.testing.assert_array_equal(point.query, whole.point.query)


def test_the_clock_of_a_run_adds_up():
    """log(1+t) = log(e^{τ_origin} + t′), for t′ from nothing to beyond all numbers."""
    for origin, elapsed in [(0.5, 0.0), (3.0, 1e-9), (3.0, 20.0), (50.0, 2.0)]:
        own = jnp.asarray(np.log1p(elapsed))
        wanted = np.log(np.exp(origin) + elapsed)
        found = log_time_of(jnp.asarray(origin), own)
        np.testing.assert_allclose(found, wanted, rtol=1e-15)
    assert log_time_of(jnp.asarray(9.0), jnp.asarray(1e4)) == 1e4
