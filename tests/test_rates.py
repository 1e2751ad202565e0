"""Rates against the flow itself, against finite differences, and at kinks."""

from functools import partial

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxselect.corpus import Corpus, from_sequences
from jaxselect.embedding_step import embedding_step
from jaxselect.gradient_flow import FlowSettings, cls_flow
from jaxselect.limit import LimitStatus
from jaxselect.parameters import Parameters, gaussian_reduced
from jaxselect.progress import (
    CrossingStatus,
    direction_error,
    excess_loss,
    last_crossing,
    local_exponents,
    velocity,
)
from jaxselect.rates import RateSettings, rates, settle
from jaxselect.selection import competing_pairs
from jaxselect.synthetic import assumption_one

DRAW = partial(assumption_one, sequences=12, length=4, relevant=2, irrelevant=5)
# Five flows and three max-margin solves take minutes to compile.
pytestmark = pytest.mark.slow

FORWARD = RateSettings(FlowSettings(1e-11, 1e-11, adjoint=diffrax.ForwardMode()))
NUMBERS = (
    "lemma_error",
    "growth_rate",
    "error_constant",
    "norm_to_error",
    "log_time_to_error",
    "early_log_time",
    "selection_log_time",
    "final_loss",
    "loss_constant",
)
ARGUMENTS = ("step size", "embeddings", "cls", "counts")


@jax.jit
def problem(seed):
    corpus_key, key = jax.random.split(jax.random.key(seed))
    corpus = DRAW(corpus_key)
    return gaussian_reduced(key, corpus.vocabulary, 256.0), corpus


def moved(seed, move):
    """A problem moved along one direction per argument, and its step size."""
    corpus_key, key, *keys = jax.random.split(jax.random.key(seed), 5)
    corpus = DRAW(corpus_key)
    start = gaussian_reduced(key, corpus.vocabulary, 256.0)
    towards = [
        jax.random.normal(key, like.shape)
        for key, like in zip(
            keys, (start.embeddings, start.cls, corpus.counts), strict=True
        )
    ]
    start = Parameters(
        start.embeddings + 0.1 * move[1] * towards[0],
        start.cls + 0.1 * move[2] * towards[1],
        start.head,
    )
    counts = corpus.counts * (1 + 0.1 * move[3] * towards[2])
    corpus = Corpus(corpus.tokens, counts, corpus.labels, corpus.vocabulary)
    return start, corpus, 60.0 * jnp.exp(move[0])


def numbers(seed, move, settings=FORWARD):
    found = rates(*moved(seed, move), settings=settings)
    vector = jnp.stack([getattr(found, name) for name in NUMBERS])
    return vector, (found.kink, found.status, found.history_dim)


SEEDS = jnp.arange(2)
STEP = 1e-4


@pytest.fixture(scope="module")
def values():
    """Rates of every seed, at rest and moved along each argument both ways."""
    still = jnp.zeros((1, len(ARGUMENTS)))
    moves = STEP * jnp.eye(len(ARGUMENTS))
    run = jax.vmap(jax.vmap(numbers, (None, 0)), (0, None))
    return jax.jit(run)(SEEDS, jnp.concatenate([still, moves, -moves]))


@pytest.fixture(scope="module")
def forward():
    def along(seed, direction):
        run = lambda move: numbers(seed, move)[0]  # noqa: E731
        return jax.jvp(run, (jnp.zeros(len(ARGUMENTS)),), (direction,))[1]

    run = jax.vmap(jax.vmap(along, (None, 0), 1), (0, None))
    return jax.jit(run)(SEEDS, jnp.eye(len(ARGUMENTS)))


def test_derivatives_match_finite_differences(values, forward):
    """To 1e-5 of the derivative, or of a thousandth of the value where it is less."""
    found, (kink, status, history_dim) = values
    assert not kink.any() and not history_dim.any()
    assert (status == LimitStatus.PREDICTED).all()
    still, up, down = jnp.split(found, [1, 1 + len(ARGUMENTS)], axis=1)
    difference = jnp.swapaxes(up - down, 1, 2) / (2 * STEP)
    scale = np.maximum(np.abs(difference), 1e-3 * np.abs(still[:, 0, :, None]))
    off = (np.abs(forward - difference) / scale).max(axis=0)
    for row, name in zip(off, NUMBERS, strict=True):
        assert row.max() < 1e-5, (name, dict(zip(ARGUMENTS, row, strict=True)))


def test_what_a_rate_cannot_depend_on_has_no_derivative(forward):
    slope = dict(zip(NUMBERS, jnp.moveaxis(forward, 1, 0), strict=True))
    assert jnp.isfinite(forward).all()
    np.testing.assert_allclose(slope["lemma_error"][:, 0], 0.0, atol=1e-12)
    assert (jnp.abs(slope["final_loss"]) > 0).all()


@pytest.fixture(scope="module")
def settled():
    before, corpus = problem(0)
    after = jax.jit(embedding_step)(before, corpus, 60.0)
    return (
        after,
        corpus,
        jax.jit(rates)(before, corpus, 60.0),
        jax.jit(settle)(after, corpus),
    )


