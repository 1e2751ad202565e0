"""The items of the paper: verdicts on clauses, and faults that a row has to notice."""

import dataclasses
import itertools
import shutil
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from experiments.common.claims import Claim, Measured, Verdict
from experiments.common.results import Finished, write
from experiments.common.study import Experiment
from experiments.paper import ITEMS, _tables, figure_1, figure_2, lemma_4_2
from experiments.paper import several_relevant as several
from experiments.paper._runs import complete
from experiments.paper.document import document
from experiments.paper.study import PRESETS, is_there, run, settings_of
from experiments.report import rows
from experiments.report.folders import ResultFolder, search
from experiments.report.page import page
from experiments.text.source import Source
from jaxselect.checks import BadInput
from jaxselect.sweep.store import MISSING, read_description
from tests.experiments.invented_results import invent_sweep, rewrite


def finished(found, **arrays):
    return Finished({}, found, arrays, {})


KEY_QUERY = "two_layer_key_query"
GRADES = Verdict.REPRODUCED, Verdict.IN_PART, Verdict.NOT_REPRODUCED


def words(name=KEY_QUERY, each=4):
    """Words that lie on the published means of two layers, a few in each bin."""
    table = _tables.published(name)
    centres = table["scores"][0]
    across = np.repeat(centres, each) + np.tile(np.linspace(-0.01, 0.01, each), 20)
    columns = {part: np.repeat(means, each) for part, (_, means) in table.items()}
    return {"x values": across, **columns}


def judged(arrays, part, name=KEY_QUERY):
    """Verdicts on order and size."""
    found = finished({"published": True, "vocabulary": 80}, **arrays)
    both = _tables.in_order(found, name, part), _tables.in_size(found, name, part)
    return [one.verdict for one in both]


@pytest.mark.parametrize("name", [KEY_QUERY, "mlp"])
def test_a_verdict_is_that_of_its_numbers(name):
    """Order and size are judged apart, and each column for itself."""
    arrays = words(name)
    part = "values" if name == KEY_QUERY else "turned"
    arrays[part] = arrays["values"]
    good = [Verdict.REPRODUCED] * 2
    assert judged(arrays, "scores", name) == judged(arrays, part, name) == good
    # The level of scores is seen by no softmax, that of values is.
    higher = arrays | {"scores": arrays["scores"] + 5.0}
    assert judged(higher, "scores", name) == good
    larger = arrays | {"scores": 4 * arrays["scores"]}
    assert judged(larger, "scores", name) == [good[0], Verdict.NOT_REPRODUCED]
    assert judged(larger, part, name) == good
    nearly = arrays | {"scores": 1.29 * arrays["scores"]}
    assert judged(nearly, "scores", name) == good
    some = arrays["scores"].copy()
    some[8:12] *= 1.6
    assert judged(arrays | {"scores": some}, "scores", name)[1] is Verdict.IN_PART
    some[56:] = some[56:][::-1]
    assert judged(arrays | {"scores": some}, "scores", name)[0] is Verdict.IN_PART
    turned = arrays | {part: -arrays[part]}
    assert judged(turned, part, name) == [Verdict.NOT_REPRODUCED] * 2


def published_lines(figure):
    return [
        line
        for panel in figure.axes
        for line in panel.lines
        if line.get_label() == "published"
    ]


def test_a_published_curve_is_drawn_with_its_own_network_and_data_only():
    """Figure 1 has no numbers; a table is of one network, and of one set of data."""
    told, arrays = {"published": True, "vocabulary": 80}, words()
    assert not published_lines(figure_1.draw(finished(told, **arrays)))
    for name in (KEY_QUERY, "mlp"):
        for other in _tables.NETWORK.values():
            columns = words(name) | {"turned": arrays["scores"]}
            found = Finished(other, told, columns, {})
            own = other is _tables.NETWORK[name]
            assert bool(_tables.tables_of(found, name)) == own
    for settings, results in (
        (_tables.NETWORK["mlp"], told),
        ({}, told | {"published": False}),
    ):
        found = Finished(settings, results, arrays, {})
        assert not published_lines(_tables.draw(found, KEY_QUERY))
        assert _tables.in_size(found, KEY_QUERY, "scores").verdict is Verdict.NOT_RUN


