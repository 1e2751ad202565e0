"""Storage of a sweep: one file per chunk of runs, opened as labelled arrays.

A folder holds `settings.json` and `chunks/00000.npy`, …: tables with one row per run,
each followed by a digest of the settings, the chunk's number and the table. A chunk is
written under another name and then renamed, so a file is always complete; a file with
another digest is not a chunk of its folder. `load("results/default")` opens a folder.
"""

import hashlib
import io
import json
import logging
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..checks import BadInput
from ..files import replacing

if TYPE_CHECKING:
    import xarray

MISSING = -1
"""Status of a run that no finished chunk holds."""
DIGEST = hashlib.sha256().digest_size
"""Bytes at the end of a chunk that say what it is of."""
_LOG = logging.getLogger(__name__)


class DamagedChunk(BadInput):
    """A file in the place of a chunk that is not what was written there."""


def prepare(folder: Path, description: dict[str, Any]) -> None:
    """Make a results folder, or check that it belongs to the same sweep.

    All of the description, which is JSON-able, must agree for results to be mixed.

    Raises:
        BadInput: the folder holds results of other settings, or chunks of which no
            settings say what they are of.
        OSError: the folder cannot be made or written.
    """
    (folder / "chunks").mkdir(parents=True, exist_ok=True)
    path = folder / "settings.json"
    if path.exists():
        return require_same(folder, description)
    if any(path.is_file() for path in _chunks(folder).values()):
        raise BadInput(
            f"{folder} holds chunks, but no settings.json that says what they are of: "
            "restore it, choose another folder, or remove these chunks"
        )
    # The order of the axes is that of the runs: keys stay as they are.
    text = json.dumps(description, indent=2, allow_nan=False) + "\n"
    with replacing(path) as aside:
        aside.write_text(text, encoding="utf-8")


def require_same(folder: Path, description: dict[str, Any]) -> None:
    """Refuse a folder of other settings.

    Raises:
        BadInput: names the first differences.
    """
    found, wanted = read_description(folder), json.loads(json.dumps(description))
    differing = differences(found, wanted)
    # Runs are counted along the axes in their order.
    here, there = (list(each.get("axes", {})) for each in (found, wanted))
    if differing := differing or differences(here, there, "order of axes"):
        raise BadInput(
            f"{folder} holds results of other settings ({'; '.join(differing[:4])}): "
            "choose another folder, or the settings it was started with"
        )


def clear(folder: Path) -> None:
    """Remove all chunks, then their settings: a kill leaves no chunk without them."""
    for path in _chunks(folder).values():
        if path.is_file():
            path.unlink()
    (folder / "settings.json").unlink(missing_ok=True)


