"""Labelled reviews from files and from prepared tensorflow-datasets.

Needs the extra `text`.
"""

import hashlib
import io
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
KINDS = "a .parquet, .csv, .tsv, .json or .jsonl"
MOST = 1000
"""Classes at most: a column with more values holds something else than labels."""

# What readers raise of a damaged file.
UNREADABLE = (
    RecursionError,
    pyarrow.ArrowException,
    OSError,
    UnicodeDecodeError,
    json.JSONDecodeError,
)

Name = str | int
"""The name of a class in the data: a word or a whole number."""


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
        path: a .parquet, .csv, .tsv, .json or .jsonl file (JSON: an object per line, or
            a list of them), all but the first also as .gz, or the folder of a dataset
            prepared by tensorflow-datasets (the one that holds `dataset_info.json`).
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
            whole number or none of `names`, a single class, no review at all.
    """
    path = Path(path).expanduser()
    if not path.exists():
        raise FileNotFoundError(
            f"{path} does not exist: wanted {KINDS} file or the folder of a prepared "
            "tensorflow-dataset"
        )
    try:
        texts, marks = _columns(path, text, label, split)
    except UNREADABLE as error:
        # An error with a number is the operating system's, whose message is complete.
        if isinstance(error, BadInput) or getattr(error, "errno", None):
            raise
        reason = (str(error) or type(error).__name__).splitlines()[0][:200]
        if re.search("utf-?8|encoding", reason, re.IGNORECASE):
            raise BadInput(
                f"{path} is not encoded in UTF-8: convert it first, as with "
                "`iconv -f latin1 -t utf-8`"
            ) from error
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
    return names


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
        table = READERS[kind](stream, text)
    for name in (text, label):
        if name not in table.column_names:
            raise BadInput(
                f"no column {name!r} in {path}; it has {listed(table.column_names)}: "
                "name those wanted, with text= and label= (--text, --label)"
            )
        if table.column_names.count(name) > 1:
            raise BadInput(f"{path} has several columns {name!r}: rename all but one")
    return table[text].to_pylist(), table[label].to_pylist()


def _separated(stream: pyarrow.NativeFile, text: str, by: str) -> pyarrow.Table:
    """Read two columns of a file with commas or tabs."""
    return pyarrow.csv.read_csv(
        stream,
        parse_options=pyarrow.csv.ParseOptions(delimiter=by, newlines_in_values=True),
        # A column of texts may look like one of numbers or of dates.
        convert_options=pyarrow.csv.ConvertOptions(
            column_types={text: pyarrow.string()}
        ),
    )


def _json(stream: pyarrow.NativeFile, text: str) -> pyarrow.Table:
    """Read JSON objects, one per line or in one list."""
    content = stream.read()
    if content.lstrip()[:1] == b"[":
        content = "\n".join(map(json.dumps, json.loads(content))).encode()
    # Arrow reads in blocks, and no line may be longer than one.
    options = pyarrow.json.ReadOptions(block_size=max(len(content), 1))
    return pyarrow.json.read_json(io.BytesIO(content), read_options=options)


# Readers of files, by how their names end.
READERS: dict[str, Callable[[pyarrow.NativeFile, str], pyarrow.Table]] = {
    ".parquet": lambda stream, text: pyarrow.parquet.read_table(stream),
    ".csv": partial(_separated, by=","),
    ".tsv": partial(_separated, by="\t"),
    ".json": _json,
    ".jsonl": _json,
}
