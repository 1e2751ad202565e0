"""The tutorial, run again; the Colab notebook, from an empty runtime."""

import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest
from nbclient import NotebookClient

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
    """An environment with Colab's JAX, in which a kernel named `empty` runs."""
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


@pytest.mark.slow
def test_from_an_empty_runtime(tmp_path, runtime, carrying):
    """A fresh environment with another JAX, an empty folder, one upload."""
    empty = tmp_path / "empty"
    empty.mkdir()
    notebook = execute(empty, carrying("cpu"))
    results = empty / "results"
    assert len([*(results / "smoke" / "chunks").glob("[0-9]*.npy")]) == 3
    assert shown(notebook).count("image/png") == 4
    assert shown(notebook).count("text/html") == 1
    assert "24 runs" in (results / "report.html").read_text()
    # It left JAX as it was.
    for name, version in JAX.items():
        assert [*runtime.glob(f"lib/python*/site-packages/{name}-{version}.dist-info")]


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
