"""Offsets of late flows with forces of both signs, in closed form.

Source: mathematics, sections 7c and 7d.
"""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.sparse import csr_array

from jaxselect.data.corpus import from_sequences
from jaxselect.data.sparse import from_corpus, from_csr
from jaxselect.model.parameters import Parameters
from jaxselect.sparse.end import (
    PUSH,
    CertificateStatus,
    End,
    flow_end,
    offset_equilibrium,
)
from jaxselect.sparse.flow import trajectory
from tests.sparse.test_flow_end_by_hand import by_hand
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


# Word 0 against three, the third of which lies between the others, for one label.
WORDS = np.vstack([np.zeros((1, 2)), -PAIRS])
CORPUS = from_corpus(from_sequences([[0, 1], [0, 2], [0, 3]], [1, 1, -1], vocabulary=4))
START = Parameters(jnp.asarray(WORDS), jnp.zeros(2), jnp.array([1.0, 0.0]))


def at(model, corpus, place, late=30.0):
    return flow_end(model, corpus, by_hand(place, place - 2 * GROWTH, late))


@pytest.mark.parametrize(
    ("away", "certified"), [(0.001, True), (0.01, True), (0.2, False), (2.0, False)]
)
def test_with_an_active_pair_of_wrong_sign_p_must_stand_in_the_basin(away, certified):
    found = at(START, CORPUS, np.array([30.0 - np.log(6) + away, 0.0]))
    assert found.limit.active_wrong_sign == 1 and found.pace < 1e-12
    assert found.limit.distance == pytest.approx(away, rel=1e-6)
    basin = found.limit.equilibrium.basin
    assert certified == (away < basin)
    wanted = CertificateStatus.OFFSET if certified else CertificateStatus.OUT_OF_REACH
    assert found.limit.status is wanted
    if certified:
        assert found.status is End.SELECTED
        assert away < found.limit.budget <= basin


def test_a_flow_that_has_no_line_is_not_certified():
    """Two reviews want word 3: c_3 = −2 c_1, and nothing holds z."""
    twice = [[0, 1], [0, 2], [0, 3], [0, 3]]
    bags = from_corpus(from_sequences(twice, [1, 1, -1, -1], vocabulary=4))
    found = at(START, bags, np.array([30.0 - np.log(8), 0.0]))
    assert found.limit.active_wrong_sign == 1 and found.pace < 1e-12
    assert found.limit.status is CertificateStatus.NO_EQUILIBRIUM
    assert found.status is End.UNPROVED


@pytest.mark.parametrize(
    ("margin", "behind", "status"),
    [
        (2.0, 12.0, CertificateStatus.OFFSET),
        (2.0, 8.0, CertificateStatus.OUT_OF_REACH),
        (1.01, 12.0, CertificateStatus.OUT_OF_REACH),
        (1.01, 16.0, CertificateStatus.OFFSET),
    ],
)
def test_a_pair_that_fades_must_have_faded(margin, behind, status):
    """Word 3 pulls with e^{−behind} to begin with: until it has faded it moves scores
    by e^{−behind} ‖D‖²/(margin − 1), where ‖D‖² is a hundred and some."""
    words = WORDS.copy()
    words[3] = -margin, 10.0
    model = Parameters(jnp.asarray(words), jnp.zeros(2), jnp.array([1.0, 0.0]))
    late = 30.0
    # On the line of the two others but for what puts word 3 where its pull is that;
    # the second review is the heavier one by as much, so that p is on its line.
    start = (margin - 1) * late - margin * np.log(3) + np.log(6)
    aside = (start - behind) / (10 + margin)
    heavier = np.exp(-2 * aside)
    place = np.array([late - np.log(3) - aside, aside])
    counts = np.array([[1, 1, 0, 0], [1, 0, heavier, 0], [1, 0, 0, 1.0]])
    found = at(model, from_csr(csr_array(counts), [1, 1, -1]), place, late)
    assert (found.limit.wrong_sign, found.limit.active_wrong_sign) == (1, 0)
    assert found.limit.distance < 0.1
    assert found.limit.status is status
    length = np.hypot(margin, 10.0)
    assert found.limit.push >= np.exp(-behind) * length / (margin - 1) * (1 - 1e-9)
    if status is CertificateStatus.OFFSET:
        assert found.limit.push <= PUSH / length


def test_a_course_is_certified_with_a_pair_that_never_fades():
    """Two reviews hold words 1 and 2 off, one of the other class wants word 3, which
    lies between them: c_3 = −c_1, so λ = (1, 1, −1) and p_0 = log t + log c_1."""
    course = trajectory(START, CORPUS)
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
