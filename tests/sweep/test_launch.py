"""The order in which workers get the chunks of a sweep."""

import os
import sys
import threading
from concurrent.futures import Executor, Future
from types import SimpleNamespace

import pytest

from experiments.sweep.cluster import over_ray
from jaxselect.sweep import launch

# Shapes of eight chunks, in the order of a plan.
SHAPES = [(("length", length),) for length in (8, 8, 8, 16, 16, 32, 32, 32)]


class Hands(Executor):
    """Workers that finish the chunk that they began first, when they are waited for."""

    def __init__(self):
        self.working, self.seen, self.over = {}, [], []

    def submit(self, run, index):
        assert run(index)["chunk"] == index
        future = Future()
        self.working[future] = index
        self.seen.append((index, tuple(self.working.values()), tuple(self.over)))
        return future

    def wait(self, flying, return_when):
        assert set(flying) == set(self.working) and flying
        first = next(iter(self.working))
        self.over.append(self.working.pop(first))
        first.set_result({"chunk": self.over[-1]})
        return {first}, set(self.working)


def fed(monkeypatch, workers, shapes, stop_after=None):
    hands, stop, found = Hands(), threading.Event(), []
    monkeypatch.setattr(launch, "wait", hands.wait)
    queue = list(range(len(SHAPES)))
    run = lambda index: {"chunk": index}  # noqa: E731
    for done in launch._fed(hands, run, queue, stop, workers, shapes):
        found.append(done["chunk"])
        if len(found) == stop_after:
            stop.set()
    return found, hands.seen


@pytest.mark.parametrize("workers", [1, 2, 3, 8])
@pytest.mark.parametrize("shapes", [None, SHAPES], ids=["free", "by shape"])
def test_every_chunk_runs_once_and_workers_have_one_each(monkeypatch, workers, shapes):
    found, seen = fed(monkeypatch, workers, shapes)
    assert sorted(found) == list(range(len(SHAPES)))
    most = workers if shapes is None else min(workers, len(set(SHAPES)))
    assert max(len(working) for _, working, over in seen if not over) == most
    assert all(len(working) <= workers for _, working, _ in seen)


def test_one_worker_compiles_a_shape_while_another_compiles_the_next(monkeypatch):
    """No chunk begins beside the first of its shape, but beside later ones."""
    _, seen = fed(monkeypatch, 2, SHAPES)
    assert [index for index, *_ in seen[:2]] == [0, 3]
    shared = 0
    for index, working, over in seen:
        done = {SHAPES[other] for other in over}
        beside = [other for other in working if SHAPES[other] == SHAPES[index]]
        assert SHAPES[index] in done or beside == [index]
        shared += len(beside) > 1
    assert shared > 1


def test_a_stop_waits_for_the_chunks_under_way(monkeypatch):
    found, seen = fed(monkeypatch, 2, None, stop_after=3)
    assert found == [0, 1, 2, 3] == [index for index, *_ in seen]


def test_a_sweep_of_many_shapes_makes_room_for_their_programs(monkeypatch, tmp_path):
    """Before each chunk, which may be the first of its shape."""
    order, run = [], launch.run_chunk

    def noted(*given, **named):
        order.append("run")
        return run(*given, **named)

    monkeypatch.setattr(launch, "run_chunk", noted)
    monkeypatch.setattr(launch, "make_room_for_programs", lambda: order.append("room"))
    sizes = dict(sequences=(4,), length=(2, 3), relevant=(1,), irrelevant=(2,))
    grid = launch.Grid(axes=sizes, dim=(1e6,), seed=(0,), until_norm=100.0)
    launch.run_grid(grid, tmp_path)
    assert order == ["room", "run"] * 2


@pytest.mark.parametrize("named", [None, "", "local", "auto", "10.0.0.1:6379"])
def test_ray_listens_on_the_loop_back_unless_a_cluster_is_named(
    monkeypatch, tmp_path, named
):
    switch = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
    monkeypatch.setenv(switch, "1")
    monkeypatch.setenv("RAY_ADDRESS", named or "")
    if named is None:
        monkeypatch.delenv("RAY_ADDRESS")
    asked = []
    ray = SimpleNamespace(
        is_initialized=lambda: False,
        init=lambda **given: asked.append((given.get("address"), os.environ[switch])),
        remote=lambda **_: lambda run: run,
    )
    monkeypatch.setitem(sys.modules, "ray", ray)
    job = launch.Job(launch.Grid(), 1, False, tmp_path)
    assert list(over_ray(job, [], threading.Event(), "cpu")) == []
    alone = named in (None, "", "local")
    assert asked == [("local", "0") if alone else (None, "1")]