def read_description(folder: Path) -> dict[str, Any]:
    """Read the description that a results folder was made with.

    Raises:
        BadInput: no results there, or a damaged description.
    """
    try:
        found = json.loads((folder / "settings.json").read_text("utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise BadInput(
            f"{folder} holds no results (it has no settings.json): name the folder "
            "that a sweep was given with --out"
        ) from None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise BadInput(
            f"{folder}/settings.json is damaged: restore it, or begin again with "
            "--no-resume"
        )
    return found


def differences(here: Any, there: Any, name: str = "") -> list[str]:
    """List the differences of two JSON values, one line each, below a dotted name.

    Example:
        >>> differences({"seeds": 2, "dims": [1]}, {"seeds": 3, "dims": [1]})
        ['seeds: 2, now 3']
    """
    if isinstance(here, dict) and isinstance(there, dict):
        return [
            line
            for key in sorted(here.keys() | there.keys())
            for line in differences(
                here.get(key), there.get(key), f"{name}.{key}".lstrip(".")
            )
        ]
    return [] if here == there else [f"{name}: {here}, now {there}"]


def write_chunk(folder: Path, index: int, rows: np.ndarray) -> None:
    """Write the rows of one chunk, one per run, completely or not at all.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> prepare(folder, {"axes": {"seed": [0, 1]}, "statuses": {"FINE": 0}})
        >>> fields = [("lane", int), ("status", int), ("x", float)]
        >>> rows = np.array([(1, 0, 2.5)], fields)
        >>> write_chunk(folder, 0, rows)
        >>> load_all(folder).x.values.tolist()
        [nan, 2.5]
    """
    buffer = io.BytesIO()
    np.save(buffer, rows, allow_pickle=False)
    body = buffer.getvalue()
    with replacing(_chunk(folder, index)) as aside:
        aside.write_bytes(body + _digest(_settings(folder), index, body))


def read_chunk(folder: Path, index: int) -> np.ndarray:
    """Read the rows of one chunk back.

    Raises:
        DamagedChunk: it is not there, or not what was written.
    """
    return _rows(_chunk(folder, index), index, _settings(folder))


def _rows(path: Path, index: int, settings: str) -> np.ndarray:
    data = path.read_bytes() if path.is_file() else b""
    body, digest = data[:-DIGEST], data[-DIGEST:]
    if _digest(settings, index, body) != digest:
        raise DamagedChunk(
            f"{path} is damaged, or of other settings: give the command again, which "
            "sets it aside and runs what it should hold"
        )
    return np.load(io.BytesIO(body), allow_pickle=False)


def _digest(settings: str, index: int, body: bytes) -> bytes:
    return hashlib.sha256(f"{settings}{index}\n".encode() + body).digest()


def _settings(folder: Path) -> str:
    """What a folder's chunks are of, however its file is laid out."""
    return json.dumps(read_description(folder))


def finished(folder: Path) -> set[int]:
    """List the whole chunks of a folder.

    What has a chunk's name and is not one gets another name, so that it can be run.
    """
    whole, settings = set(), _settings(folder)
    for index, path in _chunks(folder).items():
        try:
            _rows(path, index, settings)
            whole.add(index)
        except DamagedChunk:
            aside = path.rename(f"{path}.{time.time_ns()}.aside")
            _LOG.warning("%s is no chunk of this sweep, and stays as %s", path, aside)
    return whole


def tidy(folder: Path) -> None:
    """Remove temporary files of killed writers, while nobody writes."""
    for path in (*folder.glob(".settings.*"), *(folder / "chunks").glob(".*.npy")):
        path.unlink(missing_ok=True)


def load_all(folder: str | Path) -> "xarray.Dataset":
    """Open a results folder, finished or not, as labelled arrays.

    There is one variable per field over the axes of the grid, and `file`, the number of
    the chunk a run came from. Whole numbers are −1 and others NaN where a run is
    missing; `attrs` holds the description, among it the names of the statuses.

    Raises:
        BadInput: the folder holds no results, or a damaged chunk.
    """
    # A program that only writes saves a third of a second of loading.
    import xarray

    folder = Path(folder)
    description = read_description(folder)
    axes = description.get("axes")
    if not isinstance(axes, dict) or not all(
        isinstance(values, list) for values in axes.values()
    ):
        raise BadInput(f"{folder}/settings.json names no axes: it is of no sweep")
    shape = tuple(len(values) for values in axes.values())
    settings, chunks = json.dumps(description), _chunks(folder)
    indices = sorted(chunks)
    tables = [_rows(chunks[index], index, settings) for index in indices]
    rows = np.concatenate(tables) if tables else np.zeros(0, [("lane", int)])
    columns = {name: rows[name] for name in rows.dtype.names or ()}
    columns["file"] = np.repeat(indices, [len(table) for table in tables]).astype(int)
    variables = {}
    for name, column in columns.items():
        if name == "lane":
            continue
        lost = np.nan if column.dtype.kind == "f" else MISSING
        full = np.full((int(np.prod(shape)), *column.shape[1:]), lost, column.dtype)
        full[rows["lane"]] = column
        point = ["point"] * (column.ndim - 1)
        variables[name] = ([*axes, *point], full.reshape(*shape, *column.shape[1:]))
    return xarray.Dataset(variables, coords=axes, attrs=description)


def _chunk(folder: Path, index: int) -> Path:
    return folder / "chunks" / f"{index:05d}.npy"


def _chunks(folder: Path) -> dict[int, Path]:
    """Whatever has exactly the name of a chunk, by its number."""
    found = {}
    for path in (folder / "chunks").glob("*.npy"):
        if path.stem.isdecimal() and path == _chunk(folder, int(path.stem)):
            found[int(path.stem)] = path
    return found
