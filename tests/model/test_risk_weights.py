"""Weights and losses of a corpus: gradients of its risk, and what weights stand for.

Source: mathematics, section 1b.
"""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.common.model import accuracy, empirical_risk
from jaxselect import attention, from_bags, from_sequences
from jaxselect.data.components import components
from jaxselect.data.loss import EXPONENTIAL, LOGISTIC, POLYNOMIAL
from jaxselect.margin.pairs import pair_strength, pairs_of
from jaxselect.model.attention import log_strongest_pull, negative_gradient
from jaxselect.model.curvature import score_curvature
from jaxselect.model.parameters import Parameters
from jaxselect.model.selection import (
    competing_pairs,
    coverage,
    importance,
    important_tokens,
    mean_coverage,
    selected_tokens,
)
from tests.model.bags import CORPUS, VOCABULARY
from tests.tolerances import assert_close

LOSSES = (LOGISTIC, EXPONENTIAL, POLYNOMIAL)
SEQUENCES = [[0, 2, 2, 4], [0, 3, 3], [1, 2], [1, 3, 4, 4]]
LABELS = [1, 1, -1, -1]
NUMBERS = [*map(jnp.asarray, np.random.default_rng(0).normal(size=(2, VOCABULARY)))]
SELECT = jax.jit(selected_tokens)


def by_entry(scores, values, corpus):
    return corpus.logits(scores), corpus.gather(values), corpus


def model_of(scores, values):
    """Embeddings, p and v whose scores and values are these, of one head or several."""
    rows = jnp.concatenate([scores[:, None], values.reshape(len(scores), -1)], axis=1)
    axes = jnp.eye(rows.shape[1])
    return Parameters(rows, axes[0], axes[1] if values.ndim == 1 else axes[:, 1:])


def bags(sequences, labels, weights=None, loss=POLYNOMIAL):
    return from_sequences(
        sequences, labels, vocabulary=VOCABULARY, weights=weights, loss=loss
    )


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
@pytest.mark.parametrize("classes", [2, 3])
def test_derivatives_are_those_of_the_risk(classes, loss):
    """Derivatives in scores and values, and curvature, at weights that differ."""
    weights = jnp.array([0.1, 0.3, 0.05, 0.35, 0.2])
    corpus = replace(CORPUS, weights=weights, loss=loss)
    if classes == 3:
        labels = jnp.array([0, 1, 2, 1, 0], CORPUS.labels.dtype)
        corpus = replace(corpus, labels=labels, classes=3)

    def risk(scores, values):
        return empirical_risk(model_of(scores, values), corpus)

    @jax.jit
    @jax.vmap
    def both(scores, values):
        slopes = jax.grad(risk, (0, 1))
        twice = lambda scores: (slopes(scores, values),) * 2  # noqa: E731
        hessian, by_autodiff = jax.jacfwd(twice, has_aux=True)(scores)
        descent = negative_gradient(scores, values, corpus)
        bent = score_curvature(*by_entry(scores, values, corpus))
        return by_autodiff, hessian[0], bent, descent

    sizes = np.repeat([0.1, 1.0, 10.0], 20)[:, None, None]
    drawn = sizes * np.random.default_rng(1).normal(size=(60, VOCABULARY, 1 + classes))
    scores, values = drawn[..., 0], drawn[..., 1 if classes == 2 else slice(1, None)]
    slopes, hessian, (pulled, curved), descent = both(scores, values)
    assert_close(-descent.scores, slopes[0])
    assert_close(-descent.values, slopes[1])
    assert_close(pulled, descent.scores)
    # A second derivative by autodiff loses the square of the largest value.
    assert_close(-curved, hessian, worse=100)


