"""Damaged folders and files, given to the programs that read them."""

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from experiments import compare
from experiments.figures import __main__ as figures
from experiments.report import study as report
from experiments.text import data, explain
from jaxselect.sweep import store
from tests.bad_inputs.lines import Line
from tests.experiments.invented_results import invent_sweep

TEXT = {
    "empty": b"",
    "a brace": b"{",
    "nested": b"[" * 100_000,
    "a list": b"[1, 2]",
    "null": b"null",
    "a number": b"1e999",
    "not UTF-8": b"\xff\xfe{}",
    "zeros": b"\0" * 100,
    "an object": b"{}",
    "no axes": b'{"grid": {}, "statuses": {}}',
    "axes of text": b'{"axes": "a", "grid": {}, "statuses": {}}',
}
"""Contents of a file that is to describe results."""
REVIEWS = {
    "empty.csv": b"",
    "heads.csv": b"text,label\n",
    "no column.csv": b"review,label\na,1\nb,0\n",
    "twice.csv": b"text,text,label\na,b,1\n",
    "one class.csv": b"text,label\n" + b"a good film,1\n" * 50,
    "half a label.csv": b"text,label\na,0.5\nb,1\n",
    "no label.csv": b"text,label\na,\nb,1\n",
    "ragged.csv": b"text,label\na,1,2\nb\n",
    "latin.csv": "text,label\nun été,1\nb,0\n".encode("latin-1"),
    "zeros.csv": b"\0" * 400,
    "nested.json": b"[" * 100_000,
    "no objects.json": b"[1, 2]",
    "broken.jsonl": b'{"text": "a", "label": 1}\n{"text"',
    "not packed.csv.gz": b"text,label\na,1\n",
    "no table.parquet": b"PAR1 and then nothing",
    "unknown.rst": b"text,label\na,1\n",
    "no heads.txt": b"a good film\t1\na bad film\t0\n" * 50,
    "two vocabularies.csv": b"text,label\na,pos\nb,neg\nc,1\nd,0\n" * 20,
    "wide.csv": "text,label\na,1\nb,0\n".encode("utf-16-le"),
    "no ending": b"text,label\na,1\n",
    "three classes.csv": b"text,label\na,1\nb,2\nc,3\n" * 20,
}
"""Files that hold no reviews of two classes, by their name."""


def folder_lines() -> Iterator[tuple[str, Line]]:
    """A name and a command line for every damaged folder or file."""
    top = Path(tempfile.mkdtemp())
    good = invent_sweep(top / "good", points=0)
    for name, spoil in _spoilt().items():
        folder = invent_sweep(top / name, points=0)
        spoil(folder)
        if name != "other statuses":
            yield f"compare {name}", _compare(good, folder)
            yield f"compare {name} first", _compare(folder, good)
        yield f"report {name}", _line(report, "report", folder, "--out", top / "page")
        yield f"figures {name}", _figures(folder)
    for name, words in {
        "no model": ("a film", "--model", top / "none"),
        "a sweep": ("a film", "--model", good),
        "no text": (" ", "--model", good),
        "a folder as text": (str(top), "--model", top / "none"),
    }.items():
        yield f"explain {name}", _line(explain, "main", *words)
    for tolerance in ("nan", "-1", "inf", "1e400", "abc"):
        yield (
            f"compare --tolerance {tolerance}",
            _compare(good, good, f"--tolerance={tolerance}"),
        )


def reviews_calls() -> Iterator[tuple[str, Callable[[], Any]]]:
    """A name and a reader for every file that holds no reviews."""
    top = Path(tempfile.mkdtemp())
    for name, content in REVIEWS.items():
        path = top / name
        path.write_bytes(content)
        yield f"reviews {name}", partial(data.load, data.Source(train=path, test=path))


def _spoilt() -> dict[str, Callable[[Path], Any]]:
    """Damages to a sweep's folder, by name."""

    def described(content: bytes) -> Callable[[Path], None]:
        def spoil(folder: Path) -> None:
            for name in ("settings.json", "settings.backup.json"):
                (folder / name).write_bytes(content)

        return spoil

    def pipe(folder: Path) -> None:
        _chunk(folder).unlink()
        os.mkfifo(_chunk(folder))

    def status(folder: Path) -> None:
        changed = store.describe(folder) | {"statuses": {"UNHEARD_OF": 0}, "grid": {}}
        described(json.dumps(changed).encode())(folder)

    found: dict[str, Callable[[Path], Any]] = {
        f"described by {name}": described(content) for name, content in TEXT.items()
    }
    return found | {
        "without settings": lambda folder: [
            path.unlink() for path in folder.glob("settings.*json")
        ],
        "cut chunk": lambda folder: _chunk(folder).write_bytes(
            _chunk(folder).read_bytes()[:-9]
        ),
        "empty chunk": lambda folder: _chunk(folder).write_bytes(b""),
        "chunk of text": lambda folder: _chunk(folder).write_bytes(b"hello"),
        "pickled chunk": lambda folder: np.save(
            _chunk(folder), np.array([{}]), allow_pickle=True
        ),
        "chunk that is a pipe": pipe,
        "chunk twice": lambda folder: (folder / "chunks" / "00009.npy").write_bytes(
            _chunk(folder).read_bytes()
        ),
        "other statuses": status,
    }


def _chunk(folder: Path) -> Path:
    return folder / "chunks" / "00000.npy"


def _line(module: Any, entry: str, *words: Any) -> Line:
    arguments = tuple(map(str, words))
    return Line(module.__name__, getattr(module, entry), module.PRESETS, arguments)


def _compare(*words: Any) -> Line:
    return _line(compare, "compare", *words)


def _figures(folder: Path) -> Line:
    """The figures' own command line, as a study that raises what it says."""

    def study(settings: Any) -> dict:
        if code := figures.main([str(folder)]):
            raise SystemExit(code)
        return {}

    study.__module__ = compare.__name__
    return Line(compare.__name__, study, compare.PRESETS, ())
