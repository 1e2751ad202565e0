"""Derivatives of the max-margin solution in E, against differences and the envelope.

Source: mathematics, section 3c.
"""

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np

from jaxselect.margin.max_margin import max_margin
from tests.margin.pair_problems import contradiction, small, small_problem, solve, split
from tests.tolerances import assert_close


def direction_and_norm(embeddings, pairs):
    solution = max_margin(embeddings, pairs)
    return solution.direction, solution.norm


@jax.jit
def _gradients(embeddings, pairs):
    """Gradients of ‖p‖, and of all that carries none."""

    def numbers(embeddings):
        solution = max_margin(embeddings, pairs)
        rest = solution.duals.sum() + solution.gap + solution.infeasibility
        return jnp.stack([solution.norm, rest])

    return jax.jacrev(numbers)(embeddings)


def norm_gradient(embeddings, pairs):
    return np.asarray(_gradients(embeddings, pairs))[0]


@jax.jit
def both_modes_twice(embeddings, pairs, change):
    """p and ‖p‖, their slopes, a gradient of both, and its slope."""

    def gradient(embeddings):
        value, pull = jax.vjp(lambda e: direction_and_norm(e, pairs), embeddings)
        return (*value, pull((jnp.cos(jnp.arange(1.0, 5.0)), jnp.cos(1.0)))[0])

    return jax.jvp(gradient, (embeddings,), (change,))


def test_derivatives_forward_and_reverse_and_second_ones():
    """Many more active pairs than their rank; the rule is a formula in E and p."""
    rng = np.random.default_rng(7)
    embeddings, pairs = split(rng, 12, 4)
    change = rng.normal(size=embeddings.shape)
    there, back = (
        both_modes_twice(embeddings + step * change, pairs, change)[0]
        for step in (1e-5, -1e-5)
    )
    (_, _, gradient), slopes = both_modes_twice(embeddings, pairs, change)
    for one, other, slope in zip(there, back, slopes, strict=True):
        wanted = (one - other) / 2e-5
        assert np.linalg.norm(slope - wanted) <= 1e-6 * np.linalg.norm(wanted)
    forward = np.cos(np.arange(1.0, 5.0)) @ slopes[0] + np.cos(1.0) * slopes[1]
    assert abs(jnp.vdot(gradient, change) - forward) <= 1e-9 * abs(forward)


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
    assert (np.asarray(_gradients(*small_problem(0)[1:]))[1] == 0).all()
