"""What the README promises is there; its program runs as a doctest."""

import re
from pathlib import Path

import nbformat

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "README.md").read_text()
MAKEFILE = (ROOT / "Makefile").read_text()


def test_pictures_and_files_are_there():
    for target in re.findall(r"\]\(([^)#:]+)\)", TEXT):
        assert (ROOT / target).exists(), target
        assert (ROOT / target).stat().st_size <= 200_000


def test_commands_are_there():
    for target in re.findall(r"`make ([a-z-]+)", TEXT):
        assert f"\n{target}:" in MAKEFILE
    for module in re.findall(r"python -m (experiments[.\w]*)", TEXT + MAKEFILE):
        path = ROOT / module.strip(".").replace(".", "/")
        assert path.is_dir() or path.with_suffix(".py").exists(), module


def test_named_modules_are_there():
    tree = TEXT.split("jaxselect/  ")[1].split("experiments/  ")[0]
    rows = [line.strip().split("  ")[0] for line in tree.splitlines() if line.strip()]
    for name in ", ".join(rows).split(", "):
        assert (ROOT / "jaxselect" / f"{name}.py").exists(), name


def test_every_dependency_has_its_reason():
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = list(project["dependencies"])
    for extra in project["optional-dependencies"].values():
        wanted += extra
    table = TEXT.split("## Dependencies")[1]
    for requirement in wanted:
        name = re.match(r"[\w-]+", requirement)[0]
        assert name == "jaxselect" or re.search(rf"\b{name}\b", table), name


def test_the_notebooks_hold_no_outputs():
    for path in (ROOT / "experiments").glob("*.ipynb"):
        for cell in nbformat.read(path, as_version=4).cells:
            if cell.cell_type == "code":
                assert not cell.outputs
                assert cell.execution_count is None
