"""The studies of real text: their measures against closed forms, and their presets.

Source: mathematics, section 3k.
"""

import dataclasses
import json

import jax
import numpy as np
import pytest

from experiments.common.claims import Verdict
from experiments.common.results import Finished, read
from experiments.paper import lemma_4_1 as text_lemma
from experiments.paper import one_step_spread, random_embeddings
from experiments.text import counts as sparse
from experiments.text import data as review_data
from experiments.text import fitting
from experiments.text import flow as text_flow
from experiments.text import joint as text_joint
from experiments.text.source import Source
from jaxselect.data import corpus
from jaxselect.model import parameters
from jaxselect.model import selection as importance
from jaxselect.model import step as embedding_step
from tests.experiments.invented_results import check_shown
from tests.experiments.test_console import ended
from tests.tolerances import assert_close

STUDIES = {"lemma": text_lemma, "random_embeddings": random_embeddings}


@pytest.fixture
def bags():
    rng = np.random.default_rng(0)
    drawn = [rng.integers(0, 40, rng.integers(2, 60)) for _ in range(30)]
    return corpus.from_sequences(drawn, rng.choice([-1, 1], 30), vocabulary=40)


@pytest.fixture
def single_precision():
    """As on the command line; the lemma's study turns float64 on by itself."""
    with jax.enable_x64(False):
        yield
    jax.config.update("jax_enable_x64", True)


def smoke(study, out, capsys, *flags):
    """Results of a study's smoke preset on the command line, and what it said."""
    arguments = ["--preset", "smoke", "--json", "--out", out, *flags]
    assert ended(study.main, arguments, study.PRESETS) == 0
    assert len(list(out.glob("*.png"))) == 1
    check_shown(out)
    printed = capsys.readouterr()
    return json.loads(printed.out), printed.err


@pytest.mark.parametrize("study", STUDIES.values(), ids=STUDIES)
def test_smoke_preset_runs_and_leaves_a_figure(
    study, tmp_path, single_precision, capsys
):
    results, said = smoke(study, tmp_path, capsys, "--named", "imdb_reviews")
    assert results["vocabulary"] > 100
    if study is random_embeddings:
        # Invented reviews have no name, whatever is said of files.
        assert results["published"] is False
        bag, ours = results["bag_of_words"], results["models"]["together"]
        behind = ours["test_accuracy"] < bag["test_accuracy"]
        assert bag["ahead_of_ours"] is behind is ("below it: test accuracy" in said)


def test_a_flow_on_reviews_prints_its_end(tmp_path, capsys):
    results, _ = smoke(text_flow, tmp_path, capsys)
    assert results["certified"]
    assert results["status"] == "TIED" and results["growth"] > 0
    columns = read(tmp_path).arrays
    assert len(columns["tied"]) == results["tied_words"]
    assert_close(columns["norms"][-1], results["norm"])
    assert_close(columns["decided"][-1], results["decided"])
    assert columns["log_times"][-1] == results["log_time"]
    assert np.all(np.diff(columns["log_times"]) > 0)
    final = columns["log_times"] >= results["final_from"]
    assert np.all(columns["as_at_the_end"][final] == 1) and not final.all()
    assert columns["as_at_the_end"][~final][-1] < 1


def test_training_everything_on_reviews_leaves_its_marks(
    tmp_path, single_precision, capsys
):
    runs = smoke(text_joint, tmp_path, capsys)[0]["runs"]
    for name, rows in runs.items():
        steps = [row["step"] for row in rows]
        assert steps == sorted(set(steps)) and steps[-1] == 300, name
        losses = [row["loss"] for row in rows]
        assert losses == sorted(losses, reverse=True) and losses[-1] < 0.1
        late = -np.log(losses[-1])
        assert rows[-1]["law"] == pytest.approx(1 / (late * np.log(late)))