def test_bins_shifted_by_one_are_noticed(monkeypatch):
    centres = _tables.published(KEY_QUERY)["scores"][0]
    assert not _tables.misplaced(centres, centres)
    binned = _tables.binned

    def shifted(across, upward, *edges):
        return binned(across + 0.1, upward, *edges)

    def of_others(across, upward, *edges):
        found = shifted(across, upward, *edges)
        return found._replace(positions=found.positions - 0.1)

    monkeypatch.setattr(_tables, "binned", of_others)
    found = finished({"published": True, "vocabulary": 80}, **words())
    held = _tables.in_size(found, KEY_QUERY, "scores")
    assert held.verdict is Verdict.NOT_RUN and "not in their bins" in held.value


@pytest.mark.parametrize("column", [0, 1])
def test_a_published_number_that_is_mistyped_is_noticed(column, monkeypatch):
    tables = {part: list(table) for part, table in _tables.TABLES[KEY_QUERY].items()}
    wrong = list(tables["scores"][column])
    wrong[3], wrong[4] = wrong[4], wrong[3]
    tables["scores"][column] = wrong
    monkeypatch.setitem(_tables.TABLES, KEY_QUERY, tables)
    with pytest.raises(BadInput, match="published table of scores: Σ"):
        _tables.published(KEY_QUERY)


SMALL = figure_2.Settings(
    sequences=200, length=8, relevant=8, irrelevant=30, dim=64, steps=60
)


@pytest.fixture(scope="module")
def invented():
    """Figure 2 in small: one folder for all that is asked of it."""
    found: dict = {}
    with jax.enable_x64(False):
        arrays = figure_2.run(SMALL, found)
    return found, arrays


def test_a_cloud_is_concentrated_around_zero_or_it_is_none(invented):
    """One clause of Figure 2 may fail where the others hold."""
    found, arrays = invented
    grey = arrays["kind"] == 0
    small, level = ({**arrays}, {**arrays})
    for layers in figure_2.LAYERS:
        name = f"values {layers}"
        small[name] = np.where(grey, 1e-3 * arrays[name], arrays[name])
        level[name] = small[name] + 10 * np.abs(arrays[name]).max() * grey
    wanted = Verdict.REPRODUCED, Verdict.NOT_REPRODUCED
    for columns, verdict in zip((small, level), wanted, strict=True):
        assert figure_2.cloud(finished(found, **columns), "values").verdict is verdict
    one = small | {"values 2": level["values 2"]}
    assert figure_2.cloud(finished(found, **one), "values").verdict is Verdict.IN_PART


def test_a_column_that_falls_is_not_said_to_rise(invented):
    """Figures 1 to 3, which have no published numbers."""
    found, arrays = invented
    x, line = arrays["posterior"], np.linspace(-1, 1, 200)
    for signs, verdict in zip(((1, 1), (1, -1), (-1, -1)), GRADES, strict=True):
        columns = {f"values {n}": s * x for n, s in zip((1, 2), signs, strict=True)}
        rises = figure_2.rises(finished(found, **arrays | columns), "values")
        assert rises.verdict is verdict
    for sign, verdict in ((1, GRADES[0]), (-1, GRADES[2])):
        for part in ("scores", "values"):
            told = _tables.follows(line, sign * line**2, sign * line, part)
            assert told.verdict is verdict


def test_the_two_bags_rest_as_often_as_predicted():
    for step in (0.0, 30.0):
        keys = jax.random.split(jax.random.key(1), 2000)
        share = lemma_4_2.resting(keys, 1e6, step)
        wanted = float(lemma_4_2.predicted(np.array(step)))
        # Four standard deviations of a share of 2,000.
        assert share == pytest.approx(wanted, abs=4 * np.sqrt(wanted / 2000))
    *_, forty, eighty = lemma_4_2.at_rest(1e6)
    assert eighty == pytest.approx(forty, rel=1e-3)


