"""A sweep's results depend on its grid alone, not on how it was cut, run or stopped."""

import dataclasses
import itertools
import threading
from functools import partial
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxselect import (
    Trial,
    assumption_one,
    compilation,
    independent_tokens,
    several_relevant,
)
from jaxselect.checks import BadInput
from jaxselect.margin.certificate import CERTIFIED, TrialStatus
from jaxselect.model.step import embedding_steps
from jaxselect.stages import STAGES, Next
from jaxselect.sweep import batch_size, launch, store
from jaxselect.sweep import run as sweep_module
from jaxselect.sweep.grid import Grid, lane_values
from jaxselect.sweep.launch import Job
from jaxselect.sweep.run import plan, run_chunk

SIZES = {"sequences": (8,), "length": (3,), "relevant": (2,), "irrelevant": (4,)}
TINY = Grid(
    axes={**SIZES, "per_sequence": (2,)},
    dim=(64.0, 1e6),
    step_size=(0.5, 100.0, 2000.0),
    seed=(0, 1, 15),
    until_norm=100.0,
)
PATH = [name for name in Trial.__dataclass_fields__ if name.startswith("path_")]


def describe(grid):
    return {"grid": grid.described(), "axes": grid.values, "statuses": {}}


def changed(grid, **values):
    """A grid with other values on its own axes, or in its fields."""
    fields = {name: values.pop(name) for name in set(values) & set(vars(grid))}
    return dataclasses.replace(grid, axes={**grid.axes, **values}, **fields)


def results_of(grid, chunk_size, folder, vmapped=False):
    store.prepare(folder, describe(grid))
    for index in range(len(plan(grid, chunk_size))):
        Job(grid, chunk_size, vmapped, folder).run(index)
    return store.load_all(folder)


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    return results_of(TINY, 4, tmp_path_factory.mktemp("reference"))


def test_every_lane_is_in_one_chunk():
    grid = changed(TINY, sequences=(8, 12), purity=(0.5, 1.0))
    for size in (1, 5, 7, 1000):
        chunks = plan(grid, size)
        lanes = np.concatenate([chunk.lanes for chunk in chunks])
        assert sorted(lanes.tolist()) == list(range(grid.size))
        assert max(len(chunk.lanes) for chunk in chunks) <= size


def test_lanes_carry_the_values_of_their_cell():
    axes = TINY.values
    every = list(itertools.product(*axes.values()))
    found = lane_values(TINY, np.arange(TINY.size))
    for place, name in enumerate(axes):
        if name in TINY.traced:
            assert found[name].tolist() == [cell[place] for cell in every]


@pytest.mark.parametrize(("chunk_size", "vmapped"), [(1, False), (18, True)])
def test_the_cut_does_not_matter(reference, tmp_path, chunk_size, vmapped):
    other = results_of(TINY, chunk_size, tmp_path, vmapped=vmapped)
    if not vmapped:
        assert reference.drop_vars("file").equals(other.drop_vars("file"))
    assert (other.status == reference.status).all()
    # Some go through a second batch, of those that the first leaves.
    assert (other.num_steps > 0).all() and (~np.isin(other.status, CERTIFIED)).any()
    assert (other.important_selected == reference.important_selected).all()
    settled = np.isin(reference.status.values, CERTIFIED)
    settled &= reference.status.values != TrialStatus.AT_REST
    for name in ("alignment_error", "cls_norm", "log_time", "max_margin_norm"):
        np.testing.assert_allclose(
            other[name].values[settled], reference[name].values[settled], rtol=1e-9
        )
    # The part of ρ that only the path decides has no more digits than the path.
    settled &= reference.history_dim.values == 0
    assert settled.sum() >= 3
    np.testing.assert_allclose(
        other.error_constant.values[settled],
        reference.error_constant.values[settled],
        rtol=1e-9,
    )


SEVEN = changed(TINY, seed=tuple(range(7)), dim=(64.0,), step_size=(100.0,))


def two_stages(begun):
    """A program in whose runs lanes of odd seeds need a second stage.

    Each stage adds a lane's seed to p and its clock; `begun` is told of each batch.
    """

    def run(*arguments):
        *numbers, query, origin, own, _, stages = map(np.asarray, arguments)
        seed = numbers[-1]
        begun(seed.tolist())
        return SimpleNamespace(
            status=seed % 2,
            stages=stages,
            num_steps=np.full(len(seed), 10),
            **dict.fromkeys(PATH, stages[:, None] * 1.0),
            query=query + seed[:, None],
            clock_start=origin,
            clock_log_time=own + seed,
            next=np.where((seed % 2 == 0) | (stages > 1), Next.NOTHING, Next.WHOLE),
        )

    return run


