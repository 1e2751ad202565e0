"""What a status claims, checked again in exact arithmetic by the numbers beside it."""

import importlib
from fractions import Fraction

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxselect.margin._interior_point import relative_gap
from jaxselect.margin._thresholds import REFUTED, SOLVED
from jaxselect.margin.max_margin import MaxMarginStatus, _status, max_margin
from jaxselect.margin.pair_graph import potentials
from tests.margin.pair_problems import (
    contradiction,
    differences,
    long_axis,
    small,
    small_problem,
    solve,
    solve_each,
)
from tests.tolerances import assert_close

# The name of the module leads to it even where its function has the same name.
max_margin_module = importlib.import_module("jaxselect.margin.max_margin")


def mixed_problem(family, seed, decades=8.0):
    """Eight tokens in six dimensions that stretch over some decades.

    Most of the problems are drawn with a p that keeps the pairs apart at an angle; a
    quarter, and all those of the families named for it, contradict themselves.
    """
    rng = np.random.default_rng(seed)
    half = decades / 2
    embeddings = rng.normal(size=(8, 6))
    direction = rng.normal(size=6)
    if family == "long and short tokens":
        embeddings *= 10 ** rng.uniform(-half, half, (8, 1))
    if family == "long and short axes":
        scale = 10 ** rng.uniform(-half, half, (1, 6))
        embeddings, direction = embeddings * scale, direction / scale[0]
    if family == "long and short entries":
        embeddings *= 10 ** rng.uniform(-half, half, (8, 6))
    if family == "clusters":
        apart = embeddings[4:] * 10 ** rng.uniform(-decades, 0, (4, 1))
        embeddings[4:] = embeddings[:4] + apart
    if family == "nearly parallel":
        size = 10 ** rng.uniform(-half / 2, half / 2, (8, 1))
        tilt = 10 ** -rng.uniform(half, 1.5 * decades) * rng.normal(size=(8, 6))
        embeddings = size * embeddings[:1] * (1 + tilt)
    if family == "far from the origin":
        embeddings += 10 ** rng.uniform(0, decades) * rng.normal(size=6)
    if family == "a token twice":
        embeddings[3] = embeddings[4]
    pairs = rng.random((8, 8)) < 0.4
    if family == "one pair":
        pairs[:] = False
    np.fill_diagonal(pairs, False)
    if rng.random() < 0.75:
        rows = embeddings[:, None] - embeddings[None]
        size = np.linalg.norm(rows, axis=2) * np.linalg.norm(direction)
        pairs &= rows @ direction > 0.1 * size
    if family == "a cycle":
        pairs[[0, 1, 2], [1, 2, 0]] = True
    if family == "both ways":
        pairs[[0, 1], [1, 0]] = True
    if family == "no difference":
        embeddings[3] = embeddings[4]
        pairs[3, 4] = True
    if not pairs.any():
        pairs[0, 1] = True
    return embeddings, pairs


NO_SOLUTION = ("a cycle", "both ways", "no difference")
MIXED = (
    "long and short tokens",
    "long and short axes",
    "long and short entries",
    "clusters",
    "nearly parallel",
    "far from the origin",
    "a token twice",
    "one pair",
    *NO_SOLUTION,
)


def exact(embeddings, pairs, solution):
    """Gap, infeasibility and ‖Σ λ D‖ / Σ λ ‖D‖ of the numbers as they are stored."""
    winner, loser = np.nonzero(pairs)
    duals = [Fraction(float(x)) for x in np.asarray(solution.duals)[winner, loser]]
    point = [Fraction(float(x)) for x in np.asarray(solution.direction)]
    rows = [
        [
            Fraction(float(a)) - Fraction(float(b))
            for a, b in zip(embeddings[s], embeddings[r], strict=True)
        ]
        for s, r in zip(winner, loser, strict=True)
    ]
    least = min(sum(a * b for a, b in zip(row, point, strict=True)) for row in rows)
    hull = [
        sum(weight * row[axis] for weight, row in zip(duals, rows, strict=True))
        for axis in range(len(point))
    ]
    length = sum(x * x for x in hull)
    square = sum(x * x for x in point)
    least = max(1 - least, Fraction(0))
    if square:
        gap = abs(1 - (2 * sum(duals) - length) / square)
        return float(gap), float(least), np.inf
    size = max(max(map(abs, row)) for row in rows) or Fraction(1)
    carried = sum(
        float(weight) * float(sum((x / size) ** 2 for x in row)) ** 0.5
        for weight, row in zip(duals, rows, strict=True)
    )
    balance = float(length / size**2) ** 0.5 / carried if carried else 0.0
    return 1.0, float(least), balance


