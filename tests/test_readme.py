"""The README's promises hold; its program runs as a doctest."""

import operator
import re
from pathlib import Path
from types import SimpleNamespace

import nbformat

import jaxselect

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "README.md").read_text()
HOUSE = (ROOT / "docs" / "architecture.md").read_text()
MAKEFILE = (ROOT / "Makefile").read_text()


def runs(module: str) -> bool:
    """Whether `python -m` finds a program of that name in this checkout."""
    place = ROOT / module.replace(".", "/")
    file = place / "__main__.py" if place.is_dir() else place.with_suffix(".py")
    return file.exists() and "__main__" in file.read_text()


def test_pictures_and_files_are_there():
    for target in re.findall(r"\]\(([^)#:]+)\)", TEXT):
        assert (ROOT / target).exists(), target
        assert (ROOT / target).stat().st_size <= 200_000


def commands() -> set[str]:
    """Programs that the text starts, or names beside such a command."""
    found = set(re.findall(r"python -m (experiments(?:\.\w+)*)", TEXT))
    found |= set(re.findall(r"RUN\) -m (experiments(?:\.\w+)*)(?!\.)\b", MAKEFILE))
    rows = re.findall(r"`python -m (experiments[.\w]+)[^`|]*`\s\(([^)|]*)\)", TEXT)
    for module, beside in rows:
        folder = module.rpartition(".")[0]
        found |= {f"{folder}.{name}" for name in re.findall(r"`(\w+)`", beside)}
    return found


def test_commands_are_there():
    for target in re.findall(r"`make ([a-z-]+)", TEXT):
        assert f"\n{target}:" in MAKEFILE
    for module in commands():
        assert runs(module), module


def test_names_of_the_library_mean_something():
    for name in re.findall(r"\bjaxselect(?:\.\w+)+", TEXT):
        operator.attrgetter(name.removeprefix("jaxselect."))(jaxselect)


def test_the_family_that_varies_the_model_fits_the_grid_beside_it():
    (program,) = re.findall(r"```python\n(from .*?)```", TEXT, re.DOTALL)
    names = {"jaxselect": jaxselect}
    exec(program, names)
    (grid,) = re.findall(r"run_grid\((.*), \"", TEXT)
    names["mine"] = SimpleNamespace(mine=names["mine"])
    found = eval(grid, names)
    found.check()
    assert found.size == 4 and "noise" in found.traced


def test_the_files_of_the_architecture_are_there():
    named = re.findall(r"`((?:jaxselect|experiments|tests)/[\w/]+\.py)`", HOUSE)
    assert len(named) >= 8
    for path in named:
        assert (ROOT / path).is_file(), path


def test_every_dependency_has_its_reason():
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = list(project["dependencies"])
    table = HOUSE.split("## Dependencies")[1]
    for name, extra in project["optional-dependencies"].items():
        assert f"`{name}`" in table, name
        wanted += extra
    for name in re.findall(r"-e '\.\[(\w+)\]'", TEXT):
        assert name in project["optional-dependencies"], name
    for requirement in wanted:
        name = re.match(r"[\w-]+", requirement)[0]
        assert name == "jaxselect" or re.search(rf"\b{name}\b", table), name


def test_the_notebooks_hold_no_outputs():
    for path in (ROOT / "experiments").glob("*.ipynb"):
        for cell in nbformat.read(path, as_version=4).cells:
            if cell.cell_type == "code":
                assert not cell.outputs
                assert cell.execution_count is None
