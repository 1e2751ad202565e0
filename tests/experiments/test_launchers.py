"""Clusters write what one process writes, also when a worker dies."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from jaxselect.sweep import store
from tests.experiments.test_cli import CHUNKS, assert_same, run, start, sweep

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    code, _, err = run(*sweep(folder, "--workers", 1))
    assert code == 0, err
    return folder


def free_slurm_job():
    """A job number from which JAX derives a port that is free."""
    for job in range(4096):
        with socket.socket() as probe:
            # JAX's rule for Slurm: port = number mod 4096 + 61440.
            if probe.connect_ex(("localhost", 61440 + job)):
                return job
    raise OSError("no free port")


def start_cluster(folder, processes=2):
    """Processes that find each other by JAX's own detection of a Slurm job."""
    job = free_slurm_job()
    started = []
    for rank in range(processes):
        environment = os.environ | {
            "SLURM_JOB_ID": str(job),
            "SLURM_STEP_NODELIST": "localhost",
            "SLURM_NTASKS": str(processes),
            "SLURM_PROCID": str(rank),
            "SLURM_LOCALID": str(rank),
            "SLURM_STEP_NUM_NODES": "1",
        }
        arguments = map(str, sweep(folder, "--launcher", "jax"))
        started.append(
            subprocess.Popen(
                [sys.executable, "-m", *arguments],
                cwd=ROOT,
                env=environment,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    return started


def end(processes):
    errors = [process.communicate(timeout=300)[1] for process in processes]
    return [process.returncode for process in processes], errors


def test_two_jax_processes_write_the_same_bytes(whole, tmp_path):
    codes, errors = end(start_cluster(tmp_path))
    assert codes == [0, 0], errors
    assert_same(whole, tmp_path)


def test_a_jax_process_that_dies_loses_nothing(whole, tmp_path):
    processes = start_cluster(tmp_path)
    while not list((tmp_path / "chunks").glob("*.npy")):
        assert all(process.poll() is None for process in processes)
        time.sleep(0.02)
    processes[1].kill()
    time.sleep(2)
    processes[0].kill()
    end(processes)
    kept = set((tmp_path / "chunks").glob("*.npy"))
    assert 0 < len(kept) < CHUNKS
    codes, errors = end(start_cluster(tmp_path))
    assert codes == [0, 0], errors
    assert_same(whole, tmp_path)


# Ray forks, of which JAX warns, and leaves files open; both show up at random moments.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_ray_cluster_of_two_nodes_survives_the_loss_of_a_worker(whole, tmp_path):
    """Chunks of a killed worker run again elsewhere, and the bytes are the same."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(head_node_args={"num_cpus": 1})
    try:
        cluster.add_node(num_cpus=1)
        environment = os.environ | {"RAY_ADDRESS": cluster.address}
        process = subprocess.Popen(
            [sys.executable, "-m", *map(str, sweep(tmp_path, "--launcher", "ray"))],
            cwd=ROOT,
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        while not list((tmp_path / "chunks").glob("*.npy")):
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.02)
        os.kill(busy_ray_worker(), signal.SIGKILL)
        codes, errors = end([process])
    finally:
        cluster.shutdown()
    assert codes == [0], errors
    assert_same(whole, tmp_path)


def test_four_host_devices_write_the_same_bytes(whole, tmp_path):
    """A thread per device, as with several accelerators."""
    flag = "--xla_force_host_platform_device_count=4"
    code = f"""
import dataclasses, pathlib, threading
from experiments.common import devices
from experiments.sweep import job as jobs
from jaxselect.sweep import launch
from experiments.sweep.settings import PRESETS
from jaxselect.sweep import store, run as sweep
folder, whole = map(pathlib.Path, {[str(tmp_path), str(whole)]})
described = store.describe(whole)
grid = PRESETS["smoke"].grid
grid = dataclasses.replace(grid, axes={{
    name: tuple(described["axes"][name]) for name in grid.axes
}}, **{{
    name: tuple(value) if isinstance(value, list) else value
    for name, value in described["grid"].items()
    if name not in (*grid.axes, "family", "embed")
}})
devices.configure(grid.precision)
found = launch.jax.local_devices()
assert len(found) == 4
store.prepare(folder, described)
pending = list(range(len(sweep.plan(grid, 1))))
job = jobs.ConfiguredJob(grid, 1, False, folder)
done = list(launch.on_devices(job, pending, threading.Event(), found))
assert len(done) == {CHUNKS}
"""
    environment = os.environ | {
        "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {flag}"
    }
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert_same(whole, tmp_path)
    for path in (whole / "chunks").iterdir():
        assert path.read_bytes() == (tmp_path / "chunks" / path.name).read_bytes()


def test_lanes_cut_over_four_devices_find_the_same(whole, tmp_path):
    """One call for all of them, three lanes on each, the last ones filled up."""
    flag = "--xla_force_host_platform_device_count=4"
    flags = f"{os.environ.get('XLA_FLAGS', '')} {flag}"
    cut = sweep(tmp_path, "--launcher", "sharded", "--chunk-size", 12)
    codes, errors = end([start(*cut, XLA_FLAGS=flags)])
    assert codes == [0], errors
    alone, shared = store.load(whole), store.load(tmp_path)
    # Lanes in step round in another order than lanes in turn, and so does each step of
    # the flow that follows.
    for name in ("status", "important_selected", "history_dim"):
        assert (shared[name] == alone[name]).all()
    for name in ("alignment_error", "cls_norm", "log_time", "max_margin_norm"):
        np.testing.assert_allclose(shared[name], alone[name], rtol=1e-9)


def busy_ray_worker():
    """The process of a worker that is running a chunk."""
    while True:
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                if path.read_bytes().startswith(b"ray::_run"):
                    return int(path.parent.name)
            except OSError:
                continue
        time.sleep(0.01)
