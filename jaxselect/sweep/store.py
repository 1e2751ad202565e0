"""Storage of a sweep: one file per chunk of lanes, opened as labelled arrays.

A folder holds `settings.json` and `chunks/00000.npy`, …: tables with one
row per lane, followed by a checksum. A chunk is written under another name and then
renamed, so a file is always complete. `load("results/default")` opens a folder.
"""

import io
import json
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..checks import BadInput
from ..files import regular, replacing

if TYPE_CHECKING:
    import xarray

MISSING = -1
"""Status of a lane that no finished chunk holds."""


class DamagedChunk(BadInput):
    """A chunk file that is cut short or altered."""


def prepare(folder: Path, description: dict[str, Any]) -> None:
    """Make a results folder, or check that it belongs to the same sweep.

    Args:
        folder: where the results go.
        description: JSON-able; all of it must agree for results to be mixed.

    Raises:
        BadInput: the folder holds results of other settings; names each difference.
        OSError: the folder cannot be made or written.
    """
    wanted = json.loads(json.dumps(description))
    (folder / "chunks").mkdir(parents=True, exist_ok=True)
    path = folder / "settings.json"
    if path.exists():
        found = read_description(folder)
        differing = differences(found, wanted)
        # Lanes are counted along the axes in their order.
        here, there = (list(each.get("axes", {})) for each in (found, wanted))
        if differing := differing or differences(here, there, "order of axes"):
            raise BadInput(
                f"{folder} holds results of other settings "
                f"({'; '.join(differing[:4])}): choose another folder, or the settings "
                "it was started with"
            )
    # The order of the axes is that of the lanes: keys stay as they are.
    text = json.dumps(wanted, indent=2, allow_nan=False) + "\n"
    if not path.exists():
        with replacing(path) as aside:
            aside.write_text(text)


def read_description(folder: Path) -> dict[str, Any]:
    """Read the description that a results folder was made with.

    Raises:
        BadInput: no results there, or a damaged description.
    """
    try:
        found = json.loads(regular(folder / "settings.json").read_text("utf-8"))
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
    """Write one chunk, completely or not at all.

    Args:
        folder: a folder made by `prepare`.
        index: number of the chunk.
        rows: structured array, one row per lane, with the field `lane`.

    Raises:
        OSError: what the operating system says of the disk.

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
        aside.write_bytes(body + zlib.crc32(body).to_bytes(4, "little"))


def read_chunk(folder: Path, index: int) -> np.ndarray:
    """Read the rows of one chunk back.

    Raises:
        DamagedChunk: the file is not what was written.
        FileNotFoundError: it was never written.
    """
    data = regular(_chunk(folder, index)).read_bytes()
    body, checksum = data[:-4], data[-4:]
    if zlib.crc32(body).to_bytes(4, "little") != checksum:
        raise DamagedChunk(f"{_chunk(folder, index)} is damaged")
    return np.load(io.BytesIO(body), allow_pickle=False)


def finished(
    folder: Path, lanes: Sequence[np.ndarray] | None = None
) -> tuple[set[int], list[int]]:
    """List complete chunks, and damaged ones, which are removed.

    Args:
        folder: a folder made by `prepare`.
        lanes: of every chunk; one that holds other lanes counts as damaged. Not looked
            at by default.

    Returns:
        Numbers of whole chunks; numbers of removed ones.

    Example:
        >>> finished(Path("no/such/folder"))
        (set(), [])
    """
    whole, damaged = set(), []
    for path in sorted((folder / "chunks").glob("[0-9]*.npy")):
        index = int(path.stem)
        if _holds(folder, index, lanes):
            whole.add(index)
        else:
            path.unlink()
            damaged.append(index)
    return whole, damaged


def _holds(folder: Path, index: int, lanes: Sequence[np.ndarray] | None) -> bool:
    """Whether a chunk is complete and holds the planned lanes."""
    try:
        held = read_chunk(folder, index)["lane"]
    except DamagedChunk:
        return False
    return lanes is None or (index < len(lanes) and np.array_equal(held, lanes[index]))


def tidy(folder: Path) -> None:
    """Remove temporary files of killed writers, while nobody writes."""
    for path in (folder / "chunks").glob(".*.npy"):
        path.unlink(missing_ok=True)


def load_all(folder: str | Path) -> "xarray.Dataset":
    """Open a results folder, finished or not, as labelled arrays.

    Args:
        folder: that a sweep wrote.

    Returns:
        One variable per field over the axes of the grid, and `file`, the number of the
        chunk a lane came from. Whole numbers are −1 and others NaN where a lane is
        missing; `attrs` holds the description, among it the names of the statuses.

    Raises:
        BadInput: the folder holds no results, a damaged chunk, or one chunk twice.
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
    indices = sorted(int(path.stem) for path in (folder / "chunks").glob("[0-9]*.npy"))
    tables = [read_chunk(folder, index) for index in indices]
    rows = np.concatenate(tables) if tables else np.zeros(0, [("lane", int)])
    columns = {name: rows[name] for name in rows.dtype.names or ()}
    columns["file"] = np.repeat(indices, [len(table) for table in tables]).astype(int)
    if len(rows) and int(np.prod(shape)) <= rows["lane"].max():
        raise DamagedChunk(f"{folder} holds runs that its settings.json does not name")
    lanes, first = np.unique(rows["lane"], return_index=True)
    if len(lanes) < len(rows):
        again = int(columns["file"][np.setdiff1d(np.arange(len(rows)), first)[0]])
        raise DamagedChunk(
            f"{_chunk(folder, again)} holds runs that another chunk holds too: give "
            "the sweep's command again, and it runs what is lost"
        )
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
