"""Labelled reviews from files, from tensorflow-datasets and from original archives.

None of it needs TensorFlow: the two builders here have the stock datasets' features but
read the archives with Python alone. Needs the extra `text`.
"""

import csv
import hashlib
import shutil
import tarfile
import urllib.request
from collections.abc import Iterator
from io import TextIOWrapper
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np
import pyarrow
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet
import tensorflow_datasets as tfds
from jaxtyping import Int

# A host that does not answer is given up after this many seconds.
PATIENCE = 20.0


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
        path: a .parquet, .csv or .jsonl file, or the folder of a dataset prepared by
            tensorflow-datasets (the one that holds `dataset_info.json`).
        text: name of the column or feature with the text.
        label: name of the column or feature with the label.
        split: which split of a dataset, such as "test" or "train[:10%]"; a file has
            none, and does not look at it.
        classes: number of classes. Two: labels 0 and 1 become −1 and +1.

    Returns:
        Texts and labels, in the order of the file.

    Raises:
        FileNotFoundError: nothing at `path`.
        ValueError: an unreadable file, a missing column, a label that is none of the
            `classes`, no review at all.
    """
    path = Path(path).expanduser()
    if not path.exists():
        raise FileNotFoundError(
            f"{path} does not exist: wanted a .parquet, .csv or .jsonl file or the "
            "folder of a prepared tensorflow-dataset"
        )
    try:
        texts, labels = _columns(path, text, label, split)
    except (pyarrow.ArrowException, UnicodeDecodeError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"{path} cannot be read as {path.suffix}: {reason}") from error
    return checked(texts, labels, str(path), classes)


def checked(texts: list, labels: list, source: str, classes: int = 2) -> Reviews:
    """Reviews from two lists, after a look at every entry.

    Args:
        texts: strings.
        labels: whole numbers 0 … classes − 1; for two classes also −1 and 1.
        source: where they are from, for messages.
        classes: number of classes.

    Returns:
        The reviews, with labels ±1 if there are two classes.

    Raises:
        ValueError: no review, an entry that is no string, an unknown label.

    Example:
        >>> checked(["good", "bad"], [1, 0], "memory").labels.tolist()
        [1, -1]
    """
    if not texts:
        raise ValueError(f"{source} holds no review; it needs at least one")
    for row, entry in enumerate(texts):
        if not isinstance(entry, str):
            raise ValueError(f"text {row} of {source} is {entry!r}; wanted a string")
    found = sorted(set(labels), key=str)
    wanted = [list(range(classes))] + ([[-1, 1]] if classes == 2 else [])
    if not any(set(found) <= set(choice) for choice in wanted):
        shown = ", ".join(map(repr, found[:6])) + (", …" if len(found) > 6 else "")
        raise ValueError(
            f"labels {shown} in {source}: wanted {classes} classes, labelled "
            f"{' or '.join(map(str, wanted))}"
        )
    signs = np.array(labels, np.int32)
    if classes == 2:
        signs = np.where(signs > 0, 1, -1).astype(np.int32)
    return Reviews(texts, signs)


class _Archive(tfds.core.GeneratorBasedBuilder, skip_registration=True):  # type: ignore[call-arg]
    """What the builders of archives share: the archive lies in the manual folder."""

    VERSION = tfds.core.Version("1.0.0")
    BUILDER_CONFIGS: ClassVar = [
        tfds.core.BuilderConfig(name="plain_text", description="Labelled texts")
    ]
    MANUAL_DOWNLOAD_INSTRUCTIONS = "`prepare` puts the archive there."
    url: ClassVar[str]
    names: ClassVar[list[str]]

    def _info(self) -> tfds.core.DatasetInfo:
        features = tfds.features.FeaturesDict(
            {
                "text": tfds.features.Text(),
                "label": tfds.features.ClassLabel(names=self.names),
            }
        )
        return tfds.core.DatasetInfo(
            builder=self, features=features, supervised_keys=("text", "label")
        )

    def _split_generators(self, dl_manager: tfds.download.DownloadManager) -> dict:
        archive = Path(dl_manager.manual_dir) / Path(self.url).name
        return {
            split: self._generate_examples(archive, split)
            for split in ("train", "test")
        }


class ImdbReviews(_Archive, skip_registration=True):  # type: ignore[call-arg]
    """`imdb_reviews`: 0 for folder neg, 1 for folder pos of `aclImdb_v1.tar.gz`."""

    name = "imdb_reviews"
    url = "http://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz"
    names: ClassVar = ["neg", "pos"]

    def _generate_examples(self, archive: Path, split: str) -> Iterator:
        with tarfile.open(archive) as members:
            for member in members:
                parts = Path(member.name).parts
                if parts[1:2] == (split,) and parts[2:3] in (("neg",), ("pos",)):
                    file = members.extractfile(member)
                    if file is not None:
                        text = file.read().decode("utf-8")
                        yield member.name, {"text": text, "label": parts[2]}


class YelpPolarityReviews(_Archive, skip_registration=True):  # type: ignore[call-arg]
    """`yelp_polarity_reviews`: class "1" is negative, "2" positive."""

    name = "yelp_polarity_reviews"
    url = "https://s3.amazonaws.com/fast-ai-nlp/yelp_review_polarity_csv.tgz"
    names: ClassVar = ["1", "2"]

    def _generate_examples(self, archive: Path, split: str) -> Iterator:
        with tarfile.open(archive) as members:
            file = members.extractfile(f"yelp_review_polarity_csv/{split}.csv")
            if file is not None:
                lines = TextIOWrapper(file, encoding="utf-8", newline="")
                for row, (label, text) in enumerate(csv.reader(lines)):
                    yield row, {"text": text, "label": label}


def prepare(name: str, data_dir: str | Path, archive: str | Path | None = None) -> Path:
    """Prepare a tensorflow-dataset once; the folder `read_reviews` takes.

    Args:
        name: "imdb_reviews" or "yelp_polarity_reviews", prepared without TensorFlow;
            any other dataset of the catalogue by its own builder, which may need it.
        data_dir: where datasets are kept.
        archive: the original archive under its own name, if it is at hand; else it is
            downloaded.

    Returns:
        The folder of the prepared dataset.

    Raises:
        ValueError: an archive that is none, a dataset that is unknown or that cannot
            be prepared here.
        ConnectionError: it has to be downloaded and the host does not answer.
    """
    data_dir = Path(data_dir).expanduser()
    own = {builder.name: builder for builder in (ImdbReviews, YelpPolarityReviews)}
    if name not in own:
        return _prepare_stock(name, data_dir)
    builder = own[name](data_dir=str(data_dir), file_format="array_record")
    # `is_prepared` would warn of every dataset that is still to be prepared.
    if not (Path(builder.data_dir) / "dataset_info.json").exists():
        found = data_dir / "downloads" / "manual" / Path(builder.url).name
        if archive:
            found = Path(archive).expanduser()
            if not (found.exists() and found.name == Path(builder.url).name):
                raise FileNotFoundError(
                    f"{found}: wanted an existing file named {Path(builder.url).name}"
                )
        elif not found.exists():
            _download(builder.url, found)
        if not tarfile.is_tarfile(found):
            raise ValueError(f"{found} is no tar archive: remove it and try again")
        manual = tfds.download.DownloadConfig(manual_dir=str(found.parent))
        builder.download_and_prepare(download_config=manual)
    return Path(builder.data_dir)


def _prepare_stock(name: str, data_dir: Path) -> Path:
    """The stock builder's dataset, with TensorFlow if it has yet to be made."""
    try:
        builder = tfds.builder(name, data_dir=str(data_dir), file_format="array_record")
        builder.download_and_prepare()
    except tfds.core.DatasetNotFoundError as error:
        raise ValueError(f"tensorflow-datasets knows no dataset {name!r}") from error
    except ImportError as error:
        raise ValueError(
            f"preparing {name!r} needs {error.name}: install it, or prepare the "
            "dataset elsewhere and give its folder"
        ) from error
    return Path(builder.data_dir)


