"""The report: what is on disk, said once, with nothing that could break the page."""

import dataclasses
import html.parser
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from experiments.benchmarks import flow, max_margin
from experiments.common import console, results
from experiments.common.flags import spelled
from experiments.networks import sweep as network_sweep
from experiments.report import sweep_claims
from experiments.report.folders import best, search
from experiments.report.measured import rows
from experiments.report.page import CLAIMS, page
from experiments.report.phases import diagram
from experiments.report.study import PRESETS, Settings, report
from experiments.report.verdicts import Verdict
from experiments.report.watch import watched
from experiments.sweep import settings as sweep_settings
from experiments.sweep.study import sweep as sweep_study
from experiments.theory import joint, rates, step_size, watch
from jaxselect.errors import BadInput
from jaxselect.outcome.trial_status import TrialStatus
from jaxselect.sweep import store
from tests.experiments.invented_results import (
    check_shown,
    invent_edges,
    invent_reviews,
    invent_sweep,
    invent_watch,
    rewrite,
)
from tests.experiments.test_console import ended

NASTY = {
    "script": "</script><script>window.injected=1</script>",
    "quotes": "\"'><img src=x onerror=window.injected=1>",
    "long": "x" * 10_000,
    "right to left": "\u202eمرحبا\u202e שלום",
    "comment": "<!--<script>",
    "template": "{{ 7 * 7 }}${alert(1)}",
}


