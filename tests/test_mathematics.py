"""The mathematics and the code cite each other, and nothing that is not there."""

import importlib
import inspect
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAPER, SUPPLEMENT = (
    (ROOT / "docs" / name).read_text() for name in ("mathematics.md", "supplement.md")
)
TEXT = PAPER + SUPPLEMENT
APPENDICES = (ROOT / "docs" / "appendices.md").read_text()
SECTION = re.compile(r"^#{2,3} (\d[a-z]?)\. ", flags=re.MULTILINE)
_, *PARTS = SECTION.split(TEXT)
SECTIONS = dict(zip(PARTS[::2], PARTS[1::2], strict=True))
# `module`: `function`, `function`; or a module alone.
LISTED = re.compile(r"`(jaxselect(?:\.\w+)+)`(?::((?:\s`\w+`,?)+))?")
NAMED = [
    (number, f"{module}.{name}" if name else module)
    for number, section in SECTIONS.items()
    for module, names in LISTED.findall(section)
    for name in re.findall(r"\w+", names) or [""]
]
SOURCES = sorted(
    path
    for top in ("jaxselect", "experiments", "tests")
    for path in (ROOT / top).rglob("*.py")
    if path != Path(__file__)
)
STATEMENT = "(?:Definition|Lemma|Proposition|Theorem|Corollary|Remark|Table)"
# No function of the library computes it: measurements.
WITHOUT_CODE = {"7"}

NUMBER = r"\d\w?"
CITATION = re.compile(
    rf"mathematics, sections? ({NUMBER}(?:, {NUMBER})*(?: and {NUMBER})?)"
)
# Citations that a reader cannot look up: private notes, the paper by numbers.
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
    """The object of a dotted name, and the module that it is in."""
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError:
        home, _, last = name.rpartition(".")
        module = importlib.import_module(home)
        return getattr(module, last), module
    return module, module


def test_sections_come_in_order_and_once():
    paper, supplement = SECTION.findall(PAPER), SECTION.findall(SUPPLEMENT)
    assert paper == sorted(paper) and supplement == sorted(supplement)
    assert len(SECTIONS) == len(paper) + len(supplement) > 30


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
    both = TEXT + APPENDICES
    for path in re.findall(r"`(\w+/[\w./]+)`", both):
        assert (ROOT / path).exists(), path
    for numbers in re.findall(rf"\bsections? ({NUMBER}(?: and {NUMBER})?)", both):
        assert set(re.findall(NUMBER, numbers)) <= set(SECTIONS), numbers


def test_every_statement_is_labelled_by_its_section_and_found_where_it_is_cited():
    labels = [
        label
        for number, section in SECTIONS.items()
        for label in re.findall(rf"\*\*{STATEMENT} ({number}\.\d+)", section)
    ]
    assert len(labels) == len(set(labels)) > 100
    assert len(labels) == len(re.findall(rf"\*\*{STATEMENT} [\w.]+\.\d", TEXT))
    sources = [path.read_text() for path in SOURCES]
    for text in (TEXT, APPENDICES, *sources):
        assert set(re.findall(rf"\b{STATEMENT.lower()} (\d\w?\.\d+)", text)) <= set(
            labels
        )


def test_every_appendix_exists_once_and_is_cited():
    there = re.findall(r"^\*\*([A-D]\d)\. ", APPENDICES, flags=re.MULTILINE)
    cited = re.findall(r"\bappendix ([A-D]\d(?:, [A-D]\d)*)", TEXT)
    assert there == sorted(set(there))
    assert {name for names in cited for name in names.split(", ")} == set(there)
