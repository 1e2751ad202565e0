"""The studies of richer networks: what they leave, and known tokens found."""

import dataclasses
import functools

import pyarrow as pa
import pytest
from pyarrow import parquet

from experiments.networks import data as network_data
from experiments.paper import _network, classes, key_query
from experiments.text import data as review_data
from experiments.text.source import Source
from jaxselect.checks import BadInput

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
