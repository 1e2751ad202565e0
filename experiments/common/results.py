"""Results of a study on disk: one writer, one reader.

A folder holds `results.json` with settings, results and provenance, `arrays.npz`, and
a figure drawn from these two. Every file is there whole or not
at all; a digest in `results.json` ties the two together, so that a reader never takes
a damaged file, or one of another run, for results.
"""

import dataclasses
import enum
import hashlib
import io
import json
import math
import os
import shlex
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments.common.devices import provenance
from experiments.common.files import regular
from experiments.common.flags import to_flags
from jaxselect.checks import BadInput
from jaxselect.files import replacing

ILL_FORMED = (BadInput, LookupError, ValueError, TypeError, AttributeError, OSError)
"""Errors that reading damaged results, or those of another version, may raise."""
FORMAT = 1
"""Version of what is in the files; a reader refuses any other."""


class Finished(NamedTuple):
    """Results of a study, read from disk.

    Attributes:
        settings: it was run with.
        results: plain numbers; NaN where a number was not finite or not there.
        arrays: by name.
        provenance: of `devices.provenance`.
        study: name of the program that ran; None where it did not say.
        command: that runs it again; likewise.
    """

    settings: dict[str, Any]
    results: dict[str, Any]
    arrays: dict[str, np.ndarray]
    provenance: dict[str, Any]
    study: str | None = None
    command: str | None = None


def prepare(out: Path) -> None:
    """Refuse a folder for results that could not be written in the end.

    Args:
        out: the folder, there or not; nothing is made.

    Raises:
        BadInput: a file is in its place, or writing is not allowed there.

    Example:
        >>> prepare(Path(__file__) / "results")
        Traceback (most recent call last):
        jaxselect.checks.BadInput: --out .../results.py/results: .../results.py is ...
    """
    there = out.absolute()
    while not there.exists():
        there = there.parent
    if not there.is_dir():
        raise BadInput(f"--out {out}: {there} is a file; name a folder")
    if not os.access(there, os.W_OK | os.X_OK):
        raise BadInput(f"--out {out}: {there} cannot be written; name another folder")


def write(
    folder: Path,
    *,
    settings: Any,
    results: Mapping[str, Any],
    arrays: Mapping[str, Any] | None = None,
) -> None:
    """Write what a study found.

    Raises:
        TypeError: a value that has no plain form, with its name.
        OSError: what the operating system says of the disk.

    Example:
        >>> import tempfile
        >>> folder, settings = Path(tempfile.mkdtemp()), dataclasses.make_dataclass
        >>> chosen = settings("Settings", ["seed"])(seed=7)
        >>> write(
        ...     folder, settings=chosen, results={"loss": np.nan}, arrays={"a": [1, 2]}
        ... )
        >>> found = read(folder)
        >>> found.settings, found.results, found.arrays["a"].tolist()
        ({'seed': 7}, {'loss': nan}, [1, 2])
    """
    columns = {name: np.asarray(value) for name, value in (arrays or {}).items()}
    for name, column in columns.items():
        if column.dtype.kind not in "biufcU":
            raise TypeError(f"arrays.{name}: cannot keep an array of {column.dtype}")
    packed = io.BytesIO()
    np.savez(packed, allow_pickle=False, **columns)
    as_data = to_json(_by_name(settings), "settings")
    body = {
        "format": FORMAT,
        **_origin(settings, as_data),
        "settings": as_data,
        "results": to_json(results, "results"),
        "provenance": to_json(provenance(), "provenance"),
        "arrays": hashlib.sha256(packed.getvalue()).hexdigest(),
    }
    text = json.dumps(body | {"digest": _digest(body)}, indent=1, allow_nan=False)
    with replacing(folder / "arrays.npz") as aside:
        aside.write_bytes(packed.getvalue())
    with replacing(folder / "results.json") as aside:
        aside.write_text(text + "\n", encoding="utf-8")


