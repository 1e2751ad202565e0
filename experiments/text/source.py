"""Where reviews come from, as flags: reading them needs packages, naming them none."""

import dataclasses
import re
from pathlib import Path
from typing import Literal


@dataclasses.dataclass(frozen=True)
class Source:
    """Where the reviews come from.

    Attributes:
        train: .parquet, .csv, .tsv, .txt, .json or .jsonl file, all but the first also
            as .gz, or the folder of a prepared dataset.
        test: likewise.
        dataset: a tensorflow-dataset instead, such as imdb_reviews; prepared if needed.
        named: what the files hold; published figures are beside ours only for data
            with the name of those that they were published for.
        data_dir: where tensorflow-datasets are kept.
        text: name of the column or feature with the text.
        label: name of the column or feature with the label, a word or a whole number.
        invented: number of invented training reviews where no data is given.
        min_count: occurrences in the training split that a word needs.
        max_size: size of the vocabulary at most.
    """

    train: Path | None = None
    test: Path | None = None
    dataset: str | None = None
    named: Literal["imdb_reviews", "yelp_review_full"] | None = None
    data_dir: Path = Path("results") / "datasets"
    text: str = "text"
    label: str = "label"
    invented: int | None = None
    min_count: int = 5
    max_size: int = 7766

    @property
    def name(self) -> str | None:
        """Name of the data; None for synthetic ones and for files without `--named`."""
        if self.dataset is not None:
            return re.split("[/:]", self.dataset)[0]
        return None if self.train is None else self.named
