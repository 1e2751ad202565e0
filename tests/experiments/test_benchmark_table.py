"""The table of all benchmarks: the best rival that did the same, and what is marked."""

import json

import numpy as np
import pytest

from experiments.benchmarks import table
from experiments.common.results import write
from tests.experiments.test_console import ended


def solved(solver, size, seconds, gap=1e-12):
    return {
        "family": "bags",
        "size": size,
        "solver": solver,
        "seconds": seconds,
        "seconds_per_lane": 2 * seconds,
        "largest_gap": gap,
    }


MARGIN = {
    "records": [
        solved("ours", 64, 1.0),
        solved("ours", 128, 2.0),
        solved("slow", 64, 4.0),
        solved("slow", 128, 4.0),
        solved("quick", 64, 3.0),
        solved("quick", 128, 3.0),
        solved("rough", 64, 0.1, gap=1e-4),
    ]
}


def test_the_rival_is_the_fastest_of_those_that_solve_the_problem():
    alone, batch = table.max_margin(MARGIN)
    assert (alone.rival, alone.ratio, alone.least, alone.most) == (
        "quick",
        2.25,
        1.5,
        3,
    )
    assert (alone.ours, alone.theirs) == (1.5, 3.0)
    assert batch.what == "bags, in a batch" and batch.ours == 3.0


def test_a_rival_that_stops_half_way_is_none():
    def flow(who, gamma, seconds, norm):
        extra = {} if who == "jaxselect" else {"slower_than_ours": seconds}
        return {
            "who": who,
            "gamma": gamma,
            "seconds": seconds,
            "cls_norm": norm,
        } | extra

    records = [flow("jaxselect", gamma, 1.0, 1e6) for gamma in (0.1, 0.4)]
    records += [flow("far", gamma, 3.0, 1e6) for gamma in (0.1, 0.4)]
    records += [flow("near", gamma, 0.5, 1e3) for gamma in (0.1, 0.4)]
    records += [flow("once", 0.1, 0.5, 1e6)]
    (found,) = table.flow({"small": records})
    assert (found.rival, found.ratio) == ("far", 3.0)


def test_a_derivative_stands_beside_two_values():
    (found,) = table.rates({"all": {"value_seconds": 2.0, "forward_over_value": 1.6}})
    assert found.ratio == pytest.approx(1.25)


@pytest.mark.parametrize(
    "ratio, earlier, wanted",
    [
        (0.99, None, "behind the rival"),
        (1.01, None, ""),
        (2.9, 4.0, "was 4"),
        (3.1, 4.0, ""),
        (0.5, 0.5, "behind the rival"),
    ],
)
def test_a_row_is_marked_behind_its_rival_or_its_past(ratio, earlier, wanted):
    one = table.Row("text", "a step", 1.0, "csr", ratio, ratio, ratio, ratio)
    known = {} if earlier is None else {one.name: earlier}
    assert table.mark(one, known) == wanted


def test_the_table_is_made_of_what_lies_on_disk(tmp_path, capsys, monkeypatch):
    """Rows of the benchmarks that are there; the others are named."""
    monkeypatch.setattr(table, "KEPT", tmp_path / "ratios.json")
    flags = ["--preset", "there", "--keep", "--json", "--out", tmp_path / "table"]
    assert ended(table.main, flags, table.PRESETS) == 2
    write(tmp_path / "max_margin", settings=table.Settings(), results=MARGIN)
    capsys.readouterr()
    assert ended(table.main, flags, table.PRESETS) == 0
    told = capsys.readouterr()
    rows = json.loads(told.out)["rows"]
    assert [row["rival"] for row in rows] == ["quick", "quick"]
    assert "networks" in told.err
    ratios = json.loads((tmp_path / "ratios.json").read_text())
    np.testing.assert_allclose(list(ratios.values()), [row["ratio"] for row in rows])
    assert set(ratios) == set(table.kept())
