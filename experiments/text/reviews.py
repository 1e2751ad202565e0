"""Labelled reviews from files and from prepared tensorflow-datasets.

Needs the extra `text`.
"""

import codecs
import csv
import gzip
import hashlib
import io
import itertools
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow
import pyarrow.parquet
from jaxtyping import Int

from experiments.common.files import regular
from experiments.text.datasets import features
from jaxselect.checks import BadInput

# Kinds of files that reviews are read from, as a message names them.
KINDS = "a .parquet, .csv, .tsv, .txt, .json or .jsonl"
DELIMITERS = ",\t;|"
MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
"""Encodings by their byte-order mark; one of UTF-32 begins with one of UTF-16."""
MOST_CLASSES = 1000
"""Classes at most: a column with more values holds something else than labels."""
MOST_REVIEWS = 10**7
MOST_CHARACTERS = 2**31
"""Characters of all texts at most: a small file may unpack to any size."""
LONGEST = 2**26
"""Characters of a line, of a text or of a list in JSON at most."""
BATCH = 256
"""Rows of a .parquet that are unpacked at once."""
FEW = 1000
"""Records in which the words of a file's first line are looked for."""

# What readers raise of a damaged file.
UNREADABLE = (
    pyarrow.ArrowException,
    OSError,
    EOFError,
    zlib.error,
    UnicodeDecodeError,
)

Name = str | int
"""The name of a class in the data: a word or a whole number."""
Row = tuple[str, object, object]
"""Where a review is in its file, its text and its label, all unchecked."""
NUMBER = re.compile(r"[-+]?\d{1,15}(\.\d*)?")
"""A number that is written in a file of text, small enough to be exact."""
QUOTES = (
    "put a text that holds a delimiter, a quote or a line break between quotes, and "
    "write a quote inside it twice"
)


class Reviews(NamedTuple):
    """Labelled texts.

    Attributes:
        texts: one string per review.
        labels: ±1 where there are two classes, else 0 … K − 1.
        names: what the data call the classes, in the order of the labels.
    """

    texts: list[str]
    labels: Int[np.ndarray, " reviews"]
    names: tuple[Name, ...] = (-1, 1)


def read_reviews(
    path: str | Path,
    *,
    text: str = "text",
    label: str = "label",
    split: str = "train",
    names: tuple[Name, ...] | None = None,
) -> Reviews:
    """Read labelled reviews from a file or from a prepared tensorflow-dataset.

    Labels are words or integers. Classes are numbered from the smallest integer, or in
    alphabetical order.

    Args:
        path: a .parquet, .csv, .tsv, .txt, .json or .jsonl file (JSON: an object per
            line, or a list of them), all but the first also as .gz, or the folder of a
            dataset prepared by tensorflow-datasets (the one that holds
            `dataset_info.json`). Files of text are in UTF-8, or begin with a byte-order
            mark; their columns are separated by commas, tabs, semicolons or bars, and
            named in the first line.
        text: name of the column or feature with the text.
        label: name of the column or feature with the label.
        split: which split of a dataset, such as "test" or "train[:10%]"; a file has
            none, and does not look at it.
        names: the classes, `Reviews.names` of the training split; by default those
            found.

    Returns:
        Texts, labels and names of the classes, in the order of the file.

    Raises:
        FileNotFoundError: nothing at `path`.
        BadInput: an unreadable file or one too large, a missing column, quotes that do
            not match, a label that is not a word or a whole number or none of `names`,
            a single class, labels of two vocabularies, no review at all.
    """
    path = Path(path).expanduser()
    if not path.exists():
        raise FileNotFoundError(
            f"{path} does not exist: wanted {KINDS} file or the folder of a prepared "
            "tensorflow-dataset"
        )
    try:
        texts, marks = _checked(_rows(path, text, label, split), path, names)
    except UNREADABLE as error:
        # An error with a number is the operating system's, whose message is complete.
        if getattr(error, "errno", None):
            raise
        reason = (str(error) or type(error).__name__).splitlines()[0][:200]
        raise BadInput(
            f"{path} cannot be read: {reason}; wanted {KINDS} file, whole, with the "
            "ending that says what it is"
        ) from error
    if not texts:
        raise BadInput(f"{path} holds no review; it needs at least one")
    names = names or _classes(set(marks), path)
    place = {name: number for number, name in enumerate(names)}
    labels = np.array([place[mark] for mark in marks], np.int32)
    return Reviews(texts, 2 * labels - 1 if len(names) == 2 else labels, names)


