"""The benchmark of sweeps at a small size: what it says is what was there."""

import dataclasses

import pytest
import tyro

from experiments.benchmarks import _sweep_watch as sweep_watch
from experiments.benchmarks import sweep as benchmark
from experiments.common import console
from experiments.common.results import write
from experiments.sweep.settings import PRESETS
from jaxselect.outcome.trial import run_trial
from jaxselect.sweep import chunks
from jaxselect.sweep.grid import Grid
from tests.experiments.invented_results import check_shown
from tests.sweep.test_chunks import TINY


@pytest.mark.parametrize("preset", PRESETS)
def test_a_grid_survives_the_command_line(preset):
    grid = PRESETS[preset].grid
    parsed = tyro.cli(
        tyro.conf.OmitArgPrefixes[Grid],
        args=sweep_watch.flags(grid),
        default=TINY,
        registry=console.REGISTRY,
    )
    assert parsed == grid


def test_flags_of_the_benchmark_and_of_its_grid_do_not_collide(capsys):
    with pytest.raises(SystemExit) as end:
        console.command(benchmark.main, benchmark.PRESETS, ["--help"])
    assert end.value.code == 0
    assert "--eta" in capsys.readouterr().out


def test_one_program_serves_every_dimension(monkeypatch, tmp_path):
    monkeypatch.setattr(benchmark, "configure", lambda precision: None)
    traced = []

    def counted(*args, **settings):
        traced.append(args)
        return run_trial(*args, **settings)

    monkeypatch.setattr(chunks, "run_trial", counted)
    settings = benchmark.Settings(
        grid=TINY, decades=(2, 4, 6, 9), seeds=3, repeats=1, out=tmp_path
    )
    found = benchmark.cost_of_dim(settings)
    assert found["programs"] == len(traced) == 1
    # η₀ alone fixes γ, up to the noise of a small d.
    assert found["alignment"][1:] == pytest.approx([found["alignment"][-1]] * 3, 0.1)
    # What random overlaps add to the number of steps dies out with d.
    assert found["steps_per_run"][-1] <= 1.1 * found["steps_per_run"][-2]
    write(tmp_path, settings=settings, results={"dim": found}, figure="cost")
    assert (tmp_path / "cost.png").stat().st_size > 0
    check_shown(tmp_path)


def test_a_watched_sweep_is_counted_whole(tmp_path):
    # The settings that other tests of sweeps compile a program for.
    grid = dataclasses.replace(TINY, seed=(0, 1), path_points=0)
    seen = sweep_watch.observe(grid, tmp_path, "--workers", "1", "--chunk-size", "4")
    assert seen["exit_code"] == 0
    assert seen["runs"] == grid.size == sum(seen["statuses"].values())
    assert seen["runs_per_second"] < seen["runs_per_second_while_busy"]
    assert seen["parent_megabytes"] > 50
