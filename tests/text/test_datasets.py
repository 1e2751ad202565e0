"""Prepared tensorflow-datasets: from an archive, and what is said of a bad one."""

import io
import tarfile

import pytest

from experiments.text import data as review_data
from experiments.text.source import Source
from jaxselect.text import datasets
from jaxselect.text import reviews as text


def archive(path, members):
    with tarfile.open(path, "w:gz") as tar:
        for name, content in members.items():
            data = content.encode("utf-8")
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return path


@pytest.fixture
def imdb(tmp_path):
    return archive(
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
def yelp(tmp_path):
    return archive(
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


def test_broken_and_missing_archives(tmp_path):
    broken = tmp_path / "aclImdb_v1.tar.gz"
    broken.write_text("<html>sorry</html>")
    with pytest.raises(ValueError, match="no tar archive"):
        datasets.prepare("imdb_reviews", tmp_path / "tfds", broken)
    with pytest.raises(FileNotFoundError, match="aclImdb_v1"):
        datasets.prepare("imdb_reviews", tmp_path / "tfds", tmp_path / "other.tar.gz")
    with pytest.raises(ValueError, match="knows no dataset 'no_such_reviews'"):
        datasets.prepare("no_such_reviews", tmp_path)


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
