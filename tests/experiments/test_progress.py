"""The time left, on a terminal and nowhere else."""

import io

import pytest

from experiments.common import progress
from experiments.sweep import study


class Terminal(io.StringIO):
    """Standard error that somebody watches."""

    def isatty(self):
        return True


def shown(monkeypatch, stream):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.setattr("sys.stderr", stream)
    with progress.progress_bar("training", 8) as advance:
        for step in (0, 3, 5):
            advance(step)
    return stream.getvalue()


def test_a_terminal_sees_the_share_done_and_the_time_left(monkeypatch):
    said = shown(monkeypatch, Terminal())
    assert "training" in said and "100%" in said and "0:00:00" in said


def test_a_file_keeps_lines_alone(monkeypatch):
    assert shown(monkeypatch, io.StringIO()) == ""


@pytest.mark.parametrize(
    ("pace", "quiet", "lines"), [(0.0, False, 1), (0.0, True, 0), (60.0, False, 0)]
)
def test_a_log_shows_now_and_then_how_far_a_sweep_is(
    monkeypatch, capsys, pace, quiet, lines
):
    monkeypatch.setattr(study, "PACE", pace)
    chunks = [{"lanes": 8, "statuses": {"SELECTED_ALL": 8}}] * 3
    assert study._watch(iter(chunks), 24, quiet) == 24
    said = capsys.readouterr().err.splitlines()
    assert len(said) == lines
    assert all(f"{8 * n} of 24 runs" in line for n, line in enumerate(said, 2))
    for n, line in enumerate(said, 2):
        assert line.endswith(f" s left: {8 * n} selected all")
