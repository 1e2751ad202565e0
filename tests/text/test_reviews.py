"""Reading reviews from every kind of source, and what is said of bad ones."""

import csv as python_csv
import gzip
import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from jaxselect.checks import BadInput
from jaxselect.data import corpus, sparse
from jaxselect.model import selection as importance
from jaxselect.text import invented, words
from jaxselect.text import reviews as text
from tests.tolerances import assert_close

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


def test_other_column_names(tmp_path):
    path = tmp_path / "reviews.csv"
    write_csv(path, [{"stars": 1, "words": "good", "id": 7}])
    reviews = text.read_reviews(path, text="words", label="stars")
    assert reviews == (["good"], np.array([1]), (0, 1))


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        (ROWS, {"text": "review"}, "no column 'review'.*'text', 'label'"),
        (ROWS, {"label": "stars"}, "no column 'stars'"),
        ([{"text": "x", "label": None}], {}, "label 0 of .* is None; wanted a word"),
        ([{"text": "x", "label": 0.5}], {}, "label 0 of .* is 0.5; wanted a word"),
        ([{"text": "x", "label": " "}], {}, "label 0 of .* is ' '; wanted a word"),
        ([{"text": "x", "label": "pos"}], {}, "every label in .* is 'pos'; wanted"),
        ([{"text": "x", "label": n} for n in range(1001)], {}, "1001 different labels"),
        ([{"text": 3, "label": 1}], {}, "text 0 of .* is 3"),
        (
            [{"text": "x", "label": "neutral"}],
            {"names": ("neg", "pos")},
            "is 'neutral'; wanted one of 'neg', 'pos', the labels of the training",
        ),
    ],
)
def test_bad_columns_and_labels(tmp_path, rows, options, message):
    path = tmp_path / "reviews.parquet"
    write_parquet(path, rows)
    with pytest.raises(ValueError, match=message):
        text.read_reviews(path, **options)


def test_unreadable_sources(tmp_path):
    with pytest.raises(FileNotFoundError, match="does not exist"):
        text.read_reviews(tmp_path / "nothing.parquet")
    for kind in WRITERS:
        path = tmp_path / f"corrupt.{kind}"
        path.write_bytes(b"\xff\xfe\x00PAR1 garbage \x00" * 9)
        with pytest.raises(ValueError, match="corrupt"):
            text.read_reviews(path)
    (tmp_path / "reviews.rst").write_text("good")
    with pytest.raises(ValueError, match=r"'.rst': wanted a .parquet"):
        text.read_reviews(tmp_path / "reviews.rst")


