"""Passages of an event: which of them, at what time, and when there is none."""

from functools import partial

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


@partial(jax.jit, static_argnames="settings")
def search(settings):
    return search_path(START, CORPUS, until_log_time=100.0, settings=settings)


@jax.jit
def flow(start, until_norm, until_log_time):
    bounds = {"until_norm": until_norm, "until_log_time": until_log_time}
    return cls_flow(start, CORPUS, **bounds, settings=TIGHT)


def passes(path, level):
    """When ‖p‖ = level; the crossings of that and of an event at 3, 5 back, and 9."""
    size = jnp.linalg.norm
    events = [
        lambda p: size(p) - level,
        lambda p: (size(p) - 3) * (size(p) - 5) * (size(p) - 9),
    ]
    crossings = last_crossings(START, CORPUS, path, events, settings=TIGHT)
    return crossings[0].log_time, crossings


@jax.jit
def moved(path, level):
    """The time, its derivative by the level, and the crossings."""
    return jax.jvp(lambda x: passes(path, x), (level,), (1.0,), has_aux=True)


def test_the_last_of_several_passages_counts():
    """It turns positive at ‖p‖ = 3, negative at 5, positive at 9."""
    *_, (once, last) = moved(search(TIGHT), 9.0)
    reached = flow(START, 9.0, 1e15)
    for crossing in (once, last):
        assert crossing.status == CrossingStatus.CROSSED
        np.testing.assert_allclose(crossing.log_time, reached.log_time, rtol=1e-8)
        np.testing.assert_allclose(crossing.cls, reached.cls, rtol=1e-8)


def test_a_passage_between_two_points_of_a_coarse_path_is_at_the_mark():
    """From p_0 on the wrong side tokens change places at once."""

    def ahead(cls):
        return (START.embeddings[0] - START.embeddings[2]) @ cls

    @jax.jit
    def passage_from(start):
        until = {"until_log_time": 200.0, "points": 128, "settings": TIGHT}
        path = search_path(start, CORPUS, **until)
        return last_crossings(start, CORPUS, path, [ahead], settings=TIGHT)[0]

    for side in (-3.0, -10.0, -30.0):
        start = Parameters(START.embeddings, side * START.head, START.head)
        passage = passage_from(start)
        if side > -30.0:
            there = flow(start, jnp.inf, passage.log_time).cls
            assert passage.status == CrossingStatus.CROSSED
            assert jnp.abs(ahead(there)) < 1e-7
        else:
            assert passage.status == CrossingStatus.TIME_UNRESOLVED


def test_the_time_of_a_passage_moves_with_the_mark_as_the_flow_says():
    """ds/dlevel = 1 / (d‖p‖/ds), in both modes."""
    path, step = search(TIGHT), 1e-3
    (after, _, _), (before, _, _) = (moved(path, 9 + x) for x in (step, -step))
    difference = (after - before) / (2 * step)
    np.testing.assert_allclose(moved(path, 9.0)[1], difference, rtol=1e-6)
    pulled, _ = jax.jit(jax.grad(passes, argnums=1, has_aux=True))(path, 9.0)
    np.testing.assert_allclose(pulled, difference, rtol=1e-6)


def test_a_flow_that_breaks_off_has_no_crossings():
    """It had gone far event the event when it ran out of steps."""
    path = search(FlowSettings(max_steps=12))
    *_, (crossing, _) = moved(path, -1.0)
    assert crossing.status == CrossingStatus.FAILED
    assert jnp.isinf(crossing.log_time)
    np.testing.assert_array_equal(crossing.cls, START.cls)


def test_the_end_of_a_path_is_a_function_of_where_it_started():
    """p_0 → p at the end: the numbers of the path, the derivative of a flow."""

    @jax.jit
    def end(cls, known):
        start = Parameters(START.embeddings, cls, START.head)
        return end_of_path(start, CORPUS, known, settings=TIGHT)

    path = jax.jit(
        lambda: search_path(START, CORPUS, until_log_time=4.0, points=4, settings=TIGHT)
    )()
    np.testing.assert_array_equal(end(START.cls, path), path.cls)
    step = 1e-4 * jnp.array([0.6, -0.8])
    up, down = (
        flow(Parameters(START.embeddings, START.cls + x, START.head), jnp.inf, 4.0)
        for x in (step, -step)
    )
    pushed = jax.jit(lambda p, dp: jax.jvp(lambda cls: end(cls, path), (p,), (dp,)))
    slope = pushed(START.cls, step)[1]
    np.testing.assert_allclose(slope, (up.cls - down.cls) / 2, rtol=1e-6)
