"""Reading reviews from every kind of source, and what is said of bad ones."""

import csv as python_csv
import gzip
import json
import tracemalloc

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from experiments.common.count_matrix import from_counts
from experiments.text import counts as sparse
from experiments.text import invented, words
from experiments.text import reviews as text
from jaxselect.checks import BadInput
from jaxselect.data import corpus

ROWS = [
    {"text": 'A "good" film,\nreally.<br /><br />Good!', "label": 1},
    {"text": "Bad, bad film. Don't!", "label": 0},
    {"text": "Ça va: 3 étoiles", "label": 1},
]


def write_parquet(path, rows=ROWS):
    parquet.write_table(pa.Table.from_pylist(rows), path, compression="zstd")


def write_csv(path, rows=ROWS):
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = python_csv.DictWriter(stream, rows[0])
        writer.writeheader()
        writer.writerows(rows)


def write_jsonl(path, rows=ROWS):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


WRITERS = {"parquet": write_parquet, "csv": write_csv, "jsonl": write_jsonl}


@pytest.mark.parametrize("kind", WRITERS)
def test_every_kind_of_file_gives_the_same_reviews(tmp_path, kind):
    path = tmp_path / f"reviews.{kind}"
    WRITERS[kind](path)
    reviews = text.read_reviews(path)
    assert reviews.texts == [row["text"] for row in ROWS]
    assert reviews.labels.tolist() == [1, -1, 1]


@pytest.mark.parametrize(
    ("marks", "labels", "names"),
    [
        ([4, 0, 1, 2, 3], [4, 0, 1, 2, 3], (0, 1, 2, 3, 4)),
        ([1, 2, 1], [-1, 1, -1], (1, 2)),
        ([-1, 1, 0], [0, 2, 1], (-1, 0, 1)),
        ([10, 9, 10], [1, -1, 1], (9, 10)),
        ([1.0, 0.0], [1, -1], (0, 1)),
        (["pos", "neg ", "pos"], [1, -1, 1], ("neg", "pos")),
        (["sport", "art", "news"], [2, 0, 1], ("art", "news", "sport")),
        (["10", "9", "-1"], [1, 2, 0], ("-1", "10", "9")),
    ],
)
def test_labels_are_words_or_any_whole_numbers(tmp_path, marks, labels, names):
    """In ascending order, and one to one: each name stands where its label points."""
    path = tmp_path / "reviews.parquet"
    write_parquet(path, [{"text": "x", "label": mark} for mark in marks])
    reviews = text.read_reviews(path)
    assert (reviews.labels.tolist(), reviews.names) == (labels, names)


def test_a_test_split_has_the_classes_of_the_training_split(tmp_path):
    """One class alone, or two of three, would be numbered otherwise by itself."""
    path = tmp_path / "reviews.jsonl"
    write_jsonl(path, [{"text": "x", "label": mark} for mark in ("c", "b")])
    assert text.read_reviews(path).labels.tolist() == [1, -1]
    assert text.read_reviews(path, names=("a", "b", "c")).labels.tolist() == [2, 1]
    with pytest.raises(BadInput, match="is 'c'; wanted one of 'a', 'b', the labels of"):
        text.read_reviews(path, names=("a", "b"))


def test_vocabulary_is_of_frequent_training_words():
    texts = ["good good film", "good film", "bad film", "bad"]
    assert words.choose_vocabulary(texts, min_count=2) == ("bad", "film", "good")
    assert words.choose_vocabulary(texts, min_count=3) == ("film", "good")
    assert words.choose_vocabulary(texts, min_count=1, max_size=2) == ("film", "good")
    with pytest.raises(ValueError, match="no word occurs 9 times in 4"):
        words.choose_vocabulary(texts, min_count=9)
    with pytest.raises(ValueError, match="no word in 2"):
        words.choose_vocabulary(["...", ""], min_count=1)


def test_reviews_without_a_known_word_are_left_out_and_can_be_counted():
    reviews = text.Reviews(
        ["good", "?", "unheard", "bad good"], np.array([1, 1, -1, -1])
    )
    bags = words.count_words(reviews, ("bad", "good"))
    assert bags.kept.tolist() == [0, 3]
    assert bags.labels.tolist() == [1, -1]
    with pytest.raises(ValueError, match="none of 2 reviews"):
        words.count_words(text.Reviews(["x", ""], np.array([1, -1])), ("good",))