class Reader(html.parser.HTMLParser):
    """The page as a browser reads it: its tags, and the text of its scripts."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.scripts, self.inside = [], [], False
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        self.inside = tag == "script"
        if self.inside:
            self.scripts.append("")

    def handle_endtag(self, tag):
        self.inside = False

    def handle_data(self, data):
        if self.inside:
            self.scripts[-1] += data

    def data(self):
        """The data that the page hands to its program."""
        return json.loads(self.scripts[0])


@pytest.fixture
def folder(tmp_path):
    return invent_sweep(tmp_path / "sweep")


def claims(folder):
    """Measurements of the claims about a sweep, by the name of the measure."""
    found = rows(sweep_claims.CLAIMS, search([folder]))
    return {row.claim.measure.__name__: row.measured for row in found}


def test_the_page_counts_what_the_sweep_holds(folder):
    rewrite(folder, status=lambda rows: (3 * rows["lane"] + 1) % 9)
    made = report(Settings(folders=(folder,), out=folder.parent))
    data = Reader(made["page"].read_text(encoding="utf-8")).data()["phases"][0]
    names = list(Reader(made["page"].read_text(encoding="utf-8")).data()["palette"])
    wanted = store.load(folder)
    for row, step in enumerate(data["steps"]):
        for column, dim in enumerate(data["dims"]):
            codes = data["cells"][row * len(data["dims"]) + column]
            there = wanted.status.sel(dim=dim, step_size=step).values.ravel()
            assert [names[code] for code in codes] == [
                TrialStatus(code).name for code in there
            ]


def preset(name):
    """Settings of a study of rates, as the command line makes them."""
    return dataclasses.replace(rates.PRESETS[name], preset=name)


def test_a_smoke_run_decides_nothing(tmp_path):
    good = {"exponent_norm": -1.0, "constant_largest_deviation": 1e-9}
    good |= {"predicted": 2, "seeds": 2}
    verdicts = {}
    for name in ("full", "smoke"):
        results.write(tmp_path / name, settings=preset(name), results=good)
        listed = rows(CLAIMS, search([tmp_path / name]))
        (verdicts[name],) = {row.measured.verdict for row in listed if not row.missing}
    assert verdicts == {"full": Verdict.HOLDS, "smoke": Verdict.OPEN}


OTHER_TOKENS = [
    {"sequences": [40]},
    {"length": [5]},
    {"relevant": [3]},
    {"irrelevant": [9]},
    {"sequences": [20, 40]},
    {"family": "independent"},
    {"per_sequence": [2]},
    {"purity": [0.9]},
    {"irrelevant_share": [0.5]},
    {"until_norm": 1e5},
    {"precision": "float32"},
]


def test_what_is_watched_has_the_verdict_of_the_sweep(tmp_path):
    def codes(rows):
        return (3 * rows["lane"] + 1) % 9

    rewrite(invent_sweep(tmp_path / "sweep"), status=codes)
    results_of = store.load(tmp_path / "sweep").status
    invent_watch(tmp_path / "watch", dims=(100.0, 1e6), steps=(1.0, 10.0, 1000.0))
    listed = watched(search([tmp_path])).data["cells"]
    for cell in listed:
        there = cell["step"] != 10
        at = {"dim": cell["dim"], "step_size": cell["step"], "seed": 0}
        wanted = TrialStatus(results_of.sel(at).item()).name if there else ""
        assert cell["status"] == wanted
    # Another problem's sweep says nothing of these runs.
    grid = store.describe(tmp_path / "sweep")["grid"]
    for other in OTHER_TOKENS:
        describe(tmp_path / "sweep", grid=grid | other)
        listed = watched(search([tmp_path])).data["cells"]
        assert {cell["status"] for cell in listed} == {""}, other
    describe(tmp_path / "sweep", grid=grid)
    listed = watched(search([tmp_path])).data["cells"]
    assert {cell["status"] for cell in listed} != {""}


def test_edges_are_drawn_over_a_sweep_of_their_own_problem_alone(tmp_path):
    invent_sweep(tmp_path / "sweep")
    invent_edges(tmp_path / "edges", dims=(10.0, 1e8), step=30.0)
    drawn = Reader(page(search([tmp_path]))).data()["phases"][0]["edges"]
    assert drawn[0] == {"name": "selection", "dims": [10, 10**8], "steps": [30, 30]}
    assert all(edge["dims"] == [] for edge in drawn[1:])
    grid = store.describe(tmp_path / "sweep")["grid"]
    for other in ({"relevant": [3]}, {"family": "independent"}, {"purity": [0.9]}):
        describe(tmp_path / "sweep", grid=grid | other)
        assert Reader(page(search([tmp_path]))).data()["phases"][0]["edges"] == []


@pytest.mark.parametrize(
    ("within", "verdict"),
    [(1.0, Verdict.AGREES), (0.5, Verdict.IN_PART), (0.0, Verdict.FAILS)],
)
def test_edges_that_are_off_are_counted(tmp_path, within, verdict):
    (claim,) = (claim for claim in CLAIMS if claim.study == "theory.phases")
    part = {"edges": 4, "within": within, "least": 0.9, "most": 1.1}
    empty = {"edges": 0, "within": float("nan"), "least": None, "most": None}
    results.write(
        tmp_path,
        settings=preset("full"),
        results={"summary": {"selection": part, "largest_dim": empty}},
    )
    (found,) = search([tmp_path])
    measured = claim.measure(found.content)
    assert measured.verdict is verdict
    assert measured.value.endswith("from 0.9 to 1.1")


def test_conclusions_are_of_the_full_study_and_the_larger_sweep(tmp_path):
    for name in ("a-smoke", "b-full"):
        results.write(tmp_path / name, settings=preset(name[2:]), results={})
    invent_sweep(tmp_path / "a", seeds=range(2))
    invent_sweep(tmp_path / "b", seeds=range(5))
    invent_sweep(tmp_path / "c", seeds=range(3))
    found = search([tmp_path])
    assert best(found, "theory.rates").folder == tmp_path / "b-full"
    assert best(found, "sweep").folder == tmp_path / "b"
    assert best(found, "theory.joint") is None


def test_benchmarks_are_shown_as_ratios_to_ours(tmp_path):
    """Records as the benchmarks write them, without the rivals' minutes."""
    each = {"family": "bags", "size": 64, "pairs": 9, "lanes_run": 4, "seconds": 1.0}
    records = [
        {"solver": solver, "seconds_per_lane": seconds, "largest_gap": 1e-15, **each}
        for solver, seconds in (("ours", 0.5), ("quadprog", 2.0))
    ]
    ours = {
        "gamma": 1.0,
        "solver": "jaxselect",
        "seconds": 0.1,
        "direction_error": 1e-6,
    }
    rival = {**ours, "solver": "scipy BDF", "seconds": 0.7, "slower_than_ours": 7.0}
    written = {
        max_margin: {"records": records},
        flow: {"small": [ours, rival]},
    }
    for module, found in written.items():
        folder = tmp_path / module.__name__
        settings = next(iter(module.PRESETS.values()))
        results.write(folder, settings=settings, results=found)
        check_shown(folder)
    text = page(search([tmp_path]))
    for ratio in ("<td>4</td>", "<td>7</td>"):
        assert ratio in text


def test_nothing_is_certified_without_a_certificate(folder):
    before = claims(folder)
    assert before["all_selected"].verdict is Verdict.HOLDS
    assert before["direction"].verdict is Verdict.HOLDS
    rewrite(folder, status=lambda rows: TrialStatus.NOT_CERTIFIED)
    after = claims(folder)
    assert all(one.verdict is not Verdict.HOLDS for one in after.values())


def test_a_run_that_contradicts_a_claim_takes_its_green_away(folder):
    rewrite(folder, direction_error=lambda rows: 2 * rows["direction_error"])
    assert claims(folder)["direction"].verdict is Verdict.FAILS
    rewrite(folder, duality_gap=lambda rows: 1e-3)
    assert claims(folder)["exact_margin"].verdict is Verdict.FAILS


