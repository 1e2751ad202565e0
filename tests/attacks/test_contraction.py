"""No TIED run is refuted by the literal model, and false claims are."""

import dataclasses

import numpy as np
import pytest

from .contraction import attack, claim_of, claimed, draw, judge


def verdict(claim, **changes):
    """What the literal model says of a claim, with some of it changed."""
    claim = dataclasses.replace(claim, **changes)
    judge([claim])
    return claim.verdict


def test_a_claim_is_confirmed_and_one_that_is_off_its_line_is_not():
    status, claim = claim_of(draw("chain", 3))
    assert status == "TIED"
    assert verdict(claim) == "confirmed"
    for size, wanted in ((1e-3, "confirmed"), (2e-2, "refuted: 0.02 off its line")):
        shift = size * claim.ties[0].e[0] / np.ptp(claim.ties[0].e @ claim.ties[0].e[0])
        wrong = verdict(claim, line=lambda late, by=shift: claim.line(late) + by)
        assert wrong == wanted


def test_ties_that_another_token_breaks_are_refuted():
    """The second stage of this run ends at log t = 42.85, as a token comes back."""
    given = draw("return", 334)
    _, claim = claim_of(given)
    model, corpus, stage, _ = claimed(*given, 2)
    assert 42 < stage.flow.log_time < 43
    own = type(claim.ties[0])(model, corpus, stage.ties)
    assert verdict(claim, ties=[own], log_time=35.0).startswith(
        "refuted: ties are left"
    )


def test_an_overtaking_that_curvature_opposes_is_no_tie():
    """A fifth of the strongest pull is left of all where its first clock ends."""
    status, claim = claim_of(draw("return", 184))
    assert status == "TIED"
    assert verdict(claim) == "confirmed"


@pytest.mark.slow
def test_no_tied_run_of_many_is_refuted():
    table = attack(300, 5000)
    tied = {
        verdict: sum(n for (_, _, each), n in table.items() if each == verdict)
        for verdict in ("confirmed", "refuted", "unknown")
    }
    assert tied["refuted"] == 0
    assert tied["confirmed"] > 100 and tied["unknown"] < 0.1 * tied["confirmed"]
