"""The studies of richer networks: what they leave, and known tokens found."""

import dataclasses
import functools

import jax
import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from experiments.common.claims import Verdict
from experiments.common.results import Finished, read
from experiments.networks import data as network_data
from experiments.networks import protocol
from experiments.paper import _network, classes, key_query
from experiments.paper._tables import published, tables_of
from experiments.text import data as review_data
from experiments.text.source import Source
from jaxselect.checks import BadInput
from tests.experiments.invented_results import check_shown
from tests.tolerances import assert_close

SMALL = {"dim": 32, "steps": 30, "batch": 120, "every": 0, "learning_rate": 0.02}


@pytest.mark.parametrize("item", [key_query, classes])
def test_a_network_finds_the_tokens_that_matter(item, monkeypatch):
    """On invented tokens E·v orders the classes."""
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")
    chosen = next(iter(item.PRESETS.values()))
    usual = {"query_rate": None, "head_rate": None, "matrix_rate": None}
    usual |= {"query_length": None, "head_length": None}
    settings = dataclasses.replace(chosen, **SMALL, **usual)
    if item is classes:
        settings = dataclasses.replace(settings, classes=3)
    results: dict = {}
    columns = _network.run(settings, results, item.TABLE)
    assert results["published"] is False and results["test_accuracy"] > 0.6
    if item is classes:
        for k in range(3):
            values = columns[f"values {k}"]
            own = values[8 * k : 8 * k + 8]
            assert own.min() > values[24:].mean() + values[24:].std()
    else:
        values, scores = columns["values"], columns["scores"]
        assert values[:20].min() > values[20:40].max()
        assert scores[:40].mean() > scores[40:].mean() + scores[40:].std()


def stars(path, marks):
    """A review for every label, and a word for every class."""
    table = pa.table({"text": [f"film seen {mark}" for mark in marks], "label": marks})
    parquet.write_table(table, path)
    return path


def test_classes_are_read_from_the_data_and_one_may_be_left_out(tmp_path, monkeypatch):
    """Each remaining review keeps its class, whatever number that class has now."""
    monkeypatch.setattr(review_data, "CACHE", tmp_path / "cache")
    marks = ["good", "bad", "fair"] * 8
    path = stars(tmp_path / "stars.parquet", marks)
    source = Source(path, path)
    take = functools.partial(network_data.take, source, seed=0)
    data = take(classes=None, drop=None)
    assert (data.classes, data.names) == (3, ("bad", "fair", "good"))
    assert [data.names[label] for label in data.labels] == marks
    data = take(classes=3, drop="fair")
    assert data.names == ("bad", "good")
    assert data.labels.tolist() == [1, -1] * 8
    assert data.test.shape[0] == 16
    with pytest.raises(BadInput, match="--drop poor: the classes are 'bad', 'fair'"):
        take(classes=None, drop="poor")
    with pytest.raises(BadInput, match="--classes 5: the labels are 'bad', 'fair'"):
        take(classes=5, drop=None)
    with pytest.raises(BadInput, match="--drop 1 leaves -1 alone"):
        network_data.invented(2, "1", seed=0)


def test_two_parts_of_the_invented_tokens_agree_on_what_matters():
    data = network_data.invented(2, None, seed=0)
    across, importance = network_data.posteriors(data, 2)
    # Purity 0.6 in expectation, from some hundred occurrences of each.
    assert across[:20, 1].mean() == pytest.approx(0.6, abs=0.1)
    assert across[20:40, 1].mean() == pytest.approx(-0.6, abs=0.1)
    # Half of P(s in X, y = 1) − P(s in X, y = −1).
    present = (data.train > 0).toarray()
    assert_close(importance[:, 1], (data.labels @ present) / (2 * len(present)))
    assert np.allclose(across[:, 0], -across[:, 1], equal_nan=True)


def around(name, further=0):
    """Two words on each published mean, on both sides of the centre of its bin."""
    columns = {}
    for part, (centres, means) in published(name).items():
        aside = 0.2 * np.diff(centres).min()
        across = np.concatenate([centres - aside, centres + aside])
        columns[f"x {part}" if name == "stars" else "x values"] = across
        columns[part] = np.tile(np.roll(means, further), 2)
    return columns


