"""Every hypothesis of a certificate, from both sides of where it decides.

Source: mathematics, section 7c.
"""

import numpy as np
import pytest

from jaxselect.margin.max_margin import MaxMarginStatus
from jaxselect.margin.qp import ACTIVE
from jaxselect.sparse.end import (
    FREE,
    INACTIVE,
    PUSH,
    CertificateStatus,
    PairForces,
    SparseMaxMargin,
    limit_certificate,
)

LATE = 40.0
OFFSET, DIRECTION = CertificateStatus.OFFSET, CertificateStatus.DIRECTION
DUALS = np.array([0.5, 0.5, 0.0])


def certified(third=(2.0, 3.0), force=(0.5, 0.5, 1e-9), *, fourth=None, **changed):
    """Token 0 against D = (1, 1), (1, −1) and others; p on the line of the two."""
    rows = np.array([(1, 1), (1, -1), third] + [fourth] * (fourth is not None), float)
    force, number = np.array(force), len(rows)
    with np.errstate(divide="ignore"):
        size = np.log(np.abs(force)) - LATE
    numbers = {
        "log_gross": size,
        "log_error": size - 40,
        "log_share": size,
        "lost_share": float(np.exp(-LATE)),
        "response": 5.0,
        "drive": 1.0,
    }
    given = {key: changed.pop(key) for key in numbers if key in changed}
    ties, status = changed.pop("ties", FREE), changed.pop("status", None)
    duals = np.append(changed.pop("duals", DUALS), np.zeros(number - 3))
    assert not changed
    forces = PairForces(
        np.zeros(number, int),
        np.arange(number) + 1,
        np.sign(force),
        size,
        **numbers | given,
    )
    words = np.vstack([np.zeros(2), -rows])
    status = MaxMarginStatus.SOLVED if status is None else status
    on = duals > 0
    pairs = np.zeros(on.sum(), int), np.flatnonzero(on) + 1, duals[on]
    margin = SparseMaxMargin(np.array([1.0, 0.0]), *pairs, 0.0, 0.0, number, status)
    return limit_certificate(forces, words, margin, LATE, diameter=8.0, ties=ties)


LENGTH = float(np.hypot(2, 3))


def test_all_positive_is_final_and_has_its_offset():
    found = certified()
    assert found.status is OFFSET and found.wrong_sign == 0
    assert found.distance < 1e-9


@pytest.mark.parametrize("error", [0.5, 2.0])
def test_a_positive_force_is_positive_by_more_than_its_error(error):
    """By 2 max ‖D‖ ‖p_mm‖ times it, or else its pair is one of wrong sign."""
    least = 2 * LENGTH
    log = np.log([0.5, 0.5, 1e-9 / least * error]) - LATE
    found = certified(log_error=np.where([False, False, True], log, log - 40))
    # With an offset that is proved it does no harm.
    assert found.status is OFFSET
    assert np.isfinite(found.budget) == (error > 1)


@pytest.mark.parametrize(("gross", "positive"), [(1e14, True), (1e16, False)])
def test_what_losers_shares_may_change_is_part_of_the_error(gross, positive):
    """e^{−40} times the gross, response and 2 max ‖D‖ ‖p_mm‖, against the force."""
    log = np.log([0.5, 0.5, 1e-9 * gross]) - LATE
    found = certified(log_gross=log)
    # Without a budget where all forces are positive for good.
    assert found.status is OFFSET
    assert np.isfinite(found.budget) != positive


@pytest.mark.parametrize(
    ("log_share", "status"), [(-12.0, OFFSET), (0.0, CertificateStatus.UNRESOLVED)]
)
def test_losers_that_have_weight_resolve_nothing(log_share, status):
    """Σλ may grow to 2 ‖p_mm‖², and every share in proportion."""
    log = np.log([0.5, 0.5, 1e-9]) + log_share
    found = certified(log_share=log, lost_share=float(np.exp(log_share)))
    assert found.status is status


def test_no_pairs_and_no_margin():
    assert (
        certified(status=MaxMarginStatus.NO_PAIRS).status is CertificateStatus.NO_PAIRS
    )
    for status in (
        MaxMarginStatus.INFEASIBLE,
        MaxMarginStatus.NOT_CONVERGED,
    ):
        assert certified(status=status).status is CertificateStatus.UNSOLVED


NEAR = ACTIVE * float(np.finfo(float).eps)
BETWEEN = float(np.sqrt(NEAR * INACTIVE))


