"""The Jacobian of the pulls in each of the ways to add it up.

Source: mathematics, section 3a.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxselect.data.corpus import from_sequences
from jaxselect.data.synthetic import assumption_one
from jaxselect.model import curvature
from jaxselect.model.curvature import _BLOCK, _FEW, score_curvature
from tests.model.bags import CORPUS, VOCABULARY
from tests.tolerances import assert_close


def by_token(scores, values, corpus, log_scale=0.0):
    # Traces are remembered by their shapes: this is the function beneath.
    entries = corpus.logits(scores), corpus.gather(values)
    return score_curvature.__wrapped__(*entries, corpus, log_scale)


# Bags that fill some blocks but not the last, and such of one token more than a few.
WIDE = assumption_one(
    jax.random.key(0),
    sequences=2 * _BLOCK + 6,
    length=2 * _FEW + 3,
    relevant=3,
    irrelevant=24,
)
NARROW = from_sequences(
    [np.random.default_rng(seed).permutation(9)[: _FEW + 1] for seed in range(30)],
    [1, -1] * 15,
    vocabulary=9,
)


@pytest.mark.parametrize("corpus", [WIDE, NARROW], ids=["wide", "narrow"])
def test_pair_by_pair_it_is_the_product(monkeypatch, corpus):
    """With none of the sequences decided, some between a few tokens, and nearly all."""
    normal = jax.random.normal(jax.random.key(1), (3, corpus.vocabulary))
    scores, values, change = normal

    def ways(large):
        monkeypatch.setattr(curvature, "LARGE_PRODUCT", large)

        def at(size):
            way = lambda scores: by_token(scores, values, corpus, size)  # noqa: E731
            value, back = jax.vjp(way, size * scores)
            weight = jnp.outer(change, change)
            slope = jax.jvp(way, (size * scores,), (change,))
            return value, slope, back((change, weight))

        sizes = jnp.array([1.0, 5.0, 10.0, 50.0, 300.0])
        return jax.jit(lambda: jax.lax.map(at, sizes))()

    for one, other in zip(*map(jax.tree.leaves, map(ways, (0, np.inf))), strict=True):
        for ours, wanted in zip(one, other, strict=True):
            size = float(jnp.max(jnp.abs(wanted)))
            assert_close(ours / size, wanted / size)


def test_what_is_no_number_is_not_left_out(monkeypatch):
    """Tokens 0, 2 and 4 share a sequence: entries of two of them imply the third's."""
    monkeypatch.setattr(curvature, "LARGE_PRODUCT", 0)
    scores = jnp.arange(float(VOCABULARY)).at[2].set(jnp.nan)
    jacobian = by_token(scores, jnp.arange(5.0), CORPUS)[1]
    assert jnp.isnan(jacobian[0, 4])
