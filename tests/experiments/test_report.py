"""The report: what is on disk, said once; spoilt results break no page."""

import dataclasses
import html.parser
import json
from functools import partial
from pathlib import Path

import pytest

from experiments import run
from experiments.beyond import joint, step_size
from experiments.common import console, results
from experiments.common.claims import Verdict
from experiments.common.edges import SIZES
from experiments.paper import ITEMS
from experiments.report.folders import best, search
from experiments.report.page import page
from experiments.report.rows import items
from experiments.report.sections import maps
from experiments.report.study import PRESETS, Settings, report
from experiments.report.uncertified import command, uncertified
from experiments.sweep import settings as sweep_settings
from experiments.sweep.grids import of_family
from experiments.sweep.study import sweep as sweep_study
from jaxselect import Grid, embedding_steps, independent_tokens
from jaxselect.margin.certificate import TrialStatus
from jaxselect.status import Reason
from jaxselect.sweep import store
from tests.experiments.invented_results import (
    DIMS,
    SEEDS,
    STEPS,
    invent_reviews,
    invent_sweep,
    rewrite,
)
from tests.experiments.test_console import ended


class Reader(html.parser.HTMLParser):
    """The page as a browser reads it: its tags, and the cells of its tables."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.cells, self.inside = [], [], False
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        self.inside = tag in ("th", "td")
        if self.inside:
            self.cells.append("")

    def handle_endtag(self, tag):
        self.inside = False

    def handle_data(self, data):
        if self.inside:
            self.cells[-1] += data


@pytest.fixture
def folder(tmp_path):
    return invent_sweep(tmp_path / "sweep")


def test_the_page_counts_what_the_sweep_holds(folder):
    rewrite(folder, status=lambda rows: (3 * rows["lane"] + 1) % 9)
    made = report(Settings(folders=(folder,), out=folder.parent))
    (drawn,) = maps(search([folder]))
    wanted = store.load_all(folder).status
    for (step, counts), value in zip(drawn.table, STEPS[::-1], strict=True):
        for (name, _), number in zip(drawn.heads, counts, strict=True):
            hit = wanted.sel(step_size=value) == TrialStatus[name].value
            assert number == int(hit.sum()), (step, name)
    cells = Reader(made["page"].read_text(encoding="utf-8")).cells
    assert {f"{number:,}" for _, number in drawn.heads} <= set(cells)


def preset(name):
    """Settings of a study, as the command line makes them."""
    return dataclasses.replace(step_size.PRESETS[name], preset=name)


def test_conclusions_are_of_the_full_study_and_the_larger_sweep(tmp_path):
    for name in ("a-smoke", "b-full"):
        results.write(tmp_path / name, settings=preset(name[2:]), results={})
    invent_sweep(tmp_path / "a", seeds=range(2))
    invent_sweep(tmp_path / "b", seeds=range(5))
    invent_sweep(tmp_path / "c", seeds=range(3))
    found = search([tmp_path])
    assert best(found, "beyond.step_size").folder == tmp_path / "b-full"
    assert best(found, "sweep").folder == tmp_path / "b"
    assert best(found, "beyond.joint") is None


def test_a_run_without_a_certificate_says_which_hypothesis_fails(folder):
    said = {
        Reason.LINE: "Margins are off the late flow: late_flow_residual 0.2; ‖p‖",
        Reason.SEVERAL_SELECTED: "Where the flow ended a sequence has several tokens "
        "of like scores; their mutual weights are not predicted; ‖p‖",
        Reason.PERTURBATIONS: "Later forces could move a score: "
        "perturbation_bound 0.3; ‖p‖",
        Reason.HISTORY: "What only the path decides still changes: "
        "history_change 0.4; ‖p‖",
    }
    for reason, words in said.items():
        changed = {"status": TrialStatus.UNRESOLVED, "late_flow_residual": 0.2}
        changed |= {"perturbation_bound": 0.3, "history_change": 0.4}
        changed["reason"] = reason
        rewrite(folder, **{name: lambda _, it=it: it for name, it in changed.items()})
        (found,) = uncertified(store.load_all(folder))
        assert found.number == len(DIMS) * len(STEPS) * len(SEEDS)
        assert found.runs[0].numbers.startswith(words)


def test_reasons_are_read_by_the_names_that_a_sweep_stored(folder):
    """Of a version that numbered them otherwise, and had another."""
    changed = {"status": TrialStatus.UNRESOLVED, "reason": 40}
    rewrite(folder, **{name: lambda _, it=it: it for name, it in changed.items()})
    results = store.load_all(folder)
    for name, words in (("TIES", Reason.TIES.sentence[:-1]), ("LIMIT", "LIMIT")):
        results.attrs["reasons"] = {name: 40}
        (found,) = uncertified(results)
        assert found.runs[0].numbers.startswith(f"{words}; ‖p‖")


OTHERS = [
    {},
    {"precision": "float32", "until_norm": 1e3, "seed": (3,)},
    {"embed": embedding_steps(4)},
    {"draw": independent_tokens, "precision": "float32"},
]


@pytest.mark.parametrize("changes", OTHERS)
def test_the_command_of_one_run_makes_it_again(changes):
    grid = Grid(**changes)
    where = {name: value for name, (value,) in grid.values.items()}
    module, *words = results.shlex.split(command(grid.described(), where))[2:]
    if module == "experiments.run":
        made = vars(console.parse(run.run, run.PRESETS, words))
        names = (*SIZES, "dim", "step_size", "seed")
        wanted = {name: where[name] for name in names}
        wanted |= {"precision": grid.precision, "until_norm": grid.until_norm}
        assert made == {**made, **wanted}
    else:
        presets = partial(of_family, sweep_settings.PRESETS)
        made = console.parse(sweep_study, presets, words).grid
        assert dataclasses.replace(made, path_points=grid.path_points) == grid


def describe(folder, **changes):
    """Change what a sweep says of itself."""
    path = folder / "settings.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_every_item_of_the_paper_is_on_the_page_with_its_command(folder):
    shown = list(items(search([folder])))
    text = page(search([folder])).replace("<wbr>", "")
    assert len(shown) == len(ITEMS)
    for part in shown:
        assert part.rows and all(row.verdict is Verdict.NOT_RUN for row in part.rows)
        assert f"python -m experiments.{part.name}" in text


def policy(text):
    """What a page's own policy allows, by kind, and where it stands."""
    tags = Reader(text).tags
    (place,) = (
        place
        for place, (tag, found) in enumerate(tags)
        if found.get("http-equiv") == "Content-Security-Policy"
    )
    parts = (part.split() for part in tags[place][1]["content"].split(";"))
    return {kind: values for kind, *values in parts}, [tag for tag, _ in tags[:place]]


