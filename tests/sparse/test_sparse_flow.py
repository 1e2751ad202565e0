"""The flow of p on sparse counts: it is the padded one, and knows no names.

Source: mathematics, section 7a.
"""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxselect.checks import BadInput
from jaxselect.data import sparse
from jaxselect.flow.cls import FlowSettings, FlowStatus, cls_flow
from jaxselect.model.parameters import Parameters
from jaxselect.problem import attention
from jaxselect.sparse.flow import LOOK_BACK, BdfSettings, sparse_flow, trajectory
from tests.sparse.problems import problem
from tests.tolerances import assert_close

TIMES = jnp.array([0.0, 2.0, 5.0, 10.0, 18.0, 20.0])
SEEDS = 1, 2


@pytest.fixture(scope="module")
def truth():
    """The padded flow, many digits beyond what is asked for here."""
    until = {"path_log_times": TIMES, "until_log_time": 20.0}
    run = jax.jit(partial(cls_flow, **until, settings=FlowSettings(1e-10, 1e-10)))
    given = (attention(*problem(seed)[:2]) for seed in SEEDS)
    return [np.asarray(run(each).path_query) for each in given]


@pytest.fixture(scope="module")
def followed():
    """By tolerance, the same flows on sparse counts."""
    return {
        tolerance: [
            sparse_flow(
                problem(seed)[0],
                problem(seed)[2],
                until_log_time=20.0,
                path_log_times=TIMES,
                settings=BdfSettings(tolerance=tolerance),
            )
            for seed in SEEDS
        ]
        for tolerance in (1e-3, 1e-5, 1e-7)
    }


@pytest.mark.parametrize("place", range(len(SEEDS)))
def test_is_the_padded_flow_and_nearer_the_tighter_the_tolerance(
    truth, followed, place
):
    """In every coordinate at every time: a few hundred steps keep to ten times it."""
    wanted, worst = truth[place], []
    for tolerance, flows in followed.items():
        error = np.abs(np.asarray(flows[place].path_query) - wanted).max(axis=1)
        bound = 10 * tolerance * (1 + np.abs(wanted).max(axis=1))
        assert (error <= bound).all()
        worst.append((error / bound).max() * tolerance)
    assert worst[0] > 10 * worst[1] > 100 * worst[2]


def test_a_path_holds_the_beginning_and_the_end_and_changes_nothing(followed):
    flow = followed[1e-3][0]
    model, _, corpus = problem(SEEDS[0])
    assert FlowStatus(flow.status.item()) is FlowStatus.REACHED
    assert_close(flow.log_time, 20.0)
    assert_close(flow.path_query[0], model.query)
    assert_close(flow.path_query[-1], flow.query)
    np.testing.assert_array_equal(flow.path_log_times, TIMES)
    np.testing.assert_array_equal(flow.path_query[4], flow.earlier_query)
    assert TIMES[4] == 20.0 - LOOK_BACK
    bare = sparse_flow(model, corpus, until_log_time=20.0)
    np.testing.assert_array_equal(bare.query, flow.query)
    assert bare.path_query.shape == (0, 6) and bare.path_log_times.shape == (0,)


def test_times_behind_the_end_are_infinite():
    model, _, corpus = problem(1)
    flow = sparse_flow(
        model, corpus, until_log_time=1.0, path_log_times=jnp.array([0.5, 1.0, 1.5])
    )
    np.testing.assert_array_equal(np.isfinite(flow.path_log_times), [1, 1, 0])
    np.testing.assert_array_equal(np.isfinite(flow.path_query).all(axis=1), [1, 1, 0])
    # Two log-times before one there is the beginning alone.
    np.testing.assert_array_equal(flow.earlier_query, model.query)


def relabelled(model, counts, labels):
    order = np.roll(np.arange(len(model.embeddings)), 3)
    moved = Parameters(model.embeddings[order], model.query, model.head)
    return moved, counts[:, order], labels


