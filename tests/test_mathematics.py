"""The mathematics and the code cite each other, and nothing that is not there."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAPER, SUPPLEMENT = (
    (ROOT / "docs" / name).read_text() for name in ("mathematics.md", "supplement.md")
)
TEXT = PAPER + SUPPLEMENT
SECTION = re.compile(r"^#{2,3} (\d[a-z]?)\. ", flags=re.MULTILINE)
_, *PARTS = SECTION.split(TEXT)
SECTIONS = dict(zip(PARTS[::2], PARTS[1::2], strict=True))
SOURCES = sorted(
    path
    for top in ("jaxselect", "experiments", "tests")
    for path in (ROOT / top).rglob("*.py")
    if path != Path(__file__)
)
STATEMENT = "(?:Definition|Lemma|Proposition|Theorem|Corollary|Remark|Table)"

NUMBER = r"\d\w?"
CITATION = re.compile(
    rf"mathematics, sections? ({NUMBER}(?:, {NUMBER})*(?: and {NUMBER})?)"
)


def cited(text: str) -> set[str]:
    """Sections that a text cites, wherever its lines break."""
    found = CITATION.findall(re.sub(r"[\s#]+", " ", text))
    return {number for numbers in found for number in re.findall(NUMBER, numbers)}


def test_every_cited_section_exists():
    for path in SOURCES:
        assert cited(path.read_text()) <= set(SECTIONS), path


def test_files_and_sections_that_the_text_names_are_there():
    for path in re.findall(r"`(\w+/[\w./]+)`", TEXT):
        assert (ROOT / path).exists(), path
    for numbers in re.findall(rf"\bsections? ({NUMBER}(?: and {NUMBER})?)", TEXT):
        assert set(re.findall(NUMBER, numbers)) <= set(SECTIONS), numbers


def test_every_statement_is_labelled_by_its_section_and_found_where_it_is_cited():
    labels = [
        label
        for number, section in SECTIONS.items()
        for label in re.findall(rf"\*\*{STATEMENT} ({number}\.\d+)", section)
    ]
    assert len(labels) == len(set(labels)) > 80
    assert len(labels) == len(re.findall(rf"\*\*{STATEMENT} [\w.]+\.\d", TEXT))
    sources = [path.read_text() for path in SOURCES]
    for text in (TEXT, *sources):
        assert set(re.findall(rf"\b{STATEMENT.lower()} (\d\w?\.\d+)", text)) <= set(
            labels
        )