def read(folder: Path) -> Finished:
    """Open what `write` left.

    Raises:
        BadInput: no results there, damaged ones, or those of another version.

    Example:
        >>> read(Path("no/such/folder"))
        Traceback (most recent call last):
        jaxselect.checks.BadInput: no/such/folder holds no finished results ...
    """
    path = folder / "results.json"
    try:
        body = json.loads(regular(path).read_text(encoding="utf-8"))
        packed = regular(folder / "arrays.npz").read_bytes()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise BadInput(
            f"{folder} holds no finished results ({Path(error.filename).name} is "
            "missing): name the folder that a study was given with --out"
        ) from error
    except BadInput:
        raise
    except (ValueError, RecursionError) as error:
        raise _damaged(path) from error
    if not isinstance(body, dict):
        raise _damaged(path)
    if body.get("format") != FORMAT:
        raise BadInput(
            f"{path} is of another version (format {body.get('format')}, wanted "
            f"{FORMAT}): run the study again"
        )
    if body.pop("digest", None) != _digest(body):
        raise _damaged(path)
    if body["arrays"] != hashlib.sha256(packed).hexdigest():
        raise _damaged(folder / "arrays.npz")
    try:
        with np.load(io.BytesIO(packed), allow_pickle=False) as kept:
            arrays = dict(kept)
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise _damaged(folder / "arrays.npz") from error
    return Finished(
        settings=body["settings"],
        results=_numbers(body["results"]),
        arrays=arrays,
        provenance=body["provenance"],
        study=body.get("study"),
        command=body.get("command"),
    )


def to_json(value: Any, name: str = "results") -> Any:
    """The same as JSON can hold it; nothing becomes text that was not meant to.

    A number that is not finite becomes null (JSON has no other), and `read` makes NaN
    of it; None is written alike. Paths become their text, enumerations their name,
    NumPy's single numbers Python's.

    Args:
        value: dictionaries with names, lists and tuples of single values.
        name: dotted, of the place.

    Returns:
        Dictionaries, lists, text, numbers, truth values and None.

    Raises:
        TypeError: anything else, an array among it; says where.

    Example:
        >>> to_json({"loss": np.float32(np.inf), "steps": np.int64(3), "at": Path("a")})
        {'loss': None, 'steps': 3, 'at': 'a'}
        >>> to_json({"scores": {"mean": np.zeros(2)}})
        Traceback (most recent call last):
        TypeError: results.scores.mean: ndarray cannot be written as JSON
    """
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"{name}: the key {key!r} is no text")
        return {key: to_json(entry, f"{name}.{key}") for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(entry, f"{name}.{place}") for place, entry in enumerate(value)]
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int | str):
        return value
    raise TypeError(f"{name}: {type(value).__name__} cannot be written as JSON")


def _by_name(settings: Any) -> dict[str, Any]:
    """Settings by name; nested ones likewise, unless they describe themselves."""
    found = {}
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if hasattr(value, "described"):
            value = value.described()
        elif dataclasses.is_dataclass(value) and not isinstance(value, type):
            value = _by_name(value)
        found[field.name] = value
    return found


def _origin(settings: Any, as_data: dict[str, Any]) -> dict[str, str | None]:
    """The study whose settings these are, and the command that runs it with them."""
    module = sys.modules.get(type(settings).__module__)
    name = getattr(getattr(module, "__spec__", None), "name", "")
    if not name.startswith("experiments."):
        return {"study": None, "command": None}
    for part in (".__main__", ".study"):
        name = name.removesuffix(part)
    preset = getattr(module, "PRESETS", {}).get(as_data.get("preset"))
    usual = {} if preset is None else to_json(_by_name(preset), "preset")
    words = ["python", "-m", name, *to_flags(as_data, usual)]
    return {"study": name, "command": shlex.join(words)}


def _digest(body: Mapping[str, Any]) -> str:
    text = json.dumps(body, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _numbers(value: Any) -> Any:
    """Null read back as NaN."""
    if isinstance(value, dict):
        return {key: _numbers(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_numbers(entry) for entry in value]
    return math.nan if value is None else value


def _damaged(path: Path) -> BadInput:
    return BadInput(f"{path} is damaged: run the study again")
