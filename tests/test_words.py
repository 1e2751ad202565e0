"""Plain words: none that was found to stop readers, and a glossary that is complete."""

import ast
import io
import re
import tokenize
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
GLOSSARY = (ROOT / "docs" / "glossary.md").read_text()
# Each use that stops a reader, and what says the same.
BANNED = {
    r"\btold\b(?! apart)": "known, printed, given",
    r"\btells?\b(?!(?: \w+){0,2} apart)": "shows, decides, gives",
    r"(?<!reader )(?<!person )(?<!people )(?<!those )(?<!anyone )\b[Ww]ho\b": "that",
    r"\bbehind (?:it\b|its|the end|an end|log t|τ|\d)": "after, below, followed by",
    r"\b[Aa]new\b": "again",
    r"\b(?:a|one|every|each|some|first|last) places?\b(?! of)": "a point, a vector",
    r"\bof (?:its|their) own(?! \w)": "its own …",
    r"(?:^|(?<=[.?!] ))(?:Of|Nor|Who|What|So) ": "a sentence that begins otherwise",
}
# Names that nobody would find in the field's literature.
NAMES = {
    *("anew", "plainly", "hurried", "repelled", "opposed", "felt", "told", "_told"),
    *("contests", "comes_to_rest", "company", "lanes_that_fit", "net", "merged"),
    *("pulls", "stride", "judge", "settle", "smallest_lead"),
}
MODULES = sorted(
    path
    for top in ("jaxselect", "experiments", "tests")
    for path in (ROOT / top).rglob("*.py")
    if path != Path(__file__)
)
LIBRARY = [path for path in MODULES if path.is_relative_to(ROOT / "jaxselect")]
TEXTS = [
    *sorted((ROOT / "docs").glob("*.md")),
    *(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "CHANGELOG")),
]
RECORDS = {"Parameters", "Corpus", "Flow", "MaxMargin", "Limit", "Ending"} | {
    *("Certificate", "Trial")
}


