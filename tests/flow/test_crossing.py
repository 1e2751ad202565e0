"""Passages of a mark: which of them, at what time, and when there is none."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxselect.flow.cls_flow import FlowSettings, cls_flow
from jaxselect.flow.crossing import (
    CrossingStatus,
    end_of_path,
    last_crossings,
    search_path,
)
from jaxselect.model.corpus import from_sequences
from jaxselect.model.parameters import Parameters

TIGHT = FlowSettings(1e-10, 1e-10)
CORPUS = from_sequences([[0, 2], [1, 2, 2]], [1, -1], vocabulary=3)
START = Parameters(
    jnp.array([[1.0, 0.2], [-0.3, 1.0], [0.1, -0.2]]),
    jnp.array([0.1, -0.2]),
    jnp.array([0.8, -0.6]),
)


def passes(parameters, level=9.0, settings=TIGHT):
    """The crossings of two marks of ‖p‖: one at `level`, one at 3, 5 back, and 9."""
    path = search_path(parameters, CORPUS, until_log_time=100.0, settings=settings)
    size = jnp.linalg.norm
    marks = [
        lambda p: size(p) - level,
        lambda p: (size(p) - 3) * (size(p) - 5) * (size(p) - 9),
    ]
    return last_crossings(parameters, CORPUS, path, marks, settings=settings)


def test_the_last_of_several_passages_counts():
    """It turns positive at ‖p‖ = 3, negative at 5, positive at 9."""
    once, last = jax.jit(passes)(START)
    reached = jax.jit(lambda: cls_flow(START, CORPUS, until_norm=9.0, settings=TIGHT))()
    for crossing in (once, last):
        assert crossing.status == CrossingStatus.CROSSED
        np.testing.assert_allclose(crossing.log_time, reached.log_time, rtol=1e-8)
        np.testing.assert_allclose(crossing.cls, reached.cls, rtol=1e-8)


def test_a_passage_between_two_points_of_a_coarse_path_is_at_the_mark():
    """From p_0 on the wrong side tokens change places at once."""

    @jax.jit
    def lead_there(start):
        def ahead(cls):
            return (start.embeddings[0] - start.embeddings[2]) @ cls

        until = {"until_log_time": 200.0, "points": 128, "settings": TIGHT}
        path = search_path(start, CORPUS, **until)
        (passage,) = last_crossings(start, CORPUS, path, [ahead], settings=TIGHT)
        until = {"until_log_time": passage.log_time, "settings": TIGHT}
        return passage.status, ahead(cls_flow(start, CORPUS, **until).cls)

    for side in (-3.0, -10.0, -30.0):
        start = Parameters(START.embeddings, side * START.head, START.head)
        status, lead = lead_there(start)
        if side > -30.0:
            assert status == CrossingStatus.CROSSED and jnp.abs(lead) < 1e-7
        else:
            assert status == CrossingStatus.TOO_SUDDEN


def test_the_time_of_a_passage_moves_with_the_mark_as_the_flow_says():
    """ds/dlevel = 1 / (d‖p‖/ds), in both modes."""
    step = 1e-3
    run = jax.jit(lambda level: passes(START, level)[0].log_time)
    difference = (run(9 + step) - run(9 - step)) / (2 * step)
    for mode in (jax.jacfwd, jax.jacrev):
        np.testing.assert_allclose(mode(run)(9.0), difference, rtol=1e-6)


def test_a_flow_that_breaks_off_has_no_crossings():
    """It had gone far beyond the mark when it ran out of steps."""
    short = FlowSettings(max_steps=12)
    crossing, _ = jax.jit(lambda: passes(START, -1.0, short))()
    assert crossing.status == CrossingStatus.FAILED
    assert jnp.isinf(crossing.log_time)
    np.testing.assert_array_equal(crossing.cls, START.cls)


def test_the_end_of_a_path_is_a_function_of_where_it_started():
    """p_0 → p at the end: the numbers of the path, the derivative of a flow."""

    @jax.jit
    def end(cls, known):
        start = Parameters(START.embeddings, cls, START.head)
        return end_of_path(start, CORPUS, known, settings=TIGHT)

    until = {"until_log_time": 4.0, "settings": TIGHT}
    path = search_path(START, CORPUS, points=4, **until)
    np.testing.assert_array_equal(end(START.cls, path), path.cls)
    step = 1e-4 * jnp.array([0.6, -0.8])
    up, down = (
        cls_flow(
            Parameters(START.embeddings, START.cls + x, START.head), CORPUS, **until
        )
        for x in (step, -step)
    )
    slope = jax.jvp(lambda cls: end(cls, path), (START.cls,), (step,))[1]
    np.testing.assert_allclose(slope, (up.cls - down.cls) / 2, rtol=1e-6)
