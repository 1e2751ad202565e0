"""Laws of training: conserved parts, descent, resumption, the flow as a limit."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from experiments.common import model as objective
from experiments.text import counts as sparse
from experiments.text import training as descent
from experiments.text.objective import evaluate
from jaxselect.checks import BadInput
from jaxselect.data import corpus as padded
from jaxselect.model import parameters
from tests.tolerances import assert_close


@pytest.fixture(scope="module")
def dense():
    rng = np.random.default_rng(1)
    labels = np.where(np.arange(60) % 2, 1, -1)
    tilt = np.linspace(-1, 1, 20)
    drawn = [
        rng.choice(20, rng.integers(3, 30), p=np.exp(y * tilt) / np.exp(y * tilt).sum())
        for y in labels
    ]
    return padded.from_sequences(drawn, labels, vocabulary=20)


@pytest.fixture(scope="module")
def corpus(dense):
    return sparse.from_corpus(dense)


@pytest.fixture
def model(corpus):
    return parameters.gaussian(jax.random.key(3), vocabulary=corpus.vocabulary, dim=16)


def turned(corpus):
    """The same sequences with the other labels."""
    return sparse.SparseCorpus(corpus.by_sequence, corpus.by_token, -corpus.labels)


def run(model, corpus, optimiser, schedule, **options):
    begun = descent.initial_state(model, optimiser, schedule)
    return descent.train(begun, corpus, optimiser, schedule, **options)


@pytest.mark.parametrize(
    ("optimiser", "trained"),
    [
        (optax.sgd(5.0), descent.EVERYTHING),
        (optax.sgd(0.2, momentum=0.9), ("query",)),
        (optax.adam(1e-2), ("query", "head")),
    ],
    ids=["gradient descent", "momentum", "adam"],
)
def test_training_lowers_the_loss_and_moves_only_what_it_may(
    model, corpus, optimiser, trained
):
    schedule = descent.Schedule(steps=40, trained=trained)
    state, status = run(model, corpus, optimiser, schedule)
    assert status == "finished"
    assert evaluate(state.parameters, corpus).loss < evaluate(model, corpus).loss
    for name in descent.EVERYTHING:
        same = getattr(state.parameters, name) == getattr(model, name)
        assert bool(same.all()) == (name not in trained), name


@pytest.mark.parametrize("batch", [None, 16])
def test_a_resumed_run_ends_where_an_unbroken_one_does(model, corpus, tmp_path, batch):
    key = jax.random.key(5)
    optimiser = optax.adam(1e-2)
    long = descent.Schedule(steps=40, batch=batch)
    whole, _ = run(model, corpus, optimiser, long, key=key)

    class Stopped(Exception):
        pass

    def stop(step, now, seen, unseen):
        if step == 20:
            raise Stopped

    path = tmp_path / "state.eqx"
    with pytest.raises(Stopped):
        run(model, corpus, optimiser, long, key=key, checkpoint=path, report=stop)
    resumed, status = run(model, corpus, optimiser, long, key=key, checkpoint=path)
    assert status == "finished"
    jax.tree.map(np.testing.assert_array_equal, resumed, whole)


def test_every_epoch_deals_each_sequence_once():
    key = jax.random.key(0)
    dealt = [descent._minibatch(key, step, 60, 20) for step in range(6)]
    first, second = sum(dealt[:3]), sum(dealt[3:])
    assert_close(first, np.full(60, 1 / 20))
    assert_close(second, np.full(60, 1 / 20))
    assert not np.array_equal(dealt[0], dealt[3])


def test_early_stopping_keeps_the_best_parameters(model, corpus):
    """Validation labels are turned round, so that learning makes it worse."""
    against = turned(corpus)
    schedule = descent.Schedule(steps=500, patience=3)
    optimiser = optax.sgd(5.0)
    state, status = run(model, corpus, optimiser, schedule, validation=against)
    assert status == "stopped early"
    best = evaluate(state.best, against).accuracy
    assert_close(best, state.best_accuracy)
    assert_close(best, jnp.nanmax(state.history[:, 4]))
    assert int(state.step) == int(state.best_step) + 30


def test_equal_validation_accuracies_stop_on_time(model, corpus):
    """The first of equals is the best: p alone cannot change a lone word's output."""
    lone = sparse.from_corpus(
        padded.from_sequences([[3], [5]], [1, -1], vocabulary=corpus.vocabulary)
    )
    schedule = descent.Schedule(steps=90, every=10, patience=3, trained=("query",))
    state, status = run(model, corpus, optax.sgd(5.0), schedule, validation=lone)
    assert status == "stopped early"
    assert (int(state.step), int(state.best_step)) == (30, 0)
    jax.tree.map(np.testing.assert_array_equal, state.best, model)