@pytest.mark.parametrize(
    ("excess", "positive", "negative"),
    [
        (0.0, OFFSET, CertificateStatus.OFFSET),
        (NEAR / 2, OFFSET, OFFSET),
        (BETWEEN, DIRECTION, CertificateStatus.NO_EQUILIBRIUM),
        (1e-2, OFFSET, OFFSET),
    ],
)
def test_margins_that_are_neither_one_nor_more_prove_no_offset(
    excess, positive, negative
):
    third, small = (1 + excess, 0.0), 1e-7
    assert certified(third, (0.5, 0.5, small)).status is positive
    assert certified(third, (0.5, 0.5, -small)).status is negative


def test_a_tie_without_a_dual_has_a_direction_and_no_offset():
    """D_2 = (1, −1) in place of which a second (1, 1) leaves (1, 0) without duals."""
    alone = np.array([0.0, 0.0, 1.0])
    positive = certified((1.0, 0.0), (1e-9, 1e-30, 1.0), duals=alone)
    assert positive.status is DIRECTION and positive.distance == np.inf
    negative = certified((1.0, 0.0), (1e-9, -1e-30, 1.0), duals=alone)
    assert negative.status is CertificateStatus.NO_EQUILIBRIUM


@pytest.mark.parametrize("share", [0.9, 1.1])
def test_a_wrong_force_may_push_scores_by_a_hundredth(share):
    """|λ| ‖D‖ e^{‖D‖ R}/(m − 1), R the push and nothing else here."""
    push = PUSH / LENGTH
    force = share * push / LENGTH * np.exp(-LENGTH * push)
    found = certified(force=(0.5, 0.5, -force))
    assert found.push == pytest.approx(share * push, rel=1e-6)
    assert found.status is (OFFSET if share < 1 else CertificateStatus.OUT_OF_REACH)
    assert found.wrong_sign == 1 and found.active_wrong_sign == 0
    if share < 1:
        assert found.budget == pytest.approx(push, rel=1e-6)


@pytest.mark.parametrize(("error", "holds"), [(1e-5, True), (1e-2, False)])
def test_a_force_of_no_known_sign_may_be_as_large_as_its_error(error, holds):
    """Bags that cancel to the last digit: c = 0, and rounding is all that is known."""
    known = np.log([0.5, 0.5, 1.0]) - LATE
    found = certified(
        force=(0.5, 0.5, 0.0),
        log_gross=known,
        log_share=known,
        log_error=np.log([1e-15, 1e-15, error]) - LATE,
    )
    assert found.wrong_sign == 1
    assert (found.status is OFFSET) == holds


@pytest.mark.parametrize(("excess", "holds"), [(0.02, True), (0.002, False)])
def test_a_wrong_force_fades_in_the_time_of_its_margin(excess, holds):
    found = certified((1 + excess, 3.0), (0.5, 0.5, -1e-5))
    assert (found.status is OFFSET) == holds


@pytest.mark.parametrize(("away", "holds"), [(1.0, True), (6.0, False)])
def test_a_wrong_force_grows_on_the_way_to_the_line(away, holds):
    """p is off its line in two pairs: the third may gain e^{‖D‖ r}."""
    pull = 0.5 * np.exp(np.array([away, -away]) / 2)
    found = certified(force=(*pull, -1e-6))
    assert found.distance == pytest.approx(away / 2, rel=1e-6)
    assert (found.status is OFFSET) == holds


@pytest.mark.parametrize(
    ("along", "force", "holds"),
    [
        (-1.5, -1e-7, True),
        (-1.5, -3e-7, False),
        (1.5, -2e-5, True),
        (1.5, -1e-4, False),
    ],
)
def test_a_wrong_force_counts_as_it_is_on_the_line(along, force, holds):
    """p along p_mm from its line, at which the third has e^{−2 along} of its force."""
    pull = 0.5 * np.exp(along)
    found = certified(force=(pull, pull, force))
    assert found.distance == pytest.approx(abs(along), rel=1e-6)
    assert (found.status is OFFSET) == holds


@pytest.mark.parametrize(("slow", "holds"), [(1e-4, True), (1e-2, False)])
def test_a_positive_force_that_fades_slowly_is_part_of_the_way(slow, holds):
    """λ ‖D‖/(m − 1) of it, 1.4 where it decides, opens the way to a wrong one."""
    found = certified(force=(0.5, 0.5, -1e-5, slow), fourth=(1.01, 1.0))
    assert found.wrong_sign == 1
    assert (found.status is OFFSET) == holds