def _download(url: str, target: Path) -> None:
    """Fetch a file, under a temporary name until it is whole."""
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_suffix(".part")
    try:
        answer = urllib.request.urlopen(url, timeout=PATIENCE)
        with answer, part.open("wb") as stream:
            shutil.copyfileobj(answer, stream)
    except OSError as error:
        raise ConnectionError(
            f"{url} cannot be fetched ({error}): fetch it elsewhere and give the "
            "archive, or give a file of reviews"
        ) from error
    part.replace(target)


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
        return _features(path, text, label, split)
    if path.suffix == ".parquet":
        table = pyarrow.parquet.read_table(path)
    elif path.suffix == ".csv":
        several_lines = pyarrow.csv.ParseOptions(newlines_in_values=True)
        table = pyarrow.csv.read_csv(path, parse_options=several_lines)
    elif path.suffix in (".jsonl", ".json"):
        table = pyarrow.json.read_json(path)
    else:
        raise ValueError(
            f"{path} ends in {path.suffix!r}: wanted .parquet, .csv or .jsonl"
        )
    for name in (text, label):
        if name not in table.column_names:
            raise ValueError(
                f"no column {name!r} in {path}; it has "
                f"{', '.join(map(repr, table.column_names))}: name the columns to use"
            )
    return table[text].to_pylist(), table[label].to_pylist()


def _features(path: Path, text: str, label: str, split: str) -> tuple[list, list]:
    """Two features of a prepared tensorflow-dataset as lists."""
    if not (path / "dataset_info.json").exists():
        raise ValueError(
            f"{path} is a folder without dataset_info.json: wanted the folder of a "
            "prepared tensorflow-dataset, such as …/imdb_reviews/plain_text/1.0.0"
        )
    builder = tfds.builder_from_directory(str(path))
    known = list(builder.info.features)
    if not {text, label} <= set(known):
        raise ValueError(f"{path} has the features {known}: wanted {text!r}, {label!r}")
    if split.partition("[")[0] not in builder.info.splits:
        raise ValueError(
            f"no split {split!r} in {path}; it has {sorted(builder.info.splits)}"
        )
    rows = builder.as_data_source(split=split)
    pairs = [(row[text].decode("utf-8"), int(row[label])) for row in rows]
    return [entry for entry, _ in pairs], [mark for _, mark in pairs]
