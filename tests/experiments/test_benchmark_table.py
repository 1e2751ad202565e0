"""The table of all benchmarks: the best rival that did the same."""

import json

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


def test_every_size_of_flow_has_its_row_and_a_rival_that_stops_half_way_is_none():
    def flow(solver, seconds, norm=1e6, gammas=(0.1, 0.4)):
        extra = {} if solver == "jaxselect" else {"slower_than_ours": seconds}
        one = {"solver": solver, "seconds": seconds, "cls_norm": norm} | extra
        return [one | {"gamma": gamma} for gamma in gammas]

    ours, near = flow("jaxselect", 1.0), flow("near", 0.5, norm=1e3)
    once = flow("once", 0.5, gammas=(0.1,))
    ratios = {"small": 2.0, "large": 3.0}
    results = {
        size: [*ours, *near, *once, *flow("far", ratio), *flow("other", 9.0)]
        for size, ratio in ratios.items()
    }
    rows = list(table.flow(results))
    assert {row.what.split(", ")[1]: row.ratio for row in rows} == ratios
    assert {row.rival for row in rows} == {"far"}


def test_a_rival_whose_gap_is_not_known_has_not_solved_the_problem():
    ours = MARGIN["records"][0]
    for gap in (2e-9, float("nan")):
        both = {"records": [ours, solved("x", 64, 1, gap)]}
        assert not list(table.max_margin(both))


def test_on_text_and_in_networks_the_fastest_way_is_the_rival():
    """Each of three steps in turn; batches of PyTorch at random and sorted."""
    usual = {"ours": 2.0, "gathered": 8.0, "scalars": 6.0, "csr": 5.0}
    for fast in ("gathered", "scalars", "csr"):
        (found,) = table.text(
            {k: {"step": v} for k, v in (usual | {fast: 3.0}).items()}
        )
        assert (found.rival, found.ratio) == (fast, 1.5)
    for random, rival, ratio in ((6, "sorted", 2.0), (3, "random", 1.5)):
        times = {"random": {"seconds": random}, "sorted": {"seconds": 4}}
        (found,) = table.networks({"seconds": 2} | times)
        assert (found.rival, found.ratio) == (f"PyTorch, {rival}", ratio)


def test_a_ratio_is_their_time_over_ours_by_its_median():
    pairs = {"one": [(2.0, 1.0), (9.0, 3.0), (40.0, 4.0)], "other": [(99.0, 1.0)]}
    found = table.row("area", "what", pairs)
    rivals = {"one": 3.0, "other": 99.0}
    assert found == table.Row("area", "what", 3.0, "one", 9.0, 3.0, 2.0, 10.0, rivals)


def test_the_table_is_made_of_what_lies_on_disk(tmp_path, capsys, monkeypatch):
    """Rows of the benchmarks that are there; the others are named."""
    page = tmp_path / "benchmarks.md"
    page.write_text("before\n<!-- begin -->\nold\n<!-- end -->\nafter\n")
    monkeypatch.setattr(table, "PAGE", page)
    flags = ["--preset", "there", "--keep", "--json", "--out", tmp_path / "table"]
    assert ended(table.main, flags, table.PRESETS) == 2
    write(tmp_path / "max_margin", settings=table.Settings(), results=MARGIN)
    capsys.readouterr()
    assert ended(table.main, flags, table.PRESETS) == 0
    printed = capsys.readouterr()
    rows = json.loads(printed.out)["rows"]
    assert [row["rival"] for row in rows] == ["quick", "quick"]
    assert "networks" in printed.err
    text = page.read_text()
    assert "old" not in text and text.startswith("before") and text.endswith("after\n")
    assert "| max_margin: bags, alone | 1.5 | quick | 3 | 2.2 | 1.5 … 3 |" in text
    assert page.with_suffix(".png").stat().st_size > 0
