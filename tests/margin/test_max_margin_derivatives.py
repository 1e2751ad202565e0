"""Derivatives of the max-margin solution in E, against differences and the envelope."""

import functools

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxselect.margin.max_margin import max_margin
from tests.margin.pair_problems import contradiction, small, small_problem, solve, split
from tests.tolerances import assert_close


def direction_and_norm(embeddings, pairs):
    solution = max_margin(embeddings, pairs)
    return solution.direction, solution.norm


norm_gradient = jax.jit(jax.grad(lambda e, pairs: max_margin(e, pairs).norm))


def central_difference(function, embeddings, change, step=1e-5):
    there, back = (function(embeddings + sign * step * change) for sign in (1, -1))
    return jax.tree.map(lambda a, b: (a - b) / (2 * step), there, back)


@pytest.mark.parametrize("dim", [4, 40])
def test_derivatives_forward_and_reverse(dim):
    """Fewer dimensions than tokens and more; many more active pairs than their rank."""
    rng = np.random.default_rng(7)
    embeddings, pairs = map(jnp.asarray, split(rng, 12, dim))
    change = jnp.asarray(rng.normal(size=embeddings.shape))
    function = functools.partial(direction_and_norm, pairs=pairs)

    @jax.jit
    def both_modes(embeddings):
        value, slope = jax.jvp(function, (embeddings,), (change,))
        weight = jax.tree.map(lambda leaf: jnp.cos(leaf + 1), value)
        return value, slope, weight, jax.vjp(function, embeddings)[1](weight)[0]

    _, slope, weight, pulled = both_modes(embeddings)
    wanted = central_difference(lambda e: both_modes(e)[0], embeddings, change)
    for got, true in zip(slope, wanted, strict=True):
        assert np.linalg.norm(got - true) <= 1e-6 * np.linalg.norm(true)
    forward = weight[0] @ slope[0] + weight[1] * slope[1]
    assert abs(jnp.vdot(pulled, change) - forward) <= 1e-9 * abs(forward)


def test_second_derivatives():
    """The rule is a formula in E and p, so it may be differentiated again."""
    rng, embeddings, pairs = small_problem(0)
    change = jnp.asarray(rng.normal(size=embeddings.shape))
    slope = functools.partial(norm_gradient, pairs=pairs)
    bend = jax.jit(lambda e, de: jax.jvp(slope, (e,), (de,))[1])
    wanted = central_difference(slope, embeddings, change)
    got = bend(embeddings, change)
    assert np.linalg.norm(got - wanted) <= 1e-6 * np.linalg.norm(wanted)


def test_what_has_no_solution_has_derivatives_of_zero():
    for problem in (
        contradiction("both ways"),
        (np.ones((8, 6)), np.zeros((8, 8), bool)),
    ):
        assert (norm_gradient(*problem) == 0).all()


@hypothesis.given(small)
def test_the_norm_changes_as_the_envelope_says(seed):
    """d‖p‖ = −Σ λ pᵀdD / ‖p‖, which needs no derivative of p."""
    _, embeddings, pairs = small_problem(seed)
    solution = solve(embeddings, pairs)
    duals = np.asarray(solution.duals)
    charge = duals.sum(axis=1) - duals.sum(axis=0)
    wanted = -np.outer(charge, solution.direction) / solution.norm
    assert_close(norm_gradient(embeddings, pairs), wanted, worse=100 * solution.norm)


@hypothesis.given(small, st.integers(0, 10))
def test_derivatives_do_not_feel_where_the_origin_is(seed, power):
    """A shift far longer than the tokens, with every difference left as it was."""
    rng, embeddings, pairs = small_problem(seed)
    # Few enough digits for the shift to be exact.
    embeddings = np.round(embeddings * 2**20) / 2**20
    shift = 2.0 ** (2 * power) * np.sign(rng.normal(size=6))
    here = norm_gradient(embeddings, pairs)
    norm = solve(embeddings, pairs).norm
    assert_close(norm_gradient(embeddings + shift, pairs), here, worse=1e4 * norm)


def test_only_direction_and_norm_carry_derivatives():
    def rest(embeddings, pairs):
        solution = max_margin(embeddings, pairs)
        return solution.duals.sum() + solution.gap + solution.infeasibility

    gradient = jax.jit(jax.grad(rest))(*small_problem(0)[1:])
    assert (gradient == 0).all()
