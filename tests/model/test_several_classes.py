"""K heads: late pulls, the first step, coverage, refusals.

Source: mathematics, section 1c.
"""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxselect import from_bags
from jaxselect.data.loss import LOGISTIC
from jaxselect.flow.cls import output_forces
from jaxselect.model.attention import functional_margin
from jaxselect.model.parameters import frame, gaussian
from jaxselect.model.selection import (
    coverage,
    important_tokens,
    selected_tokens,
)
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


@pytest.mark.parametrize("dim", [5, 100])
def test_framing_keeps_values(dim):
    @jax.jit
    def found():
        wide = gaussian(jax.random.key(6), vocabulary=4, dim=dim, heads=3)
        inside, *_ = frame(wide)
        return [each.embeddings @ each.head for each in (inside, wide)]

    assert_close(*found())


def test_important_tokens_occur_with_one_class():
    assert important_tokens(BAGS).tolist() == [True, True, True, False, False, False]
    absent = replace(BAGS, weights=jnp.array([0.0, 0.2, 0.3, 0.5]))
    # Tokens 3 and 4 are left with one class each.
    assert important_tokens(absent).tolist() == [True] * 5 + [False]
    chosen = selected_tokens(jnp.array([3.0, 2.0, 1.0, 0.0, 2.5, 0.0]), BAGS)
    assert coverage(chosen, BAGS).tolist() == [1.0, 1.0, 0.0]


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