def local(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def comments(text: str) -> list[str]:
    """Comments of a module; those on lines that follow one another are one."""
    found: list[str] = []
    last = -1
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            words = token.string.lstrip("# ")
            if token.start[0] == last + 1:
                found[-1] += f" {words}"
            else:
                found.append(words)
            last = token.start[0]
    return found


def passages(path: Path) -> list[str]:
    """Paragraphs of a text; docstrings and comments of a module."""
    text = path.read_text()
    if path.suffix == ".md":
        # What was released stays as it was.
        text = text.split("\n## ")[1] if path.stem == "CHANGELOG" else text
        text = re.sub(r"(?s)```.*?```", "", text)
        parts = re.split(r"\n\s*\n|\n(?=[*|#-] ?)", text)
    else:
        nodes = ast.walk(tree(path))
        documented = ast.Module | ast.ClassDef | ast.FunctionDef
        said = [ast.get_docstring(n) or "" for n in nodes if isinstance(n, documented)]
        parts = [part for each in said for part in re.split(r"\n\s*\n", each)]
        parts = [p for p in parts if ">>> " not in p] + comments(text)
    parts = [re.sub(r"`[^`]*`", "`…`", re.sub(r"\s+", " ", part)) for part in parts]
    return [part.strip(" *-") for part in parts]


def offences(part: str) -> list[str]:
    """Uses of banned words in one passage, and what says the same."""
    return [
        f"…{part[max(0, hit.start() - 40) : hit.end() + 30]}… ({say})"
        for pattern, say in BANNED.items()
        for hit in re.finditer(pattern, part)
    ]


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@pytest.mark.parametrize("path", MODULES + TEXTS, ids=local)
def test_no_word_stops_a_reader(path):
    assert not [hit for part in passages(path) for hit in offences(part)]


@pytest.mark.parametrize(
    "bad",
    [
        "Who is back in the first step had not gone.",
        "Nothing tells when.",
        "Behind it pulls cancel: a loser who returns is told.",
        "A return has a stage of its own.",
        "Rows made anew.",
        "For every place that started at p_0.",
        "Seen at 34. Of what is held, the identity.",
        "So it is.",
    ],
)
def test_bad_uses_are_found(bad):
    assert offences(bad)


@pytest.mark.parametrize(
    "good",
    [
        "The max-margin solution of its own selection.",
        "Tokens that attention cannot tell apart; two classes are told apart.",
        "A reader who knows the field; b takes the place of a, in place.",
        "An MLP behind the attention. Whatever is sought, also.",
    ],
)
def test_honest_english_is_let_through(good):
    assert not offences(good)


@pytest.mark.parametrize("path", LIBRARY, ids=local)
def test_a_first_line_names_what_is_returned_in_twelve_words(path):
    nodes = [n for n in ast.walk(tree(path)) if isinstance(n, ast.FunctionDef)]
    lines = [(ast.get_docstring(n) or "").partition("\n")[0] for n in nodes]
    # Formulas are not words.
    words = [
        re.findall(r"(?<!\S)[A-Za-z][a-z'’-]+(?=[,:;.)]?(?:\s|$))", x) for x in lines
    ]
    assert not [line for line, each in zip(lines, words, strict=True) if len(each) > 12]


def test_names_can_be_looked_up():
    found = {}
    for path in MODULES:
        nodes = list(ast.walk(tree(path)))
        names = {getattr(node, "name", None) for node in nodes} | {path.stem}
        names |= {node.id for node in nodes if isinstance(node, ast.Name)}
        names |= {node.arg for node in nodes if isinstance(node, ast.arg)}
        found[local(path)] = names & NAMES
    assert not {path: names for path, names in found.items() if names}


def test_every_status_and_every_field_of_a_record_is_in_the_glossary():
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", GLOSSARY, flags=re.MULTILINE))
    assert set(rows) >= RECORDS
    seen = set()
    for each in (node for path in LIBRARY for node in tree(path).body):
        if not isinstance(each, ast.ClassDef):
            continue
        bases = {base.id for base in each.bases if isinstance(base, ast.Name)}
        if "Status" in bases:
            members = {
                target.id
                for item in each.body
                if isinstance(item, ast.Assign)
                for target in item.targets
                if isinstance(target, ast.Name)
            }
            assert members <= set(re.findall(r"\w+", GLOSSARY)), each.name
        if each.name in RECORDS and each.name not in seen:
            fields = {n.target.id for n in each.body if isinstance(n, ast.AnnAssign)}
            assert fields == set(re.findall(r"`([a-z]\w*)`", rows[each.name])), (
                each.name
            )
            seen.add(each.name)
    assert seen == RECORDS


def test_every_term_is_used_and_every_name_that_computes_one_exists():
    table = re.findall(r"^\| \*\*(.+?)\*\* \|(.*)\|$", GLOSSARY, flags=re.MULTILINE)
    library = "\n".join(path.read_text() for path in LIBRARY)
    others = [path.read_text() for path in TEXTS if path.stem != "glossary"]
    used = re.sub(r"[\s#]+", " ", "\n".join([library, *others]).lower())
    defined = set(
        re.findall(r"(?:\bdef|\bclass|^   ) (\w+)", library, flags=re.MULTILINE)
    )
    assert len(table) >= 40
    for terms, row in table:
        assert all(term.lower() in used for term in terms.split(", ")), terms
        named = re.findall(r"`(\w+)(?:\.(\w+))?`", row.rsplit("|", 1)[1])
        assert {name for pair in named for name in pair if name} <= defined, terms


# Nouns that make a term with the word before them, and such words as make none.
NOUNS = "difference|error|flow|force|margin|pair|rate|selection|tie|token|weight"
PLAIN = re.compile(
    "a|all|an|and|another|are|as|at|both|by|distinct|each|every|for|from|given|in|"
    "irrelevant|its|largest|last|many|no|of|one|ordered|other|per|relative|same|"
    "several|smallest|some|that|the|their|these|this|to|top|two|under|what|which|"
    "whole|whose|with"
)


def terms(texts: list[str], times: int = 3) -> set[str]:
    """Pairs of words, as in "late flow", that stand in the texts at least `times`."""
    said = re.sub(r"\s+", " ", "\n".join(texts)).lower()
    found = re.findall(rf"\b([a-z][a-z-]+) ({NOUNS})s?\b", said)
    number = Counter(
        f"{word} {noun}" for word, noun in found if not PLAIN.fullmatch(word)
    )
    return {term for term, count in number.items() if count >= times}


def test_every_term_of_the_docstrings_is_in_the_glossary():
    documented = ast.Module | ast.ClassDef | ast.FunctionDef
    nodes = [node for path in LIBRARY for node in ast.walk(tree(path))]
    texts = [ast.get_docstring(n) or "" for n in nodes if isinstance(n, documented)]
    used = terms(texts)
    assert {"late flow", "active pair", "important token"} <= used
    assert not used - terms([GLOSSARY], times=1)
