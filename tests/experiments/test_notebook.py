"""The Colab notebook: what it installs where, and that it goes on after a kill."""

import contextlib
import json
import os
import runpy
import shutil
import signal
import subprocess
import sys
import threading
import time
from fnmatch import fnmatch
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

ROOT = Path(__file__).parents[2]
JAX = {"jax": "0.7.2", "jaxlib": "0.7.2"}
"""Versions in Colab's TPU runtime, and the oldest that the project takes."""
"""Versions in Colab's runtimes, whose Python is 3.13."""
CUDA = {"jax-cuda12-plugin": "0.7.2", "jax-cuda12-pjrt": "0.7.2"}
OTHERS = {"numpy": "2.0.2", "jaxtyping": "0.3.2"}


def read_notebook():
    return nbformat.read(ROOT / "experiments" / "colab.ipynb", as_version=4)


def sources():
    return [cell.source for cell in read_notebook().cells if cell.cell_type == "code"]


@pytest.fixture(scope="module")
def tools():
    """Names of the first cells: settings, and functions that the others call."""
    names = {"__name__": "__main__"}
    for source in sources()[:3]:
        exec(source, names)
    return SimpleNamespace(**names)


@pytest.mark.parametrize(
    ("kind", "installed", "extras", "pinned"),
    [
        (
            "gpu",
            JAX | CUDA,
            "experiments",
            [f"{name}==0.7.2" for name in sorted(JAX | CUDA)],
        ),
        ("gpu", JAX, "experiments,cuda", ["jax==0.7.2", "jaxlib==0.7.2"]),
        ("tpu", {"libtpu": "0.0.21.1"}, "experiments,tpu", []),
        ("cpu", {}, "experiments", []),
    ],
)
def test_the_jax_of_a_runtime_stays_as_it_is(tools, kind, installed, extras, pinned):
    asked = tools.wanted(kind, OTHERS | installed, Path("code"))
    assert asked == ["-e", f"code[{extras}]", *pinned]


@pytest.mark.parametrize(
    ("files", "kind", "preset"),
    [
        (["/dev/null", "/dev/vfio/vfio"], "cpu", "smoke"),
        (["/dev/nvidiactl", "/dev/nvidia0"], "gpu", "default"),
        (["/dev/vfio/vfio", "/dev/vfio/0"], "tpu", "tpu"),
    ],
)
def test_a_runtime_is_known_by_its_device_files(tools, files, kind, preset):
    found = tools.machine(lambda name: [file for file in files if fnmatch(file, name)])
    assert found == kind
    assert tools.PRESETS[found] == preset


@pytest.mark.filterwarnings("ignore:Python 3.14 will:DeprecationWarning")
@pytest.mark.parametrize("form", ["folder", "git", "zip"])
def test_code_is_fetched_once_and_kept_beside_its_results(tools, tmp_path, form):
    """A later run, on an empty disk, has the code that the results began with."""
    project = tmp_path / "sent" / "project"
    (project / ".venv").mkdir(parents=True)
    for name in ("pyproject.toml", ".venv/large", "version"):
        (project / name).write_text("1")
    address = project
    if form == "git":
        git = ["git", "-C", project, "-c", "user.name=me", "-c", "user.email=me"]
        for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "first"]):
            subprocess.run([*git, *words], check=True)
        address = project.as_uri()
    elif form != "folder":
        address = shutil.make_archive(str(tmp_path / "upload"), form, project.parent)
    kept, code = tmp_path / "drive" / "code.tar.gz", tmp_path / "disk" / "code"
    tools.fetch(str(address), kept, code)
    assert (code / "version").read_text() == "1"
    assert (code / ".venv").exists() == (form != "folder")
    (project / "version").write_text("2")
    shutil.rmtree(code.parent)
    tools.fetch(str(address), kept, code)
    assert (code / "version").read_text() == "1"
    assert not list(tmp_path.rglob("*.part*"))


@pytest.fixture(scope="module")
def carrying():
    """From a device to the notebook that `make colab` writes."""
    return runpy.run_path(str(ROOT / "docs" / "colab.py"))["notebook"]


