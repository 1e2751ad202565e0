"""The verdict just below and just above each of its thresholds, for both classes.

Source: mathematics, section 3e.
"""

import dataclasses
from functools import partial

import jax.numpy as jnp
import numpy as np
import pytest

from jaxselect import Reason, from_sequences
from jaxselect.margin.certificate import (
    Measured,
    TrialStatus,
    classify_end,
    outcome_of,
    reason_against,
)

SIGNS = from_sequences([[0], [0]], [1, -1], vocabulary=1)
EPS = float(jnp.finfo(float).eps)
# The promises of a certificate, written out: to move one is to change the promise.
TOLERANCE, SCORE_ROUNDINGS, CAPTURED_SHARE = 1e-3, 256, 0.5
NAN = float("nan")


@dataclasses.dataclass(frozen=True)
class Found:
    """What is measured of an end; converged with everything selected by default."""

    flow_status: int = Reason.NONE
    limit_status: int = Reason.NONE
    late_flow_residual: float = 0.0
    perturbation_bound: float = 0.0
    history_change: float = 0.0
    coverage: tuple[float, ...] = (1.0, 1.0)
    largest_score: float = 0.0
    tied: bool = False
    displacement: float = 0.0
    paired: bool = True

    def judged(self, dtype=float, **changed):
        """The status and the reason."""
        given = dataclasses.asdict(dataclasses.replace(self, **changed))
        given = {
            name: jnp.asarray(value, jnp.int32 if name.endswith("status") else dtype)
            for name, value in given.items()
        }
        outcome = outcome_of(SIGNS, given.pop("coverage"))
        tokens = given.pop("tied") > 0, given.pop("paired") > 0
        reason = reason_against(Measured(**given))
        status = classify_end(reason, outcome, *tokens)
        return TrialStatus(status.item()), Reason(reason.item())

    def status(self, **changed):
        return self.judged(**changed)[0]


CONVERGED = Found()
BELOW, ABOVE = 1 - 1e-9, 1 + 1e-9
BELOW32, ABOVE32 = 1 - 1e-5, 1 + 1e-5
# Of one class and of the other; where a class has nothing to select, NaN.
SHARES = {
    (1.0, 1.0): "SELECTED_ALL",
    (1.0, BELOW): "PARTIAL",
    (1.0, CAPTURED_SHARE): "PARTIAL",
    (1.0, CAPTURED_SHARE * BELOW): "CAPTURED_POSITIVE",
    (BELOW, 0.0): "PARTIAL",
    (0.0, 0.0): "PARTIAL",
    (NAN, NAN): "SELECTED",
    (1.0, NAN): "SELECTED_ALL",
    (BELOW, NAN): "PARTIAL",
    (0.0, NAN): "PARTIAL",
}


@pytest.mark.parametrize("case", SHARES)
def test_shares_decide_what_a_converged_trial_is(case):
    """And exchanging the classes exchanges the captures."""
    found = CONVERGED.status(coverage=case).name
    assert found == SHARES[case]
    found = CONVERGED.status(coverage=case[::-1]).name
    assert found == SHARES[case].replace("CAPTURED_POSITIVE", "CAPTURED_NEGATIVE")


@pytest.mark.parametrize(
    "name", ["late_flow_residual", "perturbation_bound", "history_change"]
)
def test_the_tolerance_from_both_sides(name):
    assert CONVERGED.status(**{name: TOLERANCE * BELOW}) == TrialStatus.SELECTED_ALL
    assert CONVERGED.status(**{name: TOLERANCE * ABOVE}) == TrialStatus.UNRESOLVED
    assert CONVERGED.status(**{name: NAN}) == TrialStatus.UNRESOLVED


