"""Stock datasets from their original archives.

Builders with the features of tensorflow-datasets' own, which read the archives with
Python alone.
"""

import csv
import tarfile
from collections.abc import Iterator
from io import TextIOWrapper
from pathlib import Path
from typing import ClassVar

import tensorflow_datasets as tfds


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