def test_late_rates_are_those_of_the_flow(settled):
    after, corpus, found, end = settled
    flow = jax.jit(cls_flow)(after, corpus, found.norm_to_error)
    there = direction_error(flow.cls, end.margin.direction)
    np.testing.assert_allclose(there, 1e-4, rtol=1e-5)
    np.testing.assert_allclose(flow.log_time, found.log_time_to_error, rtol=1e-6)


def test_early_rates_are_those_of_the_flow(settled):
    after, corpus, found, end = settled
    flow = jax.jit(cls_flow)(after, corpus, until_log_time=found.early_log_time)
    there = direction_error(flow.cls, end.margin.direction)
    np.testing.assert_allclose(there, 0.1, rtol=1e-5)
    pairs = competing_pairs(end.selected, corpus)
    for factor, wanted in ((1.0, 0.0), (0.99, -1.0), (1.01, 1.0)):
        until = factor * found.selection_log_time
        flow = jax.jit(cls_flow)(after, corpus, until_log_time=until)
        scores = after.embeddings @ flow.cls
        lead = jnp.where(pairs, scores[:, None] - scores[None, :], jnp.inf).min()
        assert jnp.abs(lead) < 1e-6 if wanted == 0 else lead * wanted > 0


def test_the_loss_still_to_go_falls_as_one_over_t(settled):
    """t (L − L_∞) → ‖p_mm‖²; late, 1 ‰ of it is what remains of earlier terms."""
    after, corpus, found, end = settled
    assert end.late.status == LimitStatus.PREDICTED
    times = jnp.array([100.0, 600.0])
    flow = jax.jit(cls_flow)(after, corpus, until_log_time=700.0, path_log_times=times)
    to_go = [excess_loss(after, corpus, end.selected, cls) for cls in flow.path_cls]
    scaled = jnp.stack(to_go) * jnp.exp(times)
    np.testing.assert_allclose(scaled[1], found.loss_constant, rtol=1e-3)
    off = jnp.abs(scaled / found.loss_constant - 1)
    assert off[1] <= off[0]


def test_local_exponents_are_the_slopes_of_the_path(settled):
    after, corpus, _, end = settled
    direction = end.margin.direction
    times = jnp.array([5.0, 5.0 * (1 + 1e-4), 1e5])
    settings = FlowSettings(1e-10, 1e-10)
    ends = [
        jax.jit(cls_flow)(after, corpus, until_log_time=time, settings=settings).cls
        for time in times
    ]
    logs = [
        jnp.log(jnp.stack([direction_error(p, direction), jnp.linalg.norm(p), s]))
        for p, s in zip(ends, times, strict=True)
    ]
    error, norm, time = logs[1] - logs[0]
    middle = jnp.sqrt(times[0] * times[1]), (ends[0] + ends[1]) / 2
    by_norm, by_time = local_exponents(after, corpus, direction, *middle)
    np.testing.assert_allclose(by_norm, error / norm, rtol=1e-4)
    np.testing.assert_allclose(by_time, error / time, rtol=1e-4)
    late = local_exponents(after, corpus, direction, times[2], ends[2])
    np.testing.assert_allclose(jnp.stack(late), -1.0, rtol=1e-3)


@pytest.mark.parametrize(("sideways", "kink"), [(0.0, True), (-0.1, False)])
def test_a_kink_is_flagged(sideways, kink):
    """Tokens 1 and 2 lose to 0; at sideways = 0 the second has no say, but just so."""
    corpus = from_sequences([[0, 1, 2]], [1], vocabulary=3)
    embeddings = jnp.array([[1.0, 0.0], [0.0, 0.0], [sideways, -1.0]])
    after = Parameters(embeddings, jnp.zeros(2), jnp.array([1.0, 0.0]))
    assert settle(after, corpus).kink == kink


def test_a_batch_is_its_lanes(values):
    alone = jax.jit(numbers)(SEEDS[1], jnp.zeros(len(ARGUMENTS)))[0]
    np.testing.assert_allclose(values[0][1, 0], alone, rtol=1e-8)


def test_crossings_say_whether_they_happened(settled):
    after, corpus, _, _ = settled
    cross = eqx.filter_jit(partial(last_crossing, after, corpus, until_log_time=50.0))
    for level, status in (
        (-1.0, CrossingStatus.FROM_THE_START),
        (20.0, CrossingStatus.CROSSED),
        (1e9, CrossingStatus.NOT_CROSSED),
    ):
        found = cross(lambda p, level=level: jnp.linalg.norm(p) - level)
        assert found.status == status
    assert jnp.isinf(found.log_time)


def test_the_velocity_is_late_p_mm(settled):
    after, corpus, _, end = settled
    late = velocity(after, corpus, 1e8, end.late.cls_at(1e8))
    np.testing.assert_allclose(late, end.margin.direction, atol=1e-6)
