"""The programs for real text, from the command line to the files they leave."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from scipy.sparse import csr_array

from experiments import reviews
from experiments.common.results import read
from experiments.text import baseline, fitting
from experiments.text import data as review_data
from experiments.text.invented import invent_reviews
from experiments.text.source import Source
from jaxselect.checks import BadInput

ROOT = Path(__file__).parents[2]


@pytest.fixture
def files(tmp_path):
    """Invented reviews as two Parquet files."""
    for seed, name in enumerate(("train", "test")):
        drawn = invent_reviews(seed=seed, reviews=200, vocabulary=300)
        table = pa.table({"text": drawn.texts, "label": (drawn.labels > 0).astype(int)})
        parquet.write_table(table, tmp_path / f"{name}.parquet")
    return tmp_path


def program(name, *arguments):
    command = [sys.executable, "-m", name, *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def test_whole_program_on_files(files):
    out = files / "out"
    done = program(
        "experiments.reviews",
        *("--train", files / "train.parquet", "--test", files / "test.parquet"),
        *("--dim", 512, "--steps", 20, "--train-head", "--json", "--out", out),
    )
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)
    assert results["status"] == "finished"
    assert results["train_reviews"] + results["validation_reviews"] == 200
    assert results["one_step"]["correlation"] > 0.8
    assert results["one_step"]["slope_ratio"] == pytest.approx(1, abs=0.2)
    bag = results["bag_of_words"]
    below = results["stopped"]["test_accuracy"] < bag["test_accuracy"]
    assert bag["ahead_of_ours"] is below
    assert ("below it: test accuracy" in done.stderr) is below
    assert (out / "reviews.png").stat().st_size > 0
    described = json.loads((out / "results.json").read_text())
    assert described["results"] == results
    columns = read(out).arrays
    assert columns["words"].shape == columns["importance"].shape
    files = {"results.json", "arrays.npz", "reviews.png"}
    assert {path.name for path in out.iterdir()} == files


def test_a_stopped_run_goes_on_from_its_checkpoint(tmp_path, monkeypatch):
    settings = reviews.dataclasses.replace(
        reviews.PRESETS["smoke"],
        embeddings="trained",
        dim=16,
        steps=40,
        checkpoint=True,
        figure=False,
        precision="float64",
        out=tmp_path,
    )
    seen = []

    def stop(line):
        seen.append(line)
        if line.startswith("step    20"):
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(fitting, "say", stop)
        with pytest.raises(KeyboardInterrupt):
            reviews.main(settings)
    monkeypatch.setattr(fitting, "say", seen.append)
    resumed = reviews.main(settings)
    assert sum(line.startswith("step     0") for line in seen) == 1
    whole = reviews.main(reviews.dataclasses.replace(settings, checkpoint=False))
    assert resumed["last"] == whole["last"]
    assert resumed["stopped"] == whole["stopped"]


def rows(path, marks, words="good bad film"):
    """A file with a review of a few words for each label."""
    table = pa.table({"text": [words] * len(marks), "label": marks})
    parquet.write_table(table, path)
    return path


def test_labels_that_are_words_are_mapped_said_and_kept(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(review_data, "CACHE", tmp_path / "cache")
    train = rows(tmp_path / "train.parquet", ["spam", "ham"] * 10)
    test = rows(tmp_path / "test.parquet", ["spam"] * 3)
    for _ in ("counted", "kept"):
        splits, facts = review_data.load(Source(train, test))
        assert facts["labels"] == {"ham": -1, "spam": 1}
        assert "labels: ham → -1, spam → 1\n" in capsys.readouterr().err
        assert splits.test.labels.tolist() == [1, 1, 1]
    rows(test, ["eggs"])
    with pytest.raises(BadInput, match="'eggs'; wanted one of 'ham', 'spam'"):
        review_data.load(Source(train, test))


@pytest.mark.parametrize(
    ("marks", "message"),
    [
        (list("abc") * 9, r"3 classes, 'a', 'b', 'c': wanted two.*paper.classes"),
        ([1] * 20, "every training review of .* has the same label"),
    ],
)
def test_labels_that_one_head_cannot_tell_apart(tmp_path, monkeypatch, marks, message):
    monkeypatch.setattr(review_data, "CACHE", tmp_path / "cache")
    path = rows(tmp_path / "train.parquet", marks)
    with pytest.raises(BadInput, match=message):
        review_data.load(Source(path, path))


def test_held_out_words_never_enter_the_vocabulary(tmp_path, monkeypatch):
    monkeypatch.setattr(review_data, "CACHE", tmp_path)
    texts = [f"shared only{place}" for place in range(40)]
    table = pa.table({"text": texts, "label": [0, 1] * 20})
    parquet.write_table(table, tmp_path / "all.parquet")
    path = tmp_path / "all.parquet"
    splits, _ = review_data.load(Source(path, path, min_count=1))
    assert len(splits.words) == 1 + len(splits.train.labels) == 37


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ({"dataset": "imdb_reviews"}, "imdb_reviews"),
        ({"dataset": "imdb_reviews/plain_text:1.0.0"}, "imdb_reviews"),
        ({"train": Path("a.csv"), "named": "imdb_reviews"}, "imdb_reviews"),
        ({"train": Path("imdb_reviews.csv")}, None),
        ({"invented": 100, "named": "imdb_reviews"}, None),
    ],
)
def test_data_have_the_name_that_somebody_gave_them(source, name):
    assert Source(**source).name == name


def test_a_bag_of_words_finds_what_a_word_decides_and_no_more():
    """One word that says all: every review right. Labels at random: about a third."""
    rng = np.random.default_rng(0)
    marks = rng.choice([0, 1, 2], 900)
    counts = rng.poisson(0.3, (900, 20)).astype(float)
    random = baseline.Counted(csr_array(counts), marks)
    bags = baseline.Counted(csr_array(np.eye(3)[marks]), marks)
    assert baseline.baseline(bags, test=bags) == {"test_accuracy": 1.0}
    half = [baseline.Counted(random.counts[k::2], marks[k::2]) for k in (0, 1)]
    found = baseline.baseline(half[0], seen=half[0], unseen=half[1])
    assert found["seen_accuracy"] > found["unseen_accuracy"]
    assert found["unseen_accuracy"] == pytest.approx(1 / 3, abs=0.08)
