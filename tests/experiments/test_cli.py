"""The command line as a person meets it: processes, exit codes, plain mistakes."""

import contextlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from experiments.sweep import study
from experiments.sweep.settings import PRESETS
from jaxselect.files import writing
from jaxselect.sweep import store
from tests.experiments.test_console import ended
from tests.processes import printed

ROOT = Path(__file__).parents[2]
SMALL = [
    "--sequences", "8", "--length", "3", "--relevant", "2", "--irrelevant", "4",
    "--dim", "64", "1e6", "--step-size", "0.5", "100", "2000", "--seed", "0", "1", "2",
    "--until-norm", "100", "--path-points", "0", "--chunk-size", "1",
]  # fmt: skip
CHUNKS = 18


def start(*arguments, **environment):
    command = [sys.executable, "-m", *map(str, arguments)]
    return subprocess.Popen(
        command,
        cwd=ROOT,
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def sweep_here(folder, *arguments):
    """Exit code of a sweep in this process: for what ends before anything runs."""
    return ended(study.sweep, ["--out", folder, *arguments], PRESETS)


def run(*arguments):
    process = start(*arguments)
    try:
        out, err = process.communicate(timeout=240)
    finally:
        process.kill()
    return process.returncode, out, err


def sweep(folder, *arguments):
    return ["experiments.sweep", "--out", folder, *SMALL, *arguments]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A sweep that nothing disturbed, by one worker."""
    folder = tmp_path_factory.mktemp("whole")
    code, out, err = run(*sweep(folder, "--workers", 1, "--json"))
    assert code == 0, err
    summary = json.loads(out)
    assert summary["runs"] == CHUNKS and summary["statuses"]["missing"] == 0
    return folder


def assert_same(folder, other):
    one, two = (store.load_all(place).drop_vars("file") for place in (folder, other))
    assert one.attrs["grid"] == two.attrs["grid"] and one.equals(two)


def stamps(folder):
    """Times and inodes of chunks: writing one again changes them."""
    found = {path: path.stat() for path in (folder / "chunks").glob("[0-9]*.npy")}
    return {path: (stat.st_mtime_ns, stat.st_ino) for path, stat in found.items()}


def finish(folder, whole, *arguments):
    had = stamps(folder)
    assert sweep_here(folder, *SMALL, *arguments) == 0
    left = stamps(folder)
    assert had == {path: left.get(path) for path in had}
    assert_same(whole, folder)
    # A writer that was killed leaves its unfinished file; the next sweep tidies up.
    assert all(path in left for path in (folder / "chunks").iterdir())
    for path in (whole / "chunks").iterdir():
        assert path.read_bytes() == (folder / "chunks" / path.name).read_bytes()


def workers_of(process):
    listed = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
    return [pid for pid in listed.split() if is_worker(pid)]


def is_worker(pid):
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return b"spawn_main" in command and state != "Z" and os.getpid() != int(pid)


def test_a_killed_sweep_leaves_no_worker_and_goes_on_to_the_same_bytes(whole, tmp_path):
    process = start(*sweep(tmp_path, "--workers", 2))
    # The second one begins when the first has compiled, and written a chunk.
    while len(workers := workers_of(process)) < 2:
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.01)
    assert stamps(tmp_path)
    process.kill()
    process.communicate()
    deadline = time.monotonic() + 30
    while any(is_worker(pid) for pid in workers):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    finish(tmp_path, whole, "--workers", 1)


def test_a_signal_finishes_the_chunk_and_says_how_to_go_on(whole, tmp_path):
    process = start(*sweep(tmp_path, "--workers", 1))
    chunks = tmp_path / "chunks"
    while not list(chunks.glob("[0-9]*.npy")):
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.005)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "the same command goes on from here" in err
    assert "Traceback" not in err
    assert 0 < len(list(chunks.glob("[0-9]*.npy"))) < CHUNKS
    assert not list(chunks.glob(".*"))
    assert sweep_here(tmp_path, *SMALL, "--workers", 1) == 0
    assert_same(whole, tmp_path)


ENDLESS = """
from experiments.common.console import command
from experiments.sweep import study
from experiments.sweep.settings import PRESETS
from tests.experiments.endless import EndlessJob
study.ConfiguredJob = EndlessJob
command(study.sweep, PRESETS)
"""


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_drops_the_chunks_in_flight(tmp_path, workers, kind):
    """Also while the main thread is within a program of JAX, which never ends here."""
    words = [*SMALL, "--out", tmp_path, "--workers", workers]
    command = [sys.executable, "-c", ENDLESS, *map(str, words)]
    begun = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    with begun as process, contextlib.ExitStack() as last:
        last.callback(process.kill)
        while not (running := list(tmp_path.glob("running.*"))):
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.05)
        time.sleep(0.5)
        process.send_signal(kind)
        while "Ctrl-C again" not in (line := process.stderr.readline()):
            assert line
        assert process.poll() is None
        process.send_signal(kind)
        assert process.wait(timeout=20) == 130
        assert "Traceback" not in process.stderr.read()
    deadline = time.monotonic() + 20
    while any(is_worker(path.suffix.removeprefix(".")) for path in running):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert not stamps(tmp_path)


def test_two_sweeps_do_not_share_a_folder(whole, capsys):
    """The second one, asked to start afresh, leaves the chunks of the first."""
    before = stamps(whole)
    with writing(whole):
        assert sweep_here(whole, *SMALL, "--no-resume") == 2
    assert "is being written by another sweep" in capsys.readouterr().err
    assert stamps(whole) == before


def test_a_full_disk_costs_nothing_that_was_finished(whole, tmp_path, capsys):
    folder = tmp_path / "copy"
    shutil.copytree(whole, folder)
    # Chunks of one shape: the limit comes once their program is ready.
    (folder / "chunks" / "00007.npy").unlink()
    finish(folder, whole)
    for index in (3, 11):
        (folder / "chunks" / f"{index:05d}.npy").unlink()
    had = stamps(folder)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    # To the program a file that may not grow looks like a disk that is full.
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, before[1]))
    try:
        code = sweep_here(folder, *SMALL, "--workers", 1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    err = capsys.readouterr().err
    assert code == 2
    assert "goes on, once it can write" in err
    assert "chunks/00003.npy" in err.splitlines()[-1]
    assert stamps(folder) == had
    assert set((folder / "chunks").iterdir()) == had.keys()
    finish(folder, whole, "--workers", 1)


def busy_ray_worker():
    """The process of a worker that is running a chunk."""
    while True:
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                if path.read_bytes().startswith(b"ray::run_elsewhere"):
                    return int(path.parent.name)
        time.sleep(0.01)


# Ray forks, of which JAX warns, and leaves files open; both show up at random moments.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_ray_cluster_of_two_nodes_survives_the_loss_of_a_worker(whole, tmp_path):
    """Chunks of a killed worker run again elsewhere, and the bytes are the same."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(head_node_args={"num_cpus": 1})
    try:
        cluster.add_node(num_cpus=1)
        words = sweep(tmp_path, "--launcher", "ray")
        process = start(*words, RAY_ADDRESS=cluster.address)
        while not list((tmp_path / "chunks").glob("*.npy")):
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.02)
        os.kill(busy_ray_worker(), signal.SIGKILL)
        _, err = process.communicate(timeout=300)
    finally:
        cluster.shutdown()
    assert process.returncode == 0, err
    assert_same(whole, tmp_path)


@pytest.mark.slow
def test_four_host_devices_write_the_same_bytes(whole, tmp_path):
    """A thread per device, as with several accelerators."""
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
    flag = "--xla_force_host_platform_device_count=4"
    flags = f"{os.environ.get('XLA_FLAGS', '')} {flag}"
    printed(code, env=os.environ | {"XLA_FLAGS": flags})
    assert_same(whole, tmp_path)
    for path in (whole / "chunks").iterdir():
        assert path.read_bytes() == (tmp_path / "chunks" / path.name).read_bytes()
