"""The sparse corpus against the padded one, its gradients against autodiff.

Source: mathematics, section 1a.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from experiments.common import model as objective
from experiments.text import counts as sparse
from experiments.text import objective as sparse_objective
from jaxselect import EXPONENTIAL, POLYNOMIAL, importance
from jaxselect.data import corpus as padded
from jaxselect.model import attention, parameters
from tests.tolerances import assert_close


def bags(vocabulary, sequences, tail, seed=0):
    """Bags whose lengths have a heavy tail, so that rows have several pieces."""
    rng = np.random.default_rng(seed)
    lengths = 1 + (rng.pareto(1.0, sequences) * tail).astype(int).clip(0, 300)
    drawn = [rng.integers(0, vocabulary, length) for length in lengths]
    return padded.from_sequences(
        drawn, rng.choice([-1, 1], sequences), vocabulary=vocabulary
    )


# The smallest, and one of absent tokens whose rows have several pieces.
CORPORA = {"one token": bags(1, 1, 0), "long and short": bags(500, 40, 5)}
OTHER_LOSSES = [
    dataclasses.replace(CORPORA["long and short"], loss=loss)
    for loss in (EXPONENTIAL, POLYNOMIAL)
]
every_corpus = pytest.mark.parametrize("dense", CORPORA.values(), ids=CORPORA)
RISK = jax.jit(sparse_objective.risk_and_score_descent)
DESCENT = jax.jit(sparse_objective.risk_and_descent)
READ = jax.jit(sparse_objective.read)
EXPAND = jax.jit(sparse_objective.expand)
PADDED = jax.jit(attention.negative_gradient)
PADDED_RISK = jax.jit(objective.empirical_risk)
PADDED_SLOPE = jax.jit(jax.grad(objective.empirical_risk))
DRAWN = jax.jit(parameters.gaussian, static_argnames=("vocabulary", "dim"))
ATTEND = jax.jit(objective.attend_corpus)
SEEDS, SPREADS = st.integers(0, 2**31), st.floats(0.1, 100.0)


def model(dense, seed=0, dim=5, spread=1.0):
    drawn = DRAWN(jax.random.key(seed), vocabulary=dense.vocabulary, dim=dim)
    return parameters.Parameters(drawn.embeddings, spread * drawn.query, drawn.head)


@given(SEEDS, SPREADS, st.sampled_from([*CORPORA.values(), *OTHER_LOSSES]))
def test_risk_and_gradient_are_those_of_padded_bags(seed, spread, dense):
    drawn = model(dense, seed, spread=spread)
    a, b = drawn.embeddings @ drawn.query, drawn.embeddings @ drawn.head
    risk, descent = RISK(a, b, sparse.from_corpus(dense))
    wanted = PADDED(a, b, dense)
    assert_close(descent.scores, wanted.scores)
    assert_close(descent.values, wanted.values)
    assert_close(risk, PADDED_RISK(drawn, dense))


@every_corpus
def test_factored_gradient_is_that_of_autodiff(dense):
    drawn = model(dense)
    _, descent = DESCENT(drawn, sparse.from_corpus(dense))
    wanted = PADDED_SLOPE(drawn, dense)
    got = EXPAND(descent, drawn)
    jax.tree.map(lambda x, y: assert_close(x, -y), got, wanted)


@every_corpus
def test_importance_occurrences_and_posteriors_are_those_of_padded_bags(dense):
    corpus = sparse.from_corpus(dense)
    number, signed = np.zeros((2, dense.vocabulary))
    counts = np.asarray(dense.counts)
    np.add.at(number, dense.tokens, counts)
    np.add.at(signed, dense.tokens, np.asarray(dense.labels)[:, None] * counts)
    with np.errstate(invalid="ignore"):
        posterior = signed / number
    assert_close(sparse.importance(corpus), importance(dense))
    assert_close(sparse.occurrences(corpus), number)
    assert_close(sparse.posterior_difference(corpus), posterior)


@every_corpus
def test_evaluate_agrees_with_the_padded_objective(dense):
    drawn = model(dense)
    metrics = sparse_objective.evaluate(drawn, sparse.from_corpus(dense))
    assert_close(metrics.loss, PADDED_RISK(drawn, dense))
    assert_close(metrics.accuracy, jax.jit(objective.accuracy)(drawn, dense))


@every_corpus
def test_weights_select_sequences(dense):
    """Weights on a subset give the gradient of that subset alone."""
    chosen = np.arange(len(dense.labels)) % 2 == 0
    weights = jnp.asarray(chosen / chosen.sum())
    half = padded.Corpus(*rows_of(dense, chosen), dense.vocabulary)
    drawn = model(dense)
    risk, descent = DESCENT(drawn, sparse.from_corpus(dense), weights)
    wanted_risk, wanted = DESCENT(drawn, sparse.from_corpus(half))
    assert_close(risk, wanted_risk)
    jax.tree.map(assert_close, descent, wanted)


COUNTS = st.sampled_from([0.0, 0.0, 1.0, 1.0, 2.0, 0.5, 37.0])


@given(st.lists(st.lists(COUNTS, min_size=40, max_size=40), min_size=1, max_size=4))
def test_a_matrix_survives_the_cutting_and_multiplies_like_scipys(rows):
    """Ones and other counts stand apart; nothing may be lost or counted twice."""
    counts = csr_array(np.array([[1.0, *row] for row in rows]))
    corpus = sparse.from_csr(counts, np.ones(len(rows)))
    x, y = np.sin(np.arange(41.0)), np.cos(np.arange(41.0))
    assert (corpus.by_sequence.to_csr() != counts).nnz == 0
    assert (corpus.by_token.to_csr() != counts.T).nnz == 0
    for got, wanted in zip(
        sparse.products(corpus.by_sequence, jnp.asarray(x), jnp.asarray(y)),
        (counts @ x, counts @ y),
        strict=True,
    ):
        assert_close(got, wanted)


def test_scores_too_far_apart_for_one_shift_give_nan_not_a_number():
    """Where the padded objective still has an answer, the sparse one must not guess."""
    dense = padded.from_sequences([[0, 1], [2]], [1, -1], vocabulary=3)
    a, b = jnp.array([2000.0, 0.0, -2000.0]), jnp.array([1.0, 2.0, 3.0])
    corpus = sparse.from_corpus(dense)
    assert jnp.isnan(sparse_objective.read(a, b, corpus).output).all()
    close = sparse_objective.read(a / 4, b, corpus).output
    assert_close(close, [1.0, 3.0])


def test_single_precision_is_single_precision():
    """The error of float32, the mode of accelerators, is that of its rounding."""
    rng = np.random.default_rng(0)
    drawn = [rng.integers(0, 50, 40) for _ in range(200)]
    dense = padded.from_sequences(drawn, rng.choice([-1, 1], 200), vocabulary=50)
    corpus = sparse.from_corpus(dense)

    def half(tree):
        small = {np.dtype("float64"): np.float32}
        return jax.tree.map(lambda x: x.astype(small.get(x.dtype, x.dtype)), tree)

    exact = DESCENT(model(dense), corpus)
    rounded = DESCENT(half(model(dense)), half(corpus))
    assert rounded[1].query.dtype == np.float32
    jax.tree.map(lambda x, y: assert_close(x, y), rounded, exact)


@pytest.mark.parametrize(
    ("counts", "labels", "message"),
    [
        ([[1.0, 0], [0, 0]], [1, -1], "sequence 1 is empty"),
        ([[1.0, 0]], [2], "labels \\[2\\]"),
        ([[1 + 1j]], [1], "counts of type complex128"),
        ([[1.0, 0]], [1, 1], "wanted 1 of them"),
        ([[1.0, np.nan]], [1], "not a positive number"),
    ],
)
def test_bad_counts_are_refused(counts, labels, message):
    with pytest.raises(ValueError, match=message):
        sparse.from_csr(csr_array(np.array(counts)), labels)


def dense_weights(dense, a):
    """Attention weights as a matrix, of the padded bags."""
    bags = ATTEND(a, a, dense)
    rows = np.arange(len(dense.labels))[:, None]
    weights = np.zeros((len(dense.labels), dense.vocabulary))
    np.add.at(weights, (rows, np.asarray(dense.tokens)), np.exp(bags.log_weights))
    return weights


@every_corpus
def test_weights_are_those_of_padded_bags_and_make_the_output(dense):
    """Counts above one included: a row adds up to one, and f = Σ_s q[s] b_s."""
    drawn, corpus = model(dense, spread=20.0), sparse.from_corpus(dense)
    a, b = jax.jit(attention.token_scores)(drawn)
    counts = corpus.by_sequence.to_csr()
    weights = sparse.attention_weights(counts, np.asarray(a))
    assert_close(weights.sum(axis=1), np.ones(len(dense.labels)))
    assert_close(weights.toarray(), dense_weights(dense, a))
    assert_close(READ(a, b, corpus).output, weights @ np.asarray(b))


def rows_of(dense, rows):
    """Tokens, counts and labels of some of the sequences."""
    leaves = dense.tokens, dense.counts, dense.labels
    return tuple(jnp.asarray(np.asarray(leaf)[rows]) for leaf in leaves)
