"""One step on E, and Lemma 4.1 with its exponent.

Source: mathematics, sections 2 and 2a.
"""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.common.model import empirical_risk
from jaxselect import assumption_one, importance, independent_tokens, several_relevant
from jaxselect.data.corpus import from_sequences
from jaxselect.data.loss import EXPONENTIAL, LOGISTIC, POLYNOMIAL
from jaxselect.model.parameters import gaussian, gaussian_reduced
from jaxselect.model.selection import class_importance
from jaxselect.model.step import (
    alignment_error,
    embedding_step,
    embedding_steps,
    predicted_alignment,
)
from tests.exponents import mean_error_exponent
from tests.tolerances import assert_close

# Lemma 4.1 asks nothing of the data: only the first fulfils Assumption 1.
SIZES = {"sequences": 40, "length": 6, "relevant": 3, "irrelevant": 12}
KEY = partial(jax.random.key, 7)
CORPORA = {
    "assumption one": lambda: assumption_one(KEY(), **SIZES),
    "independent tokens": lambda: independent_tokens(
        KEY(), **SIZES, irrelevant_share=0.4
    ),
    "several, impure": lambda: several_relevant(
        KEY(), **SIZES, per_sequence=3, purity=0.5
    ),
    "arbitrary": lambda: from_sequences(
        [[0, 0, 1], [1, 2], [2, 2, 2, 0]], [1, -1, -1], vocabulary=4
    ),
}


@cache
def corpus_of(name):
    """Drawn by one program, once somebody asks for it."""
    return jax.jit(CORPORA[name])()


drawn = jax.jit(gaussian, static_argnames=("vocabulary", "dim"))
compiled_step = jax.jit(embedding_step)
risk_gradient = jax.jit(jax.grad(empirical_risk))


@pytest.mark.parametrize("name", ["several, impure", "arbitrary"])
@given(seed=st.integers(0, 2**31), step_size=st.sampled_from([0.1, 1.0, 100.0]))
def test_the_step_is_gradient_descent(name, seed, step_size):
    corpus = corpus_of(name)
    before = drawn(jax.random.key(seed), vocabulary=corpus.vocabulary, dim=11)
    slope = risk_gradient(before, corpus)
    after = compiled_step(before, corpus, step_size)
    wanted = before.embeddings - step_size * slope.embeddings
    assert_close(after.embeddings, wanted)
    assert (after.query == before.query).all() and (after.head == before.head).all()


def test_the_error_falls_as_the_root_of_the_dimension():
    """The fitted exponent of the mean relative error over d = 10³ … 10⁹ is −1/2.

    With 200 draws the mean is known to about 4 % at each of seven d, and the exponent
    to about 0.003; 0.02 is six times that.
    """
    corpus = corpus_of("several, impure")

    def error(key, dim):
        before = gaussian_reduced(key, vocabulary=corpus.vocabulary, dim=dim)
        after = embedding_step(before, corpus, 50.0)
        return alignment_error(before, after, corpus, 50.0)

    exponent = mean_error_exponent(error, points=7, draws=200)
    assert abs(exponent + 0.5) < 0.02


def test_the_relative_error_does_not_depend_on_the_step_size():
    corpus = corpus_of("arbitrary")

    @jax.jit
    @jax.vmap
    def error(eta):
        before = gaussian_reduced(KEY(), vocabulary=corpus.vocabulary, dim=1e4)
        after = embedding_step(before, corpus, eta)
        return alignment_error(before, after, corpus, eta)

    errors = error(jnp.array([1e-2, 1.0, 1e6]))
    # Subtracting E⁰ from E¹ at η₀ = 0.01 leaves a hundredth of it, and 14 digits.
    assert_close(errors, np.full(3, errors[-1]), worse=100)


# −ℓ′(0), and of three classes −ℓ′(−log 2) · 3/2.
SLOPES = {
    LOGISTIC: (0.5, 1.0),
    EXPONENTIAL: (1.0, 3.0),
    POLYNOMIAL: (0.5, 0.75 * (1 + np.log(2) / np.hypot(1, np.log(2)))),
}


def weighted(loss, labels, classes=2):
    """Bags of weights that differ, under a loss."""
    bags = [[0, 2, 2, 4], [0, 3, 3], [1, 2], [1, 3, 4, 4]]
    given = {"weights": [1, 2, 3, 4], "loss": loss, "classes": classes}
    return from_sequences(bags, labels, vocabulary=5, **given)


STEPPED = {name: (partial(corpus_of, name), 0.5) for name in CORPORA}
for loss, (slope, of_classes) in SLOPES.items():
    STEPPED[loss.name] = partial(weighted, loss, [1, 1, -1, -1]), slope
    STEPPED[f"{loss.name}, classes"] = (
        partial(weighted, loss, [0, 1, 2, 0], 3),
        of_classes,
    )