def _checked(
    rows: Iterable[Row], source: Path, names: tuple[Name, ...] | None
) -> tuple[list[str], list[Name]]:
    """Take every row's text and label; refuse a bad one, by its place."""
    texts: list[str] = []
    marks: list[Name] = []
    length = 0
    for where, entry, mark in rows:
        words, name = _string(entry), _name(mark)
        if words is None:
            raise _wrong("text", where, source, entry, "a string, in UTF-8")
        if name is None:
            raise _wrong("label", where, source, mark, "a word or a whole number")
        if names is not None and name not in names:
            known = f"one of {listed(names)}, the labels of the training split"
            raise _wrong("label", where, source, name, known)
        length += len(words) + len(str(name))
        if length > MOST_CHARACTERS or len(texts) == MOST_REVIEWS:
            raise BadInput(
                f"{source} holds more than {MOST_CHARACTERS:,} characters or "
                f"{MOST_REVIEWS:,} reviews when unpacked: give a part of it"
            )
        texts.append(words)
        marks.append(name)
    return texts, marks


def _wrong(part: str, where: str, source: Path, found: object, wanted: str) -> BadInput:
    return BadInput(
        f"the {part} in {where} of {source} is {repr(found)[:80]}; wanted {wanted}"
    )


def _string(entry: object) -> str | None:
    """Return a string, also one stored as bytes; None for anything else."""
    try:
        entry = entry.decode() if isinstance(entry, bytes) else entry
    except UnicodeDecodeError:
        return None
    return entry if isinstance(entry, str) else None


def _name(mark: object) -> Name | None:
    """Return a label as a word or an integer; None for anything else."""
    if isinstance(mark, int | np.integer):
        return int(mark)
    if isinstance(mark, float | np.floating) and mark.is_integer():
        return int(mark)
    return (_string(mark) or "").strip() or None


def _classes(found: set[Name], source: Path) -> tuple[Name, ...]:
    """Sort the classes; if only one of 0, 1 or of −1, 1 occurs, add the other."""
    for usual in ((0, 1), (-1, 1)):
        if found <= set(usual):
            return usual
    names = tuple(sorted(found, key=lambda name: (isinstance(name, str), name)))
    if len(names) == 1:
        raise BadInput(f"every label in {source} is {names[0]!r}; wanted two classes")
    if len(names) > MOST_CLASSES:
        raise BadInput(
            f"{len(names)} different labels in {source}, {listed(names)}: wanted "
            f"{MOST_CLASSES} classes at most; name the column that holds them"
        )
    _one_vocabulary(names, source)
    return names


def _one_vocabulary(names: Sequence[Name], source: Path) -> None:
    """Refuse numbers beside words, and words that name a class in two ways."""
    numbers = [name for name in names if NUMBER.fullmatch(str(name))]
    words = [name for name in names if name not in numbers]
    plain = [str(word).casefold() for word in words]
    short = {
        one
        for one in plain
        for other in plain
        if one != other and other.startswith(one)
    }
    # pos, neg, positive, negative: half of the words abbreviate the other half.
    abbreviated = len(words) > 2 and 2 * len(short) == len(words)
    if (numbers and words) or len(set(plain)) < len(plain) or abbreviated:
        raise BadInput(
            f"labels of two vocabularies in {source}, {listed(words[:5] + numbers)}: "
            "wanted one name for each class; rename or drop the others"
        )


def listed(names: Sequence[Name]) -> str:
    """Join the first few names for a message.

    Example:
        >>> listed(range(8)), listed(["neg", "pos"])
        ('0, 1, 2, 3, 4, 5, …', "'neg', 'pos'")
    """
    shown = [repr(name)[:40] for name in names[:6]]
    return ", ".join(shown) + (", …" if len(names) > 6 else "")