def test_a_notebook_that_carries_the_project_unpacks_it(tools, carrying, tmp_path):
    """What is imported, byte by byte, and the machine is asked for."""
    notebook = carrying("tpu")
    nbformat.validate(nbformat.from_dict(notebook))
    sources = ["".join(cell["source"]) for cell in notebook["cells"]]
    (source,) = (one for one in sources if "\nPROJECT = " in one)
    exec(source, names := {})
    tools.fetch("", tmp_path / "code.tar.gz", tmp_path / "code", names["PROJECT"])
    assert not list((tmp_path / "code").glob("*.tar*"))
    there = [*(tmp_path / "code").rglob("*.py")]
    assert {"trial.py", "launch.py", "reviews.py"} <= {file.name for file in there}
    for file in there:
        here = ROOT / file.relative_to(tmp_path / "code")
        assert file.read_bytes() == here.read_bytes()


@pytest.mark.parametrize("address", ["", "."])
def test_an_address_without_a_project_is_refused(tools, tmp_path, monkeypatch, address):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"ADDRESS is empty|no pyproject"):
        tools.fetch(address, tmp_path / "code.tar.gz", tmp_path / "code")
    assert not (tmp_path / "code.tar.gz").exists()


@pytest.fixture
def runtime(tmp_path, monkeypatch):
    """An environment with another JAX that a notebook's kernel `empty` runs in."""
    for name in [*os.environ]:
        if name == "PYTHONPATH" or name.startswith(("JAX_", "XLA_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))

    folder = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = folder / "bin" / "python"
    before = [f"{name}=={version}" for name, version in JAX.items()]
    command = [python, "-m", "pip", "install", "--quiet", "ipykernel", *before]
    subprocess.run(command, check=True)
    spec = tmp_path / "jupyter" / "kernels" / "empty" / "kernel.json"
    spec.parent.mkdir(parents=True)
    start = [str(python), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec.write_text(json.dumps({"argv": start, "display_name": "", "language": ""}))
    return folder


def execute(folder, notebook):
    """Run the notebook there, as by a person who uploads it and nothing else."""
    notebook = nbformat.reads(json.dumps(notebook), as_version=4)
    settings = next(cell for cell in notebook.cells if cell.cell_type == "code")
    assert settings.source.count('PRESET = ""') == 1
    settings.source = settings.source.replace('PRESET = ""', 'PRESET = "smoke"')
    client = NotebookClient(
        notebook,
        timeout=3000,
        kernel_name="empty",
        resources={"metadata": {"path": str(folder)}},
    )
    client.execute()
    return notebook


def shown(notebook):
    """The kinds of everything that the cells display."""
    return [
        kind
        for cell in notebook.cells
        for output in cell.get("outputs", [])
        for kind in output.get("data", {})
    ]


def writer(chunks):
    """The process of the sweep that is to write there, once there is one."""
    words = {b"experiments.sweep", f"--out={chunks.parent}".encode()}
    while True:
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if words <= {*(process / "cmdline").read_bytes().split(b"\0")}:
                    return int(process.name)
        time.sleep(0.2)


def kill_once_it_has_written(chunks):
    """SIGKILL that sweep as soon as its first chunk is whole."""
    process = writer(chunks)
    while not list(chunks.glob("[0-9]*.npy")):
        time.sleep(0.001)
    os.kill(process, signal.SIGKILL)


@pytest.mark.slow
def test_from_an_empty_runtime_and_on_after_a_kill(tmp_path, runtime, carrying):
    """A fresh environment with another JAX, an empty folder, one upload."""
    empty = tmp_path / "empty"
    empty.mkdir()
    results = empty / "results"
    chunks = results / "smoke" / "chunks"
    killer = threading.Thread(
        target=kill_once_it_has_written, args=[chunks], daemon=True
    )
    killer.start()
    with pytest.raises(CellExecutionError, match="SIGKILL"):
        execute(empty, carrying("cpu"))
    killer.join(60)
    had = {path: path.stat().st_mtime_ns for path in chunks.glob("[0-9]*.npy")}
    assert 0 < len(had) < 3

    notebook = execute(empty, carrying("cpu"))
    left = {path: path.stat().st_mtime_ns for path in chunks.glob("[0-9]*.npy")}
    assert len(left) == 3
    assert had == {path: left[path] for path in had}
    printed = "".join(
        output.get("text", "")
        for cell in notebook.cells
        for output in cell.get("outputs", [])
    )
    assert f"{len(had)} of 3 chunks are there already" in printed
    assert shown(notebook).count("image/png") == 4
    assert shown(notebook).count("text/html") == 1
    assert "24 runs" in (results / "report.html").read_text()
    for name, version in JAX.items():
        kept = f"lib/python*/site-packages/{name}-{version}.dist-info"
        assert [*runtime.glob(kept)], "the notebook installed another one"