def test_the_best_step_does_not_know_the_test_labels(single_precision):
    """Turned round, they change what is said of the test split, and nothing else."""
    splits, _ = review_data.load(Source(invented=300))
    turned = dataclasses.replace(splits.test, labels=-splits.test.labels)
    run = fitting.Fit(embeddings="trained", dim=16, steps=40, every=5)
    begin = fitting.starting_point(splits, run)
    ended, accuracies = [], []
    for these in (splits, splits._replace(test=turned)):
        taken: list[int] = []
        state, status = fitting.fit(begin, these, run, advance=taken.append)
        assert taken == [0] + [5] * 8
        ended.append((status, int(state.best_step), np.asarray(state.best.query)))
        accuracies.append(fitting.summary(state.best, these, "best")["test_accuracy"])
    assert ended[0][:2] == ended[1][:2]
    np.testing.assert_array_equal(ended[0][2], ended[1][2])
    assert (
        accuracies[0] == pytest.approx(1 - accuracies[1])
        and accuracies[0] != accuracies[1]
    )


def test_error_of_the_lemma_is_that_of_the_step_itself(bags):
    """The form without |S| × d arrays against the step, at the best multiple."""
    model = parameters.gaussian(jax.random.key(0), vocabulary=40, dim=30)
    change = embedding_step.embedding_step(model, bags, 1.0).embeddings
    change = np.asarray(change - model.embeddings)
    direction = importance.importance(bags)
    ray = np.outer(direction, model.head).ravel()
    multiple = ray @ change.ravel() / (ray @ ray)
    left = change.ravel() - multiple * ray
    wanted = np.linalg.norm(left) / np.linalg.norm(multiple * ray)
    got = text_lemma.error(model, sparse.from_corpus(bags), direction)
    # A norm of small differences.
    assert_close(got, wanted, worse=10)


def test_published_accuracy_chooses_the_step_and_loss_is_judged_there():
    """A loss that is a look late, as of bins shifted by one, is noticed."""
    accuracy = np.array([0.5, 0.68, 0.721, 0.78])
    loss = np.array([0.69, 0.66, 0.58, 0.45])
    arrays = {"together step": np.arange(4), "random step": 10 * np.arange(4)}
    for split in random_embeddings.SPLITS:
        arrays |= {
            f"together {split}_accuracy": accuracy + 0.23,
            f"together {split}_loss": loss - 0.48,
            f"random {split}_accuracy": accuracy,
            f"random {split}_loss": loss,
        }
    models = {"random, long": {"test_accuracy": 0.78, "test_loss": 0.45}}
    told = {"published": True, "test_reviews": 9, "models": models}
    found = Finished({"steps": 12}, told, arrays, {})
    assert random_embeddings.nearest(found, "random", "test")[0] == 20
    trained, fixed = (claim.measure for claim in random_embeddings.CLAIMS)
    assert trained(found).verdict is fixed(found).verdict is Verdict.REPRODUCED
    late = found._replace(arrays=arrays | {"random test_loss": np.roll(loss, 1)})
    assert trained(late).verdict is Verdict.REPRODUCED
    assert fixed(late).verdict is Verdict.NOT_REPRODUCED
    arrays |= {f"random, long test_{name}": loss for name in ("accuracy", "loss")}
    arrays["random, long step"] = np.arange(4)
    told["bag_of_words"] = {"test_accuracy": 0.9}
    table = random_embeddings.show(found._replace(arrays=arrays)).table
    assert ("E random", "0.68", "0.66", "10 (as many as with E trained)") in table


def test_spread_ratio_is_that_of_the_noise_and_relative_to_the_trend():
    """Noise three times as wide around one trend; everything twice as large."""
    noise = np.tile([-0.01, 0.01], 20)
    across = np.repeat(np.linspace(-0.95, 0.95, 20), 2)
    fixed = {"values": across + noise, "scores": across**2 + noise}
    trained = {"values": across + 3 * noise, "scores": 2 * fixed["scores"]}
    found = one_step_spread.spread_ratio(across, trained, fixed)
    assert found == pytest.approx(
        {"values": 3, "values_relative": 3, "scores": 2, "scores_relative": 1}
    )


def test_the_spread_of_scores_is_judged_where_that_of_values_is_nearest():
    row = {"steps": 640, "values": 8.0, "values_relative": 1.0, "scores_relative": 1.0}
    grades = Verdict.REPRODUCED, Verdict.IN_PART, Verdict.NOT_REPRODUCED
    for scores, verdict in zip((5.8, 3.0, 0.9), grades, strict=True):
        told = {"ratio": [row | {"scores": scores}], "published": True, "vocabulary": 9}
        found = Finished({"steps": 300}, told, {}, {})
        assert one_step_spread.narrower(found, "scores").verdict is verdict