CHANGES = {
    "words relabelled": relabelled,
    "rows in reverse": lambda model, counts, labels: (
        model,
        counts[::-1],
        labels[::-1],
    ),
    "every bag twice": lambda model, counts, labels: (
        model,
        np.tile(counts, (2, 1)),
        np.tile(labels, 2),
    ),
    "bags three times as long": lambda model, counts, labels: (
        model,
        3 * counts,
        labels,
    ),
    "(y, v) turned round": lambda model, counts, labels: (
        Parameters(model.embeddings, model.query, -model.head),
        counts,
        -labels,
    ),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_p_does_not_know_names_order_copies_or_lengths(change):
    model, _, corpus = problem(1)
    wanted = sparse_flow(model, corpus, until_log_time=8.0)
    counts, labels = corpus.by_sequence.to_csr().toarray(), np.asarray(corpus.labels)
    changed, counts, labels = change(model, counts, labels)
    again = sparse.from_csr(sparse.csr_array(counts), labels)
    flow = sparse_flow(changed, again, until_log_time=8.0)
    # One step after another carries a rounding on; 80 of them.
    assert_close(flow.query, wanted.query, worse=100)
    assert flow.num_steps == wanted.num_steps


def test_p_keeps_its_part_outside_the_span_of_differences():
    """Newton's method, however rough, moves p by pulls alone."""
    model, _, corpus = problem(1, 12)
    flow = sparse_flow(model, corpus, until_log_time=8.0)
    embeddings = np.asarray(model.embeddings)
    spanned = np.linalg.qr((embeddings[1:] - embeddings[0]).T)[0]
    moved = np.asarray(flow.query - model.query)
    outside = moved - spanned @ (spanned.T @ moved)
    assert np.linalg.norm(moved) > 1
    assert_close(outside, np.zeros(12))


def test_p_moves_alike_however_long_its_part_outside_that_span():
    """A step errs by a part of p − p_0: what every score shares moves none of them."""
    model, _, corpus = problem(1, 12)
    embeddings = np.asarray(model.embeddings)
    outside = np.linalg.svd(embeddings[1:] - embeddings[0])[2][-1]
    settings = BdfSettings(tolerance=1e-7)
    wanted = sparse_flow(model, corpus, until_log_time=8.0, settings=settings)
    far = Parameters(model.embeddings, model.query + 1e5 * outside, model.head)
    flow = sparse_flow(far, corpus, until_log_time=8.0)
    moved = wanted.query - model.query
    bound = 10 * BdfSettings().tolerance * (1 + np.abs(moved).max())
    assert np.abs(flow.query - far.query - moved).max() <= bound


def test_out_of_steps_is_said_and_holds_the_last_point():
    model, _, corpus = problem(1)
    flow = sparse_flow(
        model,
        corpus,
        until_log_time=30.0,
        path_log_times=jnp.array([0.0, 29.0]),
        settings=BdfSettings(max_steps=5),
    )
    assert FlowStatus(flow.status.item()) is FlowStatus.OUT_OF_STEPS
    assert flow.num_steps == 5 and 0 < flow.log_time < 29
    assert not np.isfinite(flow.earlier_query).any()
    np.testing.assert_array_equal(np.isfinite(flow.path_log_times), [1, 0])
    assert np.isfinite(flow.query).all()


REFUSED = {
    "later than margins are known": ({"until_log_time": 1.1e5}, "until_log_time"),
    "before the beginning": ({"until_log_time": -1.0}, "until_log_time"),
    "no number": ({"until_log_time": float("nan")}, "until_log_time"),
    "times that go back": ({"path_log_times": np.array([2.0, 1.0])}, "path_log_times"),
    "times of no number": ({"path_log_times": np.array([np.nan])}, "path_log_times"),
}


@pytest.mark.parametrize(("given", "named"), REFUSED.values(), ids=REFUSED)
def test_times_that_make_no_sense_are_refused(given, named):
    model, _, corpus = problem(1)
    with pytest.raises(BadInput, match=named):
        trajectory(model, corpus, **given)


def test_what_no_flow_can_begin_with_is_refused():
    model, _, corpus = problem(1)
    far = Parameters(model.embeddings, np.nan * model.query, model.head)
    fewer = Parameters(model.embeddings[1:], model.query, model.head)
    heads = Parameters(model.embeddings, model.query, model.embeddings[:2].T)
    single = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), model)
    counted = eqx.tree_at(lambda bags: bags.labels, corpus, corpus.labels + 1)
    for given, bags, said in (
        (far, corpus, "not finite"),
        (fewer, corpus, "7 tokens"),
        (heads, corpus, "2 heads"),
        (single, corpus, "float32: wanted float64"),
        (model, counted, r"labels \[0, 2\]"),
    ):
        with pytest.raises(BadInput, match=said):
            trajectory(given, bags)
