"""Prepared tensorflow-datasets: from an archive, and what is said of a bad one."""

import hashlib
import io
import tarfile
from pathlib import Path

import pytest
import tensorflow_datasets as tfds

from experiments.text import data as review_data
from experiments.text import datasets
from experiments.text import reviews as text
from experiments.text.source import Source
from jaxselect.checks import BadInput


def archive(path, members):
    with tarfile.open(path, "w:gz") as tar:
        for name, content in members.items():
            data = content.encode("utf-8")
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return path


@pytest.fixture
def known(monkeypatch):
    """A small archive that counts as the original of a dataset."""

    def make(builder, path, members):
        archive(path, members)
        monkeypatch.setattr(builder, "size", path.stat().st_size)
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        monkeypatch.setattr(builder, "sha256", digest)
        return path

    return make


@pytest.fixture
def imdb(tmp_path, known):
    return known(
        datasets.ImdbReviews,
        tmp_path / "aclImdb_v1.tar.gz",
        {
            "aclImdb/README": "Large Movie Review Dataset",
            "aclImdb/train/pos/0_9.txt": "good film",
            "aclImdb/train/pos/1_7.txt": "un très bon film",
            "aclImdb/train/neg/0_1.txt": "bad film",
            "aclImdb/train/unsup/0_0.txt": "film",
            "aclImdb/test/neg/0_2.txt": "dull",
        },
    )


@pytest.fixture
def yelp(tmp_path, known):
    return known(
        datasets.YelpPolarityReviews,
        tmp_path / "yelp_review_polarity_csv.tgz",
        {
            "yelp_review_polarity_csv/train.csv": '"1","bad ""food"""\n"2","a, b"\n',
            "yelp_review_polarity_csv/test.csv": '"2","good"\n',
        },
    )


def test_imdb_archive_becomes_the_stock_dataset(imdb, tmp_path):
    folder = datasets.prepare("imdb_reviews", tmp_path / "tfds", imdb)
    assert folder.parts[-3:] == ("imdb_reviews", "plain_text", "1.0.0")
    reviews = text.read_reviews(folder)
    assert set(zip(reviews.texts, reviews.labels.tolist(), strict=True)) == {
        ("good film", 1),
        ("un très bon film", 1),
        ("bad film", -1),
    }
    assert text.read_reviews(folder, split="test").texts == ["dull"]
    assert len(text.read_reviews(folder, split="train[:1]").texts) == 1
    source = Source(dataset="imdb_reviews", data_dir=tmp_path / "tfds")
    train, test = review_data.read(source)
    assert len(train.texts) == 3 and test.texts == ["dull"]
    with pytest.raises(ValueError, match="no split 'dev'"):
        text.read_reviews(folder, split="dev")


def test_yelp_archive_becomes_the_stock_dataset(yelp, tmp_path):
    folder = datasets.prepare("yelp_polarity_reviews", tmp_path / "tfds", yelp)
    reviews = text.read_reviews(folder)
    pairs = set(zip(reviews.texts, reviews.labels.tolist(), strict=True))
    assert pairs == {('bad "food"', -1), ("a, b", 1)}


def test_a_prepared_dataset_is_not_prepared_again(imdb, tmp_path):
    first = datasets.prepare("imdb_reviews", tmp_path / "tfds", imdb)
    imdb.unlink()
    assert datasets.prepare("imdb_reviews", tmp_path / "tfds") == first


def test_digests_are_those_that_tensorflow_datasets_expects():
    package = Path(tfds.__file__).parent
    lists = {
        datasets.ImdbReviews: "datasets/imdb_reviews/checksums.tsv",
        datasets.YelpPolarityReviews: "url_checksums/yelp_polarity_reviews.txt",
    }
    for builder, name in lists.items():
        (line,) = (package / name).read_text().splitlines()
        expected = [builder.url, str(builder.size), builder.sha256]
        assert line.split("\t")[:3] == expected


def test_missing_archives_and_unknown_datasets(tmp_path):
    with pytest.raises(FileNotFoundError, match="aclImdb_v1"):
        datasets.prepare("imdb_reviews", tmp_path / "tfds", tmp_path / "other.tar.gz")
    with pytest.raises(ValueError, match="knows no dataset 'no_such_reviews'"):
        datasets.prepare("no_such_reviews", tmp_path)


