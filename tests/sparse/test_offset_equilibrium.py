"""Offsets of late flows with forces of both signs, in closed form.

Source: mathematics, sections 7c and 7d.
"""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxselect.data.corpus import from_sequences
from jaxselect.data.sparse import from_corpus
from jaxselect.model.parameters import Parameters
from jaxselect.sparse.end import (
    CertificateStatus,
    End,
    offset_equilibrium,
)
from jaxselect.sparse.flow import trajectory
from tests.tolerances import assert_close

# The third is the mean of the others: D_3ᵀz is known from theirs, λ_3 = c_3 √(λ_1 λ_2).
PAIRS = np.array([[1.0, 1.0], [1.0, -1.0], [1.0, 0.0]])
GROWTH = np.array([1.0, 0.0])
DUALS = np.array([0.5, 0.5, 0.0])
NOTHING = np.zeros(3)


@pytest.mark.parametrize("away", [0.02, 0.5, -3.0, 50.0])
@pytest.mark.parametrize("strength", [0.5, -0.5, -1.0, -1.9])
def test_rests_where_the_closed_form_does(strength, away):
    """λ_1 = λ_2 = 1/(2 + c_3) and λ_3 = c_3 λ_1, from wherever z is."""
    away = away * np.array([1.0, -0.5])
    force = np.array([1.0, 1.0, strength]) / (2 + strength)
    found = offset_equilibrium(PAIRS, force * np.exp(-PAIRS @ away), NOTHING, DUALS)
    assert found.proved
    assert_close(found.point, -away, worse=100)
    least = min(2.0, 2 + strength) / (2 + strength)
    assert found.stiffness == pytest.approx(least, rel=1e-5)
    assert found.stiffness <= least * (1 + 1e-9)


@pytest.mark.parametrize("strength", [-2.0, -2.1, -5.0])
def test_what_pulls_as_hard_as_the_others_is_not_proved(strength):
    force = np.array([1.0, 1.0, strength])
    assert not offset_equilibrium(PAIRS, force, NOTHING, DUALS).proved


def test_a_pair_without_a_dual_leaves_no_offset():
    """D = (1, 0), (1, 1): the second pair's force vanishes on the line alone."""
    pairs = np.array([[1.0, 0.0], [1.0, 1.0]])
    found = offset_equilibrium(pairs, np.ones(2), np.zeros(2), np.array([1.0, 0.0]))
    assert not found.proved


def test_forces_beyond_all_numbers_prove_nothing():
    """The start from duals of one pair gives another one a force of e^{800}."""
    pairs, force = np.array([[1.0], [2.0]]), np.array([np.exp(-400), -1.0])
    alone = np.array([1.0, 0.0])
    found = offset_equilibrium(pairs, force, np.zeros(2), alone)
    assert not found.proved and found.basin == 0


# Σ λ D − p_mm = 3u − 2u² − 1 with u = e^{−z}: rest at u = ½, and a ridge at u = 1.
BOTH = np.array([[1.0], [2.0]])


@pytest.mark.parametrize("begin", [0.3, 0.5, 0.7, 0.74])
def test_finds_the_minimum_beside_a_ridge_and_proves_less_than_the_way_to_it(begin):
    """Curvature 3u − 4u² > 0 below u = ¾: the basin ends before the ridge at log 2."""
    force, dual = np.array([3 * begin, -(begin**2)]), np.array([1.0, 0.0])
    found = offset_equilibrium(BOTH, force, np.zeros(2), dual)
    assert found.proved
    assert found.point[0] == pytest.approx(np.log(2 * begin), abs=1e-12)
    assert 0 < found.basin < np.log(1.5)


def test_no_minimum_is_proved_from_the_ridge_itself():
    force, dual = np.array([3.0, -1.0]), np.array([1.0, 0.0])
    found = offset_equilibrium(BOTH, force, np.zeros(2), dual)
    assert not found.proved or abs(found.point[0]) > 0.6


