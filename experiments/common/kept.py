"""Pieces of a study that are stored as they finish: the same command goes on there."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from experiments.common.processes import side_by_side
from jaxselect.files import writing
from jaxselect.sweep.store import finished, prepare, write_chunk


def resumed(
    settings: Any,
    work: Callable[..., Any],
    pieces: Sequence[Any],
    what: str,
    *,
    ignored: tuple[str, ...] = (),
    lanes: Sequence[np.ndarray] | None = None,
    **about: Any,
) -> list[Any]:
    """Results of all pieces in order; those on disk are read.

    Args:
        settings: of a study with `workers`; a folder of other settings is refused.
        work: from folder, numbers of its whole files, and as for `side_by_side`.
        pieces: independent of each other.
        what: the pieces are, for the progress bar.
        ignored: settings, besides `out`, `json` and `workers`, that no file depends on.
        lanes: of every file; by default they are not compared.
        about: what the folder is described by besides the settings.
    """
    folder, left_out = settings.out.absolute(), {"out", "json", "workers", *ignored}
    kept = dataclasses.asdict(settings)
    kept = {name: kept[name] for name in kept if name not in left_out}
    with writing(folder):
        prepare(folder, {"axes": {}, **about, **kept})
        here = partial(work, folder, finished(folder, lanes)[0])
        return side_by_side(here, pieces, settings.workers, what)


def write_columns(
    folder: Path, index: int, columns: Mapping[str, np.ndarray], first: int = 0
) -> None:
    """Write columns of one length as a file, with lane numbers.

    Args:
        folder: of the study.
        index: of the file.
        columns: by name, with any shape behind the first axis.
        first: lane of the first row.
    """
    kinds = [(name, one.dtype, one.shape[1:]) for name, one in columns.items()]
    number = len(next(iter(columns.values())))
    rows = np.zeros(number, [("lane", np.int64), *kinds])
    rows["lane"] = first + np.arange(number)
    for name, column in columns.items():
        rows[name] = column
    write_chunk(folder, index, rows)