def test_one_certified_run_that_misses_a_sequence_refutes():
    settings = {"step_sizes": [1.0, 2.0], "per_sequence": [1]}

    def judge(*codes):
        ends = np.array(codes).reshape(1, 1, 2, -1)
        found = Finished(settings, {}, {"ends": ends, "off": np.zeros(ends.shape)}, {})
        return several.one_at_least(found), several.then_max_margin(found)

    assert judge(0, 1, 0, 3)[0].verdict is Verdict.CERTIFIED
    missed = judge(0, 1, 2, 0)[0]
    assert missed.verdict is Verdict.REFUTED and "at η₀ = 2" in missed.value
    assert judge(3, 3)[0].verdict is Verdict.NOT_RUN
    assert judge(1, 2)[1].verdict is Verdict.NOT_RUN


def test_rows_are_of_the_latest_results_that_are_no_smoke_run(tmp_path, monkeypatch):
    claim = Claim(
        "A statement.",
        lambda found: Measured(Verdict.REFUTED, found.results["said"]),
        "Lemma 0",
    )
    main = Experiment(lambda settings, results: None, claims=(claim,))
    monkeypatch.setattr(rows, "study", lambda name: main)

    def there(said, written, preset):
        made = Finished(
            {"preset": preset}, {"said": said}, {}, {}, "", "run --preset full"
        )
        return ResultFolder(tmp_path, "paper.figure_2", made, "", written)

    def row(*found):
        (only,) = rows.part("paper.figure_2", [*found]).rows
        return only

    smoke = there("small", "2001-03", "smoke")
    full = there("first", "2001-01", "full"), there("second", "2001-02", "full")
    for order in itertools.permutations([smoke, *full]):
        assert row(*order).found.value == "second"
    assert row(*full).verdict is Verdict.REFUTED and row(*full).command == "run"
    assert row(smoke).verdict is row().verdict is Verdict.NOT_RUN


def test_a_sweep_is_complete_with_every_run_of_its_own_grid(tmp_path):
    grid = SimpleNamespace(described=lambda: read_description(tmp_path)["grid"])
    other = SimpleNamespace(described=lambda: grid.described() | {"purity": [0.5]})
    assert not complete(tmp_path, grid)
    invent_sweep(tmp_path)
    assert complete(tmp_path, grid) and not complete(tmp_path, other)
    rewrite(tmp_path, status=lambda rows: np.where(rows["lane"] == 3, MISSING, 0))
    assert not complete(tmp_path, grid)


def test_items_on_reviews_alone_wait_for_some_and_others_do_not():
    full = PRESETS["full"]
    waiting = {name for name in ITEMS if not settings_of(full, name)}
    assert waiting >= {"figure_1", "figure_3", "key_query", "mlp"}
    assert not waiting & {"figure_2", "theorem_4_3", "classes", "lemma_4_1"}
    given = dataclasses.replace(full, source=Source(dataset="imdb_reviews"))
    folders = {
        name: {one.out.name for one in settings_of(given, name)} for name in ITEMS
    }
    for name in waiting:
        assert folders[name] == {f"{name}-imdb_reviews"}
    # What is run without reviews is run with some, too.
    assert all(name in folders[name] for name in {*ITEMS} - waiting)
    assert folders["lemma_4_1"] == {"lemma_4_1", "lemma_4_1-imdb_reviews"}
    assert folders["classes"] == {"classes"}


