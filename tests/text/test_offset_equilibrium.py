"""Late flows with a pair that pulls the wrong way for ever, in closed form."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxselect.model.corpus import from_sequences
from jaxselect.model.parameters import Parameters
from jaxselect.text.trajectory import text_trajectory
from jaxselect.text.ending import TextEndStatus, text_ending
from jaxselect.text.sparse import from_corpus
from jaxselect.text.steady import steady
from tests.text.test_ending import by_hand
from tests.tolerances import assert_close

# The third is the mean of the others: D_3ᵀz is known from theirs, λ_3 = c_3 √(λ_1 λ_2).
PAIRS = np.array([[1.0, 1.0], [1.0, -1.0], [1.0, 0.0]])
GROWTH = np.array([1.0, 0.0])


def stays(pairs):
    return np.zeros(len(pairs))


@pytest.mark.parametrize("away", [0.02, 0.5, -3.0])
@pytest.mark.parametrize("strength", [0.5, -0.5, -1.0, -1.9])
def test_rests_where_the_closed_form_does(strength, away):
    """λ_1 = λ_2 = 1/(2 + c_3) and λ_3 = c_3 λ_1, from wherever z is."""
    away = away * np.array([1.0, -0.5])
    force = np.array([1.0, 1.0, strength]) / (2 + strength)
    found = steady(PAIRS, force * np.exp(-PAIRS @ away), stays(PAIRS), GROWTH)
    assert found.holds()
    # Axes of the span may be turned; what z does to the pairs is not.
    assert np.linalg.norm(found.rest.cls) == pytest.approx(np.linalg.norm(away))
    least = min(2.0, 2 + strength) / (2 + strength)
    stiffness = found.rest.stiffness
    assert stiffness == pytest.approx(least, rel=1e-5)
    assert stiffness <= least * (1 + 1e-9)


@pytest.mark.parametrize("strength", [-2.0, -2.1, -5.0])
def test_what_pulls_as_hard_as_the_others_is_not_proved(strength):
    found = steady(PAIRS, np.array([1.0, 1.0, strength]), stays(PAIRS), GROWTH)
    assert not found.holds()


# Σ λ D − p_mm = 3u − 2u² − 1 with u = e^{−z}: rest at u = ½, and a ridge at u = 1.
BOTH = np.array([[1.0], [2.0]])


@pytest.mark.parametrize(("begin", "holds"), [(0.9, True), (0.2, True), (1.1, False)])
def test_a_rest_is_no_proof_beyond_a_ridge(begin, holds):
    force = np.array([3 * begin, -(begin**2)])
    found = steady(BOTH, force, stays(BOTH), np.ones(1))
    assert found.holds() == holds
    if holds:
        assert abs(found.rest.cls[0]) == pytest.approx(abs(np.log(2 * begin)))


@pytest.mark.parametrize(("push", "holds"), [(0.01, True), (2.0, False)])
def test_a_pair_that_fades_may_push_over_the_ridge_meanwhile(push, holds):
    """It has e^{−s} of its pull at s; the ridge is at a distance of 0.1."""
    pairs = np.vstack([BOTH, [[1.0]]])
    force = np.array([3 * 0.9, -(0.9**2), -push])
    found = steady(pairs, force, np.array([0.0, 0.0, 1.0]), np.ones(1))
    assert found.holds() == holds


@pytest.mark.parametrize(
    ("strength", "spare", "holds"), [(1.0, 1.0, True), (1e-6, 1e-16, False)]
)
def test_a_pair_fades_in_its_time_and_is_not_forgotten_before(strength, spare, holds):
    """One as strong as the others leaves no trace; a weak one is there at the end."""
    pairs, spares = np.vstack([PAIRS, [[1.0, 0.0]]]), np.append(stays(PAIRS), spare)
    force = np.array([1.0, 1.0, -1.0, strength])
    assert steady(pairs, force, spares, GROWTH).holds() == holds


def test_a_push_that_leaves_the_basin_is_refused():
    found = steady(PAIRS, np.array([1.0, 1.0, -1.0]), stays(PAIRS), GROWTH)
    room = found.rest.basin - found.distance
    assert found.holds(0.99 * room) and not found.holds(1.01 * room)


def test_bound_of_the_change_holds_on_the_ball():
    """|D³Φ[u, u, δ]| ≤ κ ‖δ‖ uᵀHu for moves within the ball, by differences."""
    rng = np.random.default_rng(0)
    force = np.array([1.0, 1.0, -0.7]) / 1.3
    found = steady(PAIRS, force, stays(PAIRS), GROWTH).rest

    def hessian(z):
        return (PAIRS.T * (force * np.exp(-PAIRS @ z))) @ PAIRS

    here = hessian(np.zeros(2))
    for _ in range(200):
        line, move = rng.normal(size=(2, 2))
        at = found.ball * rng.uniform(0, 0.99) * move / np.linalg.norm(move)
        step = 1e-5 * move
        third = line @ (hessian(at + step) - hessian(at - step)) @ line / 2e-5
        bound = found.change * np.linalg.norm(move) * (line @ here @ line)
        assert abs(third) <= bound * (1 + 1e-6)


# Word 0 against three, the third of which lies between the others, for one label.
WORDS = np.vstack([np.zeros((1, 2)), -PAIRS])
CORPUS = from_corpus(from_sequences([[0, 1], [0, 2], [0, 3]], [1, 1, -1], vocabulary=4))
START = Parameters(jnp.asarray(WORDS), jnp.zeros(2), jnp.array([1.0, 0.0]))


@pytest.mark.parametrize("away", [0.01, 0.2, 2.0])
def test_a_flow_off_its_line_is_certified_by_where_it_goes(away):
    place = np.array([30.0 - np.log(6) + away, 0.0])
    found = text_ending(START, CORPUS, by_hand(place, place - 2 * GROWTH, 30.0))
    assert found.repelled == 1 and found.line.holds() and found.pace < 1e-12
    assert np.linalg.norm(found.line.rest.cls) == pytest.approx(away, rel=1e-6)
    assert found.status is TextEndStatus.SELECTED


def test_a_flow_that_has_no_line_is_not_certified():
    """Two reviews want word 3: c_3 = −2 c_1, and nothing holds z."""
    twice = [[0, 1], [0, 2], [0, 3], [0, 3]]
    bags = from_sequences(twice, [1, 1, -1, -1], vocabulary=4)
    place = np.array([30.0 - np.log(8), 0.0])
    end = by_hand(place, place - 2 * GROWTH, 30.0)
    found = text_ending(START, from_corpus(bags), end)
    assert found.repelled == 1 and found.pace < 1e-12
    assert not found.line.holds() and found.status is TextEndStatus.NOT_CERTIFIED


@pytest.mark.parametrize(
    ("margin", "behind", "status"),
    [
        (2.0, 12.0, "SELECTED"),
        (2.0, 8.0, "NOT_CERTIFIED"),
        (1.01, 12.0, "NOT_CERTIFIED"),
        (1.01, 16.0, "SELECTED"),
    ],
)
def test_a_pair_that_fades_must_have_faded(margin, behind, status):
    """Word 3 pulls with e^{−behind} to begin with: until it has faded it moves scores
    by e^{−behind} ‖D‖²/(margin − 1), where ‖D‖² is a hundred and some."""
    words = WORDS.copy()
    words[3] = -margin, 10.0
    model = Parameters(jnp.asarray(words), jnp.zeros(2), jnp.array([1.0, 0.0]))
    late = 30.0
    # p_1 puts word 3 where its pull is that, and moves the two others little.
    place = np.array([late, ((margin - 1) * late - behind) / 10])
    found = text_ending(model, CORPUS, by_hand(place, place - 2 * GROWTH, late))
    assert found.repelled == 0 and found.line is None
    assert found.status.name == status


def test_a_course_is_certified_with_a_pair_that_never_fades():
    """Two reviews hold words 1 and 2 off, one of the other class wants word 3, which
    lies between them: c_3 = −c_1, so λ = (1, 1, −1) and p_0 = log t + log c_1."""
    course = text_trajectory(START, CORPUS)
    ending = course.ending
    assert ending.selected.tolist() == [True, False] * 3
    assert ending.repelled == 1 and ending.line.holds()
    assert ending.status is TextEndStatus.SELECTED and not course.returns
    assert_close(ending.margin.direction, GROWTH)
    wanted = course.log_time - np.log(6)
    assert course.cls == pytest.approx([wanted, 0.0], abs=0.02)
