"""The tutorial, run again; the Colab notebook: what it installs, and after a kill."""

import contextlib
import json
import os
import re
import runpy
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

ROOT = Path(__file__).parents[2]
JAX = {"jax": "0.7.2", "jaxlib": "0.7.2"}
"""Versions in Colab's TPU runtime, and the oldest that the project takes."""


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


def test_the_notebook_is_one():
    nbformat.validate(read_notebook())
    for number, source in enumerate(sources()):
        compile(source, f"cell {number}", "exec")


@pytest.fixture(scope="module")
def carrying():
    """From a device to the notebook that `make colab` writes."""
    return runpy.run_path(str(ROOT / "docs" / "colab.py"))["notebook"]


def test_a_notebook_that_carries_the_project_unpacks_it(tools, carrying, tmp_path):
    """What is imported, byte by byte, and the machine is asked for."""
    notebook = carrying("tpu")
    nbformat.validate(nbformat.from_dict(notebook))
    assert notebook["metadata"]["accelerator"] == "TPU"
    assert "accelerator" not in carrying("cpu")["metadata"]
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


@pytest.fixture
def runtime(tmp_path, monkeypatch):
    """A maker of environments that a notebook's kernel named `empty` runs in."""
    for name in [*os.environ]:
        if name == "PYTHONPATH" or name.startswith(("JAX_", "XLA_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))

    def make(interpreter, versions):
        folder = tmp_path / "venv"
        subprocess.run([interpreter, "-m", "venv", folder], check=True)
        python = folder / "bin" / "python"
        before = [f"{name}=={version}" for name, version in versions.items()]
        command = [python, "-m", "pip", "install", "--quiet", "ipykernel", *before]
        subprocess.run(command, check=True)
        spec = tmp_path / "jupyter" / "kernels" / "empty" / "kernel.json"
        spec.parent.mkdir(parents=True)
        start = [str(python), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        spec.write_text(json.dumps({"argv": start, "display_name": "", "language": ""}))
        return folder

    return make


def assert_versions(runtime, versions):
    """The notebook left them as they were."""
    for name, version in versions.items():
        assert [*runtime.glob(f"lib/python*/site-packages/{name}-{version}.dist-info")]


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
    place, empty = runtime(sys.executable, JAX), tmp_path / "empty"
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
    assert_versions(place, JAX)


NUMBER = re.compile(r"-?\d[\d,]*\.?\d*(?:e[-+]?\d+)?")


def printed(notebook):
    """What each cell prints: its words, and its numbers."""
    for cell in notebook.cells:
        outputs = cell.get("outputs", [])
        text = "".join(one.text for one in outputs if one.get("name") == "stdout")
        numbers = [float(one.replace(",", "")) for one in NUMBER.findall(text)]
        yield NUMBER.sub("#", text), numbers


@pytest.mark.slow
def test_the_tutorial_prints_again_what_it_shows():
    """The committed outputs: the same words, and numbers to a thousandth."""
    path = ROOT / "experiments" / "tutorial.ipynb"
    committed, again = nbformat.read(path, 4), nbformat.read(path, 4)
    assert shown(committed).count("image/png") == 1
    NotebookClient(again, timeout=600, kernel_name="python3").execute()
    cells = zip(printed(committed), printed(again), strict=True)
    for (words, numbers), (same, others) in cells:
        assert words == same
        assert others == pytest.approx(numbers, rel=1e-3, abs=1e-6)