def assert_true(embeddings, pairs, solution):
    """Nothing is claimed that exact arithmetic does not confirm."""
    eps = float(np.finfo(embeddings.dtype).eps)
    duals = np.asarray(solution.duals)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(solution))
    assert (duals >= 0).all() and (duals[~pairs] == 0).all()
    gap, infeasibility, balance = exact(embeddings, pairs, solution)
    if solution.status == MaxMarginStatus.SOLVED:
        # The numbers that are compared are themselves rounded, some ten times.
        assert gap <= (SOLVED + 16) * eps and infeasibility <= (SOLVED + 16) * eps
        assert abs(solution.gap - gap) <= SOLVED * eps
        assert abs(solution.infeasibility - infeasibility) <= SOLVED * eps
        norm = np.sqrt(np.sum(np.square(np.longdouble(solution.direction))))
        assert abs(solution.norm / norm - 1) <= 16 * eps
    if solution.status == MaxMarginStatus.INFEASIBLE:
        assert abs(np.sum(duals, dtype=np.longdouble) - 1) <= 16 * eps
        assert balance <= (REFUTED + 1) * eps
        assert (solution.direction == 0).all() and not solution.active.any()


def lane(batch, number):
    return jax.tree.map(lambda leaf: np.asarray(leaf[number]), batch)


@pytest.mark.parametrize(
    ("dtype", "decades"),
    [(np.float64, 8.0), (np.float64, 16.0), (np.float32, 4.0), (np.float32, 8.0)],
)
@pytest.mark.parametrize("family", MIXED)
def test_mixed_scales_are_solved_or_refuted_and_the_claim_is_exact(
    family, dtype, decades
):
    """Lengths over 8 decades in single precision, over 16 in double: all decided."""
    problems = [mixed_problem(family, seed, decades) for seed in range(32)]
    embeddings, pairs = map(np.stack, zip(*problems, strict=True))
    embeddings = embeddings.astype(dtype)
    found = solve_each(jnp.asarray(embeddings), jnp.asarray(pairs))
    for number in range(len(pairs)):
        assert_true(embeddings[number], pairs[number], lane(found, number))
    status = np.asarray(found.status)
    assert (status != MaxMarginStatus.NOT_CONVERGED).all()
    solved = status == MaxMarginStatus.SOLVED
    assert not solved.any() if family in NO_SOLUTION else solved.sum() > 10


@hypothesis.settings(max_examples=100)
@hypothesis.given(small, st.sampled_from(MIXED), st.integers(-160, 160))
def test_no_claim_is_false(seed, family, exponent):
    """Any family at any common scale, on both sides of what the format can hold."""
    embeddings, pairs = mixed_problem(family, seed)
    with np.errstate(all="ignore"):
        embeddings = np.nan_to_num(embeddings * 10.0**exponent, posinf=1e308)
    solution = jax.tree.map(np.asarray, solve(embeddings, pairs))
    assert_true(embeddings, pairs, solution)
    if abs(exponent) < 130:
        assert solution.status != MaxMarginStatus.NOT_CONVERGED


def corner(exponent):
    """Two nearly parallel differences, 10^e and 1 long: p is that of the short one."""
    tokens = np.array([[10.0**exponent, 0.0], [0.0, 0.0], [1.0, 10.0**-exponent]])
    return tokens, np.array([[0, 1, 0], [0, 0, 0], [0, 1, 0]], bool)


def rough(axes, pairs, found):
    """A point off by a millionth, with the gap that it has."""
    nearest = found.nearest * (1 + 1e-6 * jnp.cos(jnp.arange(len(axes))))
    point = axes @ potentials(found.duals)
    gap = relative_gap(axes, pairs, nearest, point)
    return found._replace(nearest=nearest, gap=gap)


def tilted(axes, pairs, found):
    """Duals off by a thousandth, with the gap that they leave."""
    tilt = 1 + 1e-3 * jnp.cos(jnp.arange(pairs.size).reshape(pairs.shape))
    duals = found.duals * tilt / jnp.sum(found.duals * tilt)
    gap = relative_gap(axes, pairs, found.nearest, axes @ potentials(duals))
    return found._replace(duals=duals, gap=gap)


METHODS = {
    "off": rough,
    "with other duals": tilted,
    "for which all vanishes": lambda axes, pairs, found: found._replace(
        vanishing=jnp.asarray(True)
    ),
    "with no duals": lambda axes, pairs, found: found._replace(
        duals=jnp.zeros_like(found.duals), vanishing=jnp.asarray(True)
    ),
    "for which nothing vanishes": lambda axes, pairs, found: found._replace(
        vanishing=jnp.asarray(False), certain=jnp.asarray(True)
    ),
    "that found no number": lambda axes, pairs, found: found._replace(
        nearest=found.nearest * jnp.nan
    ),
}