@pytest.mark.parametrize(("draw", "slope"), STEPPED.values(), ids=STEPPED)
def test_values_follow_the_prediction_at_large_dimension(draw, slope):
    """At d = 10¹⁶ the error is 10⁻⁸, below what can be seen in E_sᵀv / η₀."""
    corpus = draw()
    heads = corpus.classes or 1

    @jax.jit
    def stepped():
        given = {"vocabulary": corpus.vocabulary, "heads": heads}
        before = gaussian_reduced(KEY(), **given, dim=1e16)
        after = embedding_step(before, corpus, 40.0)
        error = alignment_error(before, after, corpus, 40.0)
        return after.embeddings @ after.head, predicted_alignment(corpus, 40.0), error

    values, predicted, error = stepped()
    alpha = importance(corpus) if heads == 1 else class_importance(corpus, classes=3)
    wanted = 40 * slope * np.asarray(alpha)
    np.testing.assert_allclose(values, wanted, atol=1e-5)
    assert_close(predicted, wanted)
    assert error < 1e-6


def test_the_error_is_its_formula_at_a_small_dimension():
    """‖E¹ − E⁰ − (η₀/2) α vᵀ‖ / ‖(η₀/2) α‖ in plain NumPy, at d = 8."""
    corpus, eta = from_sequences([[0, 0, 1], [1, 2]], [1, -1], vocabulary=3), 6.0
    before = gaussian(jax.random.key(3), vocabulary=3, dim=8)
    after = compiled_step(before, corpus, eta)
    alpha = np.array([2 / 3, 1 / 3 - 1 / 2, -1 / 2]) / 2
    step = np.asarray(after.embeddings - before.embeddings)
    wanted = eta / 2 * np.outer(alpha, before.head)
    error = np.linalg.norm(step - wanted) / np.linalg.norm(eta / 2 * alpha)
    measured = jax.jit(alignment_error)(before, after, corpus, eta)
    np.testing.assert_allclose(measured, error, rtol=1e-12)


@partial(jax.jit, static_argnames="number")
def steps_of(number, before, corpus, step_size):
    return embedding_steps(number)(before, corpus, step_size)


def test_several_steps_are_that_many_single_ones():
    corpus = corpus_of("arbitrary")
    before = gaussian(jax.random.key(3), vocabulary=corpus.vocabulary, dim=11)
    wanted = before
    for _ in range(3):
        wanted = compiled_step(wanted, corpus, 30.0)
    found = steps_of(3, before, corpus, 30.0)
    assert_close(found.embeddings, wanted.embeddings)
    np.testing.assert_array_equal(found.query, before.query)
    np.testing.assert_array_equal(found.head, before.head)
    none = steps_of(0, before, corpus, 30.0)
    np.testing.assert_array_equal(none.embeddings, before.embeddings)


def test_steps_are_differentiable_and_their_number_may_be_traced():
    corpus = corpus_of("assumption one")
    before = gaussian(jax.random.key(3), vocabulary=corpus.vocabulary, dim=11)
    weights = np.cos(np.arange(before.embeddings.size))

    def along(number, step_size):
        found = embedding_steps(number)(before, corpus, step_size)
        return weights @ found.embeddings.ravel()

    @jax.jit
    def slopes(step_size):
        _, push = jax.linearize(partial(along, 4), step_size)
        return push(1.0), *jax.linear_transpose(push, step_size)(1.0)

    @jax.jit
    def traced(number, step_size):
        return jax.jvp(partial(along, number), (step_size,), (1.0,))

    (above, _), (below, _) = (traced(4, 30.0 + x) for x in (1e-4, -1e-4))
    forward, reverse = slopes(30.0)
    assert float(forward) == pytest.approx(float(above - below) / 2e-4, rel=1e-6)
    assert_close(reverse, forward)
    assert_close(traced(4, 30.0)[1], forward)


def test_values_of_two_tokens_seldom_differ_in_sign_after_a_large_step():
    """Bag {0, 1} under both labels: probability (2/π) arctan(1/|1 − η₀/8|)."""
    corpus = from_sequences([[0, 1], [0, 1]], [1, -1], vocabulary=2)
    draws = 10_000

    @jax.jit
    @partial(jax.vmap, in_axes=(0, None))
    def differ(key, step_size):
        before = gaussian_reduced(key, vocabulary=2, dim=1e9)
        after = embedding_step(before, corpus, step_size)
        first, second = after.embeddings @ after.head
        return first * second < 0

    laws = ((0.0, 0.5), (100.0, 0.055), (1000.0, 0.005))
    starts = jax.random.split(jax.random.key(0), (len(laws), draws))
    for keys, (step_size, wanted) in zip(starts, laws, strict=True):
        law = 2 / np.pi * np.arctan(1 / abs(1 - step_size / 8))
        assert round(law, 3) == wanted
        spread = np.sqrt(law * (1 - law) / draws)
        share = np.asarray(differ(keys, step_size)).mean()
        assert abs(share - law) < 4 * spread
