"""Verdicts on what studies left, from both sides of every threshold."""

import pytest

from experiments import reviews
from experiments.beyond import _trained_head, joint, peers, phases, purity, step_size
from experiments.common.claims import Verdict
from experiments.common.results import Finished
from experiments.paper import lemma_4_1 as text_lemma
from experiments.text import flow as text_flow
from jaxselect.checks import BadInput
from jaxselect.margin.certificate import TrialStatus

CERTIFIED, REPRODUCED, NOT_RUN = Verdict.CERTIFIED, Verdict.REPRODUCED, Verdict.NOT_RUN
IN_PART, NOT_REPRODUCED = Verdict.IN_PART, Verdict.NOT_REPRODUCED
REFUTED = Verdict.REFUTED
NAN = float("nan")


def study(results, arrays=None):
    return Finished({}, results, arrays or {}, {})


def optima(ratio, number=1):
    """One dimension as good as the grid, and some by a ratio of log-times."""
    cells = [{"log_time_descent": 1.0, "log_time_grid": 1.0}]
    cells += [{"log_time_descent": ratio, "log_time_grid": 1.0}] * number
    each = {"step_size_descent": 1.0, "dim": 64.0}
    return study({"optima": [cell | each for cell in cells], "cost_share": 0.1})


def head(**counts):
    status = dict.fromkeys((name.name for name in _trained_head.Heading), 0) | counts
    part = {"status": status, "draws": sum(status.values())}
    empty = {"status": dict.fromkeys(status, 0), "draws": 0}
    return joint.beside_head(study({"equal": part, "unequal": empty}))


def nothing_frozen(*ratios):
    """1 − q over its law, by cell; what another subset trains does not count."""
    rows = [{"trained": "E, p, v; η = 100", "off": {"mean": ratio}} for ratio in ratios]
    rows.append({"trained": "E, v", "off": {"mean": 5.0}})
    return joint.nothing_frozen(study({"laws": rows}))


def edges(within, number=4):
    part = {"edges": number, "within": within, "least": 0.9, "most": 1.1}
    none = {"edges": 0, "within": NAN, "least": NAN, "most": NAN}
    return phases.foretold(study({"summary": {"one": part, "two": none}}))


def published(*agreements):
    """Numbers that agree or not; beside them one that is not comparable."""
    rows = [{"within": 0.1, "agrees": agrees} for agrees in agreements]
    rows.append({"within": NAN, "agrees": False})
    return peers.come_out(study({"rows": rows}))


def ceilings(*ratios):
    rows = [{"per_sequence": 1, "ratio": ratio} for ratio in ratios]
    rows.append({"per_sequence": 2, "ratio": 9.0})
    return purity.foretold(study({"edges": rows}))


def loads(load, at_odds=0):
    row = dict.fromkeys(("outside", "active", "runs_outside", "certified", "runs"), 1)
    row |= {"largest_load": load, "at_odds": at_odds}
    return purity.held(study({"pairs": row}))


def lemma_on_text(exponent):
    found = {"exponent": exponent, "exponent_plain_counts": 0.0, "errors": [1.0, 0.5]}
    return text_lemma.text_lemma(study(found | {"vocabulary": 9, "dims": [1, 2]}))


def step(correlation):
    row = {"correlation": correlation, "slope_ratio": 1.0}
    return reviews.review_step(study({"one_step": row, "vocabulary": 9}))


def end(status):
    found = {"status": status, "tied_words": 0, "growth": 1.0}
    return text_flow.text_end(study(found | {"reviews": 9, "vocabulary": 9}))


TABLES = [
    (lambda: step_size.descent(optima(1.0)), REPRODUCED),
    (lambda: step_size.descent(optima(0.9)), REPRODUCED),
    (lambda: step_size.descent(optima(1.0001)), IN_PART),
    (lambda: step_size.descent(optima(NAN)), IN_PART),
    (lambda: published(True, True), REPRODUCED),
    (lambda: published(True, False), IN_PART),
    (lambda: ceilings(0.92, 1.09, NAN), REPRODUCED),
    (lambda: ceilings(0.9, 1.09), IN_PART),
    (lambda: ceilings(1.11), NOT_REPRODUCED),
    (lambda: ceilings(NAN), NOT_RUN),
    (lambda: loads(0.99), CERTIFIED),
    (lambda: loads(1.01), REFUTED),
    (lambda: loads(0.5, at_odds=1), REFUTED),
    (lambda: loads(NAN), NOT_RUN),
    (lambda: head(UNCHANGED=4), CERTIFIED),
    (lambda: head(UNCHANGED=3, NOT_CERTIFIED=1), IN_PART),
    (lambda: head(UNCHANGED=3, NOT_REACHED=1), IN_PART),
    (lambda: head(UNCHANGED=3, RELAXED=1), IN_PART),
    (lambda: head(RELAXED=4), REFUTED),
    (lambda: head(NO_MAX_MARGIN=4), NOT_REPRODUCED),
    (lambda: joint.beside_head(study({})), NOT_RUN),
    (lambda: nothing_frozen(1.049, 0.951), REPRODUCED),
    (lambda: nothing_frozen(1.051, 0.951), IN_PART),
    (lambda: nothing_frozen(0.949), NOT_REPRODUCED),
    (lambda: nothing_frozen(NAN), NOT_RUN),
    (lambda: joint.nothing_frozen(study({})), NOT_RUN),
    (lambda: edges(1.0), REPRODUCED),
    (lambda: edges(0.75), IN_PART),
    (lambda: edges(0.0), NOT_REPRODUCED),
    (lambda: edges(NAN, 0), NOT_RUN),
    (lambda: lemma_on_text(-0.549), REPRODUCED),
    (lambda: lemma_on_text(-0.551), NOT_REPRODUCED),
    (lambda: lemma_on_text(-0.451), REPRODUCED),
    (lambda: lemma_on_text(-0.449), NOT_REPRODUCED),
    (lambda: lemma_on_text(NAN), NOT_RUN),
    (lambda: step(0.91), REPRODUCED),
    (lambda: step(0.89), NOT_REPRODUCED),
    (lambda: end("SELECTED"), CERTIFIED),
    (lambda: end("TIED"), CERTIFIED),
    (lambda: end("AT_REST"), REFUTED),
    (lambda: end("TIES_UNPROVED"), NOT_RUN),
]


@pytest.mark.parametrize("number", range(len(TABLES)))
def test_a_table_has_its_verdict(number):
    decide, verdict = TABLES[number]
    measured = decide()
    assert measured.verdict is verdict, measured


@pytest.mark.parametrize(
    "decide", [lambda: end("NOT_YET"), lambda: head(UNCHANGED=3, UNHEARD_OF=1)]
)
def test_a_status_that_is_not_known_is_an_error(decide):
    with pytest.raises(BadInput, match="run the study again"):
        decide()


@pytest.mark.parametrize(
    ("known", "statuses"),
    [(text_flow.ENDS, TrialStatus), (joint.HEADINGS, _trained_head.Heading)],
)
def test_every_status_that_may_come_is_known(known, statuses):
    assert set(known) == set(statuses.__members__)