@given(st.lists(st.lists(st.sampled_from("abcde"), min_size=1), min_size=1))
def test_counts_are_those_of_the_word_lists(sequences):
    """The order of words and everything between them is lost, nothing else."""
    texts = [" ".join(sequence) for sequence in sequences]
    labels = np.where(np.arange(len(texts)) % 2, 1, -1)
    bags = words.count_words(text.Reviews(texts, labels), tuple("abcde"))
    ids = [["abcde".index(word) for word in sequence] for sequence in sequences]
    wanted = corpus.from_sequences(ids, labels, vocabulary=5)
    got = from_counts(bags.counts, bags.labels)
    np.testing.assert_array_equal(got.tokens, wanted.tokens)
    np.testing.assert_array_equal(got.counts, wanted.counts)
    np.testing.assert_array_equal(got.labels, wanted.labels)


def test_invented_reviews_have_the_tone_they_were_given():
    """Half of the labels are each sign, and α of the words carries the label."""
    reviews = invented.invent_reviews(seed=1, reviews=400, vocabulary=300)
    assert reviews.labels.sum() == 0
    again = invented.invent_reviews(seed=1, reviews=400, vocabulary=300)
    assert again.texts == reviews.texts
    other = invented.invent_reviews(seed=2, reviews=400, vocabulary=300)
    vocabulary = words.choose_vocabulary(reviews.texts)
    alpha, beta = (
        sparse.importance(sparse.from_csr(bags.counts, bags.labels))
        for bags in (words.count_words(r, vocabulary) for r in (reviews, other))
    )
    assert np.corrcoef(alpha, beta)[0, 1] > 0.8


def test_fingerprint_is_of_the_content(tmp_path):
    first, second = tmp_path / "a" / "x.csv", tmp_path / "b" / "y.csv"
    for path in (first, second):
        path.parent.mkdir()
        path.write_text("text,label\n")
    assert text.fingerprint(first) == text.fingerprint(second)
    assert text.fingerprint(first.parent) != text.fingerprint(second.parent)
    second.write_text("text,label\nx,1\n")
    assert text.fingerprint(first) != text.fingerprint(second)


def test_endings_in_capitals_tabs_gzip_and_lists_are_read_alike(tmp_path):
    write_csv(tmp_path / "REVIEWS.CSV")
    write_jsonl(tmp_path / "reviews.JSONL")
    (tmp_path / "reviews.json").write_text(json.dumps(ROWS, indent=2), "utf-8")
    for name in ("REVIEWS.CSV", "reviews.JSONL", "reviews.json"):
        packed = gzip.compress((tmp_path / name).read_bytes())
        (tmp_path / f"{name}.gz").write_bytes(packed)
        (tmp_path / f"{name}.GZ").write_bytes(packed)
        for ending in ("", ".gz", ".GZ"):
            got = text.read_reviews(tmp_path / f"{name}{ending}")
            assert got.texts == [row["text"] for row in ROWS]
            assert got.labels.tolist() == [1, -1, 1]
    rows = [f"{row['label']}\t{row['text']}" for row in ROWS[1:]]
    (tmp_path / "reviews.tsv").write_text("label\ttext\n" + "\n".join(rows), "utf-8")
    tabs = text.read_reviews(tmp_path / "reviews.tsv")
    assert tabs.texts == [row["text"] for row in ROWS[1:]]
    assert tabs.labels.tolist() == [-1, 1]


@pytest.mark.parametrize("look", ["007", "2020-01-01", "null", "true"])
def test_texts_that_look_like_numbers_and_dates_stay_texts(tmp_path, look):
    path = tmp_path / "reviews.csv"
    path.write_text(f"text,label\n{look},1\n{look},0\n")
    assert text.read_reviews(path).texts == [look, look]


@pytest.mark.parametrize("by", ",;\t|")
def test_the_delimiter_is_the_one_that_splits_the_records(tmp_path, by):
    """By names that are asked for, or by records of one length."""
    path = tmp_path / "reviews.csv"
    for name in ("text", "what, they; wrote|down\there"):
        with path.open("w", newline="", encoding="utf-8") as stream:
            writer = python_csv.writer(stream, delimiter=by)
            writer.writerows([[name, "label"], *(row.values() for row in ROWS)])
        assert text.read_reviews(path, text=name).texts == [row["text"] for row in ROWS]
    # Every delimiter makes records of one length; one makes the columns asked for.
    every = "a,b;c\td|e".replace(by, "")
    lines = [[every, "text", "label"], [every, "good", "1"], [every, "bad", "0"]]
    path.write_text("\n".join(by.join(line) for line in lines))
    assert text.read_reviews(path).texts == ["good", "bad"]


