"""The first command that people try: a sentence, a picture, numbers."""

import contextlib
import io
import json
from dataclasses import replace

import pytest

from experiments import run
from jaxselect.margin.certificate import TrialStatus
from tests.experiments.test_console import ended

COMMAND = ["--preset", "smoke", "--verify", "--explain", "--json"]


@pytest.fixture(autouse=True, scope="module")
def compiled_once():
    """Every run here has the sizes of one program, and of one that verifies it."""
    compiled, real = {}, run._compiled

    def once(function, arguments):
        if function.__name__ not in compiled:
            compiled[function.__name__] = real(function, arguments)
        return compiled[function.__name__]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "_compiled", once)
        yield


@pytest.fixture(scope="module")
def printed():
    """Results of one run on the command line, and its lines for the reader."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        assert ended(run.run, COMMAND, run.PRESETS) == 0
    return json.loads(out.getvalue()), err.getvalue()


def test_a_verified_run_ends_the_same(printed):
    found, err = printed
    check = found["tolerance_check"]
    assert check["same_selection"] and check["same_status"]
    assert check["status"] == check["closer_status"] == found["status"]
    assert max(check["norm_change"], check["constant_change"]) < 1e-4
    assert "selection                            the same" in err


def test_a_run_says_what_it_found(printed):
    """d given as a whole number, as in the defaults."""
    found, err = printed
    assert found["status"] == "selected_all"
    assert min(found["compile_seconds"], found["run_seconds"]) > 0
    assert f"{run.STORIES[TrialStatus.SELECTED_ALL]}{run.GROWS}." in err
    assert err.count("  100%\n") == 2
    assert all(f"{name:36} {value}" in err for name, value, _ in run._numbers(found))
    # The line names d = 256, η₀ = 100, ‖p‖ = 100 and the seed, each as one argument.
    size = found["settings"]
    gamma = size["step_size"] / (4 * size["length"] * size["relevant"])
    assert found["alignment"] == pytest.approx(gamma, abs=2 * size["dim"] ** -0.5)
    assert found["cls_norm"] == pytest.approx(size["until_norm"])
    other = run.run(replace(run.PRESETS["smoke"], seed=3))
    assert other["alignment"] != found["alignment"]


@pytest.mark.parametrize("name", ["same_selection", "same_status"])
def test_a_closer_integration_that_ends_otherwise_is_exit_code_one(
    printed, name, capsys, monkeypatch
):
    check = printed[0]["tolerance_check"] | {name: False}
    monkeypatch.setattr(run, "_verified", lambda *_: check)
    assert ended(run.run, COMMAND, run.PRESETS) == 1
    assert capsys.readouterr().err.count("ANOTHER") == 1
