"""Labelled reviews from files and from prepared tensorflow-datasets.

Needs the extra `text`.
"""

import hashlib
import re
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet
from jaxtyping import Int

from ..errors import BadInput
from ..model import checks
from .datasets import features

KINDS = "a .parquet, .csv, .tsv or .jsonl"


class Reviews(NamedTuple):
    """Labelled texts.

    Attributes:
        texts: one string per review.
        labels: ±1 (0 is read as −1); a class 0 … K − 1 where K > 2 were asked for.
    """

    texts: list[str]
    labels: Int[np.ndarray, " reviews"]


def read_reviews(
    path: str | Path,
    *,
    text: str = "text",
    label: str = "label",
    split: str = "train",
    classes: int = 2,
) -> Reviews:
    """Labelled reviews from a file or from a prepared tensorflow-dataset.

    Args:
        path: a .parquet, .csv, .tsv or .jsonl file, the last three also as .gz, or the
            folder of a dataset prepared by tensorflow-datasets (the one that holds
            `dataset_info.json`).
        text: name of the column or feature with the text.
        label: name of the column or feature with the label.
        split: which split of a dataset, such as "test" or "train[:10%]"; a file has
            none, and does not look at it.
        classes: number of classes. Two: labels 0 and 1 become −1 and +1.

    Returns:
        Texts and labels, in the order of the file.

    Raises:
        FileNotFoundError: nothing at `path`.
        BadInput: an unreadable file, a missing column, a label that is none of the
            `classes`, no review at all.
    """
    path = Path(path).expanduser()
    if not path.exists():
        raise FileNotFoundError(
            f"{path} does not exist: wanted {KINDS} file or the folder of a prepared "
            "tensorflow-dataset"
        )
    try:
        texts, signs = _columns(path, text, label, split)
    except (pyarrow.ArrowException, UnicodeDecodeError) as error:
        reason = str(error).splitlines()[0]
        if re.search("utf-?8|encoding", reason, re.IGNORECASE):
            raise BadInput(
                f"{path} is not encoded in UTF-8: convert it first, as with "
                "`iconv -f latin1 -t utf-8`"
            ) from error
        raise BadInput(f"{path} cannot be read as {path.suffix}: {reason}") from error
    return _checked(texts, signs, str(path), classes)


def _checked(texts: list, labels: list, source: str, classes: int) -> Reviews:
    """Reviews from two lists, after a look at every entry."""
    checks.whole("classes", classes, least=2)
    if not texts:
        raise BadInput(f"{source} holds no review; it needs at least one")
    for row, entry in enumerate(texts):
        if not isinstance(entry, str):
            raise BadInput(f"text {row} of {source} is {entry!r}; wanted a string")
    for row, mark in enumerate(labels):
        if isinstance(mark, (list, dict)):
            raise BadInput(f"label {row} of {source} is {mark!r}; wanted a number")
    found = sorted(set(labels), key=str)
    wanted = [list(range(classes))] + ([[-1, 1]] if classes == 2 else [])
    if not any(set(found) <= set(choice) for choice in wanted):
        shown = ", ".join(map(repr, found[:6])) + (", …" if len(found) > 6 else "")
        raise BadInput(
            f"labels {shown} in {source}: wanted {classes} classes, labelled "
            f"{' or '.join(map(str, wanted))}"
        )
    signs = np.array(labels, np.int32)
    if classes == 2:
        signs = np.where(signs > 0, 1, -1).astype(np.int32)
    return Reviews(texts, signs)


def fingerprint(path: str | Path) -> str:
    """SHA-256 of a file, or of every file of a folder with its name.

    Args:
        path: file or folder.

    Returns:
        Hexadecimal digits.
    """
    path = Path(path).expanduser()
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
    suffixes = [suffix.lower() for suffix in path.suffixes]
    # Arrow unpacks .gz by itself.
    kind = suffixes[-2] if suffixes[-1:] == [".gz"] and suffixes[1:] else path.suffix
    match kind.lower():
        case ".parquet":
            table = pyarrow.parquet.read_table(path)
        case ".csv" | ".tsv":
            table = pyarrow.csv.read_csv(
                path,
                parse_options=pyarrow.csv.ParseOptions(
                    delimiter="\t" if kind.lower() == ".tsv" else ",",
                    newlines_in_values=True,
                ),
                # A column of texts may look like one of numbers or of dates.
                convert_options=pyarrow.csv.ConvertOptions(
                    column_types={text: pyarrow.string()}
                ),
            )
        case ".jsonl" | ".json":
            table = pyarrow.json.read_json(path)
        case _:
            raise BadInput(f"{path} ends in {path.suffix!r}: wanted {KINDS}")
    for name in (text, label):
        if name not in table.column_names:
            raise BadInput(
                f"no column {name!r} in {path}; it has "
                f"{', '.join(map(repr, table.column_names))}: name the columns to use"
            )
        if table.column_names.count(name) > 1:
            raise BadInput(f"{path} has several columns {name!r}: rename all but one")
    return table[text].to_pylist(), table[label].to_pylist()
