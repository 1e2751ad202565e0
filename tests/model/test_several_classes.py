"""K heads: late pulls, the first step, coverage, refusals.

Source: mathematics, section 1c.
"""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxselect import BadInput, from_bags, from_sequences, multi_class
from jaxselect.data.loss import EXPONENTIAL, LOGISTIC, POLYNOMIAL
from jaxselect.flow.cls import output_forces
from jaxselect.model.attention import functional_margin, negative_gradient
from jaxselect.model.parameters import frame, gaussian, gaussian_reduced
from jaxselect.model.selection import (
    class_importance,
    coverage,
    important_tokens,
    selected_tokens,
)
from jaxselect.model.step import alignment_error, embedding_step, predicted_alignment
from tests.tolerances import assert_close

TOKENS, CLASSES = 6, 3
BAGS = from_bags(
    [[0, 3, 4], [1, 3, 5], [2, 4, 5], [0, 5, 3]],
    [[1, 2, 1], [1, 1, 2], [2, 1, 1], [1, 1, 0]],
    [0, 1, 2, 0],
    vocabulary=TOKENS,
    classes=CLASSES,
    weights=[1, 2, 3, 4],
)


def test_late_pulls_are_exact():
    """e^s times the pull of a token that is s behind: (1 − π_y) Σ w_k (lead of it)."""
    late = jnp.array([700.0, 0.0])
    values = jnp.array([[0.5, -0.2, 0.1], [-1.0, 0.3, 0.2]])
    bags = from_sequences([[0, 1]], [0], vocabulary=2, classes=3)
    found = negative_gradient(late, values, bags, log_scale=700.0).scores
    posterior = np.exp(values[0]) / np.exp(values[0]).sum()
    wanted = (np.eye(3)[0] - posterior) @ (values[0] - values[1])
    assert_close(found, np.array([wanted, -wanted]))


@pytest.mark.parametrize("dim", [5, 100])
def test_framing_keeps_values(dim):
    @jax.jit
    def found():
        wide = gaussian(jax.random.key(6), vocabulary=4, dim=dim, heads=3)
        inside, *_ = frame(wide)
        return [each.embeddings @ each.head for each in (inside, wide)]

    assert_close(*found())


@pytest.mark.parametrize(
    ("loss", "slope"), [(LOGISTIC, 1.0), (EXPONENTIAL, 3.0), (POLYNOMIAL, None)]
)
def test_the_first_step_moves_tokens_by_their_importance_for_each_class(loss, slope):
    """At d = 10¹⁶; −ℓ′(−log 2) · 3/2 is 1 for cross-entropy and 3 for e^{−m}."""
    corpus = replace(BAGS, loss=loss)
    if slope is None:
        start = -np.log(2.0)
        slope = 1.5 * (1 - start / np.sqrt(1 + start**2)) / 2
    sizes = {"vocabulary": TOKENS, "heads": CLASSES}

    @jax.jit
    def stepped():
        before = gaussian_reduced(jax.random.key(0), **sizes, dim=1e16)
        after = embedding_step(before, corpus, 40.0)
        error = alignment_error(before, after, corpus, 40.0)
        predicted = predicted_alignment(corpus, 40.0)
        return after.embeddings @ after.head, error, predicted

    values, error, predicted = stepped()
    wanted = 40 * slope * np.asarray(class_importance(corpus, classes=CLASSES))
    assert_close(predicted, wanted)
    # The error of the lemma is of order d^{−1/2}, 40 times 1e-8.
    np.testing.assert_allclose(values, wanted, atol=1e-5)
    assert error < 1e-6


def test_important_tokens_occur_with_one_class():
    assert important_tokens(BAGS).tolist() == [True, True, True, False, False, False]
    absent = replace(BAGS, weights=jnp.array([0.0, 0.2, 0.3, 0.5]))
    # Tokens 3 and 4 are left with one class each.
    assert important_tokens(absent).tolist() == [True] * 5 + [False]
    chosen = selected_tokens(jnp.array([3.0, 2.0, 1.0, 0.0, 2.5, 0.0]), BAGS)
    assert coverage(chosen, BAGS).tolist() == [1.0, 1.0, 0.0]


PLAIN = gaussian(jax.random.key(0), vocabulary=6, dim=9)


def test_the_number_of_classes_is_seen_while_tracing():
    """Labels may be traced: what suits is known of the shapes."""
    family = partial(
        multi_class, sequences=6, length=2, relevant=1, irrelevant=3, classes=3
    )
    with pytest.raises(BadInput, match="3 classes with one head"):
        jax.jit(lambda key: embedding_step(PLAIN, family(key), 1.0))(jax.random.key(0))


@pytest.mark.parametrize("classes", [2, 3])
def test_forces_on_outputs_change_by_no_more_than_the_largest_ratio(classes):
    """|log ∂ℓ/∂f_k(f + d) − log ∂ℓ/∂f_k(f)| ≤ κ̄ max |d_y − d_k|, and nearly as much."""
    rng = np.random.default_rng(0)
    f, d = rng.normal(size=(2, 4000, classes)) * np.array([3.0, 1e-3])[:, None, None]
    labels = jnp.asarray(rng.integers(0, classes, 4000), jnp.int32)
    here, there = (
        functional_margin(labels, jnp.asarray(x), LOGISTIC) for x in (f, f + d)
    )
    before, after = (output_forces(each, LOGISTIC) for each in (here, there))
    change = jnp.abs(jnp.log(after / before)).max(axis=1)
    lead = jnp.abs(here.leads(jnp.asarray(d)[:, None])).max(axis=(1, 2))
    bound = here.largest_ratio(LOGISTIC)
    assert (change <= bound * lead).all() and (change > 0.6 * bound * lead).any()