def test_lanes_that_a_first_batch_leaves_go_on_from_their_own_point():
    (chunk,) = plan(SEVEN, 8)
    calls = []
    rows = run_chunk(SEVEN, chunk, two_stages(calls.append), in_step=8)
    seeds = lane_values(SEVEN, rows["lane"])["seed"]
    twice = 1 + seeds % 2
    assert len(calls) == 2 and {*calls[1]} == {1, 3, 5}
    assert (rows["clock_log_time"] == seeds * twice).all()
    assert (rows["num_steps"] == 10 * twice).all()
    assert (rows["query"] == (seeds * twice)[:, None]).all()
    assert (rows["stages"] == np.where(twice > 1, STAGES, 1)).all()
    # The path is that of the first stage.
    assert all((rows[name] == 1.0).all() for name in PATH)


def test_a_chunk_that_is_stopped_between_its_batches_is_run_again(
    monkeypatch, tmp_path
):
    """Nothing of it is on disk then, whatever stops it, and it comes to its bytes."""
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"

    def stop(seeds):
        if 0 not in seeds:
            assert not [*(stopped / "chunks").iterdir()]
            raise KeyboardInterrupt

    def run(folder, begun):
        monkeypatch.setattr(Job, "program", lambda *_: two_stages(begun))
        Job(SEVEN, 8, True, folder).run(0)

    store.prepare(stopped, describe(SEVEN))
    with pytest.raises(KeyboardInterrupt):
        run(stopped, stop)
    assert store.finished(stopped) == set()
    for folder in (whole, stopped):
        store.prepare(folder, describe(SEVEN))
        run(folder, lambda seeds: None)
    # What only a further stage needs is left out.
    assert not {*sweep_module.ONWARD} & {*store.read_chunk(whole, 0).dtype.names}
    one, other = (folder / "chunks" / "00000.npy" for folder in (whole, stopped))
    assert one.read_bytes() == other.read_bytes()


def test_a_grid_that_is_stopped_goes_on_from_its_chunks(monkeypatch, tmp_path, capsys):
    """The same call again: nothing that is there is run, and all of it is opened."""
    at_once = partial(compilation.progress, after=0.0)
    monkeypatch.setattr(compilation, "progress", at_once)
    found = SimpleNamespace(status=np.int32(0), next=np.int32(Next.NOTHING))
    monkeypatch.setattr(launch.Job, "program", lambda *asked: lambda *values: found)
    seen = []

    def stop(there, size):
        seen.append((there, size))
        raise KeyboardInterrupt

    grid = changed(SEVEN, seed=tuple(range(20)))
    with pytest.raises(KeyboardInterrupt):
        launch.run_grid(grid, tmp_path, progress=stop)
    runs = launch.run_grid(grid, tmp_path, progress=lambda *now: seen.append(now))
    assert seen == [(8, 20), (16, 20), (20, 20)]
    assert "12 runs to do" in capsys.readouterr().err
    assert runs.sizes["seed"] == 20 and runs.certified.all()
    with pytest.raises(BadInput, match="results of other settings"):
        launch.run_grid(SEVEN, tmp_path)


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_runs_have_the_precision_of_their_grid(precision, monkeypatch, tmp_path):
    def run(*values):
        codes = dict.fromkeys(("status", "next"), np.int32(Next.NOTHING))
        return SimpleNamespace(number=jnp.zeros(()), **codes)

    monkeypatch.setattr(launch.Job, "program", lambda *asked: run)
    grid = dataclasses.replace(SEVEN, precision=precision)
    assert launch.run_grid(grid, tmp_path).number.dtype == precision


def test_grids_share_a_program_where_it_is_the_same(monkeypatch, tmp_path):
    asked = []

    def compiled(*key):
        asked.append(str(key))
        return print

    monkeypatch.setattr(launch, "_compiled", compiled)
    same = {"seed": (7,), "dim": (100.0,), "sequences": (8, 12), "purity": (0.5, 1.0)}
    others = {
        "draw": assumption_one,
        "embed": embedding_steps(2),
        "until_norm": 10.0,
        "path_points": 5,
        "precision": "float32",
        "seed": tuple(range(batch_size.FEW_RUNS["cpu"])),
    }
    for name, value in (same | others).items():
        if name == "draw":
            grid = dataclasses.replace(TINY, draw=value, axes=SIZES)
        else:
            grid = changed(TINY, **{name: value})
        Job(grid, 4, False, tmp_path).program(TINY.shapes()[0])
    assert len(set(asked)) == 1 + len(others)


