"""Duals refute a problem only if they are a convex combination of its pairs."""

import jax
import numpy as np
import pytest

from jaxselect.margin.pairs import PairMask
from jaxselect.margin.qp import ALLOWED, Candidate, QuadraticProgram, measured

# On one axis, at 0, 1, 2 and −1.
EPS = np.finfo(float).eps
TOKENS = np.array([[0.0, 0.0], [1.0, 0.0], [2.0, 0.0], [-1.0, 0.0]])
# Pairs, their duals, p along the axis, and whether no p keeps the pairs apart.
CASES = {
    "both ways": ({(1, 0): 0.5, (0, 1): 0.5}, 0.0, True),
    "with a sum of two": ({(1, 0): 1.0, (0, 1): 1.0}, 0.0, False),
    "with a negative dual": ({(1, 0): 2.0, (2, 0): -1.0}, 0.0, False),
    "with a dual off the pairs": ({(1, 0): 0.5, (3, 0): 0.5}, 0.0, False),
    "beside a p": ({(1, 0): 0.5, (0, 1): 0.5}, 1.0, False),
    "with no dual": ({(1, 0): 0.0}, 0.0, False),
    "that leave a rest": ({(1, 0): 0.5, (2, 0): 0.5}, 0.0, False),
}


@jax.jit
def measure(tokens, pairs, candidate):
    """With twice the digits, as wherever a difference may be blurred."""
    return measured(
        QuadraticProgram(tokens, PairMask(pairs), np.array(1e-300)), candidate
    )


@pytest.mark.parametrize("case", CASES)
def test_duals_that_refute(case):
    given, along, refuted = CASES[case]
    duals, pairs = np.zeros((4, 4)), np.zeros((4, 4), bool)
    for pair, dual in given.items():
        duals[pair] = dual
        # Token 3 is in no pair.
        pairs[pair] = 3 not in pair
    candidate = Candidate(np.array([along, 0.0]), duals, np.array(1e-9))
    found = jax.tree.map(np.asarray, measure(TOKENS, pairs, candidate))
    assert (found.balance < 1e-9) == refuted
    assert found.active.any() == (along == 1.0)


@pytest.mark.parametrize("size", [0.01, 100.0])
def test_the_gap_that_rounding_allows_is_relative_to_the_length_of_p(size):
    """Two differences (1, ±999) and p = (1, 0): κ = √(1 + 999²) at any common scale."""
    tokens = np.zeros((4, 2))
    tokens[[0, 1]] = size * np.array([[1.0, 999.0], [1.0, -999.0]])
    pairs = np.zeros((4, 4), bool)
    pairs[[0, 1], 2] = True
    duals = np.where(pairs, 0.5 / size**2, 0.0)
    candidate = Candidate(np.array([1.0, 0.0]) / size, duals, np.array(1e-9))
    found = measure(tokens, pairs, candidate)
    kappa = np.hypot(1.0, 999.0)
    np.testing.assert_allclose(found.allowed, ALLOWED * EPS * kappa, rtol=1e-12)
    assert found.active[0, 2] and found.gap < 1e-12
