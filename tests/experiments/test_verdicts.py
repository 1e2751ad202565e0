"""Verdicts as functions of tables: every threshold from both of its sides."""

import numpy as np
import pytest
import xarray as xr

from experiments.common.claims import Claim, Measured, Verdict
from experiments.common.results import Finished
from experiments.report.folders import ResultFolder
from experiments.report.rows import FEWEST
from experiments.report.rows import measure as held_against
from experiments.sweep import claims as sweep_claims
from jaxselect.margin.certificate import TrialStatus

CERTIFIED, REPRODUCED, NOT_RUN = Verdict.CERTIFIED, Verdict.REPRODUCED, Verdict.NOT_RUN
IN_PART, NOT_REPRODUCED = Verdict.IN_PART, Verdict.NOT_REPRODUCED
REFUTED = Verdict.REFUTED
NAN = float("nan")


def study(results, arrays=None, settings=None):
    return Finished(settings or {}, results, arrays or {}, {})


def sweep(dims=(1e2, 1e3, 1e4, 1e5), steps=(1.0, 10.0, 100.0), seeds=10, **columns):
    """Runs that all select and lie on their predicted line, but for some columns."""
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
        {name: (axes, columns.get(name, value)) for name, value in plain.items()},
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
    for name in ("TIES_UNPROVED", "UNRESOLVED", "NORM_NOT_REACHED", "MISSING"):
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


def test_there_are_five_verdicts_and_certified_is_beside_one():
    words = {one.words for one in Verdict if one is not Verdict.DAMAGED}
    assert words == {"reproduced", "in part", "not reproduced", "refuted", "not run"}
    assert {one for one in Verdict if one.beside} == {CERTIFIED}
