"""docs/mathematics.md and the code cite each other, and nothing that is not there."""

import importlib
import inspect
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "mathematics.md").read_text()
_, *PARTS = re.split(r"^#{2,3} (\d[a-z]?)\. ", TEXT, flags=re.MULTILINE)
SECTIONS = dict(zip(PARTS[::2], PARTS[1::2], strict=True))
NAMED = [
    (number, name)
    for number, section in SECTIONS.items()
    for name in re.findall(r"`(jaxselect(?:\.\w+)+)`", section)
]
SOURCES = sorted(
    path
    for top in ("jaxselect", "experiments", "tests")
    for path in (ROOT / top).rglob("*.py")
    if path != Path(__file__)
)
# No function of the library computes it: measurements.
WITHOUT_CODE = {"7"}

NUMBER = r"\d\w?"
CITATION = re.compile(
    rf"mathematics, sections? ({NUMBER}(?:, {NUMBER})*(?: and {NUMBER})?)"
)
# What a reader cannot look up: the notes behind this text, the paper by numbers.
UNCHECKABLE = re.compile(
    r"\bMODEL\b|\b[Ee](?:quations?|qs?\.) ?\(?\d|(?<!mathematics, )\b[Ss]ections? \d"
)


def cited(text: str) -> set[str]:
    """Sections that a text cites, wherever its lines break."""
    found = CITATION.findall(re.sub(r"[\s#]+", " ", text))
    return {number for numbers in found for number in re.findall(NUMBER, numbers)}


def uncheckable(text: str) -> list[str]:
    """Citations in a text that nobody can follow."""
    return UNCHECKABLE.findall(re.sub(r"[\s#]+", " ", text))


def find(name: str) -> tuple[object, object]:
    """What a dotted name means, and the module that it is in."""
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError:
        home, _, last = name.rpartition(".")
        module = importlib.import_module(home)
        return getattr(module, last), module
    return module, module


def test_sections_come_in_order_and_once():
    numbers = PARTS[::2]
    assert numbers == sorted(set(numbers))
    assert {"1", "2", "3", "3a", "3b", "3c", "4", "5", "6", "7"} <= set(numbers)


@pytest.mark.parametrize(
    "path", SOURCES, ids=lambda path: f"{path.parent.name}.{path.stem}"
)
def test_every_cited_section_exists(path):
    text = path.read_text()
    assert cited(text) <= set(SECTIONS)
    assert not uncheckable(text)


def test_every_section_names_its_functions():
    assert set(SECTIONS) - {number for number, _ in NAMED} == WITHOUT_CODE


@pytest.mark.parametrize(("number", "name"), NAMED)
def test_every_named_function_cites_its_section(number, name):
    thing, module = find(name)
    assert number in cited(f"{thing.__doc__}\n\n{inspect.getdoc(module)}")


def test_files_and_sections_that_the_text_names_are_there():
    for path in re.findall(r"`(\w+/[\w./]+)`", TEXT):
        assert (ROOT / path).exists(), path
    for numbers in re.findall(rf"\bsections? ({NUMBER}(?: and {NUMBER})?)", TEXT):
        assert set(re.findall(NUMBER, numbers)) <= set(SECTIONS), numbers