OTHER_RUNS = {
    "seed of the minibatches": lambda run: run | {"key": jax.random.key(6)},
    "schedule": lambda run: run | {"schedule": descent.Schedule(steps=40, batch=15)},
    "learning rate": lambda run: run | {"optimiser": optax.adam(2e-2)},
    "decay of the moments": lambda run: run | {"optimiser": optax.adam(1e-2, b1=0.8)},
    "seed of the model": lambda run: (
        run | {"model": parameters.gaussian(jax.random.key(4), vocabulary=20, dim=16)}
    ),
    "labels": lambda run: run | {"corpus": turned(run["corpus"])},
    "validation": lambda run: run | {"validation": run["corpus"]},
}


def test_a_checkpoint_of_another_run_is_refused(model, corpus, tmp_path):
    path = tmp_path / "state.eqx"
    schedule = descent.Schedule(steps=40, batch=16)
    first = {"model": model, "corpus": corpus, "optimiser": optax.adam(1e-2)}
    first |= {"schedule": schedule, "checkpoint": path}
    run(**first, key=jax.random.key(5))
    before = path.read_bytes()
    for change in OTHER_RUNS.values():
        with pytest.raises(BadInput, match="checkpoint of another run"):
            run(**change(first | {"key": jax.random.key(5)}))
        assert path.read_bytes() == before
    _, status = run(**first | {"optimiser": optax.adam(1e-2), "key": jax.random.key(5)})
    assert status == "finished"


def test_a_damaged_checkpoint_is_refused(model, tmp_path):
    path, run = tmp_path / "state.eqx", bytes(32)
    state = descent.initial_state(model, optax.sgd(1.0), descent.Schedule(steps=2))
    descent._write(path, run, state)
    whole = path.read_bytes()
    there = descent._read(path, run, state)
    jax.tree.map(np.testing.assert_array_equal, there, state)
    altered = bytearray(whole)
    altered[-1] ^= 1
    for damaged in (whole[:-1], whole[:40], altered):
        path.write_bytes(damaged)
        with pytest.raises(BadInput, match="is damaged"):
            descent._read(path, run, state)


# Single precision has no 10³⁰⁰: casting it warns, in a test as an error.
@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
@pytest.mark.parametrize(("rate", "double"), [(1e300, True), (1e38, False)])
def test_steps_that_leave_the_numbers_end_not_finite(rate, double):
    with jax.enable_x64(double):
        dense = padded.from_sequences([[0, 1], [1, 2]], [1, -1], vocabulary=4)
        corpus = sparse.from_corpus(dense)
        unseen = sparse.from_corpus(padded.from_sequences([[0, 3]], [1], vocabulary=4))
        begin = parameters.gaussian(jax.random.key(0), vocabulary=4, dim=3)
        for optimiser in (optax.sgd(rate), optax.adam(rate)):
            schedule = descent.Schedule(steps=7, every=3)
            state, status = run(begin, corpus, optimiser, schedule, validation=unseen)
            assert status == "not finite"
            assert all(jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(state.best))


def test_history_records_what_the_report_saw(model, corpus, dense):
    rows = []
    state, _ = run(
        model,
        corpus,
        optax.sgd(1.0),
        descent.Schedule(steps=25, every=10),
        report=lambda *row: rows.append(row),
    )
    assert [row[0] for row in rows] == [0, 10, 20, 25]
    assert_close(state.history[:4, 0], [0, 10, 20, 25])
    assert_close(state.history[3, 1], objective.empirical_risk(state.parameters, dense))