@pytest.mark.parametrize("kind", [pa.binary(), pa.dictionary(pa.int8(), pa.binary())])
def test_parquet_may_store_strings_as_bytes(tmp_path, kind):
    path = tmp_path / "reviews.parquet"
    texts, marks = [row["text"] for row in ROWS], ["pos", "neg", "pos"]
    columns = {"text": texts, "label": marks}
    columns = {
        name: pa.array([entry.encode() for entry in column], kind)
        for name, column in columns.items()
    }
    parquet.write_table(pa.table(columns), path)
    reviews = text.read_reviews(path)
    assert (reviews.texts, reviews.names) == (texts, ("neg", "pos"))


@pytest.mark.parametrize("setting", [{"min_count": -5}, {"max_size": -1}])
def test_sizes_of_a_vocabulary_are_one_or_more(setting):
    with pytest.raises(BadInput, match=f"{next(iter(setting))} -.: wanted a whole"):
        words.choose_vocabulary(["good good film"], **setting)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_byte_order_mark_names_the_encoding(tmp_path, encoding):
    path = tmp_path / "reviews.csv"
    write_csv(path)
    path.write_bytes(path.read_text("utf-8").encode(encoding))
    assert text.read_reviews(path).texts == [row["text"] for row in ROWS]


def labelled(*marks):
    return "text,label\n" + "".join(f"x,{mark}\n" for mark in marks)


FIVE = ["good film,1", "bad film,0", "fine film,1", "dull film,0", "nice film,1"]


def quoted(changes):
    """Five records, some of them with a quote, and one that is quoted as it should."""
    lines = [changes.get(place, line) for place, line in enumerate(FIVE)]
    return "\n".join(["text,label", *lines, '"x, y",0']) + "\n"


