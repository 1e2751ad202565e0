"""A part of the bad inputs; all of them: python -m tests.bad_inputs."""

import pytest

from experiments.common import console
from tests.bad_inputs.calls import calls
from tests.bad_inputs.findings import FINE, of_call, of_line
from tests.bad_inputs.folders import folder_lines, reviews_calls
from tests.bad_inputs.lines import lines


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """An input that writes after all writes into a temporary folder."""
    monkeypatch.chdir(tmp_path)
    yield
    assert not list(tmp_path.glob("results*/*.html"))


def test_there_are_hundreds_of_them():
    assert len(list(lines())) + len(calls()) > 1000


@pytest.mark.parametrize("part", range(4))
def test_command_lines_are_refused_in_one_line(part):
    every = list(lines())
    wrong = {
        line[2:]: outcome
        for line in every[5 * part :: 97]
        if (outcome := of_line(line)) != FINE
    }
    assert not wrong


def test_calls_are_refused_in_one_line():
    names = list(calls().items())[::7]
    wrong = {
        name: outcome for name, call in names if (outcome := of_call(call)) != FINE
    }
    assert not wrong


def test_damaged_folders_and_files_are_refused_in_one_line():
    found = {name: of_line(line) for name, line in list(folder_lines())[::3]}
    found |= {name: of_call(call) for name, call in list(reviews_calls())[::4]}
    assert {name: outcome for name, outcome in found.items() if outcome != FINE} == {}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--seed", "-1"], "seed -1: wanted 0 … 2³¹ − 1"),
        (["--size=nan"], "size nan: wanted a finite number ≥ 0"),
        (["--drop", "None"], "Unrecognized options: --drop, None; --help"),
        (["--out="], "argument 1 '--out=' is empty"),
        (["--size", "x" * 9000], " … "),
    ],
)
def test_a_refusal_says_what_arrived_in_one_short_line(words, message, capsys):
    from tests.experiments.test_console import PRESETS, ended, study_that

    assert ended(study_that({}), words, PRESETS) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line and len(line) <= console.LINE + 20