@pytest.mark.parametrize("name", METHODS)
def test_a_method_is_not_believed(name, monkeypatch):
    """What it returns is measured, and another method asked where that refuses it."""
    monkeypatch.setattr(max_margin_module, "polish", METHODS[name])
    each = jax.jit(lambda e, p: jax.lax.map(lambda one: max_margin(*one), (e, p)))
    problems = [small_problem(seed, planted=seed < 8)[1:] for seed in range(16)]
    embeddings, pairs = map(np.stack, zip(*problems, strict=True))
    truth, found = solve_each(embeddings, pairs), each(embeddings, pairs)
    np.testing.assert_array_equal(found.status, truth.status)
    for number, problem in enumerate(problems):
        assert_true(*problem, lane(found, number))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("exponent", [1, 2, 4, 5, 6, 7, 7.5, 8, 10, 15])
def test_a_long_pair_beside_a_short_one(exponent, dtype):
    tokens, pairs = corner(exponent)
    tokens = tokens.astype(dtype)
    solution = jax.tree.map(np.asarray, solve(tokens, pairs))
    assert solution.status == MaxMarginStatus.SOLVED
    assert_true(tokens, pairs, solution)
    wanted = tokens[2] / (tokens[2] @ tokens[2])
    assert_close(solution.direction, wanted)
    assert solution.active[2, 1] and not solution.active[0, 1]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_common_scale_over_the_whole_range(dtype):
    """p/c and λ/c² while they are normal numbers, beyond them nothing is claimed."""
    _, embeddings, pairs = small_problem(3)
    info = np.finfo(dtype)
    # Powers of two change no digit, so the answers are the same to the last bit.
    embeddings = embeddings.astype(dtype)
    here = solve(embeddings, pairs)
    contrary = [contradiction("both ways"), contradiction("the same embedding twice")]
    solved = []
    for power in range(info.minexp - info.nmant, info.maxexp - 2, 11):
        scaled = np.ldexp(embeddings, power).astype(dtype)
        there = jax.tree.map(np.asarray, solve(scaled, pairs))
        assert_true(scaled, pairs, there)
        assert there.status in (MaxMarginStatus.SOLVED, MaxMarginStatus.NOT_CONVERGED)
        if there.status == MaxMarginStatus.SOLVED:
            solved.append(power)
            wanted = np.ldexp(np.asarray(here.direction), -power)
            np.testing.assert_array_equal(there.direction, wanted)
            wanted = np.ldexp(np.asarray(here.duals), -2 * power)
            np.testing.assert_array_equal(there.duals, wanted)
            np.testing.assert_array_equal(there.norm, np.ldexp(here.norm, -power))
            np.testing.assert_array_equal(there.active, here.active)
            assert there.gap == here.gap
        else:
            assert (there.duals == 0).all() and not there.active.any()
        for tokens, both in contrary:
            tokens = np.ldexp(tokens.astype(dtype), power).astype(dtype)
            refuted = jax.tree.map(np.asarray, solve(tokens, both))
            assert refuted.status != MaxMarginStatus.SOLVED
            assert_true(tokens, both, refuted)
            if info.minexp + 2 * info.nmant < power:
                assert refuted.status == MaxMarginStatus.INFEASIBLE
    # λ ~ c^−2 is a number where c is about half as many decades away from one.
    limit = info.maxexp // 2 - 16
    assert min(solved) <= -limit and max(solved) >= limit
    assert len(solved) == (max(solved) - min(solved)) // 11 + 1


def test_digits_below_the_smallest_number_are_not_taken_for_equal():
    """Tokens apart by what the processor takes for zero: p would be 10^310 long."""
    tokens = np.array([[1.0, 0.0], [1.0, 1e-310]])
    pairs = np.array([[False, False], [True, False]])
    for scale in (1.0, 1e290):
        status = solve(tokens * scale, pairs).status
        assert status == MaxMarginStatus.NOT_CONVERGED
    # Beside lengths of order one they change nothing.
    tokens[0, 0] = 2.0
    assert solve(tokens, pairs).status == MaxMarginStatus.SOLVED


EPS = {dtype: np.finfo(dtype).eps for dtype in (np.float64, np.float32)}
ABOVE, BELOW = 1.0 + 1e-3, 1.0 - 1e-3


