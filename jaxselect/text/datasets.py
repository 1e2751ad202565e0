"""Labelled texts as tensorflow-datasets: made from their archives, and read.

TensorFlow is not needed: the two builders here have the features of the stock datasets
but read the archives in pure Python. Needs the extra `text`.
"""

import csv
import shutil
import tarfile
import urllib.request
from collections.abc import Iterator
from io import TextIOWrapper
from pathlib import Path
from typing import ClassVar

import tensorflow_datasets as tfds

from ..checks import BadInput
from ..files import replacing

# A host that does not answer is given up after this many seconds.
PATIENCE = 20.0


class _Archive(tfds.core.GeneratorBasedBuilder, skip_registration=True):  # type: ignore[call-arg]
    """Base of builders that read an archive from the manual folder."""

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
    """`imdb_reviews` from `aclImdb_v1.tar.gz`: label 0 for neg, 1 for pos."""

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
    """Prepare a tensorflow-dataset once; return the folder for `read_reviews`.

    Args:
        name: "imdb_reviews" or "yelp_polarity_reviews", prepared without TensorFlow;
            any other dataset of the catalogue by its own builder, which may need it.
        data_dir: where datasets are kept.
        archive: the original archive under its own name, if it is at hand; else it is
            downloaded.

    Returns:
        The folder of the prepared dataset.

    Raises:
        BadInput: an archive that is none, a dataset that is unknown or that cannot
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
            raise BadInput(f"{found} is no tar archive: remove it and try again")
        manual = tfds.download.DownloadConfig(manual_dir=str(found.parent))
        builder.download_and_prepare(download_config=manual)
    return Path(builder.data_dir)


def _prepare_stock(name: str, data_dir: Path) -> Path:
    """Prepare a stock dataset, which needs TensorFlow the first time."""
    try:
        builder = tfds.builder(name, data_dir=str(data_dir), file_format="array_record")
        builder.download_and_prepare()
    except tfds.core.DatasetNotFoundError as error:
        raise BadInput(f"tensorflow-datasets knows no dataset {name!r}") from error
    except ImportError as error:
        raise BadInput(
            f"preparing {name!r} needs {error.name}: install it, or prepare the "
            "dataset elsewhere and give its folder"
        ) from error
    return Path(builder.data_dir)


def _download(url: str, target: Path) -> None:
    """Download a file, completely or not at all."""
    try:
        with (
            urllib.request.urlopen(url, timeout=PATIENCE) as answer,
            replacing(target) as aside,
            aside.open("wb") as stream,
        ):
            shutil.copyfileobj(answer, stream)
    except OSError as error:
        raise ConnectionError(
            f"{url} cannot be fetched ({error}): fetch it elsewhere and give the "
            "archive, or give a file of reviews"
        ) from error


def features(
    path: Path, text: str, label: str, split: str
) -> tuple[list[str], list[int]]:
    """Read two features of a prepared tensorflow-dataset.

    Args:
        path: the folder that holds `dataset_info.json`.
        text: name of the feature with the text.
        label: name of the feature with the label.
        split: such as "test" or "train[:10%]".

    Returns:
        The texts and the labels.

    Raises:
        BadInput: another folder, or one without these features or this split.
    """
    if not (path / "dataset_info.json").exists():
        raise BadInput(
            f"{path} is a folder without dataset_info.json: wanted the folder of a "
            "prepared tensorflow-dataset, such as …/imdb_reviews/plain_text/1.0.0"
        )
    builder = tfds.builder_from_directory(str(path))
    known = list(builder.info.features)
    if not {text, label} <= set(known):
        raise BadInput(f"{path} has the features {known}: wanted {text!r}, {label!r}")
    if split.partition("[")[0] not in builder.info.splits:
        raise BadInput(
            f"no split {split!r} in {path}; it has {sorted(builder.info.splits)}"
        )
    rows = builder.as_data_source(split=split)
    pairs = [(row[text].decode("utf-8"), int(row[label])) for row in rows]
    return [entry for entry, _ in pairs], [mark for _, mark in pairs]
