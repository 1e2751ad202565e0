"""The README's promises hold; its program runs as a doctest."""

import operator
import re
from pathlib import Path

import nbformat
import pytest

import jaxselect
from experiments.__main__ import STUDIES
from tests.test_architecture import FLOOR, STOREY

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "README.md").read_text()
MAKEFILE = (ROOT / "Makefile").read_text()


def read_map() -> dict[str, dict[str, tuple[str, set[str]]]]:
    """The map of the house: folder → wing → its floor and the modules named."""
    drawn: dict[str, dict[str, tuple[str, set[str]]]] = {}
    for line in TEXT.split("## Where things are")[1].split("```")[1].splitlines():
        if not line.startswith(" "):
            rooms = drawn.setdefault(line.split("/")[0], {})
            continue
        floor, wing, column = re.match(r"  (.)  (\w*) +(.*)", line).groups()
        names = column.split("  ")[0]
        found = set(names.split(", ")) if re.fullmatch(r"\w+(, \w+)*", names) else set()
        if wing:
            rooms[wing] = floor, found
            last = found
        else:
            last |= found
    return drawn


MAP = read_map()
TOP = FLOOR["__init__"]


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


def test_every_study_has_a_command():
    assert {f"experiments.{name}" for name in STUDIES} <= commands()


def test_names_of_the_library_mean_something():
    for name in re.findall(r"\bjaxselect(?:\.\w+)+", TEXT):
        operator.attrgetter(name.removeprefix("jaxselect."))(jaxselect)


@pytest.mark.parametrize("top", ["jaxselect", "experiments"])
def test_the_map_names_every_wing(top):
    wings = {path.parent.name for path in (ROOT / top).glob("*/__init__.py")}
    if top == "jaxselect":
        # A module of its own floor is named likewise.
        wings |= {
            name for name, floor in FLOOR.items() if 0 < floor < FLOOR["__init__"]
        }
    assert set(MAP[top]) == wings


@pytest.mark.parametrize("top", ["jaxselect", "experiments"])
def test_the_map_names_modules_that_are_there(top):
    for wing, (_, modules) in MAP[top].items():
        there = {path.stem for path in (ROOT / top / wing).glob("[!_]*.py")}
        assert modules <= there, wing
        # A reader finds every module of the library here.
        assert top != "jaxselect" or modules == there, wing


@pytest.mark.parametrize(
    ("top", "floors"), [("jaxselect", FLOOR), ("experiments", STOREY)]
)
def test_the_map_has_the_floors_that_imports_keep_to(top, floors):
    drawn = [int(floor) for floor, _ in MAP[top].values()]
    assert drawn == [floors[wing] for wing in MAP[top]] == sorted(drawn, reverse=True)


def test_tests_mirror_the_wings():
    for wing in [*MAP["jaxselect"], "experiments"]:
        assert list((ROOT / "tests" / wing).glob("test_*.py")), wing


def test_every_dependency_has_its_reason():
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = list(project["dependencies"])
    table = TEXT.split("## Dependencies")[1]
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
