"""Labelled reviews from files and from prepared tensorflow-datasets.

Needs the extra `text`.
"""

import codecs
import csv
import hashlib
import io
import itertools
import json
import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet
from jaxtyping import Int

from ..checks import BadInput
from ..files import regular
from .datasets import features

# Kinds of files that reviews are read from, as a message names them.
KINDS = "a .parquet, .csv, .tsv, .txt, .json or .jsonl"
DELIMITERS = ",\t;|"
FEW = 20
"""Records that a delimiter is told by."""
MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
"""Encodings by their byte-order mark; one of UTF-32 begins with one of UTF-16."""
MOST = 1000
"""Classes at most: a column with more values holds something else than labels."""

# What readers raise of a damaged file.
UNREADABLE = (
    RecursionError,
    pyarrow.ArrowException,
    OSError,
    json.JSONDecodeError,
)

Name = str | int
"""The name of a class in the data: a word or a whole number."""
NUMBER = re.compile(r"[-+]?\d+(\.\d*)?")


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
        BadInput: an unreadable file, a missing column, a label that is no word and no
            whole number or none of `names`, a single class, labels of two vocabularies,
            no review at all.
    """
    path = Path(path).expanduser()
    if not path.exists():
        raise FileNotFoundError(
            f"{path} does not exist: wanted {KINDS} file or the folder of a prepared "
            "tensorflow-dataset"
        )
    try:
        texts, marks = _columns(path, text, label, split)
    except UnicodeDecodeError as error:
        encoding = "utf-16" if b"\0" in error.object else "latin1"
        step = f"convert it first, as with `iconv -f {encoding} -t utf-8`"
        if path.suffix.lower() == ".parquet":
            step = "write its columns as strings"
        raise BadInput(f"{path} is not encoded in UTF-8: {step}") from error
    except UNREADABLE as error:
        # An error with a number is the operating system's, whose message is complete.
        if isinstance(error, BadInput) or getattr(error, "errno", None):
            raise
        reason = (str(error) or type(error).__name__).splitlines()[0][:200]
        raise BadInput(
            f"{path} cannot be read: {reason}; wanted {KINDS} file, whole, with the "
            "ending that says what it is"
        ) from error
    return _checked(texts, marks, str(path), names)


def _checked(
    texts: list, marks: list, source: str, names: tuple[Name, ...] | None
) -> Reviews:
    """Check every entry of the two lists, and make reviews of them."""
    if not texts:
        raise BadInput(f"{source} holds no review; it needs at least one")
    for row, entry in enumerate(texts):
        if not isinstance(entry, str):
            raise BadInput(f"text {row} of {source} is {entry!r}; wanted a string")
    marks = [_name(mark, f"label {row} of {source}") for row, mark in enumerate(marks)]
    if names is None:
        names = _classes(set(marks), source)
    place = {name: number for number, name in enumerate(names)}
    for row, mark in enumerate(marks):
        if mark not in place:
            raise BadInput(
                f"label {row} of {source} is {mark!r}; wanted one of {listed(names)}, "
                "the labels of the training split"
            )
    labels = np.array([place[mark] for mark in marks], np.int32)
    return Reviews(texts, 2 * labels - 1 if len(names) == 2 else labels, names)


def _name(mark: object, where: str) -> Name:
    """Return a label as a word or an integer."""
    if isinstance(mark, str) and mark.strip():
        return mark.strip()
    if isinstance(mark, int | float) and float(mark).is_integer():
        return int(mark)
    raise BadInput(f"{where} is {mark!r}; wanted a word or a whole number")


def _classes(found: set[Name], source: str) -> tuple[Name, ...]:
    """Sort the classes; if only one of 0, 1 or of −1, 1 occurs, add the other."""
    for usual in ((0, 1), (-1, 1)):
        if found <= set(usual):
            return usual
    names = tuple(sorted(found, key=lambda name: (isinstance(name, str), name)))
    if len(names) == 1:
        raise BadInput(f"every label in {source} is {names[0]!r}; wanted two classes")
    if len(names) > MOST:
        raise BadInput(
            f"{len(names)} different labels in {source}, {listed(names)}: wanted "
            f"{MOST} classes at most; name the column that holds them"
        )
    _one_vocabulary(names, source)
    return names


def _one_vocabulary(names: Sequence[Name], source: str) -> None:
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


def _columns(path: Path, text: str, label: str, split: str) -> tuple[list, list]:
    """Two columns as lists."""
    if path.is_dir():
        return features(path, text, label, split)
    regular(path)
    suffixes = [suffix.lower() for suffix in path.suffixes]
    packed = suffixes[-1:] == [".gz"]
    kind = "".join(suffixes[-2:-1] if packed else suffixes[-1:])
    if kind not in READERS or (packed and kind == ".parquet"):
        raise BadInput(f"{path} ends in {path.suffix!r}: wanted {KINDS} file")
    with pyarrow.input_stream(path, compression="gzip" if packed else None) as stream:
        table = READERS[kind](stream, text, label)
    for name in (text, label):
        found = table.column_names
        if name not in found and kind in SEPARATED and _is_data(table):
            raise BadInput(
                f"the first line of {path} is a review already, {listed(found)}: put a "
                f"line above it that names the columns, {text!r} and {label!r} among "
                "them"
            )
        if name not in found:
            raise BadInput(
                f"no column {name!r} in {path}; it has {listed(found)}: "
                "name those wanted, with text= and label= (--text, --label)"
            )
        if found.count(name) > 1:
            raise BadInput(f"{path} has several columns {name!r}: rename all but one")
    return _strings(table[text]), _strings(table[label])


def _is_data(table: pyarrow.Table) -> bool:
    """Whether a column's name is a number, or also one of the column's entries."""
    names = [name.strip() for name in table.column_names]
    # Tables without names are written with 0, 1, … in their place.
    if all(NUMBER.fullmatch(name) for name in names if name):
        return False
    return any(
        NUMBER.fullmatch(name) or name in (str(entry).strip() for entry in entries)
        for name, entries in zip(names, map(_strings, table.columns), strict=True)
        if name
    )


def _strings(column: pyarrow.ChunkedArray) -> list:
    """Return the entries of a column, and as strings those stored as bytes."""
    entries = column.to_pylist()
    return [x.decode() if isinstance(x, bytes) else x for x in entries]


def _utf8(stream: pyarrow.NativeFile) -> bytes:
    """Read text in UTF-8, or in the encoding that its byte-order mark names."""
    content = stream.read()
    for mark, encoding in MARKS.items():
        if content.startswith(mark):
            return content.decode(encoding).encode()
    content.decode()
    # Zero bytes in the first line: UTF-16 without its mark.
    zero = content.find(b"\0", 0, content.find(b"\n"))
    if zero >= 0:
        raise UnicodeDecodeError("utf-8", content[:FEW], zero, zero + 1, "a zero byte")
    return content


def _separated(
    stream: pyarrow.NativeFile, text: str, label: str, usual: str
) -> pyarrow.Table:
    """Read a file whose columns are separated by one character."""
    content = _utf8(stream)

    def fits(by: str) -> tuple:
        lines = io.TextIOWrapper(io.BytesIO(content), "utf-8", newline="")
        records = filter(None, csv.reader(lines, delimiter=by))
        try:
            first, *rest = itertools.islice(records, FEW)
        except (csv.Error, ValueError):  # none that this delimiter makes
            return (False,)
        alike = len(first) > 1 and {len(one) for one in rest} <= {len(first)}
        return {text, label} <= set(first), alike, by == usual, len(first)

    return pyarrow.csv.read_csv(
        io.BytesIO(content),
        parse_options=pyarrow.csv.ParseOptions(
            delimiter=max(DELIMITERS, key=fits), newlines_in_values=True
        ),
        # A column of texts may look like one of numbers or of dates.
        convert_options=pyarrow.csv.ConvertOptions(
            column_types={text: pyarrow.string()}
        ),
    )


def _json(stream: pyarrow.NativeFile, text: str, label: str) -> pyarrow.Table:
    """Read JSON objects, one per line or in one list."""
    content = _utf8(stream)
    if content.lstrip()[:1] == b"[":
        content = "\n".join(map(json.dumps, json.loads(content))).encode()
    # Arrow reads in blocks, and no line may be longer than one.
    options = pyarrow.json.ReadOptions(block_size=max(len(content), 1))
    return pyarrow.json.read_json(io.BytesIO(content), read_options=options)


SEPARATED = {".csv": ",", ".tsv": "\t", ".txt": "\t"}
"""The usual delimiter, by how a file's name ends."""
Reader = Callable[[pyarrow.NativeFile, str, str], pyarrow.Table]
READERS: dict[str, Reader] = {
    ".parquet": lambda stream, text, label: pyarrow.parquet.read_table(stream),
    ".json": _json,
    ".jsonl": _json,
} | {kind: partial(_separated, usual=by) for kind, by in SEPARATED.items()}
"""Readers of files, by how their names end."""