@pytest.mark.parametrize("dtype", EPS)
@pytest.mark.parametrize(
    ("gap", "infeasibility", "balance", "wanted"),
    [
        (0.0, 0.0, np.inf, "SOLVED"),
        (BELOW * SOLVED, BELOW * SOLVED, np.inf, "SOLVED"),
        (ABOVE * SOLVED, 0.0, np.inf, "NOT_CONVERGED"),
        (0.0, ABOVE * SOLVED, np.inf, "NOT_CONVERGED"),
        (np.nan, 0.0, np.inf, "NOT_CONVERGED"),
        (0.0, np.nan, np.inf, "NOT_CONVERGED"),
        (np.inf, np.inf, 0.0, "INFEASIBLE"),
        (np.inf, np.inf, BELOW * REFUTED, "INFEASIBLE"),
        (np.inf, np.inf, ABOVE * REFUTED, "NOT_CONVERGED"),
        (np.inf, np.inf, np.nan, "NOT_CONVERGED"),
        (np.inf, np.inf, np.inf, "NOT_CONVERGED"),
    ],
)
def test_a_status_on_both_sides_of_its_thresholds(
    gap, infeasibility, balance, wanted, dtype
):
    """The numbers are in roundings of the precision."""
    numbers = [dtype(x * EPS[dtype]) for x in (gap, infeasibility, balance)]
    numbers = [jnp.asarray(x) for x in numbers]
    yes, no = jnp.asarray(True), jnp.asarray(False)
    assert _status(*numbers, yes) == MaxMarginStatus[wanted]
    assert _status(*numbers, no) == MaxMarginStatus.NO_PAIRS


@pytest.mark.parametrize("place", [0, 1])
def test_ten_digits_are_not_a_solution(place):
    """Neither a gap nor an infeasibility of 1e-10 passes in double precision."""
    numbers = [jnp.asarray(0.0), jnp.asarray(0.0), jnp.asarray(jnp.inf)]
    numbers[place] = jnp.asarray(1e-10)
    assert _status(*numbers, jnp.asarray(True)) == MaxMarginStatus.NOT_CONVERGED


solve_together = jax.jit(jax.vmap(max_margin))


@hypothesis.settings(max_examples=30)
@hypothesis.given(small, st.sampled_from(MIXED))
def test_a_batch_of_claims_is_its_lanes(seed, family):
    """A lane that needs a second method leaves the others as they are."""
    plain = small_problem(seed)[1:]
    problems = [plain, mixed_problem(family, seed), small_problem(seed, False)[1:]]
    embeddings, pairs = map(np.stack, zip(*problems, strict=True))
    together = solve_together(embeddings, pairs)
    for number, problem in enumerate(problems):
        own, alone = lane(together, number), solve(*problem)
        assert own.status == alone.status
        assert_true(*problem, own)


def test_thousands_of_pairs_of_mixed_lengths():
    """64 tokens whose lengths span eight decades, 1,200 to 1,600 pairs."""
    for seed in range(3):
        rng = np.random.default_rng(seed)
        embeddings = rng.normal(size=(64, 66)) * 10 ** rng.uniform(-4, 4, (64, 1))
        direction = rng.normal(size=66)
        rows = embeddings[:, None] - embeddings[None]
        size = np.linalg.norm(rows, axis=2) * np.linalg.norm(direction)
        pairs = rows @ direction > 0.05 * size
        solution = solve(embeddings, pairs)
        assert solution.status == MaxMarginStatus.SOLVED
        own = np.longdouble(solution.direction)
        rows = np.longdouble(differences(embeddings, pairs))
        assert (rows @ own).min() >= 1 - SOLVED * EPS[np.float64]
        duals = np.longdouble(solution.duals)[pairs]
        assert np.linalg.norm(np.float64(duals @ rows - own)) <= 1e-9 * solution.norm
        assert (solution.active | (solution.duals == 0)).all()


def test_pairs_active_beside_far_longer_ones():
    """One axis 10⁸ times longer: active pairs are those that an exact check finds."""
    rng = np.random.default_rng(5)
    embeddings, pairs = long_axis(rng, 16, 18)
    embeddings[:, 0] *= 1e6
    solution = solve(embeddings, pairs)
    assert solution.status == MaxMarginStatus.SOLVED
    rows = np.longdouble(embeddings)[:, None] - np.longdouble(embeddings)[None]
    ahead = np.float64(rows @ np.longdouble(solution.direction))
    active = np.asarray(solution.active)
    assert (np.abs(ahead - 1)[active] <= 1e-3).all()
    assert (ahead[pairs & ~active] > 1).all()
