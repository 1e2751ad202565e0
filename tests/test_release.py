"""What a release consists of: one version, and a wheel of all the library."""

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

import jaxselect

ROOT = Path(__file__).parents[1]


def test_the_version_is_said_once_and_repeated_where_readers_look():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["project"]["dynamic"] == ["version"]
    dynamic = project["tool"]["setuptools"]["dynamic"]["version"]
    assert dynamic == {"attr": "jaxselect.__version__"}
    said = [
        re.search(pattern, (ROOT / name).read_text(), re.MULTILINE)[1]
        for name, pattern in (
            ("CITATION.cff", r"^version: (\S+)$"),
            ("CHANGELOG.md", r"^## (\S+)"),
        )
    ]
    assert said == [jaxselect.__version__] * 2


def test_ci_and_hooks_run_targets_of_make():
    targets = re.findall(r"^([\w -]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    jobs = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    hooks = (ROOT / ".pre-commit-config.yaml").read_text()
    called = re.findall(r"target: ([\w-]+)", jobs) + re.findall(
        r"entry: make (\S+)", hooks
    )
    assert {"lint", "test", "docs", "test-dist"} <= set(called)
    assert set(called) <= {name for line in targets for name in line.split()}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel of a copy of the checkout, by the build backend alone."""
    copy = tmp_path_factory.mktemp("copy")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    for name in ("jaxselect", "experiments", "tests"):
        ignored = shutil.ignore_patterns("__pycache__", "*.png")
        shutil.copytree(ROOT / name, copy / name, ignore=ignored)
    code = "import setuptools.build_meta as backend; backend.build_wheel('dist')"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=copy, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    (found,) = (copy / "dist").glob("*.whl")
    with zipfile.ZipFile(found) as archive:
        yield archive


def test_the_wheel_holds_the_library_and_nothing_else(wheel):
    ours = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "jaxselect").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    found = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert found == ours and "jaxselect/py.typed" in found


def test_the_wheel_says_its_version_licence_and_front_page(wheel):
    (name,) = (name for name in wheel.namelist() if name.endswith("/METADATA"))
    about = Parser().parsestr(wheel.read(name).decode())
    assert about["Version"] == jaxselect.__version__
    assert about["License-Expression"] == "MIT" and about["License-File"] == "LICENSE"
    assert about.get_payload().strip() == (ROOT / "README.md").read_text().strip()