def test_what_is_there_is_not_run_again(tmp_path, capsys):
    smoke = dataclasses.replace(
        PRESETS["smoke"], items=("figure_2",), out=tmp_path, markdown=None
    )
    made = run(smoke)
    assert made["failed"] == {} and made["page"].exists()
    (chosen,) = settings_of(smoke, "figure_2")
    assert is_there(chosen)
    again = dataclasses.replace(chosen, seed=1)
    assert not is_there(again)
    before = (tmp_path / "paper" / "figure_2" / "results.json").read_text()
    run(smoke)
    assert (tmp_path / "paper" / "figure_2" / "results.json").read_text() == before
    assert "figure_2: its results are on disk" in capsys.readouterr().err


def test_the_document_holds_no_other_data_than_it_may(tmp_path):
    """Numbers of Yelp stay on the machine that has its reviews."""
    claim = Claim("A statement.", lambda found: Measured(Verdict.REPRODUCED), "Lemma 0")
    told = Measured(Verdict.REPRODUCED, "ours of ")
    listed = [
        rows.Row(claim, told._replace(value=told.value + data), "python -m x", data)
        for data in ("imdb_reviews", "yelp_review_full", "reviews")
    ]
    other = {"source": {"train": "yelp.parquet", "named": None, "dataset": None}}
    result = ResultFolder(
        tmp_path, "paper.figure_3", Finished(other, {}, {}, {}), "", ""
    )
    path = tmp_path / "docs" / "paper.md"
    item = rows.Part("paper.figure_3", "Figure 3", listed, [result])
    assert list(document([item], path)) == [path]
    text = path.read_text()
    assert "ours of imdb_reviews" in text and "yelp" not in text
    assert "ours of reviews" not in text


def cut(path):
    path.write_bytes(path.read_bytes()[:-9])


DAMAGES = {
    "results.json is damaged: run": lambda folder: cut(folder / "results.json"),
    "arrays.npz is damaged: run": lambda folder: cut(folder / "arrays.npz"),
    "arrays.npz is missing": lambda folder: (folder / "arrays.npz").unlink(),
    "is of another version": lambda folder: (folder / "results.json").write_text("{}"),
}


@pytest.mark.parametrize("trouble", DAMAGES)
def test_damaged_results_are_not_called_not_run(tmp_path, capsys, trouble):
    """The file is named, where verdicts are printed and written, beside whole ones."""
    place = tmp_path / "figure_2-imdb_reviews"
    write(place, settings=SMALL, results={})
    shutil.copytree(place, tmp_path / "figure_2")
    shutil.copytree(place, tmp_path / "elsewhere")
    write(tmp_path / "lemma_4_2", settings=lemma_4_2.PRESETS["smoke"], results={})
    for folder in ("lemma_4_2", "elsewhere", "figure_2-imdb_reviews"):
        DAMAGES[trouble](tmp_path / folder)
    found = search([tmp_path])
    held = {
        (part.name, row.data): row for part in rows.items(found) for row in part.rows
    }
    damaged = {name for name, row in held.items() if row.verdict is Verdict.DAMAGED}
    assert damaged == {("paper.figure_2", "imdb_reviews"), ("paper.lemma_4_2", "")}
    others = {row.verdict for name, row in held.items() if name not in damaged}
    assert others == {Verdict.NOT_RUN}
    row = held["paper.figure_2", "imdb_reviews"]
    assert str(place) in row.found.value and trouble in row.found.value
    assert row.found.value in page(found)

    shutil.rmtree(tmp_path / "figure_2")
    shutil.rmtree(tmp_path / "elsewhere")
    markdown = tmp_path / "docs" / "paper.md"
    settings = {"items": ("figure_1",), "out": tmp_path, "markdown": markdown}
    made = run(dataclasses.replace(PRESETS["full"], **settings))
    printed = capsys.readouterr().err
    assert f"damaged: paper.figure_2: {row.found.value}" in printed
    for path in (made["page"], markdown):
        text = path.read_text(encoding="utf-8").replace("<wbr>", "")
        assert row.found.value in text and row.command in text
    told = {one["verdict"] for one in made["rows"] if one["item"] == "paper.figure_2"}
    assert told == {"damaged"}