@jax.jit
def statistics(corpus):
    """All that is a mean over sequences, or a set of tokens or pairs."""
    scores, values = NUMBERS
    selected = selected_tokens(scores, corpus)
    head = model_of(scores, values)
    strength = pair_strength(
        attention(head, corpus), selected, pairs_of(selected, corpus)
    )
    return {
        "risk": empirical_risk(head, corpus),
        "accuracy": accuracy(head, corpus),
        "gradient": negative_gradient(scores, values, corpus),
        "curvature": score_curvature(*by_entry(scores, values, corpus)),
        "importance": importance(corpus),
        "important": important_tokens(corpus),
        "pairs": competing_pairs(selected, corpus),
        "components": components(corpus),
        "strength": strength.factor * jnp.exp(strength.log_scale),
        "covered": jnp.nan_to_num(coverage(selected, corpus), nan=7.0),
    }


def assert_same(*corpora):
    one, other = map(statistics, corpora)
    for name, value in one.items():
        pairs = zip(*map(jax.tree.leaves, (value, other[name])), strict=True)
        for left, right in pairs:
            if left.dtype.kind != "f":
                np.testing.assert_array_equal(left, right, name)
            else:
                assert_close(left, right)


def test_whole_weights_are_repeated_sequences():
    times = [3, 1, 2, 1]
    repeated = [x for x, n in zip(SEQUENCES, times, strict=True) for _ in range(n)]
    labels = [y for y, n in zip(LABELS, times, strict=True) for _ in range(n)]
    assert_same(bags(SEQUENCES, LABELS, times), bags(repeated, labels))
    assert_same(bags(SEQUENCES, LABELS, [7.0] * 4), bags(SEQUENCES, LABELS))


def test_a_sequence_of_weight_zero_is_not_there():
    """It would connect tokens, compete, decide signs and be the strongest."""
    more, labels = [[1, 0, 0, 0, 0], *SEQUENCES[1:]], [-1, *LABELS[1:]]
    absent = bags(more, labels, [0, 1, 1, 2])
    rest = bags(SEQUENCES[1:], LABELS[1:], [1, 1, 2])
    assert_same(absent, rest)
    late = 3000.0 * NUMBERS[0], NUMBERS[1]
    strongest = jax.jit(lambda bags: log_strongest_pull(*by_entry(*late, bags)))
    assert_close(strongest(absent), strongest(rest))
    chosen = np.asarray(SELECT(NUMBERS[0], absent))
    assert not chosen[0].any() and chosen[1:].any(axis=1).all()


def test_padding_of_a_sequence_of_weight_zero_is_no_number_of_others():
    """Its first slot is empty, so that counts relative to it are 0/0."""
    padded = from_bags(
        [[0, 1], [0, 1]], [[0, 1], [1, 1]], [1, 1], vocabulary=2, weights=[0, 1]
    )
    scores, values = jnp.array([[1.0, 0.0], [1.0, -1.0]])
    problem = attention(model_of(scores, values), padded)
    chosen = SELECT(scores, padded)
    pairs = pairs_of(chosen, padded)
    strength = jax.jit(pair_strength)(problem, chosen, pairs)
    assert_close(strength.factor[0, 1], 2.0)


def test_shares_are_of_weights():
    """With label +1 the sequence of weight 3 keeps its token, that of 1 does not."""
    weighed = bags([[0, 3], [1, 3], [2, 3]], [1, 1, -1], [3, 1, 1])
    chosen = jnp.array([[True, False], [False, True], [True, False]])
    assert_close(coverage(chosen, weighed), np.array([0.75, 1.0]))
    # Over all: (3 + 1) of 5.
    assert_close(mean_coverage(jnp.array([0.75, 1.0]), weighed), np.array(0.8))
    assert_close(mean_coverage(jnp.array([0.75, np.nan]), weighed), np.array(0.75))


def test_a_class_that_keeps_all_its_tokens_has_the_share_one():
    """Exactly, as the status of a run asks for, in whatever order weights add up."""
    plain = bags([[n % 4, 4] for n in range(24)], [1 - 2 * (n % 2) for n in range(24)])
    chosen = plain.present & (plain.tokens < 4)

    @jax.jit
    @jax.vmap
    def shares(key):
        weights = jax.nn.softmax(jax.random.normal(key, (24,)))
        return coverage(chosen, replace(plain, weights=weights))

    assert (shares(jax.random.split(jax.random.key(0), 64)) == 1).all()
