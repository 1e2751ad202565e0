"""The tutorial, run again; the Colab notebook: what it installs, and after a kill."""

import contextlib
import json
import os
import re
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
HOSTED = JAX | {"numpy": "2.1.3"}
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


def test_the_notebook_is_one():
    nbformat.validate(read_notebook())
    for number, source in enumerate(sources()):
        compile(source, f"cell {number}", "exec")


@pytest.mark.parametrize(
    ("kind", "installed", "extras", "pinned"),
    [
        ("cpu", JAX, "experiments", ["jax==0.7.2", "jaxlib==0.7.2"]),
        (
            "gpu",
            JAX | CUDA,
            "experiments",
            [f"{name}==0.7.2" for name in sorted(JAX | CUDA)],
        ),
        ("gpu", JAX, "experiments,cuda", ["jax==0.7.2", "jaxlib==0.7.2"]),
        (
            "tpu",
            JAX | {"libtpu": "0.0.21.1"},
            "experiments",
            ["jax==0.7.2", "jaxlib==0.7.2", "libtpu==0.0.21.1"],
        ),
        ("tpu", JAX, "experiments,tpu", ["jax==0.7.2", "jaxlib==0.7.2"]),
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
        (["/dev/accel0"], "tpu", "tpu"),
        (["/dev/vfio/vfio", "/dev/vfio/0"], "tpu", "tpu"),
    ],
)
def test_a_runtime_is_known_by_its_device_files(tools, files, kind, preset):
    found = tools.machine(lambda name: [file for file in files if fnmatch(file, name)])
    assert found == kind
    assert tools.PRESETS[found] == preset


@pytest.mark.filterwarnings("ignore:Python 3.14 will:DeprecationWarning")
@pytest.mark.parametrize("form", ["folder", "git", "zip", "gztar", "bare"])
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
        kind = "zip" if form == "bare" else form
        top = project if form == "bare" else project.parent
        address = shutil.make_archive(str(tmp_path / "upload"), kind, top)
    kept, code = tmp_path / "drive" / "code.tar.gz", tmp_path / "disk" / "code"
    tools.fetch(str(address), kept, code)
    assert (code / "version").read_text() == "1"
    assert (code / ".venv").exists() == (form != "folder")
    (project / "version").write_text("2")
    shutil.rmtree(code.parent)
    tools.fetch("" if form == "bare" else str(address), kept, code)
    assert (code / "version").read_text() == "1"
    kept.unlink()
    if form == "folder":
        tools.fetch(str(address), kept, code)
        assert (code / "version").read_text() == "2"
    assert not list(tmp_path.rglob("*.part*"))


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


@pytest.mark.parametrize("address", ["", "."])
def test_an_address_without_a_project_is_refused(tools, tmp_path, monkeypatch, address):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"ADDRESS is empty|no pyproject"):
        tools.fetch(address, tmp_path / "code.tar.gz", tmp_path / "code")
    assert not (tmp_path / "code.tar.gz").exists()


def test_what_a_command_says_is_shown_and_its_failure_raises(tools, capsys):
    code = "import os, sys; print('first'); sys.exit(os.environ['WITH'])"
    with pytest.raises(subprocess.CalledProcessError) as failed:
        tools.call(sys.executable, "-c", code, WITH="why")
    assert failed.value.returncode == 1
    assert capsys.readouterr().out.splitlines()[1:] == ["first", "why"]


def test_an_interrupt_waits_for_what_a_program_finishes(tmp_path):
    """Both hear it, as the processes of a notebook do; the chunk in flight is kept."""
    child = (
        "import signal, time\n"
        "signal.signal(signal.SIGINT, lambda *_: (time.sleep(0.3), exit('finished')))\n"
        "print('begun')\n"
        "time.sleep(60)"
    )
    # Whoever runs the tests in the background made them deaf to it.
    hears = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    cell = f"{hears}\n{sources()[2]}\ncall(sys.executable, '-c', {child!r})"
    with subprocess.Popen(
        [sys.executable, "-c", cell],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as kernel:
        while kernel.stdout.readline() != "begun\n":
            assert kernel.poll() is None
        os.killpg(kernel.pid, signal.SIGINT)
        out, err = kernel.communicate(timeout=60)
    assert out == "finished\n"
    assert "KeyboardInterrupt" in err


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


def hosted():
    """A Python 3.13: the one that runs the tests, or another that is found."""
    ask = "import sys; sys.exit(sys.version_info[:2] != (3, 13))"
    for interpreter in filter(None, (sys.executable, shutil.which("python3.13"))):
        # A version manager may have a command of that name without the version.
        command = [interpreter, "-c", ask]
        if not subprocess.run(command, stderr=subprocess.DEVNULL).returncode:
            return interpreter
    pytest.skip("no Python 3.13 is found")


@pytest.mark.slow
def test_up_to_the_figures_with_the_versions_of_a_hosted_runtime(
    tmp_path, runtime, carrying
):
    place, empty = runtime(hosted(), HOSTED), tmp_path / "empty"
    empty.mkdir()
    notebook = carrying("cpu")
    drawn = [
        number
        for number, cell in enumerate(notebook["cells"])
        if 'study("figures"' in "".join(cell["source"])
    ]
    notebook["cells"] = notebook["cells"][: drawn[0] + 1]
    assert shown(execute(empty, notebook)).count("image/png") == 4
    assert_versions(place, HOSTED)