@pytest.mark.parametrize(
    ("marks", "labels", "names"),
    [
        ([4, 0, 1, 2, 3], [4, 0, 1, 2, 3], (0, 1, 2, 3, 4)),
        ([1, 2, 1], [-1, 1, -1], (1, 2)),
        ([-1, 1, 0], [0, 2, 1], (-1, 0, 1)),
        ([10, 9, 10], [1, -1, 1], (9, 10)),
        ([1.0, 0.0], [1, -1], (0, 1)),
        ([True, False], [1, -1], (0, 1)),
        (["pos", "neg ", "pos"], [1, -1, 1], ("neg", "pos")),
        (["sport", "art", "news"], [2, 0, 1], ("art", "news", "sport")),
        (["10", "9", "-1"], [1, 2, 0], ("-1", "10", "9")),
        (["art", "arts", "news"], [0, 1, 2], ("art", "arts", "news")),
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


def test_line_breaks_and_apostrophes():
    assert words.words_of("Don't<br />STOP<BR>now 10/10") == [
        "don't",
        "stop",
        "now",
        "10",
        "10",
    ]


@given(st.lists(st.lists(st.sampled_from("abcde"), min_size=1), min_size=1))
def test_counts_are_those_of_the_word_lists(sequences):
    """The order of words and everything between them is lost, nothing else."""
    texts = [" ".join(sequence) for sequence in sequences]
    labels = np.where(np.arange(len(texts)) % 2, 1, -1)
    bags = words.count_words(text.Reviews(texts, labels), tuple("abcde"))
    ids = [["abcde".index(word) for word in sequence] for sequence in sequences]
    wanted = corpus.from_sequences(ids, labels, vocabulary=5)
    got = corpus.from_counts(bags.counts, bags.labels)
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


def test_text_and_padded_importance_agree():
    reviews = invented.invent_reviews(seed=0, reviews=50, vocabulary=100)
    bags = words.count_words(reviews, words.choose_vocabulary(reviews.texts))
    ragged = sparse.importance(sparse.from_csr(bags.counts, bags.labels))
    padded = corpus.from_counts(bags.counts, bags.labels)
    assert_close(ragged, importance.importance(padded))


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


def test_a_review_may_be_longer_than_a_block_of_the_reader(tmp_path):
    path = tmp_path / "reviews.jsonl"
    write_jsonl(path, [{"text": "a " * 2**20, "label": mark} for mark in (0, 1)])
    assert [len(found) for found in text.read_reviews(path).texts] == [2**21] * 2


WHOLE = b"text,label\na,0\nb,1\n"
DAMAGED = {
    "cut.csv.gz": gzip.compress(WHOLE * 1000)[:-20],
    "plain.csv.gz": WHOLE,
    "gzipped.csv": gzip.compress(WHOLE),
    "empty.csv": b"",
    "empty.parquet": b"",
    "three.csv": b"text,label\na,0,1\n",
    "open.csv": b'text,label\n"a,1\n',
    "cut.jsonl": b'{"text": "a", "label": 1}\n{"te',
    "kinds.jsonl": b'{"text": "a", "label": 1}\n{"text": "b", "label": "x"}\n',
    "cut.json": b'[{"text": "a", "la',
    "numbers.json": b"[1, 2]",
    "sheet.xlsx": b"PK",
    "reviews.parquet.gz": b"",
    "reviews": WHOLE,
}


@pytest.mark.parametrize("name", DAMAGED)
def test_what_cannot_be_read_is_one_line_that_names_it(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(DAMAGED[name])
    with pytest.raises(BadInput, match=r"wanted a \.parq|not encoded") as refused:
        text.read_reviews(path)
    assert str(path) in str(refused.value) and "\n" not in str(refused.value)


def test_a_file_that_may_not_be_read_is_the_systems_to_explain(tmp_path, monkeypatch):
    def refused(*_, **__):
        raise PermissionError(13, "Permission denied", "reviews.csv")

    monkeypatch.setattr(text.pyarrow, "input_stream", refused)
    write_csv(tmp_path / "reviews.csv")
    with pytest.raises(PermissionError):
        text.read_reviews(tmp_path / "reviews.csv")


@pytest.mark.parametrize("look", ["007", "2020-01-01", "null", "true"])
def test_texts_that_look_like_numbers_and_dates_stay_texts(tmp_path, look):
    path = tmp_path / "reviews.csv"
    path.write_text(f"text,label\n{look},1\n{look},0\n")
    assert text.read_reviews(path).texts == [look, look]


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_another_encoding_is_named(tmp_path, kind):
    path = tmp_path / f"reviews.{kind}"
    WRITERS[kind](path, [{"text": "un café", "label": 1}])
    path.write_text(
        '{"text": "un café", "label": 1}\n'
        if kind == "jsonl"
        else "text,label\nun café,1\n",
        "latin-1",
    )
    with pytest.raises(BadInput, match="is not encoded in UTF-8: convert it"):
        text.read_reviews(path)


@pytest.mark.parametrize("ending", ["csv", "tsv", "txt"])
@pytest.mark.parametrize("by", ",;\t|")
def test_the_delimiter_is_the_one_that_splits_the_records(tmp_path, ending, by):
    """By names that are asked for, or by records of one length."""
    path = tmp_path / f"reviews.{ending}"
    for name in ("text", "what, they; wrote|down\there"):
        with path.open("w", newline="", encoding="utf-8") as stream:
            writer = python_csv.writer(stream, delimiter=by)
            writer.writerows([[name, "label"], *(row.values() for row in ROWS)])
        assert text.read_reviews(path, text=name).texts == [row["text"] for row in ROWS]
        with pytest.raises(BadInput, match=r"it has '.*', 'label': name those"):
            text.read_reviews(path, text="words")
    # Every delimiter makes records of one length; one makes the columns asked for.
    every = "a,b;c\td|e".replace(by, "")
    lines = [[every, "text", "label"], [every, "good", "1"], [every, "bad", "0"]]
    path.write_text("\n".join(by.join(line) for line in lines))
    assert text.read_reviews(path).texts == ["good", "bad"]


ENCODED = ["utf-8-sig", "utf-16", "utf-16-be", "utf-16-le", "utf-32", "utf-32-be"]


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
@pytest.mark.parametrize("encoding", ENCODED)
def test_a_byte_order_mark_names_the_encoding(tmp_path, kind, encoding):
    path = tmp_path / f"reviews.{kind}"
    WRITERS[kind](path)
    plain = path.read_text("utf-8")
    marked = plain if encoding[-1].isdigit() or "sig" in encoding else "\ufeff" + plain
    path.write_bytes(marked.encode(encoding))
    assert text.read_reviews(path).texts == [row["text"] for row in ROWS]


UNDECODABLE = {
    "without its mark": "text,label\na,1\nb,0\n".encode("utf-16-le"),
    "cut within a letter": "text,label\na,1\nb,0\n".encode("utf-16")[:-1],
    "late in the file": b"text,label\n" + b"a,1\n" * 10**5 + b"\xe9,0\n",
    "a column that is not read": b"text,label,who\na,1,\xe9\nb,0,x\n",
}


@pytest.mark.parametrize("case", UNDECODABLE)
def test_bytes_of_an_unknown_encoding_are_one_line_that_says_so(tmp_path, case):
    path = tmp_path / "reviews.csv"
    path.write_bytes(UNDECODABLE[case])
    with pytest.raises(
        BadInput, match="is not encoded in UTF-8: convert it"
    ) as refused:
        text.read_reviews(path)
    assert "\n" not in str(refused.value)


KINDS_OF_BYTES = [pa.binary(), pa.large_binary(), pa.dictionary(pa.int8(), pa.binary())]


@pytest.mark.parametrize("kind", KINDS_OF_BYTES, ids=str)
def test_parquet_may_store_strings_as_bytes(tmp_path, kind):
    path = tmp_path / "reviews.parquet"
    texts, marks = [row["text"] for row in ROWS], ["pos", "neg", "pos"]
    columns = [[x.encode(coding) for x in texts] for coding in ("utf-8", "latin-1")]
    marks = pa.array([x.encode() for x in marks], kind)
    for column in columns:
        table = pa.table({"text": pa.array(column, kind), "label": marks})
        parquet.write_table(table, path)
        if column is columns[0]:
            reviews = text.read_reviews(path)
            assert (reviews.texts, reviews.names) == (texts, ("neg", "pos"))
    with pytest.raises(BadInput, match="not encoded in UTF-8: write its columns"):
        text.read_reviews(path)


VOCABULARIES = {
    "numbers beside words": ("pos", "neg", "1", "0"),
    "one number among words": ("good", "bad", "-1"),
    "many words and a number": (*"abcdefgh", "3"),
    "capitals": ("Pos", "pos", "neg"),
    "abbreviations": ("pos", "neg", "Positive", "negative"),
}


@pytest.mark.parametrize("case", VOCABULARIES)
@pytest.mark.parametrize("kind", WRITERS)
def test_labels_of_two_vocabularies_are_shown_and_refused(tmp_path, case, kind):
    path = tmp_path / f"reviews.{kind}"
    marks = VOCABULARIES[case]
    WRITERS[kind](path, [{"text": "x", "label": mark} for mark in marks * 2])
    with pytest.raises(BadInput, match="labels of two vocabularies in") as refused:
        text.read_reviews(path)
    assert repr(marks[-1]) in str(refused.value) and repr(marks[0]) in str(
        refused.value
    )


HEADLESS = {
    "numbers behind tabs": ("r.txt", "A very slow film, aimless\t0\nGood!\t1\n"),
    "a number in front": ("r.csv", '1,"A film, slow"\n0,Bad\n'),
    "a number by no comma": ("r.csv", "A slow, aimless film;0\nGood;1\n"),
    "words": ("r.tsv", "A film\tpos\nBad\tneg\nGood\tpos\n"),
    "spaces about numbers": ("r.txt", "A film \t 1\nBad \t 0\n"),
}


@pytest.mark.parametrize("case", HEADLESS)
def test_a_missing_header_is_asked_for(tmp_path, case):
    name, content = HEADLESS[case]
    (tmp_path / name).write_text(content)
    wanted = "the first line of .* is a review already, .*: put a line above it"
    with pytest.raises(BadInput, match=wanted):
        text.read_reviews(tmp_path / name)
    by = "\t" if "\t" in content else ";" if ";" in content else ","
    heads = ("label", "text") if content[0] == "1" else ("text", "label")
    (tmp_path / name).write_text(f"{by.join(heads)}\n{content}")
    assert len(text.read_reviews(tmp_path / name).texts) == content.count("\n")


@pytest.mark.parametrize("heads", ["review,stars", "0,1", ",0,1", "What?,Good (1-5)"])
def test_a_header_of_other_names_is_no_review(tmp_path, heads):
    path, first = tmp_path / "reviews.csv", "0," * heads.startswith(",")
    path.write_text(f"{heads}\n{first}a film,1\n{first}bad,0\n")
    with pytest.raises(BadInput, match=r"it has .*: name those wanted"):
        text.read_reviews(path)


UNUSABLE = {
    "a column twice": ("r.csv", "text,label,text\na,1,b\n", "several columns 'text'"),
    "the label twice": ("r.csv", "text,label,label\na,1,0\n", "columns 'label'"),
    "lists": ("r.jsonl", '{"text": "a", "label": [1]}\n', r"is \[1\]; wanted"),
    "labels as objects": (
        "r.jsonl",
        '{"text": "a", "label": {"x": 1}}\n',
        "wanted a w",
    ),
}


@pytest.mark.parametrize("case", UNUSABLE)
def test_columns_that_say_two_things_are_refused(tmp_path, case):
    name, content, message = UNUSABLE[case]
    (tmp_path / name).write_text(content)
    with pytest.raises(BadInput, match=message):
        text.read_reviews(tmp_path / name)


@pytest.mark.parametrize("setting", [{"min_count": -5}, {"max_size": -1}])
def test_sizes_of_a_vocabulary_are_one_or_more(setting):
    with pytest.raises(BadInput, match=f"{next(iter(setting))} -.: wanted a whole"):
        words.choose_vocabulary(["good good film"], **setting)
