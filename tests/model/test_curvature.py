"""The Jacobian of the forces, by tokens and by sequences.

Source: mathematics, section 3a.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxselect.data import corpus as corpus_module
from jaxselect.data.corpus import from_sequences, row_sums
from jaxselect.model import curvature
from jaxselect.model.curvature import query_curvature, score_curvature
from tests.model.bags import CORPUS, VOCABULARY
from tests.tolerances import assert_close

SEQUENCES, WIDTH, DIM = 12, 6, 3


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("vocabulary", [40, 400], ids=["laid out", "gathered"])
def test_by_sequence_it_is_that_by_tokens(monkeypatch, vocabulary, classes):
    """With its derivative; of undecided bags, of decided ones, and of several parts."""
    random = np.random.default_rng(vocabulary)
    bags = random.integers(0, vocabulary, (SEQUENCES, WIDTH))
    labels = np.arange(SEQUENCES) % 3 if classes > 2 else np.resize([-1, 1], SEQUENCES)
    corpus = from_sequences(bags, labels, vocabulary=vocabulary, classes=classes)
    rows = jnp.asarray(random.normal(size=(vocabulary, DIM)))
    heads = (classes,) if classes > 2 else ()
    values = corpus.gather(jnp.asarray(random.normal(size=(vocabulary, *heads))))
    query, moved = jnp.asarray(random.normal(size=(2, DIM)))
    monkeypatch.setattr(curvature, "score_curvature", None)

    def by_sequence(query):
        part = corpus.logits(rows @ query), values, corpus
        return query_curvature(rows, [part, part], 1.0)

    def by_token(query):
        part = corpus.logits(rows @ query), values, corpus
        gradient, jacobian = score_curvature(*part, 1.0)
        return 2 * gradient @ rows, 2 * rows.T @ jacobian @ rows

    for size in (1.0, 5.0, 50.0):
        found, wanted = (
            jax.tree.leaves(jax.jvp(form, (size * query,), (moved,)))
            for form in (by_sequence, by_token)
        )
        for ours, theirs in zip(found, wanted, strict=True):
            largest = float(jnp.max(jnp.abs(theirs)))
            assert_close(ours / largest, theirs / largest)


def test_what_is_no_number_is_not_left_out():
    """Tokens 0, 2 and 4 share a sequence: entries of two of them imply the third's."""
    scores = jnp.arange(float(VOCABULARY)).at[2].set(jnp.nan)
    entries = CORPUS.logits(scores), CORPUS.gather(jnp.arange(5.0))
    assert jnp.isnan(score_curvature(*entries, CORPUS)[1][0, 4])


@pytest.mark.parametrize("cached", [1, 2 * 3 * DIM, 2**16])
def test_sums_of_gathered_rows_are_those_of_all_terms(cached, monkeypatch):
    """Of sequences with none to all weights below rounding; and their derivatives."""
    monkeypatch.setattr(corpus_module, "_CACHED", cached)
    random = np.random.default_rng(3)
    rows = jnp.asarray(random.normal(size=(100, DIM)))
    tokens = jnp.asarray(random.integers(0, 100, (SEQUENCES, WIDTH)))
    steep = np.arange(SEQUENCES)[:, None, None] * random.normal(size=(WIDTH, 2))
    weights = jnp.asarray(np.exp(10 * steep)).at[0, :3].set(0.0)

    directly = lambda rows, weights: jnp.einsum("nwk,nwd->nkd", weights, rows[tokens])  # noqa: E731
    ours = lambda rows, weights: row_sums(rows, tokens, weights)  # noqa: E731
    size = jnp.abs(directly(jnp.abs(rows), weights)).max(axis=(1, 2), keepdims=True)
    assert_close(*(form(rows, weights) / size for form in (ours, directly)))
    for which in (0, 1):
        slopes = (
            jax.grad(lambda *given, form=form: jnp.sum(form(*given) / size), which)
            for form in (ours, directly)
        )
        assert_close(*(slope(rows, weights) for slope in slopes))
    assert jnp.isnan(ours(rows, weights.at[1, 1].set(jnp.nan))[1]).all()
