"""Verdicts on sweeps and on what studies left: each threshold from both sides."""

import numpy as np
import pytest
import xarray as xr

from experiments import reviews
from experiments.beyond import _trained_head, joint, peers, phases, purity, step_size
from experiments.common.claims import Claim, Measured, Verdict
from experiments.common.results import Finished
from experiments.paper import lemma_4_1 as text_lemma
from experiments.report.folders import ResultFolder
from experiments.report.rows import FEWEST
from experiments.report.rows import measure as held_against
from experiments.sweep import claims as sweep_claims
from experiments.text import flow as text_flow
from jaxselect import BadInput, TrialStatus

CERTIFIED, REPRODUCED, NOT_RUN = Verdict.CERTIFIED, Verdict.REPRODUCED, Verdict.NOT_RUN
IN_PART, NOT_REPRODUCED = Verdict.IN_PART, Verdict.NOT_REPRODUCED
REFUTED = Verdict.REFUTED
NAN = float("nan")


def study(results, arrays=None, settings=None):
    return Finished(settings or {}, results, arrays or {}, {})


def sweep(dims=(1e2, 1e3, 1e4, 1e5), steps=(1.0, 10.0, 100.0), seeds=10, **columns):
    """Runs that all select and lie on their line, but for some columns or more."""
    shape = len(dims), len(steps), seeds
    dim = np.broadcast_to(np.array(dims)[:, None, None], shape)
    plain = {
        "status": np.full(shape, int(TrialStatus.SELECTED_ALL)),
        "alignment_error": dim**-0.5 * (1 + 1e-3 * np.arange(seeds) / seeds),
        "max_margin_norm": np.full(shape, 3.0),
        "error_constant": np.full(shape, 2.0),
        "cls_norm": np.full(shape, 6e5),
        "log_time": np.full(shape, 2e5),
        "direction_error": np.full(shape, 2 / 6e5),
        "duality_gap": np.full(shape, 1e-15),
        "history_dim": np.zeros(shape, int),
    }
    axes = ("dim", "step_size", "seed")
    return xr.Dataset(
        {name: (axes, column) for name, column in (plain | columns).items()},
        coords=dict(zip(axes, (list(dims), list(steps), range(seeds)), strict=True)),
        attrs={"statuses": {status.name: status.value for status in TrialStatus}},
    )


def statuses(shape=(4, 3, 10), **where):
    """Statuses of a sweep: `SELECTED_ALL` except at the cells given."""
    found = np.full(shape, int(TrialStatus.SELECTED_ALL))
    for name, place in where.items():
        found[place] = -1 if name == "MISSING" else TrialStatus[name]
    return found


def test_growth_without_bound_is_certified_for_all_runs_or_not_at_all():
    verdict = lambda **where: (  # noqa: E731
        sweep_claims.without_bound(sweep(status=statuses(**where))).verdict
    )
    assert verdict() is CERTIFIED
    for name in ("TIES_UNPROVED", "UNRESOLVED", "FAILED", "MISSING"):
        assert verdict(**{name: (0, 0, 0)}) is IN_PART
    assert verdict(CAPTURED_NEGATIVE=(0, 0, 0), SELECTED=(1, 1, 1)) is CERTIFIED
    assert verdict(TIED=(0, 0, 0)) is CERTIFIED
    assert verdict(AT_REST=(0, 0, 0)) is IN_PART


def test_the_corner_of_large_sizes_is_whole_and_more_than_one_cell():
    def measured(**where):
        return sweep_claims.all_selected(sweep(status=statuses(**where)))

    assert "d ≥ 100 and η₀ ≥ 1" in measured().value
    low = measured(PARTIAL=(0, slice(None), 3))
    assert low.verdict is CERTIFIED and "d ≥ 1,000 and η₀ ≥ 1" in low.value
    assert "all 90 runs with" in low.value
    assert low.sample == "117 of all 120 runs do"
    # One run in the last corner but its cell is whole: no region of two by two.
    assert measured(PARTIAL=(2, 2, 0)).verdict is NOT_REPRODUCED
    assert measured(MISSING=(3, 2, 0)).verdict is NOT_RUN
    missing = measured(MISSING=(0, 0, 0), UNRESOLVED=(1, 0, 0))
    assert "d ≥ 100 and η₀ ≥ 10" in missing.value


DEVIATING = {
    "direction": (sweep_claims.direction, "direction_error", 2 / 6e5, 0.01),
    "growth": (sweep_claims.growth, "cls_norm", 6e5, 0.05),
}


@pytest.mark.parametrize("name", DEVIATING)
@pytest.mark.parametrize("sign", [1, -1])
def test_deviations_count_from_their_bound_on(name, sign):
    measure, column, exact, bound = DEVIATING[name]

    def measured(factor, every=False, status=None):
        values = np.full((4, 3, 10), exact)
        values[slice(None) if every else (0, 0, 0)] = exact * factor
        columns = {column: values, "status": statuses() if status is None else status}
        if name == "growth":
            columns["direction_error"] = 2 / values
        return measure(sweep(**columns))

    assert measured(1 + sign * 0.98 * bound).verdict is CERTIFIED
    beyond = measured(1 + sign * 1.02 * bound)
    assert beyond.verdict is IN_PART and beyond.fails == "0.833 %"
    assert measured(1 + sign * 1.02 * bound, every=True).verdict is REFUTED
    assert measured(NAN).verdict is IN_PART
    assert measured(NAN).sample == "120 certified runs"
    # A run without a certificate is not in question; a missing one takes the green.
    far = 1 + 2 * bound
    for status in ("UNRESOLVED", "SELECTED"):
        assert (
            measured(far, status=statuses(**{status: (0, 0, 0)})).verdict is CERTIFIED
        )
    gone = measured(1.0, status=statuses(MISSING=(0, 0, 0)))
    assert gone.verdict is REPRODUCED
    assert gone.sample == "119 certified runs, 1 of 120 are missing"
    none = measured(1.0, status=np.full((4, 3, 10), int(TrialStatus.FAILED)))
    assert none.verdict is NOT_RUN


@pytest.mark.parametrize(
    ("gap", "verdict"), [(0.9e-9, CERTIFIED), (1.1e-9, IN_PART), (NAN, IN_PART)]
)
def test_a_solution_is_exact_up_to_its_gap(gap, verdict):
    values = np.full((4, 3, 10), 1e-15)
    values[1, 1, 1] = gap
    assert sweep_claims.exact_margin(sweep(duality_gap=values)).verdict is verdict
    # Of runs with a certificate.
    refused = statuses(UNRESOLVED=(1, 1, 1))
    found = sweep_claims.exact_margin(sweep(duality_gap=values, status=refused))
    assert found.verdict is CERTIFIED and found.sample == "119 certified runs"


def test_few_runs_and_smoke_runs_decide_nothing(tmp_path, monkeypatch):
    claim = Claim("", lambda table: Measured(CERTIFIED, "1", sample="all"))

    def verdict(content):
        return held_against(claim, ResultFolder(tmp_path, "", content, "", "")).verdict

    whole = statuses()
    whole.ravel()[FEWEST:] = -1
    assert verdict(sweep(status=whole)) is CERTIFIED
    whole.ravel()[FEWEST - 1] = -1
    assert verdict(sweep(status=whole)) is NOT_RUN
    assert verdict(study({}, settings={"preset": "full"})) is CERTIFIED
    assert verdict(study({}, settings={"preset": "smoke"})) is NOT_RUN


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