VOCABULARIES = "labels of two vocabularies in"
REFUSED = {
    "cut short": ("r.csv.gz", gzip.compress(labelled(*[0, 1] * 999).encode())[:-20],
                  "wanted a .parq"),
    "packed twice": ("r.csv.gz", b"PK", "wanted a .parq"),
    "a cut record": ("r.jsonl", '{"text": "a", "label": 1}\n{"te',
                     "line 2 of .* is not JSON"),
    "a cut list": ("r.json", '[{"text": "a", "label": 1},\n{"te',
                   "the list of .* is not JSON"),
    "deep": ("r.jsonl", "[" * 100_000, "the list of .* is not JSON"),
    "no object": ("r.jsonl", '\n{"text": "a", "label": 1}\n3\n',
                  "line 3 of .* is 3; wanted an object"),
    "another name": ("r.jsonl", '{"text": "a", "label": 1}\n{"text": "a"}\n',
                     "no column 'label' in line 2 of"),
    "no bytes": ("r.parquet", "", "wanted a .parq"),
    "a sheet": ("r.xlsx", "PK", "ends in '.xlsx': wanted a .parq"),
    "Latin letters": ("r.csv", "text,label\na film,0\nun café,1\n".encode("latin-1"),
                      "line 3 of .* is not encoded in UTF-8: convert it first.*latin1"),
    "no mark": ("r.csv", labelled(1, 0).encode("utf-16-le"),
                "line 1 of .* is not encoded in UTF-8: convert it first.*utf-16"),
    "no such column": ("r.csv", "review,stars\na film,1\nbad,0\n",
                       "no column 'text' in .* it has 'review', 'stars': name those"),
    "the label twice": ("r.csv", "text,label,label\na,1,0\n", "columns 'label'"),
    "no header": ("r.txt", "A slow film\t0\nGood!\t1\n", "is a review already, "),
    "words, no header": ("r.tsv", "A film\tpos\nBad\tneg\nGood\tpos\n",
                         "is a review already, "),
    "a field more": ("r.csv", "text,label\na,1\n\na, b,0\n",
                     "line 4 of .*: 3 fields, and 2 in the first line; put a text"),
    "no text": ("r.jsonl", '{"text": 3, "label": 1}\n',
                "the text in line 1 of .* is 3"),
    "half a label": ("r.csv", labelled(1, 0.5),
                     "the label in line 3 of .* is 0.5; wanted a word"),
    "no label": ("r.csv", labelled(""), "the label in line 2 of .* is ''; wanted"),
    "one class": ("r.csv", labelled("pos"), "every label in .* is 'pos'; wanted"),
    "a label a review": ("r.csv", labelled(*range(1001)), "1001 different labels"),
    "words and a number": ("r.csv", labelled("good", "bad", "-1"), VOCABULARIES),
    "capitals": ("r.csv", labelled("Pos", "pos", "neg"), VOCABULARIES),
    "abbreviations": ("r.csv", labelled("pos", "neg", "Positive", "negative"),
                      VOCABULARIES),
    "a quote that is open to the end": ("r.csv", quoted({1: '"bad film,0'}),
                                        "line 3 of .* begins a review whose quot"),
    "a quote that is closed later": (
        "r.csv", quoted({1: '"bad film,0', 3: '"dull film,0'}),
        "line 3 of .* do not mat"),
    "a word in quotes": ("r.csv", quoted({2: '"fine" film,1'}),
                         "line 4 of .* do not match"),
    "quotes in pairs": (
        "r.csv", quoted({0: '"good film,1', 4: 'nice film",1'}),
        "lines 2 to 6 of .* are one review between quotes, and each of them"),
    "quotes in a pair of lines": (
        "r.csv", quoted({0: '"good film,1', 1: 'bad film",0'}),
        "lines 2 to 3 of .* are one review between quotes"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_read_is_one_line_that_names_it(tmp_path, case):
    name, content, message = REFUSED[case]
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(BadInput, match=message) as refused:
        text.read_reviews(path)
    assert str(path) in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_review_may_have_lines_with_delimiters(tmp_path, end):
    """Lines inside quotes are of one review, also where each splits like a record."""
    path = tmp_path / "reviews.csv"
    texts = [f"Good, bad{end}ugly", f"No{end}{end}end", 'a "quote"', "x"]
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = python_csv.writer(stream, lineterminator=end)
        writer.writerows([["text", "label"], *zip(texts, [1, 0, 1, 0], strict=True)])
    assert text.read_reviews(path).texts == texts


@pytest.mark.parametrize("kind", WRITERS)
def test_a_review_of_two_megabytes_is_read(tmp_path, kind):
    long = "many words " * 200_000
    path = tmp_path / f"reviews.{kind}"
    WRITERS[kind](path, [*ROWS, {"text": long, "label": 0}])
    assert text.read_reviews(path).texts[-1] == long


LONG = b"a b c " * 2**13 + b",1\n"
BOMBS = {
    "one line": ("r.csv.gz", b"a", 2**25, "line 1 of .* has more than"),
    "one list": ("r.json.gz", b'["' + b"a" * 99 + b'",\n', 2**18, "the list in .* has"),
    "one quote": ("r.csv.gz", b'text,label\n"' + b"a" * 999 + b"\n", 2**15,
                  "line 2 of .* do not match"),
    "long reviews": ("r.csv.gz", b"text,label\n" + LONG, 2**9, "holds more than"),
    "short reviews": ("r.csv.gz", b"text,label\na,1\n", 2**20, "holds more than"),
}  # fmt: skip


@pytest.mark.parametrize("case", BOMBS)
def test_what_unpacks_to_anything_takes_no_more_memory(tmp_path, monkeypatch, case):
    monkeypatch.setattr(text, "LONGEST", 2**17)
    monkeypatch.setattr(text, "MOST_CHARACTERS", 2**20)
    monkeypatch.setattr(text, "MOST_REVIEWS", 1000)
    name, content, copies, message = BOMBS[case]
    # One header, then a row that is repeated.
    line = content.splitlines(keepends=True)[-1]
    path = tmp_path / name
    with gzip.open(path, "wb", compresslevel=1) as stream:
        stream.write(content)
        for _ in range(256):
            stream.write(line * (copies // 256))
    tracemalloc.start()
    try:
        with pytest.raises(BadInput, match=message):
            text.read_reviews(path)
        assert tracemalloc.get_traced_memory()[1] < 2**22
    finally:
        tracemalloc.stop()