def test_one_tied_run_leaves_lemma_4_2_undecided_and_is_no_counterexample(folder):
    def one(rows):
        return np.where(rows["lane"] == 3, TrialStatus.TIES_UNPROVED, rows["status"])

    rewrite(folder, status=one)
    found = claims(folder)
    assert found["without_bound"].verdict is Verdict.OPEN
    assert found["tied"].verdict is Verdict.AGREES
    assert found["all_selected"].sample.startswith("68 runs there, 102 in all")


def damage(folder, kind):
    """Spoil a folder of results in one of the ways in which folders are spoilt."""
    chunk = next((folder / "chunks").glob("*.npy"))
    description = store.describe(folder)
    both = [folder / name for name in ("settings.json", "settings.backup.json")]
    if kind == "cut":
        chunk.write_bytes(chunk.read_bytes()[:-40])
    elif kind == "no settings":
        for path in both:
            path.unlink()
    elif kind == "no runs":
        for path in (folder / "chunks").glob("*.npy"):
            path.unlink()
    else:
        spoilt = {
            "not json": "{",
            "other version": json.dumps(description | {"statuses": None}),
            "a list": "[1, 2]",
            "a study stopped": '{"study": "phases", "axes": {}}',
        }
        for path in both:
            path.write_text(spoilt[kind])
        if kind == "a study stopped":
            chunk.unlink()


@pytest.mark.parametrize(
    "kind",
    [
        "cut",
        "not json",
        "other version",
        "no settings",
        "no runs",
        "a list",
        "a study stopped",
    ],
)
def test_a_spoilt_sweep_is_said_and_spoils_nothing_else(folder, tmp_path, kind):
    damage(invent_sweep(tmp_path / "other"), kind)
    made = report(Settings(folders=(tmp_path,), out=tmp_path))
    assert len(made["troubles"]) == 1 and str(tmp_path / "other") in made["troubles"][0]
    text = made["page"].read_text(encoding="utf-8")
    assert "Some results could not be read" in text
    assert len(Reader(text).data()["phases"]) == 1


@pytest.mark.parametrize("format_", [99, None])
def test_a_study_of_another_version_is_said(folder, tmp_path, format_):
    results.write(tmp_path / "study", settings=Settings(), results={"seeds": 1})
    path = tmp_path / "study" / "results.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": format_}))
    made = report(Settings(folders=(tmp_path,), out=tmp_path))
    assert "another version" in made["troubles"][0]


@pytest.mark.parametrize("kind", ["mistyped", "empty", "damaged", "a file"])
def test_a_page_is_never_replaced_by_an_empty_one(folder, tmp_path, kind):
    made = report(Settings(folders=(folder,), out=tmp_path))
    before = made["page"].read_bytes()
    other = tmp_path / "other"
    if kind != "mistyped":
        other.mkdir()
    if kind == "damaged":
        (other / "results.json").write_text("[" * 100_000)
    if kind == "a file":
        other = made["page"]
    words = [other, "--out", tmp_path]
    assert ended(report, words, PRESETS) == 2
    assert made["page"].read_bytes() == before


def test_a_folder_that_is_named_twice_or_beside_a_wrong_one(folder, tmp_path):
    twice = report(Settings(folders=(folder, folder), out=tmp_path / "twice"))
    assert len(twice["shown"]) == 1
    with pytest.raises(BadInput, match="no folder of results"):
        report(Settings(folders=(folder, tmp_path / "none"), out=tmp_path / "page"))
    assert not (tmp_path / "page").exists()


def test_a_sweep_without_paths_is_drawn_without_curves(tmp_path):
    invent_sweep(tmp_path / "sweep", points=0)
    text = page(search([tmp_path]))
    (listed,) = Reader(text).data()["phases"]
    assert listed["curves"] == listed["numbers"] == []
    assert "cannot be laid out" not in text and "--path-points 60" in text


def test_rows_of_the_diagram_begin_with_the_largest_step(tmp_path):
    invent_sweep(tmp_path / "sweep")
    (found,) = search([tmp_path])
    drawn = diagram(found, [])
    assert drawn.data["steps"] == sorted(drawn.data["steps"], reverse=True)
    labels = [row[0].label for row in drawn.rows]
    assert all(
        f"η₀ = {step}:" in label
        for (step, _), label in zip(drawn.step_sizes, labels, strict=True)
    )


