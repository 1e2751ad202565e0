"""Passages of an event: which of them, at what time, and when there is none."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from jaxselect import FlowSettings, Parameters, Reason, attention, from_sequences
from jaxselect.flow.crossing import (
    crossings_and_query,
    search_path,
)

TIGHT = FlowSettings(1e-10, 1e-10)
CORPUS = from_sequences([[0, 2], [1, 2, 2]], [1, -1], vocabulary=3)
START = Parameters(
    jnp.array([[1.0, 0.2], [-0.3, 1.0], [0.1, -0.2]]),
    jnp.array([0.1, -0.2]),
    jnp.array([0.8, -0.6]),
)


@jax.jit
def search(start, until_log_time):
    return search_path(
        attention(start, CORPUS),
        until_log_time=until_log_time,
        points=128,
        settings=TIGHT,
    )


def ahead(query):
    return (START.embeddings[0] - START.embeddings[2]) @ query


def passes(start, path, level):
    """When ‖p‖ = level, and p then; crossings of that, of an event at 3, 5 and 9, and
    of tokens that change places."""
    size = jnp.linalg.norm
    events = [
        lambda p: size(p) - level,
        lambda p: (size(p) - 3) * (size(p) - 5) * (size(p) - 9),
        ahead,
    ]
    problem = attention(start, CORPUS)
    crossings, _ = crossings_and_query(problem, path, events, settings=TIGHT)
    return jnp.append(crossings[0].query, crossings[0].log_time), crossings


@jax.jit
def moved(start, path, level):
    """p and its time, slopes in the level, crossings; the sum's slope in reverse."""
    there, push, crossings = jax.linearize(
        lambda level: passes(start, path, level), level, has_aux=True
    )
    pull = jax.linear_transpose(push, level)
    return there, push(jnp.ones_like(level)), crossings, *pull(jnp.ones_like(there))


def test_the_last_of_several_passages_counts():
    """It turns positive at ‖p‖ = 3, negative at 5, positive at 9."""
    once, last, _ = moved(START, search(START, 100.0), 9.0)[2]
    reached = search(START, once.log_time)
    for crossing in (once, last):
        assert crossing.resolved
        np.testing.assert_allclose(np.linalg.norm(crossing.query), 9.0, rtol=1e-8)
        np.testing.assert_allclose(crossing.log_time, once.log_time, rtol=1e-8)
        np.testing.assert_allclose(crossing.query, reached.query, rtol=1e-8)


def test_a_passage_between_two_points_of_a_coarse_path_is_at_the_mark():
    """From p_0 on the wrong side tokens change places at once."""
    for side in (-3.0, -10.0, -30.0):
        start = Parameters(START.embeddings, side * START.head, START.head)
        *_, passage = moved(start, search(start, 200.0), 9.0)[2]
        if side > -30.0:
            there = search(start, passage.log_time).query
            assert passage.resolved
            assert jnp.abs(ahead(there)) < 1e-7
        else:
            assert passage.sudden and 0 < passage.log_time < jnp.inf


def test_a_passage_moves_with_the_event_as_the_flow_says():
    """ds/dlevel = 1 / (d‖p‖/ds) and dp/dlevel, in both modes."""
    path, step = search(START, 100.0), 1e-3
    (after, *_), (before, *_) = (moved(START, path, 9 + x) for x in (step, -step))
    difference = (after - before) / (2 * step)
    _, slopes, _, pulled = moved(START, path, 9.0)
    np.testing.assert_allclose(slopes, difference, rtol=1e-6)
    np.testing.assert_allclose(pulled, slopes.sum(), rtol=1e-9)


def test_crossings_say_whether_they_happened():
    path = search(START, 100.0)
    ended = jnp.asarray(Reason.OUT_OF_STEPS, jnp.int32)
    broken = eqx.tree_at(lambda path: path.status, path, ended)
    wanted = {(-1.0, 0.0): path, (1e9, jnp.inf): path, (-1.0, jnp.nan): broken}
    for (level, log_time), path in wanted.items():
        crossing = moved(START, path, level)[2][0]
        assert not crossing.resolved and not crossing.sudden
        np.testing.assert_array_equal(crossing.log_time, log_time)
        np.testing.assert_array_equal(crossing.query, START.query)


def test_p_at_a_point_of_a_path_is_a_function_of_where_it_started():
    """Of p_0, against central differences of paths."""
    path, step, point = search(START, 4.0), 1e-4 * jnp.array([0.6, -0.8]), 100

    def there(query):
        start = Parameters(START.embeddings, query, START.head)
        return crossings_and_query(
            attention(start, CORPUS), path, [ahead], point=point, settings=TIGHT
        )[1]

    up, down = (
        search(Parameters(START.embeddings, START.query + x, START.head), 4.0)
        for x in (step, -step)
    )
    difference = (up.path_query[point] - down.path_query[point]) / 2
    query, slope = jax.jit(lambda p, dp: jax.jvp(there, (p,), (dp,)))(START.query, step)
    np.testing.assert_allclose(query, path.path_query[point], rtol=1e-9)
    np.testing.assert_allclose(slope, difference, rtol=1e-6)