def test_the_page_forbids_connections_and_programs(folder):
    """The policy comes before all that it is for."""
    allowed, before = policy(page(search([folder])))
    assert {*before} <= {"html", "head", "meta"}
    assert allowed == {
        "default-src": ["'none'"],
        "style-src": ["'unsafe-inline'"],
        "img-src": ["data:"],
        "base-uri": ["'none'"],
        "form-action": ["'none'"],
    }


ALTERED = {
    "step_size": (step_size.main, step_size.PRESETS, {"seeds": 5, "largest": 65536.0}),
    "joint": (joint.main, joint.PRESETS, {"preset": "smoke", "tolerance": 0.02}),
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


NASTY = {
    "script": "</script><script>window.injected=1</script>",
    "quotes": "\"'><img src=x onerror=window.injected=1>",
    "long": "x" * 10_000,
    "right to left": "\u202eمرحبا\u202e שלום",
    "template": "{{ 7 * 7 }}${alert(1)}",
}


def damage(folder, kind):
    """Spoil a folder of results in one of the ways in which folders are spoilt."""
    chunk = next((folder / "chunks").glob("*.npy"))
    settings = folder / "settings.json"
    if kind == "cut":
        chunk.write_bytes(chunk.read_bytes()[:-40])
    elif kind == "no runs":
        chunk.unlink()
    elif kind == "another version":
        describe(folder, statuses=None)
    else:
        settings.write_text("{")


@pytest.mark.parametrize("kind", ["cut", "no runs", "another version", "not json"])
def test_a_spoilt_sweep_is_said_and_spoils_nothing_else(folder, tmp_path, kind):
    damage(invent_sweep(tmp_path / "other"), kind)
    made = report(Settings(folders=(tmp_path,), out=tmp_path))
    assert len(made["troubles"]) == 1 and str(tmp_path / "other") in made["troubles"][0]
    text = made["page"].read_text(encoding="utf-8")
    assert "Some results could not be read" in text
    assert text.count("The map as a table") == 1


@pytest.mark.parametrize("kind", ["mistyped", "damaged"])
def test_a_page_is_never_replaced_by_an_empty_one(folder, tmp_path, kind):
    made = report(Settings(folders=(folder,), out=tmp_path))
    before = made["page"].read_bytes()
    other = tmp_path / "other"
    if kind == "damaged":
        other.mkdir()
        (other / "results.json").write_text("[" * 100_000)
    words = [other, "--out", tmp_path]
    assert ended(report, words, PRESETS) == 2
    assert made["page"].read_bytes() == before


def test_text_of_others_stays_text_and_nothing_outside_is_asked_for(folder, tmp_path):
    for nasty in NASTY.values():
        preset = dataclasses.replace(step_size.PRESETS["smoke"], preset=nasty)
        place = tmp_path / nasty.replace("/", "∕")[:100]
        settings = dataclasses.replace(preset, out=Path(nasty))
        results.write(place, settings=settings, results={nasty: nasty})
    invent_reviews(tmp_path / "reviews", words=list(NASTY.values()))
    read = Reader(page(search([tmp_path])))
    for tag, attributes in read.tags:
        assert tag not in ("img", "script")
        assert not any(key.startswith("on") for key in attributes), tag
        for key in ("src", "href", "xlink:href"):
            target = attributes.get(key) or "#"
            assert target.startswith(("#", "data:")), (tag, target)
