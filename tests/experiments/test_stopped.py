"""Ctrl-C and SIGTERM: exit code 130, what was finished on disk, old results whole."""

import contextlib
import dataclasses
import multiprocessing
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from experiments.common import resume, study
from experiments.common.results import read
from experiments.paper import _reviews, random_embeddings
from experiments.report.folders import search
from experiments.text import data
from jaxselect.checks import BadInput
from jaxselect.sweep.store import read_chunk
from tests.experiments.test_console import ended


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


@dataclasses.dataclass(frozen=True)
class Pieces:
    out: Path
    json: bool = False
    workers: int = 1
    tolerance: float = 0.1
    seed: int = 0


def half(folder, whole, stop, number, piece):
    """A piece from disk, or written there: two lanes."""
    if piece < 0:
        raise ArithmeticError(f"piece {piece}")
    if number not in whole:
        column = np.array([piece, piece + 0.5])
        resume.write_columns(folder, number, {"x": column}, first=2 * number)
    rows = read_chunk(folder, number)
    return number in whole, rows["lane"].tolist(), rows["x"].tolist()


@pytest.mark.parametrize("workers", [1, 2])
def test_pieces_are_resumed_by_the_same_settings_alone(workers, tmp_path, monkeypatch):
    # Threads in place of processes, which begin for seconds.
    manager = contextlib.nullcontext(threading)
    here = SimpleNamespace(Manager=lambda: manager)
    monkeypatch.setattr(multiprocessing, "get_context", lambda kind: here)
    monkeypatch.setattr(
        resume, "ProcessPoolExecutor", lambda number, *_: ThreadPoolExecutor(number)
    )
    settings = Pieces(tmp_path, workers=workers)

    def run(pieces, **changes):
        asked = dataclasses.replace(settings, **changes)
        about = {"ignored": ("tolerance",), "study": "pieces"}
        return resume.run_resumable(asked, half, pieces, "pieces", **about)

    with pytest.raises(ArithmeticError, match="piece -1"):
        run([3.0, -1.0])
    found = run([3.0, 4.0], tolerance=0.2)
    assert found == [(True, [0, 1], [3.0, 3.5]), (False, [2, 3], [4.0, 4.5])]
    assert all(there for there, *_ in run([3.0, 4.0], json=True, workers=1))
    with pytest.raises(BadInput, match="seed: 0, now 1"):
        run([3.0, 4.0], seed=1)
