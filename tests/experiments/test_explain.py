"""Explanations of a text by a trained model, word by word."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from experiments import reviews
from experiments.common.results import read
from experiments.text import explain
from jaxselect.data import corpus
from jaxselect.model.attention import attend_corpus
from tests.experiments.test_console import ended
from tests.tolerances import assert_close


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A model of invented reviews, on disk."""
    out = tmp_path_factory.mktemp("model")
    smoke = dataclasses.replace(
        reviews.PRESETS["smoke"], out=out, figure=False, precision="float64"
    )
    reviews.main(smoke)
    return out


def test_a_repeated_word_has_its_weight_at_each_place(trained):
    """Weights add up to one, and f is the model's own on the bag of the sentence."""
    columns = read(trained).arrays
    first, second = columns["words"][[3, 7]].tolist()
    sentence = f"{first} {second}, {first}! {first}"
    rows, output = explain.explain(sentence, trained, "last")
    assert_close(sum(row.weight for row in rows), 1.0)
    assert_close([row.weight for row in rows[2:]], [rows[0].weight] * 2)
    bag = corpus.from_sequences([[0, 1, 0, 0]], [1], vocabulary=2)
    a, b = (
        jnp.asarray(columns[f"{part}_last"][[3, 7]]) for part in ("scores", "values")
    )
    assert_close(output, attend_corpus(a, b, bag).output[0])


def test_explanation_page_is_safe_to_open(trained):
    rows, output = explain.explain("baba <script>alert(1)</script>", trained, "last")
    rows = [rows[0]._replace(word="<b>"), *rows[1:]]
    shown = explain.page(rows, output, "<i>")
    assert "<b>" not in shown and "&lt;b&gt;" in shown
    assert "<i>" not in shown and "&lt;i&gt;" in shown
    assert shown.count("<span") == len(rows)


@pytest.mark.parametrize(
    ("labels", "named"),
    [
        ({"ham": -1, "spam": 1}, ("ham", "spam")),
        ({"0": -1, "1": 1}, ("negative", "positive")),
        ({}, ("negative", "positive")),
    ],
)
def test_the_sides_have_the_names_that_the_data_gave_them(
    trained, monkeypatch, labels, named
):
    found = read(trained)
    other = found._replace(results=found.results | {"labels": labels})
    if not labels:
        del other.results["labels"]
    monkeypatch.setattr(explain, "read", lambda folder: other)
    assert explain.sides(trained) == named


@pytest.mark.parametrize(
    ("sentence", "message"),
    [("", "argument 1 is empty"), ("zzzz", "no word of 'zzzz'")],
)
def test_texts_that_cannot_be_explained(trained, capsys, sentence, message):
    assert ended(explain.main, [sentence, "--model", trained], explain.PRESETS) == 2
    assert message in capsys.readouterr().err


def test_explaining_without_a_model(tmp_path, capsys):
    assert ended(explain.main, ["good", "--model", tmp_path], explain.PRESETS) == 2
    assert "train first" in capsys.readouterr().err


def test_an_explanation_is_of_the_stage_that_was_asked_for(trained):
    columns = read(trained).arrays
    first, second = columns["words"][[3, 7]].tolist()
    shares = {}
    for stage in ("initial", "step", "stopped", "last"):
        a, b = columns[f"scores_{stage}"][[3, 7]], columns[f"values_{stage}"][[3, 7]]
        text = f"{first}, unheard {second}!"
        (one, unheard, other), output = explain.explain(text, trained, stage)
        rows = one, other
        assert [one.word, unheard.word, other.word] == [first, "unheard", second]
        weight = np.exp(a) / np.exp(a).sum()
        assert unheard.weight == 0
        assert_close([row.weight for row in rows], weight)
        assert_close([row.alignment for row in rows], b)
        assert_close(output, weight @ b)
        shares[stage] = output
    assert len(set(shares.values())) > 1
