"""Properties of each family of corpora, over its whole range of settings.

Source: mathematics, section 3.
"""

import inspect
from functools import partial

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxselect import assumption_one, independent_tokens, multi_class, several_relevant
from jaxselect.data.corpus import from_bags
from jaxselect.model.selection import class_importance, importance, important_tokens

NAMES = ("sequences", "length", "relevant", "irrelevant")


def compiled(maker):
    """One program for all draws of a size; shares and purity are traced."""
    sizes = {*NAMES, "per_sequence", "classes"} & {*inspect.signature(maker).parameters}
    return jax.jit(maker, static_argnames=sorted(sizes))


one, independent = compiled(assumption_one), compiled(independent_tokens)
several, by_class = compiled(several_relevant), compiled(multi_class)
SIZES = [(2, 2, 1, 1), (40, 9, 5, 1), (10, 3, 8, 2)]
DOZEN = {"sequences": 12, "length": 5, "relevant": 3, "irrelevant": 7}
MAKERS = {
    "assumption one": partial(assumption_one, **DOZEN),
    "several": partial(several_relevant, **DOZEN, per_sequence=2, purity=0.6),
    "independent": partial(independent_tokens, **DOZEN, irrelevant_share=0.5),
    "four classes": partial(multi_class, **DOZEN, classes=4),
}


def importance_of(corpus):
    """α to its rounding, and which tokens are important."""
    found = jax.jit(lambda corpus: (importance(corpus), important_tokens(corpus)))
    alpha, important = map(np.asarray, found(corpus))
    return np.where(np.abs(alpha) < 1e-15 * len(corpus.labels), 0.0, alpha), important


def occurrences(corpus):
    """The number of each token, and P(+1 | s) − P(−1 | s)."""
    number, signed = np.zeros((2, corpus.vocabulary))
    counts, label = np.asarray(corpus.counts), np.asarray(corpus.labels)[:, None]
    np.add.at(number, corpus.tokens, counts)
    np.add.at(signed, corpus.tokens, label * counts)
    return number, signed / np.maximum(number, 1)


def assert_assumption_one(corpus, relevant):
    """One important token each, of its own label, and α = 0 for all others."""
    alpha, important = importance_of(corpus)
    tokens, counts = np.asarray(corpus.tokens), np.asarray(corpus.counts)
    here = important[tokens] & (counts > 0)
    assert (np.where(here, counts, 0).sum(axis=1) == 1).all()
    assert (alpha[~important] == 0).all() and not important[2 * relevant :].any()
    assert (alpha[:relevant] >= 0).all() and (alpha[relevant:] <= 0).all()
    return important


@pytest.mark.parametrize("size", SIZES)
@given(seed=st.integers(0, 2**31))
def test_assumption_one_holds_exactly(size, seed):
    sequences, length, relevant, _ = size
    corpus = one(jax.random.key(seed), **dict(zip(NAMES, size, strict=True)))
    important = assert_assumption_one(corpus, relevant)
    assert (np.asarray(corpus.counts).sum(axis=1) == length).all()
    assert (np.asarray(corpus.labels).sum() == 0) and len(corpus.labels) == sequences
    if sequences >= 2 * relevant:
        assert important[: 2 * relevant].all()


@pytest.mark.parametrize("name", MAKERS)
def test_batches_hold_valid_draws_with_padding_at_the_end(name):
    keys = jax.random.split(jax.random.key(0), 3)
    batch = jax.tree.map(np.asarray, jax.jit(jax.vmap(MAKERS[name]))(keys))
    classes = 4 if name == "four classes" else 2
    for drawn in zip(batch.tokens, batch.counts, batch.labels, strict=True):
        again = from_bags(*drawn, vocabulary=batch.vocabulary, classes=classes)
        assert (again.tokens == drawn[0]).all()
        filled = (drawn[1] > 0).astype(int)
        assert (np.diff(filled, axis=1) <= 0).all()
    assert len({drawn.tobytes() for drawn in batch.tokens}) == 3


@given(seed=st.integers(0, 2**31))
def test_independent_tokens_end_at_assumption_one(seed):
    """At δ̃ = (|S| − 1)/|S| every draw fulfils Assumption 1, not only most."""
    sizes = dict(zip(NAMES, (40, 6, 3, 14), strict=True))
    corpus = independent(jax.random.key(seed), **sizes, irrelevant_share=19 / 20)
    assert_assumption_one(corpus, 3)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_independent_tokens_have_the_stated_frequencies(share):
    """Posterior differences and the relevant share, within five standard errors."""
    sequences, length, relevant, irrelevant = 20_000, 8, 4, 12
    sizes = dict(zip(NAMES, (sequences, length, relevant, irrelevant), strict=True))
    corpus = independent(
        jax.random.key(0), **sizes, irrelevant_share=share, weakest=0.2
    )
    rho = share * 20 / 19
    number, found = occurrences(corpus)
    strength = np.linspace(rho + (1 - rho) * 0.2, 1, relevant)
    wanted = np.concatenate([strength, -strength, np.zeros(irrelevant)])
    seen = number > 0
    error = np.sqrt((1 - wanted**2 + 1e-12) / np.maximum(number, 1))
    # Positions of one sequence share its label; five standard errors allow for it.
    assert (np.abs(found - wanted)[seen] <= 5 * error[seen]).all()
    relevant_share = number[: 2 * relevant].sum() / number.sum()
    expected = (1 + (length - 1) * (1 - rho)) / length
    assert abs(relevant_share - expected) < 5 / np.sqrt(sequences * length)


MANY = {"length": 6, "relevant": 4, "irrelevant": 12, "per_sequence": 3}


@pytest.mark.parametrize("purity", [0.2, 0.9, 1.0])
def test_several_relevant_tokens_are_as_pure_as_asked(purity):
    corpus = several(jax.random.key(0), sequences=20_000, **MANY, purity=purity)
    number, found = (numbers[:8] for numbers in occurrences(corpus))
    wanted = purity * np.array([1, 1, 1, 1, -1, -1, -1, -1])
    off = np.abs(found - wanted)
    assert (off < 5 / np.sqrt(number)).all() and (off.any() or purity == 1)
    assert number.sum() == 3 * 20_000
    assert (importance_of(corpus)[0][8:] == 0).all()


@pytest.mark.parametrize("classes", [2, 3, 5])
def test_every_class_has_its_own_tokens(classes):
    sizes = dict(zip(NAMES, (4 * classes, 6, 2, 9), strict=True))
    corpus = by_class(jax.random.key(0), **sizes, classes=classes)
    alpha = np.asarray(class_importance(corpus, classes=classes))
    for k in range(classes):
        own = alpha[2 * k : 2 * k + 2]
        assert (own[:, k] > 0).all()
        assert (np.delete(own, k, axis=1) < 0).all()
    # Sums of up to n rounded shares of order one.
    np.testing.assert_allclose(alpha[2 * classes :], 0.0, atol=1e-15)
