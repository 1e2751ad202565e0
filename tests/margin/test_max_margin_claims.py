"""The claim of a status, checked again in exact arithmetic by the numbers beside it.

Source: mathematics, section 3c.
"""

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from jaxselect.status import Reason
from tests.margin.exact import assert_true, lane
from tests.margin.pair_problems import (
    MIXED,
    NO_SOLUTION,
    long_axis,
    mixed_problem,
    small,
    small_problem,
    solve,
    solve_each,
    solve_together,
)

# Whose short differences, or angles, are those decades below the rest.
FAINT = ("clusters", "nearly parallel")


@pytest.mark.parametrize(
    ("dtype", "decades"),
    [(np.float64, 5.0), (np.float64, 16.0), (np.float32, 2.0), (np.float32, 8.0)],
)
@pytest.mark.parametrize("family", MIXED)
def test_what_is_claimed_of_mixed_scales_is_exact(family, dtype, decades):
    """In double precision lengths over five decades are decided."""
    problems = [mixed_problem(family, seed, decades) for seed in range(16)]
    embeddings, pairs = map(np.stack, zip(*problems, strict=True))
    embeddings = embeddings.astype(dtype)
    found = solve_each(embeddings, pairs)
    for number in range(len(pairs)):
        assert_true(embeddings[number], pairs[number], lane(found, number))
    solved = found.status == Reason.NONE
    assert not (solved.any() and family in NO_SOLUTION)
    if decades == 5.0 and family not in FAINT:
        assert (found.status != Reason.NOT_CONVERGED).all()
        assert family in NO_SOLUTION or solved.sum() > 5


@hypothesis.settings(max_examples=100)
@hypothesis.given(small, st.sampled_from(MIXED), st.integers(-310, 300))
def test_no_claim_is_false(seed, family, exponent):
    """Any family at any common scale, on both sides of what the format can hold."""
    embeddings, pairs = mixed_problem(family, seed, decades=4.0)
    with np.errstate(all="ignore"):
        embeddings = np.nan_to_num(embeddings * 10.0**exponent, posinf=1e308)
    solution = solve(embeddings, pairs)
    assert_true(embeddings, pairs, solution)
    if abs(exponent) < 130 and family not in FAINT:
        assert solution.status != Reason.NOT_CONVERGED


def wedge(seed, length, far):
    """Two long differences that nearly oppose each other, and one that is shorter.

    The two decide p, of length about one, and their duals cancel to ‖p‖ = Σ λ ‖D‖ / κ
    with κ about the length.
    """
    rng = np.random.default_rng(seed)
    turn = np.linalg.qr(rng.normal(size=(6, 6)))[0]
    tokens, pairs = np.zeros((8, 6)), np.zeros((8, 8), bool)
    tokens[0, :2] = 1.0, length
    tokens[2, :2] = rng.uniform(0.5, 2.0), -length * rng.uniform(0.5, 2.0)
    tokens[3, 0] = 3.0
    pairs[[0, 2, 3], 1] = True
    return tokens @ turn + far * rng.normal(size=6), pairs


@pytest.mark.parametrize("far", [0.0, 1e6])
@pytest.mark.parametrize("decades", [0, 1, 2, 3, 5, 8])
def test_duals_that_cancel_are_solved_as_far_as_rounding_of_p_allows(decades, far):
    """κ up to 10³; beyond, the gap that is claimed is exact, or nothing is."""
    for seed in range(6):
        tokens, pairs = wedge(seed, 10.0**decades, far)
        solution = solve(tokens, pairs)
        assert_true(tokens, pairs, solution)
        assert solution.status != Reason.INFEASIBLE
        assert solution.status == Reason.NONE or decades > 3


@hypothesis.settings(max_examples=15)
@hypothesis.given(small, st.sampled_from(MIXED))
def test_a_batch_of_claims_is_its_lanes(seed, family):
    """A lane that needs more digits leaves the others as they are."""
    problems = [
        problem
        for start in (seed, seed + 1)
        for problem in (
            small_problem(start)[1:],
            mixed_problem(family, start, decades=4.0),
            small_problem(start, False)[1:],
        )
    ]
    embeddings, pairs = map(np.stack, zip(*problems, strict=True))
    together = solve_together(embeddings, pairs)
    for number, problem in enumerate(problems):
        own, alone = lane(together, number), solve(*problem)
        assert own.status == alone.status
        assert_true(*problem, own)


def test_pairs_active_beside_far_longer_ones():
    """One axis 10⁸ times longer: active pairs are those that an exact check finds."""
    rng = np.random.default_rng(5)
    embeddings, pairs = np.zeros((64, 66)), np.zeros((64, 64), bool)
    embeddings[:16, :18], pairs[:16, :16] = long_axis(rng, 16, 18)
    embeddings[:, 0] *= 1e6
    solution = solve(embeddings, pairs)
    assert solution.status == Reason.NONE
    rows = np.longdouble(embeddings)[:, None] - np.longdouble(embeddings)[None]
    ahead = np.float64(rows @ np.longdouble(solution.direction))
    active = solution.active
    assert (np.abs(ahead - 1)[active] <= 1e-3).all()
    assert (ahead[pairs & ~active] > 1).all()
