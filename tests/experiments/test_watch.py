"""Trajectories to look at: those of the sweep's own runs, and when a class is held."""

import dataclasses

import jax
import numpy as np
import pytest

from experiments.beyond import watch
from experiments.beyond.problem import Problem
from experiments.common.results import read
from jaxselect.flow.cls import FlowStatus
from jaxselect.model.parameters import gaussian_reduced
from jaxselect.sweep.grid import Grid

SHAPE = {"sequences": 20, "length": 4, "relevant": 2, "irrelevant": 8}


def test_a_cell_is_the_run_that_a_sweep_has_there():
    ours, corpus = Problem(**SHAPE).draw(3, 64.0)
    grid = Grid(axes={name: (value,) for name, value in SHAPE.items()})
    corpus_key, key = jax.random.split(jax.random.key(3))
    theirs = grid.cell(grid.shapes()[0], 1.0, 64.0, 1.0, 3).draw(corpus_key)
    np.testing.assert_array_equal(corpus.tokens, theirs.tokens)
    np.testing.assert_array_equal(corpus.labels, theirs.labels)
    start = gaussian_reduced(key, vocabulary=theirs.vocabulary, dim=64.0)
    np.testing.assert_array_equal(ours.embeddings, start.embeddings)


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    settings = dataclasses.replace(
        watch.PRESETS["smoke"],
        dims=(1e6,),
        step_sizes=(100.0,),
        sequences_shown=SHAPE["sequences"] // 2,
        out=tmp_path_factory.mktemp("watch"),
    )
    watch.main(settings)
    return read(settings.out)


def test_attention_is_the_softmax_of_the_scores(seen):
    found = {name: column[0] for name, column in seen.arrays.items()}
    kept = np.isfinite(found["log_times"])
    assert 10 < kept.sum() < len(kept)
    scores = found["scores"][kept][:, found["shown_tokens"]]
    powers = found["shown_counts"] * np.exp(scores - scores.max(axis=2, keepdims=True))
    wanted = powers / powers.sum(axis=2, keepdims=True)
    np.testing.assert_allclose(found["weights"][kept], wanted, rtol=1e-9, atol=1e-12)
    assert np.isnan(found["weights"][~kept]).all()


def test_a_class_holds_the_mean_weight_of_its_important_tokens(seen):
    """All sequences are shown: those of the positive class, then the others."""
    found = {name: column[0] for name, column in seen.arrays.items()}
    assert found["shown_labels"].tolist() == [1] * 10 + [-1] * 10
    important = (found["shown_tokens"] < 4) & (found["shown_counts"] > 0)
    held = np.where(important, found["weights"], 0.0).sum(axis=2)
    np.testing.assert_allclose(found["positive"], held[:, :10].mean(axis=1))
    np.testing.assert_allclose(found["negative"], held[:, 10:].mean(axis=1))
    assert not np.allclose(found["positive"], found["negative"], equal_nan=True)


def test_the_end_of_the_path_is_the_printed_end(seen):
    (cell,) = seen.results["cells"]
    found = {name: column[0] for name, column in seen.arrays.items()}
    assert cell["status"] == FlowStatus.REACHED.name
    assert found["log_times"][-1] == cell["log_time"]
    assert found["norms"][-1] == cell["cls_norm"]
    assert cell["cls_norm"] == pytest.approx(seen.settings["until_norm"])
    assert (np.diff(found["norms"][np.isfinite(found["norms"])][-5:]) > 0).all()
    # Everything important is selected there, and nobody was captured on the way.
    assert found["positive"][-1] > 0.99 and found["negative"][-1] > 0.99
    assert cell["capture"] == {}
    assert set(found["classes"].tolist()) == {-1, 0, 1}
    assert (np.sign(found["values"]) == found["classes"])[found["classes"] != 0].all()


@pytest.mark.parametrize(
    ("positive", "negative", "wanted"),
    [
        ([0.5, 1.0, 1.0], [0.5, 0.0, 1.0], ("positive", 2.0, 2.0)),
        ([0.5, 0.0, 0.0], [0.5, 1.0, 1.0], ("negative", 2.0, 3.0)),
        ([0.5, 1.0, 1.0], [0.5, 0.5, 1.0], None),
        ([0.89, 0.91, 1.0], [0.0, 0.09, 0.11], ("positive", 2.0, 2.0)),
        ([np.nan] * 3, [np.nan] * 3, None),
    ],
)
def test_capture_says_who_and_when(positive, negative, wanted):
    columns = {"positive": np.array(positive), "negative": np.array(negative)}
    found = watch.capture({"log_times": np.array([1.0, 2.0, 3.0]), **columns})
    names = ("class", "first", "last")
    assert found == ({} if wanted is None else dict(zip(names, wanted, strict=True)))
