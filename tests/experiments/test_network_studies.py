"""The studies of richer networks: what they leave, and known tokens found."""

import dataclasses
import functools
import json
import os

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from scipy.stats import spearmanr

from experiments.benchmarks import networks as benchmark
from experiments.common.results import read
from experiments.networks import data as network_data
from experiments.networks import study as networks
from experiments.networks.study import DATA, TABLES
from experiments.text import data as review_data
from jaxselect.checks import BadInput
from tests.experiments.invented_results import check_shown

SMALL = {"dim": 32, "steps": 30, "batch": 120, "every": 0, "learning_rate": 0.02}


@pytest.mark.parametrize("name", ["two_layer_key_query", "stars"])
def test_a_study_finds_the_tokens_that_matter(name, tmp_path, monkeypatch, capsys):
    """On invented tokens E·v orders the classes, and the results lie on disk."""
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")
    chosen = networks.PRESETS[name]
    settings = dataclasses.replace(chosen, **SMALL, preset=name, out=tmp_path)
    if name == "stars":
        settings = dataclasses.replace(settings, classes=3)
    results = networks.main(settings)
    described = json.loads((tmp_path / "results.json").read_text())
    assert described["results"]["one_step"] == results["one_step"]
    assert (tmp_path / "networks.png").stat().st_size > 0
    assert results["one_step"]["correlation"] > 0.8
    check_shown(tmp_path)
    columns = read(tmp_path).arrays
    if name == "stars":
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
    source = review_data.Source(path, path)
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
    across, imbalance = network_data.posteriors(data, 2)
    # Purity 0.6 in expectation, from some hundred occurrences of each.
    assert across[:20, 1].mean() == pytest.approx(0.6, abs=0.1)
    assert across[20:40, 1].mean() == pytest.approx(-0.6, abs=0.1)
    assert (imbalance[:20, 1] > 0).all()
    assert np.allclose(across[:, 0], -across[:, 1], equal_nan=True)


@pytest.mark.parametrize("name", TABLES)
def test_published_tables_are_whole(name):
    for centres, means in TABLES[name].values():
        assert len(centres) == len(means) and centres == sorted(centres)


@pytest.mark.parametrize("name", ["two_layer", "two_layer_key_query", "mlp"])
def test_published_columns_have_their_shape(name):
    """E·v rises with the posterior difference and E·p is even: a swap is seen."""
    for column, (centres, means) in TABLES[name].items():
        rising = spearmanr(centres, means).statistic
        even = spearmanr(np.abs(centres), means).statistic
        if column == "scores":
            assert even > 0.9 and abs(rising) < 0.3
        else:
            assert rising > 0.6 and abs(even) < 0.75 < 0.8


@pytest.mark.parametrize("name", TABLES)
def test_tables_stand_beside_the_data_and_classes_they_are_of(name):
    data, classes = DATA[name]
    columns = {column: np.linspace(-1, 1, 50) for column in TABLES[name]}

    def compare(data, classes):
        across = np.linspace(-1, 1, 50)[:, None] * np.ones(classes)
        return networks.compare(name, data, columns, across, across)

    assert list(compare(data, classes)) == list(TABLES[name])
    for other in ((data, classes + 1), (None, classes), ("ag_news_subset", classes)):
        assert compare(*other) == {}


def test_the_rival_computes_the_same_gradient(tmp_path, request):
    cores = os.sched_getaffinity(0)
    request.addfinalizer(lambda: os.sched_setaffinity(0, cores))
    settings = benchmark.Settings(
        reviews=64, vocabulary=90, distinct=20, dim=8, share=32, repeats=1, out=tmp_path
    )
    results = benchmark.main(settings)
    for name in ("random", "sorted"):
        # PyTorch is optional, and of single precision here.
        assert results.get(f"{name}_disagreement", 0.0) < 1e-4