def test_curves_travel_with_their_norm_and_their_constant(folder):
    listed = Reader(page(search([folder]))).data()["phases"][0]
    norm, constant = listed["numbers"][0][0]
    assert (norm, constant) == (3, 2)
    times, norms, errors = np.array(listed["curves"][0][0])
    np.testing.assert_allclose(norms, 3 * times, rtol=0.1)
    np.testing.assert_allclose(errors, 2 / norms, rtol=0.01)


@pytest.mark.parametrize("kind", ["code", "name"])
def test_a_sweep_with_a_status_that_is_not_known_is_said(folder, tmp_path, kind):
    other = invent_sweep(tmp_path / "other")
    if kind == "code":
        rewrite(other, status=lambda rows: np.where(rows["lane"] == 5, 77, 0))
    else:
        describe(other, statuses={"SELECTED_ALL": 0, "UNHEARD_OF": 1})
    made = report(Settings(folders=(tmp_path,), out=tmp_path))
    (trouble,) = made["troubles"]
    assert "statuses that are not known here" in trouble
    assert len(made["shown"]) == 1


def describe(folder, **changes):
    """Change what a sweep says of itself, in both of its files."""
    for name in ("settings.json", "settings.backup.json"):
        path = folder / name
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_text_of_others_stays_text(folder, tmp_path):
    plain = Reader(page(search([folder])))
    for nasty in NASTY.values():
        preset = dataclasses.replace(rates.PRESETS["smoke"], preset=nasty)
        place = tmp_path / nasty.replace("/", "∕")[:100]
        settings = dataclasses.replace(preset, out=Path(nasty))
        results.write(place, settings=settings, results={nasty: nasty})
    invent_reviews(tmp_path / "reviews", words=list(NASTY.values()))
    read = Reader(page(search([tmp_path])))
    assert len(read.scripts) == len(plain.scripts)
    (sentence,) = read.data()["sentences"]
    words = [nasty[:60] for nasty in NASTY.values()]
    assert sentence["words"][: len(words)] == words
    for tag, attributes in read.tags:
        assert tag != "img"
        assert not any(key.startswith("on") for key in attributes), tag


def test_the_page_asks_for_nothing_outside(folder):
    for tag, attributes in Reader(page(search([folder]))).tags:
        for key in ("src", "href"):
            target = attributes.get(key) or "#"
            assert target.startswith(("#", "data:,")), (tag, target)


ALTERED = {
    "rates": (rates.main, rates.PRESETS, {"seeds": 5, "dim": 65536.0}),
    "joint": (joint.main, joint.PRESETS, {"preset": "smoke", "tolerance": 0.02}),
    "watch": (watch.main, watch.PRESETS, {"dims": (7.0, 1e6), "seed": 3}),
    "step size": (step_size.main, step_size.PRESETS, {"dims": (64.0,)}),
    "networks": (network_sweep.main, network_sweep.PRESETS, {"seeds": 3}),
}


@pytest.mark.parametrize("name", ALTERED)
def test_the_command_brings_the_settings_about_again(name, tmp_path):
    study, presets, changed = ALTERED[name]
    preset = presets[changed.get("preset", next(iter(presets)))]
    wanted = dataclasses.replace(preset, **changed, out=tmp_path / "a b")
    if hasattr(wanted, "problem"):
        problem = dataclasses.replace(wanted.problem, sequences=6)
        wanted = dataclasses.replace(wanted, problem=problem)
    results.write(tmp_path, settings=wanted, results={})
    words = results.shlex.split(results.read(tmp_path).command)
    assert words[:2] == ["python", "-m"]
    assert console.parse(study, presets, words[3:]) == wanted


def test_the_command_of_a_sweep_makes_the_same_grid(tmp_path):
    folder = invent_sweep(tmp_path / "a; touch $(name) 'b")
    (found,) = search([folder])
    words = results.shlex.split(found.command)[3:]
    made = console.parse(sweep_study, sweep_settings.PRESETS, words)
    assert made.out == folder
    plain = results.plain(made.grid.described())
    assert plain == {**plain, **found.content.attrs["grid"]}
    assert spelled({"resume": True}, {"resume": True}) == []


def test_what_is_not_installed_is_named(folder, tmp_path):
    code = f"""
import sys
sys.modules["jinja2"] = None
from experiments.report import study
from experiments.common.console import command
command(study.report, study.PRESETS, ["{tmp_path}", "--out", "{tmp_path}"])
"""
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "jinja2" in done.stderr and "jaxselect[report]" in done.stderr


def test_the_report_only_reads():
    """It knows results and no more: nothing it loads computes anything."""
    code = "import sys, experiments.report.page; sys.exit('jax' in sys.modules)"
    root = Path(__file__).parents[2]
    assert subprocess.run([sys.executable, "-c", code], cwd=root).returncode == 0
