"""Rotations, scales, names and constraints of a max-margin problem."""

import hypothesis
import hypothesis.strategies as st
import numpy as np
from scipy.stats import ortho_group

from tests.margin.pair_problems import small, small_problem, solve
from tests.tolerances import assert_close


@hypothesis.given(small)
def test_rotation_turns_p(seed):
    rng, embeddings, pairs = small_problem(seed)
    turn = ortho_group.rvs(6, random_state=rng)
    here, there = solve(embeddings, pairs), solve(embeddings @ turn, pairs)
    # Both are rounded at the size of p; a narrow margin amplifies it once more.
    assert_close(there.direction, here.direction @ turn, worse=10 * here.norm)
    np.testing.assert_array_equal(here.active, there.active)


@hypothesis.given(small, st.floats(1e-6, 1e6))
def test_scaling_and_shifting_the_tokens(seed, scale):
    """E → cE + 1uᵀ gives p/c: only differences count."""
    rng, embeddings, pairs = small_problem(seed)
    here = solve(embeddings, pairs)
    there = solve(scale * (embeddings + rng.normal(size=6)), pairs)
    assert_close(there.direction * scale, here.direction, worse=10 * here.norm)
    assert_close(there.duals * scale**2, here.duals, worse=100 * here.norm**2)


@hypothesis.given(small)
def test_relabelling_the_tokens(seed):
    rng, embeddings, pairs = small_problem(seed)
    order = rng.permutation(8)
    here = solve(embeddings, pairs)
    there = solve(embeddings[order], pairs[np.ix_(order, order)])
    assert_close(there.direction, here.direction, worse=10 * here.norm)
    np.testing.assert_array_equal(there.active, here.active[np.ix_(order, order)])


@hypothesis.given(small)
def test_a_pair_more_costs_norm(seed):
    """A constraint more never shortens p, and changes nothing if it held anyway."""
    rng, embeddings, pairs = small_problem(seed)
    here = solve(embeddings, pairs)
    scores = embeddings @ here.direction
    held = pairs | (scores[:, None] - scores[None, :] > 1 + 1e-6)
    assert_close(
        solve(embeddings, held).direction, here.direction, worse=10 * here.norm
    )
    fewer = pairs & (rng.random((8, 8)) < 0.7)
    assert solve(embeddings, fewer).norm <= here.norm * (1 + 1e-12)
