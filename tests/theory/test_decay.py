"""The end under weight decay: stationary in all parameters, by two solvers.

Source: mathematics, section 3k.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import fsolve

from experiments.common.model import empirical_risk
from experiments.theory.steps import decay_end
from jaxselect.model.parameters import Parameters
from tests.theory.test_embedding_steps import (
    CORPUS,
    IRRELEVANT,
    LENGTH,
    RELEVANT,
    SIZES,
)
from tests.tolerances import assert_close

KIND = np.array([1.0, 1, 1, 1, -1, -1, -1, -1])
SIGN = np.array([1.0, 1, -1, -1, 0, 0, 0, 0])
END = jax.jit(lambda decay: decay_end(**SIZES, decay=decay))


def parameters_of(end):
    """E = s p̂ᵀ + b v̂ᵀ of rank two, from |p|², |v|², u and β alone."""
    cls_norm, head_norm = np.sqrt(end.cls_square), np.sqrt(end.head_square)
    # Pulls on scores sum to zero over tokens; as many are irrelevant as important.
    rows = np.outer(KIND * end.score / 2 / cls_norm, [1.0, 0.0])
    rows += np.outer(SIGN * end.value / head_norm, [0.0, 1.0])
    axes = jnp.eye(2)
    return Parameters(jnp.asarray(rows), cls_norm * axes[0], head_norm * axes[1])


@jax.jit
def left(parameters, decay):
    """∇L + λ (E, p, v) by automatic differentiation."""
    slope = jax.grad(lambda here: empirical_risk(here, CORPUS))(parameters)
    return jax.tree.map(lambda one, part: one + decay * part, slope, parameters)


@pytest.mark.parametrize("decay", [1e-2, 1e-4, 1e-8])
def test_the_end_is_stationary_in_every_parameter(decay):
    end = jax.device_get(END(decay))
    found = parameters_of(end)
    for part, residual in zip(
        jax.tree.leaves(found), jax.tree.leaves(left(found, decay)), strict=True
    ):
        size = decay * np.abs(part).max()
        # Pulls are sums of differences of weights: some hundred roundings.
        assert np.abs(residual).max() < 1e-9 * size
    pair = np.stack([found.query, found.head])
    rows = np.asarray(found.embeddings)
    assert_close(rows.T @ rows, pair.T @ pair, worse=100)


def test_an_independent_solver_finds_the_same_end():
    """q σ(−qβ) = λ √N with q of u, and |h_a| = λ, in the unknowns β and u."""
    decay, both = 1e-3, 2 * RELEVANT
    mixed = 1 / both + 1 / IRRELEVANT

    def equations(unknown):
        value, score = unknown
        q = 1 / (1 + (LENGTH - 1) * np.exp(-score))
        push = q / (1 + np.exp(q * value))
        of_scores = push * (1 - q) * value * np.sqrt(mixed)
        return push / np.sqrt(both) / decay - 1, of_scores / decay - 1

    value, score = fsolve(equations, [6.0, 3.0], xtol=1e-13)
    end = END(decay)
    np.testing.assert_allclose([end.value, end.score], [value, score], rtol=1e-9)
    assert_close(end.unselected, 1 / (1 + np.exp(score) / (LENGTH - 1)), worse=1e4)


def test_attention_narrows_as_one_over_the_logarithm_of_the_decay():
    """κ (1 − q) β = 1, β − 1/κ = log(1/(λ √N)) + log q − log(1 + e^{−qβ})."""
    kappa, decays = (
        np.sqrt(1 + 2 * RELEVANT / IRRELEVANT),
        10.0 ** -np.arange(2, 200, 20),
    )
    ends = jax.vmap(END)(decays)
    assert_close(ends.unselected * ends.value * kappa, np.ones(len(decays)))
    margin = np.asarray(ends.value) - 1 / kappa
    late = np.log(1 - ends.unselected) - np.log1p(np.exp(-margin)) - np.log(2 * decays)
    np.testing.assert_allclose(margin, late, rtol=1e-9)


def test_decay_that_leaves_nothing_to_learn_has_no_such_end():
    assert np.isnan(END(0.2).value)
    assert np.isfinite(END(0.02).value)