@pytest.mark.parametrize(("error", "proved"), [(1e-3, True), (0.2, False)])
def test_what_forces_may_be_wrong_by_moves_the_minimum(error, proved):
    """A minimum of the forces as they are lies within the radius."""
    force, wrong = np.ones(3), error * np.array([1.0, -1.0, 1.0])
    duals = np.array([1 / 3, 1 / 3, 1 / 3])
    found = offset_equilibrium(PAIRS, force, np.abs(wrong), duals)
    assert found.proved == proved
    if proved:
        true = offset_equilibrium(PAIRS, force + wrong, NOTHING, duals)
        assert np.linalg.norm(true.point - found.point) <= found.radius


def test_bound_of_the_change_holds_on_the_ball():
    """|D³Φ[u, u, δ]| ≤ κ ‖δ‖ uᵀHu for moves within the ball, by differences."""
    rng = np.random.default_rng(0)
    force = np.array([1.0, 1.0, -0.7]) / 1.3
    found = offset_equilibrium(PAIRS, force, NOTHING, DUALS)

    def hessian(z):
        return (PAIRS.T * (force * np.exp(-PAIRS @ z))) @ PAIRS

    here, soft = hessian(np.zeros(2)), np.sqrt(found.stiffness)
    ball, change = found.reach / soft, found.lipschitz * soft
    for _ in range(200):
        line, move = rng.normal(size=(2, 2))
        at = ball * rng.uniform(0, 0.99) * move / np.linalg.norm(move)
        step = 1e-5 * move
        third = line @ (hessian(at + step) - hessian(at - step)) @ line / 2e-5
        bound = change * np.linalg.norm(move) * (line @ here @ line)
        assert abs(third) <= bound * (1 + 1e-6)


def test_a_course_is_certified_with_a_pair_that_never_fades():
    """Two reviews hold words 1 and 2 off, one of the other class wants word 3, which
    lies between them: c_3 = −c_1, so λ = (1, 1, −1) and p_0 = log t + log c_1."""
    words = np.vstack([np.zeros((1, 2)), -PAIRS])
    bags = from_sequences([[0, 1], [0, 2], [0, 3]], [1, 1, -1], vocabulary=4)
    start = Parameters(jnp.asarray(words), jnp.zeros(2), jnp.array([1.0, 0.0]))
    course = trajectory(start, from_corpus(bags))
    ending = course.ending
    assert ending.selected.tolist() == [True, False] * 3
    assert ending.limit.active_wrong_sign == 1
    assert ending.limit.status is CertificateStatus.OFFSET
    assert ending.status is End.SELECTED and not course.returns
    assert_close(ending.margin.direction, GROWTH)
    wanted = course.log_time - np.log(6)
    assert course.query == pytest.approx([wanted, 0.0], abs=0.02)


def test_a_pair_of_wrong_sign_and_no_offset_is_never_certified_and_returns():
    """D_2 has a margin of one and no dual, so p_2 = log s: D_3, of margin 1.01, gains
    s^{10} e^{−0.01 s}. An independent integration of the exact field finds its return
    at 109.279; with a pace within 0.026 and a force of 4e-7 p looked settled at 34."""
    differences = np.array([[1.0, 0.0], [1.0, 1.0], [1.01, -10.0]])
    embeddings = -np.vstack([np.zeros(2), differences])
    bags = from_sequences(
        [[0, 1], [0] * 400 + [2], [0] * 10 + [3]], [1, 1, 1], vocabulary=4
    )
    model = Parameters(*map(jnp.asarray, (embeddings, [3.0, -3.0], [1.0, 1.0])))
    course = trajectory(model, from_corpus(bags))
    assert course.log_time > 100
    # Steps of the first stage err by 1e-3 in p, and returns by ten times as much.
    assert course.returns == pytest.approx((109.279,), abs=0.02)
    # Then word 3 is selected over word 0, and every force is positive for good.
    assert course.ending.status is End.SELECTED
    assert course.ending.limit.status is CertificateStatus.OFFSET
    assert course.ending.limit.wrong_sign == 0
    assert course.ending.selected.tolist() == [True, False, True, False, False, True]
