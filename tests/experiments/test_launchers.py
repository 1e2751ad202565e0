"""Clusters write what one process writes, also when a worker dies."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.experiments.test_cli import CHUNKS, assert_same, run, sweep

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    code, _, err = run(*sweep(folder, "--workers", 1))
    assert code == 0, err
    return folder


def end(processes):
    errors = [process.communicate(timeout=300)[1] for process in processes]
    return [process.returncode for process in processes], errors


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


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_ray_of_one_machine_is_reached_from_no_other(whole, tmp_path):
    """Every socket that a process of it listens on is one of the loop-back."""
    command = sweep(tmp_path, "--launcher", "ray")
    environment = {key: os.environ[key] for key in os.environ if key != "RAY_ADDRESS"}
    process = subprocess.Popen(
        [sys.executable, "-m", *map(str, command)],
        cwd=ROOT,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    found = set()
    while process.poll() is None and not list((tmp_path / "chunks").glob("*.npy")):
        found |= listening(process.pid)
        time.sleep(0.2)
    codes, errors = end([process])
    assert codes == [0], errors
    # Addresses as the kernel writes them: 127.0.0.1, the same in IPv6, and ::1.
    loop_back = {"0100007F", 16 * "0" + "FFFF00000100007F", 24 * "0" + "01000000"}
    assert found and found <= loop_back
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
described = store.read_description(whole)
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


def busy_ray_worker():
    """The process of a worker that is running a chunk."""
    while True:
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                if path.read_bytes().startswith(b"ray::run_elsewhere"):
                    return int(path.parent.name)
            except OSError:
                continue
        time.sleep(0.01)


def listening(process):
    """Addresses that a process and those below it listen on."""
    parents, sockets = {}, {}
    for place in Path("/proc").glob("[0-9]*"):
        try:
            status = (place / "stat").read_text().rpartition(")")[2]
            files = [os.readlink(file) for file in (place / "fd").iterdir()]
        except OSError:
            continue
        parents[int(place.name)] = int(status.split()[1])
        sockets[int(place.name)] = {name[8:-1] for name in files}

    def below(one):
        return one == process or (one in parents and below(parents[one]))

    ours = set().union(*(names for one, names in sockets.items() if below(one)))
    lines = [
        line.split()
        for kind in ("tcp", "tcp6")
        for line in Path(f"/proc/net/{kind}").read_text().splitlines()[1:]
    ]
    return {
        local.partition(":")[0]
        for _, local, _, state, *_, inode in (line[:10] for line in lines)
        if state == "0A" and inode in ours
    }
