"""The command line of every program, in this process: flags, exit codes, mistakes."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from experiments import reviews, run
from experiments.benchmarks import max_margin
from experiments.beyond import descent
from experiments.common import console, memory
from experiments.common.results import read
from experiments.common.study import Study, check
from experiments.paper import lemma_4_1 as text_lemma
from experiments.paper import mlp, random_embeddings
from experiments.sweep import settings as sweep_settings
from experiments.sweep import study as sweep_study
from experiments.text import fitting
from jaxselect import compilation
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
    ("answer", "code"),
    [
        ({"fine": 1}, 0),
        (console.Difference(equal=False), 1),
        (BadInput("dim 0: wanted ≥ 1"), 2),
        (FileNotFoundError(2, "No such file", "a.csv"), 2),
        (KeyboardInterrupt(), 130),
    ],
)
def test_exit_codes(answer, code, capsys):
    assert ended(study_that(answer), ["--json"]) == code
    printed = capsys.readouterr()
    assert len(printed.err.splitlines()) == (code > 1)
    assert printed.out == (json.dumps(answer) + "\n" if code < 2 else "")


@pytest.mark.parametrize("fault", [ValueError("shapes"), TypeError(), KeyError("x")])
def test_faults_of_ours_keep_their_traceback(fault):
    """NumPy's and JAX's shape errors are ValueErrors, and nobody's bad input."""
    with pytest.raises(type(fault)):
        console.command(study_that(fault), PRESETS, [])


def test_sigterm_ends_a_study_as_ctrl_c_does(capsys):
    def study(settings):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(1)
        return {}

    def deaf(number, frame):
        pass

    study.__module__ = __name__
    before = signal.signal(signal.SIGTERM, deaf)
    try:
        assert ended(study, []) == 130
        assert signal.getsignal(signal.SIGTERM) is deaf
    finally:
        signal.signal(signal.SIGTERM, before)
    assert "what was finished is on disk" in capsys.readouterr().err


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


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--seed=-1"], "--seed -1: wanted 0 … 2³¹ − 1"),
        (["--seed", "1e3"], "1e3"),
        (["--size=nan"], "--size nan: wanted a finite number ≥ 0"),
        (["--drop", "None"], "Unrecognized options: --drop, None; --help"),
        (["--preset", "\x1b[31mred"], "no preset"),
        (["--out="], "argument 1 '--out=' is empty"),
        (["--size", "x" * 9000], " … "),
    ],
)
def test_a_refusal_says_what_arrived_in_one_short_line(words, message, capsys):
    assert ended(study_that({}), words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line and line.isprintable() and len(line) <= console.LINE + 20


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


def test_not_finite_is_null_on_standard_output(capsys):
    assert ended(study_that({"a": float("nan"), "b": float("inf")}), ["--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"a": None, "b": None}


def test_standard_output_that_nobody_reads(monkeypatch, capfd):
    monkeypatch.setattr("sys.stdout", None)
    assert ended(study_that({"a": 1}), ["--json"]) == 0
    monkeypatch.setattr("sys.stderr", None)
    console.say("nobody hears this")
    monkeypatch.undo()
    assert capfd.readouterr() == ("", "")


def test_a_pipe_that_is_closed_is_no_fault():
    read_end, write_end = os.pipe()
    os.close(read_end)
    code = """
import dataclasses
from experiments.common.console import command
settings = dataclasses.make_dataclass(
    "Settings", [("preset", str, "only"), ("json", bool, False)], frozen=True
)
command(lambda settings: {"long": "x" * 9**6}, {"only": settings()}, ["--json"])
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        stdout=write_end,
        stderr=subprocess.PIPE,
        env={"PATH": os.environ["PATH"], "LC_ALL": "C", "TERM": "dumb"},
    )
    os.close(write_end)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("study", [mlp, reviews, random_embeddings])
def test_help_keeps_its_lines_and_names_the_program(study, capsys, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    assert ended(study.main, ["--help"], study.PRESETS) == 0
    shown = capsys.readouterr().out
    name = study.__name__.removesuffix(".study")
    assert f"usage: python -m {name} " in shown
    about = (study.__doc__ or "").rstrip()
    assert shown.startswith(f"{about}\n\n{console.KEPT}\nPresets: ")
    assert f"{compilation.CACHE_BYTES // 2**20} MiB" in console.KEPT
    assert max(map(len, shown.splitlines())) <= 88
    assert "\x1b" not in shown


TOO_MUCH = 10**12
LARGE = {
    "run": (run.run, run.PRESETS, ["--sequences", "--length", "--relevant"]),
    "sweep": (
        sweep_study.sweep,
        sweep_settings.PRESETS,
        ["--sequences", "--length", "--irrelevant", "--path-points"],
    ),
    "descent": (
        descent.main,
        descent.PRESETS,
        ["--sequences", "--length", "--relevant"],
    ),
    "reviews": (reviews.main, reviews.PRESETS, ["--dim", "--steps"]),
    "paper.random_embeddings": (
        random_embeddings.main,
        random_embeddings.PRESETS,
        ["--dim", "--steps", "--steps-long"],
    ),
    "paper.lemma_4_1": (text_lemma.main, text_lemma.PRESETS, ["--dims"]),
    "paper.mlp": (mlp.main, mlp.PRESETS, ["--dim"]),
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


def test_memory_that_is_there_is_not_refused():
    memory.require(memory.available() / 2, "half")
    with pytest.raises(BadInput, match=r"twice: wants .* free"):
        memory.require(2 * memory.available(), "twice")


FIRST = {
    "an odd number of sequences": (run.run, run.PRESETS, ["--sequences", "3"]),
    "sequences of one token": (run.run, run.PRESETS, ["--length", "1"]),
    "long training of no steps": (
        random_embeddings.main,
        random_embeddings.PRESETS,
        ["--steps-long", "0"],
    ),
    "a step that is NaN": (descent.main, descent.PRESETS, ["--smallest", "nan"]),
    "no dimension": (mlp.main, mlp.PRESETS, ["--dim", "0"]),
    "no size": (max_margin.main, max_margin.PRESETS, ["--sizes"]),
}


@pytest.mark.parametrize("case", FIRST)
def test_what_cannot_be_is_said_before_anything_else(case, capsys):
    study, presets, flags = FIRST[case]
    assert ended(study, ["--preset", [*presets][-1], *flags], presets) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


# A rate beyond float32's largest number: NumPy warns as it becomes infinite.
@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
@pytest.mark.parametrize(
    ("study", "presets", "flags"),
    [
        (reviews.main, reviews.PRESETS, ["--learning-rate", "1e300", "--steps", 3]),
        (reviews.main, reviews.PRESETS, ["--step-size", "1e38"]),
        (mlp.main, mlp.PRESETS, ["--learning-rate", "1e300"]),
    ],
)
def test_training_that_leaves_the_finite_numbers_is_no_success(
    study, presets, flags, tmp_path, capsys
):
    flags = ["--preset", "smoke", "--dim", 16, *flags, "--json", "--out", tmp_path]
    assert ended(study, flags, presets) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "take a smaller" in printed.err.splitlines()[-1]
    assert not list(tmp_path.glob("*.png"))
    if "--learning-rate" in flags:
        assert read(tmp_path).results["status"] == fitting.NOT_FINITE
