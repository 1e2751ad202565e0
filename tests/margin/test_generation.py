"""A long list of pairs, solved by few of them: the answer is that of all.

Source: mathematics, section 3c.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxselect import Reason, from_sequences
from jaxselect.margin import generation, max_margin, pairs
from tests.tolerances import assert_close

BAGS, WIDTH, DIM, SHARED = 90, 12, 5, 40


def listed(seed, *, separable=True):
    """Tokens of their own, but for some that several bags share, and their pairs."""
    random = np.random.default_rng(seed)
    tokens = np.arange(BAGS * WIDTH).reshape(BAGS, WIDTH)
    tokens[: BAGS // 3, -2:] = random.integers(0, SHARED, (BAGS // 3, 2))
    rows = random.normal(size=(BAGS * WIDTH, DIM))
    scores = (rows @ random.normal(size=DIM))[tokens]
    top = scores.argmax(axis=1)
    if not separable:
        top = random.integers(0, WIDTH, BAGS)
    corpus = from_sequences(tokens, np.ones(BAGS, int), vocabulary=BAGS * WIDTH)
    chosen = np.asarray(corpus.tokens) == tokens[np.arange(BAGS), top][:, None]
    return jnp.asarray(rows), jnp.asarray(chosen), corpus


@pytest.fixture
def solved(monkeypatch):
    """How to solve a problem, at once or by sets of a few places."""

    def solve(problem, *, least=None):
        rows, chosen, corpus = problem
        monkeypatch.setattr(generation, "LEAST", least or 10**9)
        program = jax.jit(lambda *given: max_margin.max_margin(*given))
        given = pairs.pairs_of(chosen, corpus)
        assert isinstance(given, pairs.PairList)
        return program(rows, given)

    return solve


@pytest.mark.parametrize("seed", range(3))
def test_few_pairs_give_what_all_give(solved, seed):
    problem = listed(seed)
    wanted = solved(problem)
    for least in (4 * DIM, 256):
        found = solved(problem, least=least)
        assert found.status == wanted.status == Reason.NONE
        assert_close(found.direction / wanted.norm, wanted.direction / wanted.norm)
        assert_close(found.norm / wanted.norm, 1.0)
        assert (found.active == wanted.active).all()
        assert_close(found.duals / wanted.norm**2, wanted.duals / wanted.norm**2)


def test_few_pairs_refute_what_all_refute(solved):
    problem = listed(0, separable=False)
    found = solved(problem, least=4 * DIM)
    assert found.status == solved(problem).status == Reason.INFEASIBLE
    assert_close(found.duals.sum(), 1.0)


def test_a_pair_that_never_joined_a_set_is_seen(solved, monkeypatch):
    """By the numbers measured on all pairs: nothing is claimed of the others."""
    blind = lambda axes, pairs, point: jnp.zeros_like(pairs.held)  # noqa: E731
    monkeypatch.setattr(generation, "misses", blind)
    found = solved(listed(0), least=4 * DIM)
    assert found.status == Reason.NOT_CONVERGED
    assert found.gap > 1e-6
