"""The max-margin solution and its derivative in single precision."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxselect.margin.max_margin import MaxMarginStatus, max_margin, with_derivatives
from tests.margin.pair_problems import FAMILIES, family, mixed_problem, solve_each


@pytest.mark.parametrize("name", FAMILIES)
def test_float32(name):
    """Relative error of p below 16 roundings times (‖p‖ max‖E_s‖)², gap below 5e-4.

    Where that leaves two digits or more the problem must be solved, else it may say
    that it is not; that happens only with one long axis.
    """
    embeddings, pairs, wanted = family(name)
    some = slice(0, 20)
    solution = solve_each(jnp.float32(embeddings[some]), jnp.asarray(pairs[some]))
    assert solution.direction.dtype == jnp.float32
    solved = np.asarray(solution.status == MaxMarginStatus.SOLVED)
    norm = np.asarray(wanted.norm[some])
    size = np.linalg.norm(embeddings[some], axis=2).max(axis=1)
    bound = 16 * float(np.finfo(np.float32).eps) * (norm * size) ** 2
    assert solved[bound < 1e-2].all()
    assert (bound < 1e-2).any() or name == "one long axis"
    error = np.asarray(solution.direction) - np.asarray(wanted.direction[some])
    assert (np.linalg.norm(error, axis=1) <= bound * norm)[solved].all()
    assert (solution.gap[solved] <= 5e-4).all()


@jax.jit
def slope(embeddings, pairs, change):
    return jax.jvp(lambda e: max_margin(e, pairs).direction, (embeddings,), (change,))


@pytest.mark.parametrize("name", FAMILIES)
def test_derivatives_in_float32(name):
    """Three digits of dp, also where one axis is hundreds of times longer."""
    embeddings, pairs, _ = family(name)
    for seed in range(4):
        tokens = jnp.float32(embeddings[seed])
        change = jax.random.normal(jax.random.key(seed), tokens.shape, tokens.dtype)
        _, got = slope(tokens, pairs[seed], change)
        _, wanted = slope(tokens.astype(float), pairs[seed], change.astype(float))
        assert got.dtype == jnp.float32
        away = np.linalg.norm(np.asarray(got) - np.asarray(wanted))
        assert away <= 1e-3 * np.linalg.norm(wanted)


@jax.jit
@jax.vmap
def slope_there(embeddings, solution, change):
    return jax.jvp(
        lambda e: with_derivatives(e, solution).direction, (embeddings,), (change,)
    )[1]


@pytest.mark.parametrize(
    ("name", "lost"), [("far from the origin", False), ("clusters", True)]
)
def test_a_derivative_has_two_digits_or_is_none(name, lost):
    """Differences over seven decades, and tokens as far from the origin."""
    problems = [mixed_problem(name, seed, 7.0) for seed in range(32)]
    embeddings, pairs = map(np.stack, zip(*problems, strict=True))
    # The same numbers and active pairs in both precisions.
    embeddings = embeddings.astype(np.float32)
    change = np.random.default_rng(0).normal(size=embeddings.shape).astype(np.float32)
    solution = solve_each(jnp.float64(embeddings), jnp.asarray(pairs))
    wanted = slope_there(jnp.float64(embeddings), solution, jnp.float64(change))
    wanted = np.asarray(wanted)
    single = jax.tree.map(
        lambda x: x.astype(jnp.float32) if x.dtype == jnp.float64 else x, solution
    )
    got = np.asarray(slope_there(embeddings, single, change))
    solved = np.asarray(solution.status == MaxMarginStatus.SOLVED)
    there, none = np.isfinite(wanted).all(axis=1), np.isnan(got).any(axis=1)
    assert there[solved].mean() > 0.9 and none[solved & ~there].all()
    solved = solved & there
    assert none[solved].any() == lost and none[solved].mean() < 0.5
    away = np.linalg.norm(got - wanted, axis=1)[solved & ~none]
    assert (away <= 1e-2 * np.linalg.norm(wanted, axis=1)[solved & ~none]).all()
