"""Proofs of a critical point of Φ: existence, distance and basin.

Source: mathematics, section 3e.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxselect.margin.limit import minimise, prove
from jaxselect.margin.max_margin import max_margin
from jaxselect.margin.minimum import KANTOROVICH
from jaxselect.margin.pairs import PairStrength
from jaxselect.margin.span import span
from tests.tolerances import assert_close


def proved(tokens, pairs, strength, away=0.0, terms=1.0, blur=()):
    blurs = np.zeros_like(strength)
    blurs[0, 1 : 1 + len(blur)] = blur
    away = np.array([away, 0.0])
    return _proved(tokens, pairs, strength, away, np.array(terms), blurs)


@jax.jit
def _proved(tokens, pairs, strength, away, terms, blur):
    """Token 0 over all others: its proof so far away from the computed ρ.

    Terms of a strength are in absolute value so many times the strength.
    """
    margin = max_margin(tokens, pairs)
    active = span(margin.pairs.centred(tokens, margin.active))
    magnitude = terms * jnp.abs(strength)
    pull = jnp.where(margin.active, strength, 0.0)
    in_phi = PairStrength(pull, jnp.zeros_like(pull), magnitude, jnp.zeros_like(pull))
    found, converged = minimise(in_phi, margin, active)
    known = PairStrength(strength, jnp.zeros_like(strength), magnitude, blur)
    return prove(tokens, known, margin, active, found + away), found, converged, margin


def over_origin(rows, strengths):
    """Differences `rows` of token 0, at the origin, over tokens −rows; four tokens."""
    number = len(rows) + 1
    tokens, pairs = np.zeros((4, 2)), np.zeros((4, 4), bool)
    tokens[1:number] = -np.asarray(rows)
    pairs[0, 1:number] = True
    strength = np.zeros((4, 4))
    strength[0, 1:number] = strengths
    return tokens, pairs, strength


TWO = [[1.0, 1.0], [1.0, -1.0]]


def test_a_minimum_in_closed_form_is_proved_to_rounding():
    """D = (1, ±1), p_mm = (1, 0): λ = ½ each, ρ = (log(4 c₁c₂)/2, log(c₁/c₂)/2)."""
    proof, found, _, _ = proved(*over_origin(TWO, [3.0, 0.5]))
    assert_close(found, [np.log(4 * 1.5) / 2, np.log(6.0) / 2], worse=10)
    assert proof.proved and jnp.isinf(proof.basin)
    # A bound of rounding that is hundreds of times what it need be bounds nothing.
    assert 1e-15 < proof.radius < proof.kantorovich < 1e-12


# D = (1, ±1) with c > 0 and (1, 0) with c_3 < 0: λ = (1, 1, −1) is one solution.
THREE = [[1.0, 1.0], [1.0, -1.0], [1.0, 0.0]]


def test_a_pair_of_the_wrong_sign_leaves_a_basin():
    """By symmetry ρ = (x, 0) with (2c − |c_3|) e^{−x} = 1, H = diag(1, 2c e^{−x})."""
    proof, found, _, _ = proved(*over_origin(THREE, [1.0, 1.0, -0.5]))
    assert_close(found, [np.log(1.5), 0.0], worse=10)
    assert proof.proved and 0 < proof.basin < 1
    # β = 1 + 2 |λ_3| ‖D_3‖² in H⁻¹ = 1 + 2 · ⅓, ‖D‖ = √2.
    wanted = np.log1p(1 / (1 + 2 / 3)) / np.sqrt(2)
    np.testing.assert_allclose(proof.basin, wanted, rtol=1e-9)
    # H = diag(1, 4/3): the longest D is (1, ±1), and tr H⁻¹ = 7/4.
    assert_close(proof.lipschitz, np.e * (1 + 2 / 3) * np.sqrt(7 / 4), worse=10)
    assert_close([proof.reach, proof.stiffness], [np.sqrt(4 / 7), 4 / 7], worse=10)


def test_the_numbers_of_a_proof_are_those_of_its_hessian():
    """D = (1, 0), (0.6, 0.8), off the minimum: H is no diagonal matrix."""
    rows, strengths = np.array([[1.0, 0.0], [0.6, 0.8]]), np.array([1.0, 2.0])
    proof, found, _, margin = proved(*over_origin(rows, strengths), 1e-3)
    assert margin.active.sum() == 2
    duals = strengths * np.exp(-rows @ (np.asarray(found) + np.array([1e-3, 0.0])))
    inverse = np.linalg.inv((rows.T * duals) @ rows)
    farthest = np.sqrt(np.diag(rows @ inverse @ rows.T).max())
    missing = np.asarray(margin.direction) - duals @ rows
    wanted = 1 / farthest, 1 / np.trace(inverse)
    assert_close([proof.reach, proof.stiffness], wanted, worse=10)
    length = np.sqrt(missing @ inverse @ missing)
    np.testing.assert_allclose(proof.decrement, length, rtol=1e-6)


def test_a_point_off_the_minimum_has_so_much_less_of_its_basin():
    """A move along (1, 0) scales all λ alike: β_H is as it was."""
    problem = over_origin(THREE, [1.0, 1.0, -0.5])
    at, off = (proved(*problem, away)[0] for away in (0.0, 1e-3))
    assert off.proved and off.radius > 1e-3
    np.testing.assert_allclose(at.basin - off.basin, off.radius, rtol=1e-9)


def test_inside_the_basin_the_flow_converges():
    """−∇Φ in small steps, from 99 % of the radius in 16 directions."""
    tokens, pairs, strength = over_origin(THREE, [1.0, 1.0, -0.5])
    proof, found, _, margin = proved(tokens, pairs, strength)
    rows, c = -tokens[1:], strength[0, 1:]
    found, growth = np.asarray(found), np.asarray(margin.direction)
    angles = np.linspace(0, 2 * np.pi, 16, endpoint=False)
    around = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    z = found + 0.99 * np.asarray(proof.basin) * around
    for _ in range(4000):
        z = z + 0.01 * (c * np.exp(-z @ rows.T) @ rows - growth)
    np.testing.assert_allclose(z, np.tile(found, (16, 1)), atol=1e-6)


# Differences, strengths, and whether they have a minimum that is proved. Nearly exact
# ties have while a dual, of order η, is above rounding: h is of order rounding over
# η^{3/2}. An exact one has none, however far Newton's method goes, and a third strength
# with |c_3| > 2c leaves no critical point.
POINTS = {
    f"a tie but for {eta}": ([[1.0, 0.0], [1 - eta, 1.0]], [1.0, 1.0], eta > 1e-9)
    for eta in (1e-3, 1e-6, 1e-9)
}
POINTS["an exact tie"] = [[1.0, 0.0], [1.0, 1.0]], [1.0, 1.0], False
POINTS["a saddle"] = THREE, [1.0, 1.0, -2.5], False


@pytest.mark.parametrize("case", POINTS)
def test_a_minimum_is_proved_where_there_is_one(case):
    rows, strengths, wanted = POINTS[case]
    proof, _, _, margin = proved(*over_origin(rows, strengths))
    assert proof.proved == wanted and margin.active.sum() >= 2


@pytest.mark.parametrize("off, exists", [(1e-3, True), (1.0, False)])
def test_a_point_off_the_minimum_is_proved_within_newtons_reach(off, exists):
    proof, *_ = proved(*over_origin(TWO, [1.0, 1.0]), off)
    assert proof.proved == exists
    if exists:
        assert off <= proof.radius <= 4 * off


def test_cancelling_strengths_are_known_to_a_rounding_of_their_terms():
    """c = 10⁻⁹ of its absolute terms makes λ uncertain by 10⁻⁷, not by rounding."""
    problem = over_origin(TWO, [1.0, 1.0])
    plain, cancelled, lost = (
        proved(*problem, terms=terms)[0].kantorovich for terms in (1.0, 1e9, 1e15)
    )
    assert plain < 1e-12 < cancelled < KANTOROVICH < lost


@pytest.mark.parametrize(("blur", "everywhere"), [(0.9e-9, True), (1.1e-9, False)])
def test_a_sign_within_its_error_makes_no_basin_infinite(blur, everywhere):
    """c_3 = 10⁻⁹ moves no minimum, but Φ is convex only if it is surely positive."""
    strengths = [1.0, 1.0, 1e-9]
    proof, *_ = proved(*over_origin(THREE, strengths), blur=[0.0, 0.0, blur])
    assert proof.proved and bool(jnp.isinf(proof.basin)) == everywhere
