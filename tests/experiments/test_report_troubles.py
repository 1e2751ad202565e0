"""The report on spoilt results: said in one line, and the rest of the page is whole."""

import dataclasses
from pathlib import Path

import pytest

from experiments.beyond import step_size
from experiments.common import results
from experiments.report.folders import search
from experiments.report.page import page
from experiments.report.study import PRESETS, Settings, report
from tests.experiments.invented_results import invent_reviews, invent_sweep
from tests.experiments.test_console import ended
from tests.experiments.test_report import Reader, describe

NASTY = {
    "script": "</script><script>window.injected=1</script>",
    "quotes": "\"'><img src=x onerror=window.injected=1>",
    "long": "x" * 10_000,
    "right to left": "\u202eمرحبا\u202e שלום",
    "template": "{{ 7 * 7 }}${alert(1)}",
}


@pytest.fixture
def folder(tmp_path):
    return invent_sweep(tmp_path / "sweep")


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


def test_text_of_others_stays_text(folder, tmp_path):
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
