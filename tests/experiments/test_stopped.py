"""Ctrl-C and SIGTERM: exit code 130, what was finished on disk, old results whole."""

import os
import signal
import time
from types import SimpleNamespace

from experiments.common import study
from experiments.common.results import read
from experiments.paper import _reviews, random_embeddings
from experiments.report.folders import search
from experiments.text import data
from tests.experiments.test_console import ended


def test_sigterm_is_exit_code_130_and_leaves_old_results(tmp_path, monkeypatch, capsys):
    """It arrives as a study sets up its device."""

    def stop(precision):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(1)

    monkeypatch.setattr(study, "configure", stop)
    old = tmp_path / "figure.png"
    old.write_text("of a run before")
    flags = ["--preset", "smoke", "--out", tmp_path]
    assert ended(random_embeddings.main, flags, random_embeddings.PRESETS) == 130
    assert "what was finished is on disk" in capsys.readouterr().err
    assert [*tmp_path.iterdir()] == [old] and old.read_text() == "of a run before"


def test_a_stopped_study_keeps_what_it_had_finished(tmp_path, monkeypatch):
    """Two models of three are trained when the signal comes."""
    trained = []

    def fit(begin, splits, run, advance, look):
        trained.append(run)
        look(run.steps, begin)
        if len(trained) == 3:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(1)
        state = SimpleNamespace(parameters=begin, best=begin, best_step=0, step=0)
        state.best_accuracy = 0.5
        return state, "finished"

    monkeypatch.setattr(_reviews, "fit", fit)
    monkeypatch.setattr(study, "configure", lambda precision: None)
    monkeypatch.setattr(data, "CACHE", tmp_path / "cache")
    out = tmp_path / "out"
    arguments = ["--preset", "smoke", "--dim", 8, "--out", out]
    assert ended(random_embeddings.main, arguments, random_embeddings.PRESETS) == 130
    found = read(out / "stopped")
    assert [*found.results["models"]] == ["together", "random"]
    assert found.settings["dim"] == 8
    # Nobody takes a part for the whole.
    assert [path.name for path in out.iterdir()] == ["stopped"]
    assert [one.trouble for one in search([out])] == ["no results here"]
