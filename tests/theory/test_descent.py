"""Certificates of gradient descent: followed on, and against the steps themselves.

Source: mathematics, section 3k.
"""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.common.model import empirical_risk
from experiments.theory.descent import certify_descent, jumps
from jaxselect import Parameters, attention, from_sequences
from jaxselect.margin.certificate import CERTIFIED, TOLERANCE, perturbations

# Pairs (0, 2) and (1, 3) are active; (1, 4) has margin 2, and 0 meets two copies of 2.
BAGS = from_sequences([[0, 2, 2], [1, 3], [1, 4]], [1, -1, -1], vocabulary=5)
ROWS = jnp.eye(5).at[4].set(0.75 * jnp.array([-1.0, -1.0, 1.0, 1.0, 0.0]))
START = Parameters(ROWS, jnp.zeros(5), jnp.array([1.0, -2.0, 0.1, 0.0, 0.0]))
PROBLEM = attention(START, BAGS)


def risk(query):
    return empirical_risk(replace(START, query=query), BAGS)


@jax.jit
def descend(query, steps, size):
    def once(number, state):
        query, half = state
        query = query - size * jax.grad(risk)(query)
        begun = jnp.log1p(size * number) < jnp.log1p(size * steps) / 2
        return query, jnp.where(begun, query, half)

    return jax.lax.fori_loop(0, steps, once, (query, query))


@jax.jit
def certified(query, half, steps, size):
    return certify_descent(
        PROBLEM, query, steps=steps, step_size=size, earlier_query=half
    )


STEPS = 200_000


@pytest.mark.parametrize("size", [5.0, 10.0, 20.0])
def test_certified_descent_stays_on_its_line(size):
    query, half = descend(START.query, STEPS, size)
    found = certified(query, half, STEPS, size)
    assert found.status.item() in list(CERTIFIED)
    later, _ = descend(query, STEPS, size)
    late = found.ending.late
    off = found.ending.pairs.leads(
        ROWS @ (later - late.query_at(np.log1p(2 * STEPS * size)))
    )
    active = found.ending.margin.active
    assert 0 < active.sum() < found.ending.pairs.held.sum()
    moved = np.abs(off[active]).max()
    assert moved <= found.late_flow_residual + found.perturbation_bound
    # In closed form, λ = ½ = c e^{−D ρ} with c = (b_s − b_r) σ(−|b_s|) C_r/3 C_s.
    strength = np.array([0.9 * 2, 2.0]) / (1 + np.exp([1.0, 2.0])) / 3
    lead = np.asarray(ROWS @ late.offset)
    np.testing.assert_allclose(lead[:2] - lead[2:4], np.log(2 * strength), atol=1e-9)


def test_too_early_and_too_long_steps_are_not_certified():
    """At one t the bound grows with h: longer steps have more to jump."""
    bounds = []
    for size, steps in ((0.5, 4000), (20.0, 100), (100.0, 20)):
        query, half = descend(START.query, steps, size)
        found = certified(query, half, steps, size)
        bounds.append(float(found.perturbation_bound))
    assert bounds[0] < bounds[1] < bounds[2] and bounds[2] > TOLERANCE
    assert found.status.item() not in list(CERTIFIED)


def test_the_bound_holds_all_jumps_from_the_flow():
    """½ h² ∂²L ∇L of every later step, to leading order."""
    size, steps = 5.0, 2_000
    query, half = descend(START.query, steps, size)
    found = certified(query, half, steps, size)

    @jax.jit
    def jumped(query):
        def once(_, state):
            query, total = state
            slope = jax.grad(risk)(query)
            _, turned = jax.jvp(jax.grad(risk), (query,), (slope,))
            jump = size**2 / 2 * jnp.linalg.norm(turned)
            return query - size * slope, total + jump

        return jax.lax.fori_loop(0, 20 * steps, once, (query, jnp.zeros(())))[1]

    end, time = found.ending, jnp.log1p(size * steps)
    without = jax.jit(perturbations, static_argnums=3)(
        PROBLEM, end, (query, time), TOLERANCE
    )
    bound = jumps(PROBLEM, end, without, size * jnp.exp(-time))
    assert jumped(query) < bound < 10 * jumped(query)
    ways = without.inactive + without.omitted + bound
    longest = np.sqrt(4.75)
    np.testing.assert_allclose(found.perturbation_bound, longest * ways, rtol=1e-9)
    untold = certified(query, None, steps, size)
    assert np.isinf(untold.ending.late.history_change)
