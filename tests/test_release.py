"""What a release consists of: one version, and a wheel of all the library."""

import re
import shutil
import tomllib
import zipfile
from pathlib import Path

import jaxselect
from tests.processes import printed

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


def test_the_wheel_holds_the_library_and_nothing_else(tmp_path):
    """Of a copy of the checkout, by the build backend alone."""
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    for name in ("jaxselect", "experiments", "tests"):
        ignored = shutil.ignore_patterns("__pycache__", "*.png")
        shutil.copytree(ROOT / name, tmp_path / name, ignore=ignored)
    code = "import setuptools.build_meta as backend; backend.build_wheel('dist')"
    printed(code, cwd=tmp_path)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    ours = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "jaxselect").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    names = zipfile.ZipFile(wheel).namelist()
    found = {name for name in names if ".dist-info/" not in name}
    assert found == ours and "jaxselect/py.typed" in found