def flipped(content):
    return content[:-9] + bytes([content[-9] ^ 1]) + content[-8:]


OTHERS = {
    "cut short": (lambda content: content[:-40], "bytes, and the original"),
    "a page of the host": (lambda _: b"<html>sorry</html>", "18 bytes, and the orig"),
    "too long": (lambda content: content + b"0", "bytes, and the original"),
    "another digest": (flipped, "has the SHA-256 .* and the original"),
}


@pytest.mark.parametrize("case", OTHERS)
def test_an_archive_that_is_not_the_original_is_never_used(
    imdb, tmp_path, monkeypatch, caplog, case
):
    """One that is given stays, one of ours is fetched again, all are checked."""
    change, message = OTHERS[case]
    whole = imdb.read_bytes()
    other = change(whole)
    imdb.write_bytes(other)
    with pytest.raises(BadInput, match=message):
        datasets.prepare("imdb_reviews", tmp_path / "tfds", imdb)
    assert imdb.read_bytes() == other

    def sends(content):
        answer = lambda *_, **__: io.BytesIO(content)  # noqa: E731
        monkeypatch.setattr(datasets.urllib.request, "urlopen", answer)

    folder = tmp_path / "tfds" / "downloads" / "manual"
    folder.mkdir(parents=True)
    (folder / imdb.name).write_bytes(other)
    sends(other)
    with pytest.raises(ConnectionError, match=message) as refused:
        datasets.prepare("imdb_reviews", tmp_path / "tfds")
    assert f"put it at {folder / imdb.name}" in str(refused.value)
    assert list(folder.iterdir()) == []
    (line,) = caplog.messages
    assert str(folder / imdb.name) in line and "removed and fetched again" in line
    sends(whole)
    prepared = datasets.prepare("imdb_reviews", tmp_path / "tfds")
    assert text.read_reviews(prepared, split="test").texts == ["dull"]


def replace_with(name, content):
    return lambda folder: (folder / name).write_bytes(content)


def cut_records(folder):
    (records,) = folder.glob("*-train.array_record*")
    records.write_bytes(records.read_bytes()[:-20])


INFO = "dataset_info.json or features.json in"
DAMAGES = {
    "half an object": (replace_with("dataset_info.json", b"{"), INFO),
    "a list": (replace_with("dataset_info.json", b"[]"), INFO),
    "of another form": (replace_with("dataset_info.json", b'{"splits": 3}'), INFO),
    "no text": (replace_with("dataset_info.json", b"\xff\0"), INFO),
    "no features": (replace_with("features.json", b"{}"), INFO),
    "cut records": (cut_records, "its split 'train' in"),
}


@pytest.mark.parametrize("case", DAMAGES)
def test_a_damaged_dataset_is_one_line_that_says_what_to_do(imdb, tmp_path, case):
    damage, message = DAMAGES[case]
    folder = datasets.prepare("imdb_reviews", tmp_path / "tfds", imdb)
    damage(folder)
    with pytest.raises(BadInput, match=f"^{message} {folder}") as refused:
        text.read_reviews(folder)
    line = str(refused.value)
    assert line.endswith("remove the folder and prepare the dataset again")
    assert "\n" not in line


@pytest.mark.parametrize("split", ["train[:10", "train[a:b]", "train[5:2]"])
def test_a_part_that_is_none_is_refused(imdb, tmp_path, split):
    folder = datasets.prepare("imdb_reviews", tmp_path / "tfds", imdb)
    with pytest.raises(BadInput, match="wanted a part such as"):
        text.read_reviews(folder, split=split)


def test_a_download_that_breaks_off_leaves_nothing(tmp_path, monkeypatch):
    class Broken(io.BytesIO):
        def read(self, *size):
            got = super().read(4)
            if not got:
                raise TimeoutError("the host stopped")
            return got

    open_broken = lambda *_, **__: Broken(b"12345678")  # noqa: E731
    monkeypatch.setattr(datasets.urllib.request, "urlopen", open_broken)
    with pytest.raises(ConnectionError, match="the host stopped"):
        datasets.prepare("imdb_reviews", tmp_path)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
