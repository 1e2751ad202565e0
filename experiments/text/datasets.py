"""Labelled texts as tensorflow-datasets: made from their archives, and read.

TensorFlow is not needed: the two builders here have the features of the stock datasets
but read the archives in pure Python. Needs the extra `text`.
"""

import csv
import hashlib
import http.client
import logging
import tarfile
import urllib.request
from collections.abc import Iterator
from functools import partial
from io import TextIOWrapper
from pathlib import Path
from typing import ClassVar

import tensorflow_datasets as tfds

from jaxselect.checks import BadInput
from jaxselect.files import replacing

# A host that does not answer is given up after this many seconds.
PATIENCE = 20.0
_LOG = logging.getLogger(__name__)


class _Archive(tfds.core.GeneratorBasedBuilder, skip_registration=True):  # type: ignore[call-arg]
    """Base of builders that read an archive from the manual folder."""

    VERSION = tfds.core.Version("1.0.0")
    BUILDER_CONFIGS: ClassVar = [
        tfds.core.BuilderConfig(name="plain_text", description="Labelled texts")
    ]
    MANUAL_DOWNLOAD_INSTRUCTIONS = "`prepare` puts the archive there."
    url: ClassVar[str]
    # Bytes and SHA-256 of the archive, those that tensorflow-datasets expects.
    size: ClassVar[int]
    sha256: ClassVar[str]
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
    size = 84_125_825
    sha256 = "c40f74a18d3b61f90feba1e17730e0d38e8b97c05fde7008942e91923d1658fe"
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
    size = 166_373_201
    sha256 = "528f22e286cad085948acbc3bea7e58188416546b0e364d0ae4ca0ce666abe35"
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
        BadInput: an archive of another length or content than the original, a dataset
            that is unknown or that cannot be prepared here.
        ConnectionError: it has to be downloaded, and the host does not answer or sends
            something else.
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
            fault = _fault(found, builder)
            if fault:
                raise BadInput(f"{found} {fault}: give a whole one")
        else:
            _download(builder, found)
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


def _fault(path: Path, builder: _Archive) -> str:
    """Say in what a file differs from a builder's archive; "" where in nothing."""
    size = path.stat().st_size
    if size != builder.size:
        return f"has {size:,} bytes, and the original {builder.size:,}"
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    if digest != builder.sha256:
        return f"has the SHA-256 {digest}, and the original {builder.sha256}"
    return ""


def _download(builder: _Archive, target: Path) -> None:
    """Download a builder's archive, whole or not at all; keep one that is there."""
    if target.exists():
        fault = _fault(target, builder)
        if not fault:
            return
        target.unlink()
        _LOG.warning("%s %s: it is removed and fetched again", target, fault)
    try:
        with (
            urllib.request.urlopen(builder.url, timeout=PATIENCE) as answer,
            replacing(target) as aside,
        ):
            with aside.open("wb") as stream:
                for block in iter(partial(answer.read, 2**20), b""):
                    stream.write(block)
                    if stream.tell() > builder.size:
                        break
            fault = _fault(aside, builder)
            if fault:
                raise ConnectionError(f"what arrived {fault}, and is removed")
    except (OSError, http.client.HTTPException) as error:
        raise ConnectionError(
            f"{builder.url} cannot be fetched ({error}): try again, or fetch it "
            f"elsewhere and put it at {target}"
        ) from error


def features(
    path: Path, text: str, label: str, split: str
) -> Iterator[tuple[str, object, object]]:
    """Read two features of a prepared tensorflow-dataset.

    Args:
        path: the folder that holds `dataset_info.json`.
        text: name of the feature with the text.
        label: name of the feature with the label.
        split: such as "test" or "train[:10%]".

    Yields:
        Of each row its place, the text and the label.

    Raises:
        BadInput: another folder, a damaged one, or one without these features or this
            split.
    """
    if not (path / "dataset_info.json").exists():
        raise BadInput(
            f"{path} is a folder without dataset_info.json: wanted the folder of a "
            "prepared tensorflow-dataset, such as …/imdb_reviews/plain_text/1.0.0"
        )
    try:
        builder = tfds.builder_from_directory(str(path))
        known, splits = list(builder.info.features), sorted(builder.info.splits)
    except Exception as error:
        raise _damaged(path, "dataset_info.json or features.json", error) from error
    if not {text, label} <= set(known):
        raise BadInput(f"{path} has the features {known}: wanted {text!r}, {label!r}")
    if split.partition("[")[0] not in splits:
        raise BadInput(f"no split {split!r} in {path}; it has {splits}")
    try:
        rows = builder.as_data_source(split=split)
    except ValueError as error:
        raise BadInput(
            f"no split {split!r} in {path}: wanted a part such as train[:10%]"
        ) from error
    try:
        for place, row in enumerate(rows):
            yield f"row {place}", row[text], row[label]
    except Exception as error:
        raise _damaged(path, f"its split {split!r}", error) from error


def _damaged(path: Path, part: str, error: Exception) -> BadInput:
    """Describe a damaged dataset, of which every reader raises errors of its own."""
    reason = (str(error) or type(error).__name__).partition("\n")[0][:120]
    return BadInput(
        f"{part} in {path} cannot be read ({reason}): remove the folder and prepare "
        "the dataset again"
    )