@pytest.mark.parametrize(("gross", "holds"), [(1e13, True), (2e15, False)])
def test_what_shares_may_change_meanwhile_is_no_longer_than_was_assumed(gross, holds):
    """Forces cancel from e^{35}: with shares of e^{−40} these push p by 0.05."""
    log = np.log([0.5 * gross, 0.5 * gross, 1e-9]) - LATE
    found = certified(force=(0.5, 0.5, -1e-9), log_gross=log)
    assert found.wrong_sign == 1
    assert found.status is (OFFSET if holds else CertificateStatus.OUT_OF_REACH)


@pytest.mark.parametrize("ratio", [0.9, 1.1])
def test_with_an_active_wrong_force_the_budget_is_within_the_basin(ratio):
    """D_3 = (1, 0), λ = (1, 1, −1) on the line; away from it along the first axis."""
    duals = np.array([0.5, 0.5, 0.0])
    at = certified((1.0, 0.0), (1.0, 1.0, -1.0), duals=duals)
    assert at.status is OFFSET and at.active_wrong_sign == 1
    basin = at.equilibrium.basin
    assert at.budget <= basin < 0.1
    pull = np.exp(-ratio * basin)
    found = certified((1.0, 0.0), (pull, pull, -pull), duals=duals)
    assert found.distance == pytest.approx(ratio * basin, rel=1e-6)
    assert found.status is (OFFSET if ratio < 1 else CertificateStatus.OUT_OF_REACH)


def ties_at(distance, stiffness=1e-3, basin=1e-2):
    rest = FREE.rest._replace(stiffness=np.float64(stiffness), basin=basin)
    return FREE._replace(moved=distance, rest=rest)


@pytest.mark.parametrize(
    ("ties", "holds"),
    [
        (ties_at(1e-9), True),
        # p_U outside of the basin.
        (ties_at(0.02), False),
        # Losers push it out of the basin.
        (ties_at(1e-16, basin=1e-15), False),
    ],
)
@pytest.mark.parametrize("force", [1e-9, -1e-9])
def test_ties_are_at_rest_and_stay_there(ties, holds, force):
    found = certified(force=(0.5, 0.5, force), ties=ties)
    wanted = OFFSET if holds else CertificateStatus.UNRESOLVED
    assert found.status is wanted


@pytest.mark.parametrize(("distance", "positive"), [(1e-3, True), (5e-3, False)])
def test_ties_that_settle_at_once_blur_forces_until_they_have(distance, positive):
    """By response times diameter times distance of the gross, 2 max ‖D‖ times over."""
    assert (5.0 * 8.0 * distance * 2 * LENGTH < 1) == positive
    found = certified(ties=ties_at(distance, stiffness=1.0))
    # Where a sign is not known the way that it may push p is budgeted.
    assert found.status is OFFSET
    assert np.isfinite(found.budget) != positive


@pytest.mark.parametrize("soft", [1e-8, 1e-10])
def test_ties_on_their_way_to_rest_perturb_by_the_way_that_they_have(soft):
    """By response D δ_0 log(1 + 2/(μ e^τ)) Σ λ̄ ‖D‖, where a sign is not known."""
    stiffness, distance = soft * np.exp(-LATE) * 1e9, 1e-5
    quiet = {"drive": 0.0, "lost_share": 0.0, "force": (0.5, 0.5, -1e-9)}
    still = certified(**quiet)
    found = certified(ties=ties_at(distance, stiffness), **quiet)
    assert found.status is still.status is OFFSET
    gross = 0.5 * np.hypot(1, 1) + 0.5 * np.hypot(1, 1) + 1e-9 * LENGTH
    way = 5.0 * 8.0 * distance * np.log1p(2 / (stiffness * np.exp(LATE)))
    room = np.log((found.budget - still.budget) / (way * gross))
    assert 0 <= room < 1


@pytest.mark.parametrize("share", [0.4, 0.6])
def test_pushes_of_opposing_pairs_add_up(share):
    """D = (2, 3) and (2, −3): their pushes cancel nowhere but in a vector sum."""
    push = PUSH / LENGTH
    force = share * push / LENGTH * np.exp(-LENGTH * push)
    found = certified(fourth=(2.0, -3.0), force=(0.5, 0.5, -force, -force))
    assert found.push == pytest.approx(2 * share * push, rel=1e-6)
    assert found.status is (OFFSET if share < 0.5 else CertificateStatus.OUT_OF_REACH)