def test_every_axis_is_an_argument_of_the_family_and_reaches_it():
    grid = changed(TINY, purity=(0.6, 1.0))
    for lane, purity in ((0, 0.6), (-1, 1.0)):
        values = lane_values(grid, np.arange(grid.size)).values()
        cell = grid.cell(grid.shapes()[0], *(column[lane] for column in values))
        one = {name: value for name, (value,) in TINY.axes.items()}
        assert cell["draw_corpus"].keywords == {**one, "purity": purity}
    axes = {**SIZES, "irrelevant_share": (0.5, 7 / 8)}
    dataclasses.replace(TINY, draw=independent_tokens, axes=axes).check()
    wrong = dataclasses.replace(TINY, draw=independent_tokens, axes={**axes, "x": (1,)})
    with pytest.raises(ValueError, match="no axis"):
        wrong.check()


def taken(key, status):
    return several_relevant(key, sequences=8, length=3, relevant=2, irrelevant=4)


def numbers_only(key):
    return jax.random.normal(key, (3,))


BAD_GRIDS = {
    "half a dim": (dict(dim=(1.5,)), "dim 1.5"),
    "step NaN": (dict(step_size=(float("nan"),)), "step_size nan"),
    "norm": (dict(until_norm=-1.0), "until_norm -1.0"),
    "empty axis": (dict(seed=()), "seed"),
    "twice": (dict(seed=(1, 1)), "all different"),
    "odd": (dict(sequences=(7,)), "sequences 7"),
    "a name of results": (dict(draw=taken, status=(1.0,)), "an axis named status"),
    "no corpus": (dict(draw=numbers_only), "gives no Corpus"),
    "a later purity": (dict(purity=(0.5, 1.5, 1.0)), "purity 1.5"),
}


@pytest.mark.parametrize("case", BAD_GRIDS)
def test_bad_grids_are_named(case):
    values, message = BAD_GRIDS[case]
    with pytest.raises(ValueError, match=message):
        if "draw" in values:
            Grid(values.pop("draw"), values).check()
        changed(TINY, **values).check()


class Recorder(launch.Job):
    """A job that keeps which chunk ran, and on which device."""

    def __init__(self):
        object.__setattr__(self, "ran", [])

    def run(self, index, device=None):
        self.ran.append((index, device))
        return {"index": index, "lanes": 1, "statuses": {}}


def test_devices_share_one_queue():
    """Each device runs one chunk at a time, and every chunk runs once."""
    job = Recorder()
    done = list(launch.on_devices(job, list(range(20)), threading.Event(), ["a", "b"]))
    assert sorted(entry["index"] for entry in done) == list(range(20))
    assert sorted(index for index, _ in job.ran) == list(range(20))
    assert {device for _, device in job.ran} <= {"a", "b"}


def test_a_chunk_that_fails_is_an_error_of_the_sweep():
    class Failing(Recorder):
        def run(self, index, device=None):
            if index == 2:
                raise OSError("no space")
            return super().run(index)

    for devices in ("a", "ab"):
        run = launch.on_devices(Failing(), [0, 1, 2], threading.Event(), [*devices])
        with pytest.raises(OSError, match="no space"):
            list(run)


def test_a_job_begins_with_what_is_not_there_as_planned(tmp_path):
    """Files of killed writers go only where nobody else writes."""
    job = launch.Job(SEVEN, 4, False, tmp_path)
    assert job.begin("cpu") == [0, 1]
    (tmp_path / "chunks" / "00001.npy").write_bytes(b"no chunk")
    half = tmp_path / "chunks" / ".00000.7.npy"
    half.write_bytes(b"half")
    assert job.begin("cpu", alone=False) == [0, 1] and half.exists()
    assert job.begin("cpu") == [0, 1] and not half.exists()


def test_stopping_waits_only_for_what_flies():
    job, stop = Recorder(), threading.Event()
    for _ in launch.on_devices(job, list(range(100)), stop, ["a", "b"]):
        stop.set()
    assert len(job.ran) <= 4
