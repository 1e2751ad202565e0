"""The linearised joint flow against the dense matrices that it never forms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

from experiments.common.model import empirical_risk
from experiments.theory.joint_flow import (
    JointProblem,
    JointRodas5P,
    JointState,
    corrected,
    field,
    flat,
    linearise,
    unflat,
)
from jaxselect import Parameters, from_sequences
from jaxselect.flow.rodas import GAMMA
from tests.tolerances import assert_close

BAGS = from_sequences(
    [[0, 2, 3], [1, 2, 2], [0, 3], [1, 3]], [1, -1, 1, -1], vocabulary=4
)
RATES = [(0.7, 1.0, 2.0), (0.0, 1.0, 2.0), (3.0, 0.0, 1.0), (0.5, 0.0, 0.0)]
TIME = 1.5


def start(rates):
    """A point of no symmetry, rows of Z in seven dimensions, and its Gram matrix."""
    rows = np.random.default_rng(3).normal(size=(6, 7))
    gram = rows @ rows.T
    parts = gram[:-2, :-2], gram[:-2, -2:], gram[-2:, -2:], rows
    return JointState(*map(jnp.asarray, parts)), JointProblem(BAGS, jnp.array(rates))


@jax.jit
def dense(state, problem, length):
    """The Jacobian by autodiff, and the solution of a step's system."""
    vector = flat(state)
    jacobian = jax.jacfwd(lambda y: field(TIME, y, problem))(vector)
    right = jnp.sin(jnp.arange(vector.size, dtype=vector.dtype))
    # K and G are symmetric.
    parts = unflat(right, 4)
    right = flat(
        parts._replace(
            tokens=parts.tokens + parts.tokens.T, pair=parts.pair + parts.pair.T
        )
    )
    value, _, structured = linearise(TIME, vector, problem)
    solve, sound, _ = JointRodas5P(linearise).solver(structured, length, vector)
    back = jax.linear_transpose(solve, right)(right)[0]
    # Refinement would heal an inverse that is wrong in what nothing else needs.
    factor = jax.scipy.linalg.lu_factor(structured.system(GAMMA * length))
    once = structured.inverse(GAMMA * length, factor, unflat(right, 4))
    product = flat(structured.times(unflat(right, 4)))
    own = field(TIME, vector, problem)
    found = value, own, jacobian, right, product, (solve(right), flat(once)), back
    return *found, sound


@pytest.mark.parametrize("rates", RATES, ids=str)
def test_the_system_of_a_step_is_that_of_the_dense_jacobian(rates):
    state, problem = start(rates)
    *found, sound = jax.tree.map(np.asarray, dense(state, problem, 0.05))
    value, own, jacobian, right, product, solutions, back = found
    assert sound
    assert_close(value, own)
    assert_close(product, jacobian @ right)
    system = np.eye(len(right)) / (GAMMA * 0.05) - jacobian
    for solution in solutions:
        assert_close(solution, np.linalg.solve(system, right), worse=10)
    assert_close(back, np.linalg.solve(system.T, right), worse=10)


@jax.jit
@jax.hessian
def risk_hessian(moved, rows, scale):
    rows = rows + scale[:, None] * moved.reshape(rows.shape)
    return empirical_risk(Parameters(rows[:-2], rows[-2], rows[-1]), BAGS)


@pytest.mark.parametrize("rates", RATES, ids=str)
def test_a_step_is_refused_from_the_fastest_growth_on(rates):
    """Scaled, Z is a gradient flow: its fastest growth is an eigenvalue."""
    state, problem = start(rates)
    scale = np.sqrt([rates[0]] * 4 + list(rates[1:]))
    hessian = risk_hessian(np.zeros(state.rows.size), state.rows, scale)
    growth = np.linalg.eigvalsh(-np.exp(TIME) * hessian).max()
    for factor, wanted in ((0.99, True), (1.01, False), (3.0, False)):
        length = factor / (GAMMA * growth)
        assert bool(dense(state, problem, length)[-1]) is wanted


@pytest.mark.parametrize("rates", RATES, ids=str)
def test_a_propagator_off_its_form_is_moved_back(rates):
    """From U of a true flow, put off by 10⁻³: U Δ Uᵀ = Δ and W to rounding."""
    random = np.random.default_rng(4)
    state, problem = start(rates)
    rate, push = np.array([rates[0]] * 4 + list(rates[1:])), np.zeros((6, 6))
    push[:4, 4:] = random.normal(size=(4, 2)) / 4
    push[4:, :4] = push[:4, 4:].T
    exact = scipy.linalg.expm(rate[:, None] * push)
    gram = np.asarray(state.rows @ state.rows.T)
    both = (exact @ gram @ exact.T)[:4, 4:]
    trained = rate[:, None] > 0
    off = exact + 1e-3 * trained * random.normal(size=(6, 6)) * (rate[None] > 0)
    found = np.asarray(jax.jit(corrected)(off, both, gram, problem.rates))
    form = np.diag(np.concatenate([rate[:4], -rate[4:]]))
    assert_close(found @ form @ found.T, form)
    moves = np.array([rates[0] > 0 or rates[1] > 0, rates[0] > 0 or rates[2] > 0])
    assert_close(((found @ gram @ found.T)[:4, 4:] - both) * moves, np.zeros((4, 2)))
    # No further than it was off, and not at all where nothing is trained.
    assert np.abs(found - exact).max() < 1e-2
    assert_close(found[~trained[:, 0]], np.eye(6)[~trained[:, 0]])
