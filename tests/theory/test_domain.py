"""The theory's domain: its small numbers by definition, and what they exclude.

Source: mathematics, section 6e.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.theory.phases import in_domain, small_numbers
from experiments.theory.two_classes import (
    Ensemble,
    critical_alignment,
    start_asymmetry,
    step_size,
)
from jaxselect.data.synthetic import assumption_one
from tests.tolerances import assert_close

BASE = Ensemble(200.0, 8.0, 8.0, 48.0)
WIDE = Ensemble(96.0, 8.0, 16.0, 16.0)


def test_small_numbers_fall_with_the_dimension_but_for_the_counts():
    here, later = (small_numbers(BASE, dim, 1000.0) for dim in (1e4, 1e6))
    assert_close(jnp.stack(later[:2]), jnp.stack(here[:2]) / 10)
    assert here.spread == later.spread > 0
    # γ = 1000/256 is below γ_c/2 = 4.5; κ = γR(T − 1)/(IT).
    assert_close(here.value, 1000 / 256 * 8 * 7 / (48 * 8) / 100)
    assert_close(here.start, start_asymmetry(BASE, 1000 / 256) / 100)


def test_near_the_critical_alignment_the_start_is_asked_where_growth_is():
    critical = critical_alignment(BASE)
    found = small_numbers(BASE, 1e4, step_size(BASE, critical))
    assert_close(found.start, start_asymmetry(BASE, 0.5 * critical) / 100)


@pytest.mark.parametrize("relevant", [4, 7, 8])
def test_the_spread_is_that_of_the_counts_of_assumption_one(relevant):
    sizes = dict(sequences=40, length=3, relevant=relevant, irrelevant=5)
    corpus = assumption_one(jax.random.key(0), **sizes)
    tokens, times = (np.asarray(x).ravel() for x in (corpus.tokens, corpus.counts))
    counts = np.bincount(tokens, times)[:relevant]
    # Even: no token has two more than another, where chance alone would give ± √5.
    assert np.ptp(counts) <= 1
    found = small_numbers(Ensemble(40.0, 3.0, relevant, 5.0), 1e4, 10.0)
    assert_close(found.spread, counts.std() / counts.mean())


def test_the_domain_ends_where_a_number_is_no_longer_small():
    """R ≥ I near γ_c, small d, counts of one or two; not further from each."""
    near = step_size(WIDE, 9.0)
    for shape, dim, step, within in (
        (WIDE, 1e4, near, False),
        (WIDE, 1e7, near, True),
        # For κ alone.
        (Ensemble(96.0, 12.0, 24.0, 24.0), 1e5, 16367.0, False),
        (WIDE, 1e4, 0.3 * near, True),
        (BASE, 1e4, 1000.0, True),
        (BASE, 100.0, 300.0, False),
        (WIDE._replace(relevant=40.0), 1e9, 300.0, False),
        (WIDE._replace(relevant=48.0), 1e9, 300.0, True),
        # Where there is no edge.
        *((BASE, 1e9, step, False) for step in (0.0, np.inf, np.nan)),
    ):
        assert in_domain(shape, dim, step) == within