def test_tables_of_classes_agree_in_size_and_in_their_own_bins():
    """Words on the published means; then twice as large, or one bin further."""
    arrays = around(classes.TABLE)
    found = Finished({}, {"published": True, "vocabulary": 9}, arrays, {})
    for table in tables_of(found, classes.TABLE).values():
        assert table["ratio"] == pytest.approx(1) and table["close"].all()
    second, fourth = (claim.measure for claim in classes.CLAIMS[1:])
    wide = found._replace(arrays=arrays | {"values 0": 0})
    assert second(wide).verdict is fourth(wide).verdict is Verdict.REPRODUCED
    for wrong in (2 * arrays["values 1"], around(classes.TABLE, 1)["values 1"]):
        off = wide._replace(arrays=wide.arrays | {"values 1": wrong})
        assert second(off).verdict in (Verdict.IN_PART, Verdict.NOT_REPRODUCED)
        assert fourth(off).verdict is Verdict.REPRODUCED
    other = wide._replace(results={"published": False})
    assert second(other).verdict is Verdict.NOT_RUN


def test_protocols_come_by_hand_then_drawn_then_near_the_best():
    settings = protocol.Settings(drawn=2, most=10**9)
    space = protocol.SPACES[settings.table]
    tried = []
    for number in range(8):
        tried.append(protocol.following(settings, tried) | {"criterion": number})
    first = [tuple(one[name] for name in protocol.NAMES) for one in tried]
    assert first[:4] == list(space.by_hand)
    for one in first[4:6]:
        inside = zip(space.low, one, space.high, strict=True)
        assert all(least <= x <= most or x == 0 for least, x, most in inside)
    near = np.log(np.array(first[6:]) / space.by_hand[0])
    assert 0 < np.abs(near).max() < 5 * protocol.SPREAD


def test_bins_that_judge_do_not_choose():
    """On the published means with the odd bins doubled only these are off."""
    name = "two_layer_key_query"
    tables = {part: {"ours": means} for part, (_, means) in published(name).items()}
    for table in tables.values():
        table["ours"][1::2] *= 2
    chosen, judged = (protocol.scored(tables, name, bins) for bins in protocol.BINS)
    assert chosen["criterion, chosen"] == pytest.approx(0)
    assert judged["values size, judged"] == pytest.approx(2)
    assert judged["criterion, judged"] == pytest.approx(np.log(2))


@pytest.mark.parametrize("name", protocol.SPACES)
def test_words_in_other_bins_are_noticed_by_a_search(name):
    """Words on the published means, then words that lie one bin further."""

    def criterion(columns, bins):
        tables = tables_of(Finished({}, {"published": True}, columns, {}), name)
        return protocol.scored(tables, name, bins)[f"criterion, {bins}"]

    for bins in protocol.BINS:
        assert criterion(around(name), bins) == pytest.approx(0)
        assert criterion(around(name, 1), bins) > 0.02


def test_a_search_goes_on_where_it_stopped(tmp_path, monkeypatch):
    settings = dataclasses.replace(protocol.PRESETS["smoke"], drawn=1, out=tmp_path)
    space = protocol.SPACES[settings.table]
    space = space._replace(by_hand=space.by_hand[:1])
    monkeypatch.setitem(protocol.SPACES, settings.table, space)
    first = protocol.main(settings)["tried"]
    assert len(first) == 1 + settings.drawn + settings.closer
    more = protocol.main(dataclasses.replace(settings, closer=2))["tried"]
    assert more[:-1] == first and len(more) == len(first) + 1
    assert read(tmp_path).arrays["means"].shape == (len(more), 2, 20)
    check_shown(tmp_path)


def test_a_parameter_moves_at_its_own_rate():
    """Adam's first step is its rate, whatever the gradient."""
    names = ("embeddings", "cls", "heads", "product_1", "product_2")
    rule = _network.adam(0.1, cls=0.2, heads=0.0, product=0.3)
    here = {"params": {name: np.ones(2, np.float32) for name in names}}
    with jax.numpy_dtype_promotion("standard"):
        moved, _ = rule.update(here, rule.init(here), here)
    found = [-float(moved["params"][name][0]) for name in names]
    assert found == pytest.approx([0.1, 0.2, 0.0, 0.3, 0.3], rel=1e-4)


def test_a_query_and_heads_of_another_length_keep_their_direction():
    rows = np.array([[3.0, 4.0], [0.0, 1.0]])
    begin = {"params": {"cls": rows[0], "heads": rows}}
    found = _network.with_length(begin, "cls", 10.0)["params"]
    assert found["cls"].tolist() == [6.0, 8.0] and found["heads"] is rows
    found = _network.with_length(begin, "heads", 10.0)["params"]
    assert found["heads"].tolist() == [[6.0, 8.0], [0.0, 10.0]]