def fingerprint(path: str | Path) -> str:
    """Compute the SHA-256 of a file, or of all files and names in a folder.

    Args:
        path: file or folder.

    Returns:
        Hexadecimal digits.

    Raises:
        FileNotFoundError: there is neither.
    """
    path = Path(path).expanduser()
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist: wanted a file or a folder")
    digest = hashlib.sha256()
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        if file.is_file():
            digest.update(file.relative_to(path).as_posix().encode())
            with file.open("rb") as stream:
                digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()


def _rows(path: Path, text: str, label: str, split: str) -> Iterator[Row]:
    """Read the rows of any source, one after the other."""
    if path.is_dir():
        return features(path, text, label, split)
    regular(path)
    suffixes = [suffix.lower() for suffix in path.suffixes]
    packed = suffixes[-1:] == [".gz"]
    kind = "".join(suffixes[-2:-1] if packed else suffixes[-1:])
    if kind == ".parquet" and not packed:
        return _parquet(path, text, label)
    if kind not in READERS:
        raise BadInput(f"{path} ends in {path.suffix!r}: wanted {KINDS} file")
    return READERS[kind](_lines(path, packed), path, text, label)


def _require(columns: Sequence[str], source: str, *names: str) -> None:
    """Refuse a source without the columns that are asked for."""
    for name in names:
        if name not in columns:
            raise BadInput(
                f"no column {name!r} in {source}; it has {listed(columns)}: "
                "name those wanted, with text= and label= (--text, --label)"
            )
        if columns.count(name) > 1:
            raise BadInput(f"{source} has several columns {name!r}: rename all but one")


def _parquet(source: Path, text: str, label: str) -> Iterator[Row]:
    with pyarrow.parquet.ParquetFile(source) as file:
        _require(file.schema_arrow.names, str(source), text, label)
        number = 0
        for batch in file.iter_batches(BATCH, columns=[text, label]):
            columns = batch[text].to_pylist(), batch[label].to_pylist()
            for pair in zip(*columns, strict=True):
                yield f"row {number}", *pair
                number += 1


def _lines(path: Path, packed: bool) -> Iterator[str]:
    """Read text in UTF-8, or in the encoding that its byte-order mark names."""
    with (gzip.open if packed else open)(path, "rb") as stream:
        begin = stream.read(4)
        stream.seek(0)
        encoding = next(
            (MARKS[mark] for mark in MARKS if begin.startswith(mark)), "utf-8"
        )
        # Bytes that are not UTF-8 become surrogates, so that their line is known.
        content = io.TextIOWrapper(stream, encoding, "surrogateescape", newline="")
        limited = iter(partial(content.readline, LONGEST + 1), "")
        for number, line in enumerate(limited, 1):
            if len(line) > LONGEST:
                raise BadInput(
                    f"line {number} of {path} has more than {LONGEST:,} characters: "
                    "wanted one review in a line"
                )
            likely = _other_encoding(line)
            if likely:
                raise BadInput(
                    f"line {number} of {path} is not encoded in UTF-8: convert it "
                    f"first, as with `iconv -f {likely} -t utf-8`"
                )
            yield line


def _other_encoding(line: str) -> str:
    """Guess the encoding of a line that is not UTF-8; return "" for one that is."""
    if "\0" in line:
        return "utf-16"
    try:
        line.encode()
    except UnicodeEncodeError:
        return "latin1"
    return ""


