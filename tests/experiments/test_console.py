"""The command line of every program, in this process: flags, exit codes, mistakes."""

import dataclasses
import io
import math
import os
import re
from pathlib import Path

import pytest
from rich.console import Console

from experiments import reviews, run
from experiments.common import console, progress
from experiments.common.study import Study, check
from experiments.sweep import settings as sweep_settings
from experiments.sweep import study as sweep_study
from jaxselect.checks import BadInput

ROOT = Path(__file__).parents[2]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(Study):
    """Settings of a study that does nothing."""

    size: float = 1.0
    preset: str = "first"
    out: Path = Path("results/nothing")


PRESETS = {"first": Settings(), "second": Settings(size=2.0)}


def ended(study, arguments, presets=PRESETS):
    """Exit code of a study run as a program."""
    with pytest.raises(SystemExit) as end:
        console.command(study, presets, [str(argument) for argument in arguments])
    return end.value.code


def study_that(answer):
    def study(settings):
        check(settings)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    study.__module__ = __name__
    return study


@pytest.mark.parametrize(
    ("answer", "code", "printed"),
    [
        ({"fine": 1, "no number": math.nan}, 0, '{"fine": 1, "no number": null}\n'),
        (console.Difference(equal=False), 1, '{"equal": false}\n'),
        (BadInput("dim 0: wanted ≥ 1"), 2, ""),
        (FileNotFoundError(2, "No such file", "a.csv"), 2, ""),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_exit_codes(answer, code, printed, capsys):
    assert ended(study_that(answer), ["--json"]) == code
    out, err = capsys.readouterr()
    assert out == printed and len(err.splitlines()) == (code > 1)


@pytest.mark.parametrize("fault", [ValueError("shapes"), TypeError(), KeyError("x")])
def test_faults_of_ours_keep_their_traceback(fault):
    """NumPy's and JAX's shape errors are ValueErrors, and nobody's bad input."""
    with pytest.raises(type(fault)):
        console.command(study_that(fault), PRESETS, [])


def test_a_preset_decides_what_no_flag_does():
    parse = console.parse
    study = study_that({})
    assert parse(study, PRESETS, []) == PRESETS["first"]
    for flags in (["--preset", "second"], ["--preset=second"]):
        found = parse(study, PRESETS, [*flags, "--seed", "3"])
        assert found == Settings(size=2.0, seed=3, preset="second")
    assert parse(study, PRESETS, ["--size", "5", "--preset", "second"]).size == 5
    for flags in (["--preset", "third"], ["--preset"]):
        with pytest.raises(BadInput, match=r"no preset '.*'; there are first, second"):
            parse(study, PRESETS, flags)


NOTHING, REVIEWS = (study_that({}), PRESETS), (reviews.main, reviews.PRESETS)


@pytest.mark.parametrize(
    ("program", "words", "message"),
    [
        (NOTHING, "--seed=-1", "--seed -1: wanted 0 … 2³¹ − 1"),
        (NOTHING, "--seed 1e3", "1e3"),
        (NOTHING, "--drop None", "Unrecognized options: --drop, None; --help"),
        (NOTHING, "--out=", "argument 1 '--out=' is empty"),
        (REVIEWS, "--train no.parquet --test no.parquet", "no.parquet does not exist"),
        (REVIEWS, "", "no reviews: give --train FILE"),
        (REVIEWS, "--preset smoke --step-size 0", "--step-size 0.0: wanted"),
        (REVIEWS, "--preset smoke --min-count 1000000", "no word occurs 1000000"),
    ],
)
def test_a_refusal_says_what_arrived_in_one_line(program, words, message, capsys):
    study, presets = program
    assert ended(study, words.split(), presets) == 2
    out, err = capsys.readouterr()
    (line,) = err.splitlines()
    assert message in line and line.startswith("error: ") and out == ""


def test_a_place_for_results_that_is_a_file_or_cannot_be_written(
    tmp_path, capsys, monkeypatch
):
    file = tmp_path / "file"
    file.write_text("mine")
    never = study_that(AssertionError("it ran"))
    for out in (file, file / "below" / "that"):
        assert ended(never, ["--out", out]) == 2
        assert f"{file} is a file" in capsys.readouterr().err
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert ended(never, ["--out", tmp_path / "new"]) == 2
    assert f"{tmp_path} cannot be written" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert file.read_text() == "mine"


TOO_MUCH = 10**12
LARGE = {
    "run": (run.run, run.PRESETS, ["--sequences", "--length", "--relevant"]),
    "sweep": (
        sweep_study.sweep,
        sweep_settings.PRESETS,
        ["--sequences", "--length", "--irrelevant", "--path-points"],
    ),
    "reviews": (reviews.main, reviews.PRESETS, ["--dim", "--steps"]),
}


@pytest.mark.parametrize("name", LARGE)
def test_counts_beyond_memory_are_refused_at_once(name, tmp_path, capsys):
    study, presets, flags = LARGE[name]
    out = [] if name == "run" else ["--out", tmp_path / "out"]
    for flag in flags:
        flags_given = ["--preset", "smoke", *out, flag, TOO_MUCH]
        assert ended(study, flags_given, presets) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert "of memory or more" in line and "are free" in line
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("width", [60, 80, 200])
def test_a_bar_says_how_far_it_is_in_one_line(width, monkeypatch):
    """It says that it compiles until something is done, then n/N and the time left."""
    file = io.StringIO()
    kinds = {"file": file, "force_terminal": True, "color_system": None, "width": width}
    monkeypatch.setattr(progress, "Console", lambda **_: Console(**kinds))
    with progress.progress_bar("kinds of attention", 1040) as advance:
        advance(0)
        advance(88)
    frames = re.sub(r"\x1b\[[0-9?;]*[A-Za-z]", "", file.getvalue())
    lines = [line.rstrip() for line in re.split(r"[\r\n]", frames) if line.strip()]
    assert "kinds of attention: compiling" in lines[0] and "0/1,040" in lines[0]
    assert "88/1,040" in lines[-1] and "time left" in lines[-1]
    assert all(len(line) <= width for line in lines)