def test_rounding_of_the_largest_score_excuses_the_residual_alone():
    large = 1e12
    allowed = TOLERANCE + SCORE_ROUNDINGS * EPS * large
    excused = {"largest_score": large}
    assert (
        CONVERGED.status(late_flow_residual=allowed * BELOW, **excused)
        == TrialStatus.SELECTED_ALL
    )
    assert (
        CONVERGED.status(late_flow_residual=allowed * ABOVE, **excused)
        == TrialStatus.UNRESOLVED
    )
    for name in ("perturbation_bound", "history_change"):
        late = CONVERGED.status(**{name: TOLERANCE * ABOVE}, **excused)
        assert late == TrialStatus.UNRESOLVED


# For all other reasons an end is UNRESOLVED.
ENDS = {
    Reason.NONE: TrialStatus.SELECTED_ALL,
    Reason.TIES_DISTURBED: TrialStatus.TIES_UNPROVED,
    Reason.FORCES_CANCEL: TrialStatus.TIES_UNPROVED,
    Reason.FAILED: TrialStatus.FAILED,
    Reason.NOT_CONVERGED: TrialStatus.FAILED,
    Reason.NUMBERS: TrialStatus.FAILED,
    Reason.NOTHING: TrialStatus.AT_REST,
}


def test_a_contracted_problem_that_is_certified_is_a_tied_run():
    tied = {"tied": True}
    assert CONVERGED.status(**tied) == TrialStatus.TIED
    assert CONVERGED.status(**tied, displacement=TOLERANCE * BELOW) == TrialStatus.TIED
    moved = CONVERGED.status(**tied, displacement=TOLERANCE * ABOVE)
    assert moved == TrialStatus.TIES_UNPROVED
    early = CONVERGED.status(**tied, late_flow_residual=1.0)
    assert early == TrialStatus.TIES_UNPROVED
    # Without a pair nothing moves beside the ties.
    still = {"paired": False, "flow_status": Reason.NORM_NOT_REACHED}
    assert CONVERGED.status(**tied, **still) == TrialStatus.AT_REST
    assert CONVERGED.status(**still) == TrialStatus.UNRESOLVED
    for ended in (Reason.OUT_OF_STEPS, Reason.FAILED):
        there = CONVERGED.status(**tied, flow_status=ended)
        assert there == CONVERGED.status(flow_status=ended)


@pytest.mark.parametrize("status", Reason)
@pytest.mark.parametrize("name", ["flow_status", "limit_status"])
def test_every_reason_has_its_end(name, status):
    wanted = ENDS.get(status, TrialStatus.UNRESOLVED)
    assert CONVERGED.judged(**{name: status}) == (wanted, status)


def test_the_reason_is_the_first_hypothesis_that_fails():
    failing = {
        "flow_status": Reason.OUT_OF_STEPS,
        "limit_status": Reason.NOT_ATTRACTING,
        "late_flow_residual": TOLERANCE * ABOVE,
        "perturbation_bound": NAN,
        "history_change": TOLERANCE * ABOVE,
        "displacement": TOLERANCE * ABOVE,
    }
    assert CONVERGED.judged()[1] == Reason.NONE
    reasons = [Reason.OUT_OF_STEPS, Reason.NOT_ATTRACTING]
    reasons += [Reason.LINE, Reason.PERTURBATIONS, Reason.HISTORY, Reason.TIES]
    for first, (name, reason) in enumerate(zip(failing, reasons, strict=True)):
        assert CONVERGED.judged(**{name: failing[name]})[1] == reason
        later = dict(list(failing.items())[first:])
        assert CONVERGED.judged(**later)[1] == reason


def test_single_precision_allows_for_its_own_rounding():
    single = partial(CONVERGED.judged, dtype=jnp.float32)
    for score, wanted in ((10.0, Reason.LINE), (1e2, Reason.NONE)):
        assert single(late_flow_residual=2e-3, largest_score=score)[1] == wanted
    # A hundred tolerances, whatever the scores, for what no gradient corrects.
    for factor, wanted in ((BELOW32, Reason.NONE), (ABOVE32, Reason.HISTORY)):
        change = np.float32(100 * TOLERANCE) * np.float32(factor)
        assert single(history_change=change)[1] == wanted