def _separated(
    lines: Iterator[str], source: Path, text: str, label: str, usual: str
) -> Iterator[Row]:
    """Read a file whose columns are separated by one character."""
    csv.field_size_limit(LONGEST)
    first, number = "\n", 0
    while first.isspace():
        first, number = next(lines, ""), number + 1

    def fits(by: str) -> tuple[bool, bool, bool]:
        columns = next(csv.reader([first], delimiter=by), [])
        return {text, label} <= set(columns), len(columns) > 1, by == usual

    by = max(DELIMITERS, key=fits)
    records = _records(itertools.chain([first], lines), number, by, source)
    _, header = next(records, ("", []))
    if not {text, label} <= set(header) and _is_data(header, records):
        raise BadInput(
            f"the first line of {source} is a review already, {listed(header)}: put a "
            f"line above it that names the columns, {text!r} and {label!r} among them"
        )
    _require(header, str(source), text, label)
    labels, doubtful = set[str](), dict[str, set[str]]()
    for where, record in records:
        if len(record) != len(header):
            raise BadInput(
                f"{where} of {source}: {len(record)} fields, and {len(header)} in the "
                f"first line; {QUOTES}"
            )
        entry, mark = record[header.index(text)], record[header.index(label)].strip()
        labels.add(mark)
        parts = [part.split(by) for part in by.join(record).splitlines()]
        if len(parts) > 1 and all(len(part) == len(header) for part in parts):
            doubtful[where] = {part[header.index(label)].strip() for part in parts}
        yield where, entry, float(mark) if NUMBER.fullmatch(mark) else mark
    for where, found in doubtful.items():
        if found <= labels:
            raise BadInput(
                f"{where} of {source} are one review between quotes, and each of them "
                f"has a label of its own; {QUOTES}"
            )


def _records(
    lines: Iterable[str], first: int, by: str, source: Path
) -> Iterator[tuple[str, list[str]]]:
    """Split lines into records, each with the lines that it takes."""
    records = csv.reader(lines, delimiter=by, strict=True)
    while True:
        begin = first + records.line_num
        try:
            record = next(records, None)
        except csv.Error as error:
            raise BadInput(
                f"line {begin} of {source} begins a review whose quotes do not match "
                f"({error}); {QUOTES}"
            ) from error
        if record is None:
            return
        end = first + records.line_num - 1
        if record:
            yield f"line {begin}" if begin == end else f"lines {begin} to {end}", record


def _is_data(header: list[str], records: Iterable[tuple[str, list[str]]]) -> bool:
    """Whether a column's name is a number, or also one of the column's entries."""
    names = [name.strip() for name in header]
    # Tables without names are written with 0, 1, … in their place.
    if all(NUMBER.fullmatch(name) for name in names if name):
        return False
    first = itertools.islice(records, FEW)
    rows = [[entry.strip() for entry in record] for _, record in first]
    return any(
        NUMBER.fullmatch(name) or any(name in row[place : place + 1] for row in rows)
        for place, name in enumerate(names)
        if name
    )


def _json(lines: Iterator[str], source: Path, text: str, label: str) -> Iterator[Row]:
    """Read JSON objects, one per line or in one list."""
    for where, one in _objects(lines, source):
        if not isinstance(one, dict):
            raise BadInput(
                f"{where} of {source} is {repr(one)[:80]}; wanted an object with "
                f"{text!r} and {label!r}"
            )
        _require(list(one), f"{where} of {source}", text, label)
        yield where, one[text], one[label]


def _objects(lines: Iterator[str], source: Path) -> Iterator[tuple[str, object]]:
    """Parse each line, or all lines from the one that a list begins in."""
    for number, line in enumerate(lines, 1):
        if line.lstrip().startswith("["):
            parts, length = list[str](), 0
            for part in itertools.chain([line], lines):
                parts.append(part)
                length += len(part)
                if length > LONGEST:
                    raise BadInput(
                        f"the list in {source} has more than {LONGEST:,} characters: "
                        "write one object in a line"
                    )
            entries = enumerate(_parsed("".join(parts), "the list", source), 1)
            yield from ((f"entry {place}", entry) for place, entry in entries)
        elif line.strip():
            yield f"line {number}", _parsed(line, f"line {number}", source)


def _parsed(content: str, where: str, source: Path) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        reason = str(getattr(error, "msg", error)).partition("\n")[0]
        raise BadInput(
            f"{where} of {source} is not JSON ({reason}): wanted an object in each "
            "line, or one list of them"
        ) from error


SEPARATED = {".csv": ",", ".tsv": "\t", ".txt": "\t"}
"""The usual delimiter, by how a file's name ends."""
Reader = Callable[[Iterator[str], Path, str, str], Iterator[Row]]
READERS: Mapping[str, Reader] = {
    ".json": _json,
    ".jsonl": _json,
    **{kind: partial(_separated, usual=by) for kind, by in SEPARATED.items()},
}
"""Readers of text, by how a file's name ends."""
