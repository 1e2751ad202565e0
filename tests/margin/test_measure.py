"""Duals refute a problem only if they are a convex combination of its pairs."""

import jax
import numpy as np
import pytest

from jaxselect.margin.pairs import PairMask
from jaxselect.margin.qp import Candidate, QuadraticProgram, measured

# On one axis, at 0, 1, 2 and −1.
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
