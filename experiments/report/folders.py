"""Results on disk, whole or not: what the report is made of."""

import datetime
import os
import re
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import xarray as xr

from experiments.common.files import regular
from experiments.common.flags import to_flags
from experiments.common.results import ILL_FORMED, Finished, read
from experiments.common.runs import require_known_statuses
from experiments.paper import ITEMS
from jaxselect.checks import BadInput
from jaxselect.sweep.store import load_all


class ResultFolder(NamedTuple):
    """A folder of results.

    Attributes:
        folder: where.
        study: its program, without `experiments.`, which damaged results say in
            their head or by the name of their folder; empty where it is unknown.
        content: what is there; None where that cannot be read.
        trouble: what is wrong with it; empty where nothing is.
        written: when, in local time.
    """

    folder: Path
    study: str
    content: xr.Dataset | Finished | None
    trouble: str
    written: str

    @property
    def results(self) -> dict[str, Any]:
        """Plain results of a study; empty for a sweep."""
        return self.content.results if isinstance(self.content, Finished) else {}

    @property
    def settings(self) -> dict[str, Any]:
        """Settings of a study; empty for a sweep."""
        return self.content.settings if isinstance(self.content, Finished) else {}

    @property
    def arrays(self) -> dict[str, Any]:
        """Arrays of a study by name; empty for a sweep."""
        return self.content.arrays if isinstance(self.content, Finished) else {}

    @property
    def command(self) -> str:
        """The command that runs it again; empty where that is unknown."""
        if isinstance(self.content, Finished):
            return self.content.command or ""
        if self.content is None:
            return ""
        grid = self.content.attrs["grid"]
        words = to_flags({**grid, "out": str(self.folder)}, {})
        return shlex.join(["python", "-m", "experiments.sweep", *words])


def search(folders: Iterable[Path]) -> list[ResultFolder]:
    """Every folder of results at or below some folders.

    Returns:
        One entry each, and one for every given folder that holds none.

    Example:
        >>> [one.trouble for one in search([Path("no/such/folder")])]
        ['no results here']
    """
    found: dict[Path, ResultFolder] = {}
    for folder in folders:
        below = {path.resolve(): _open(path) for path in _candidates(folder)}
        if not below:
            below = {folder: ResultFolder(folder, "", None, "no results here", "")}
        found |= below
    return list(found.values())


def _candidates(top: Path) -> Iterator[Path]:
    """Folders that hold what a sweep or a study writes."""
    for place, inner, files in os.walk(top):
        beside = {"chunks", "stopped"}
        inner[:] = sorted(
            name for name in inner if name[0] != "." and name not in beside
        )
        here = Path(place)
        chunks = (here / "chunks").is_dir()
        if "results.json" in files or chunks or "settings.json" in files:
            yield here


def _open(folder: Path) -> ResultFolder:
    """Read one folder; whatever is wrong with it becomes its trouble."""
    # A study may keep chunks beside its results.
    sweep = not (folder / "results.json").exists()
    path = folder / ("settings.json" if sweep else "results.json")
    study = "sweep" if sweep else ""
    try:
        written = _date(path)
        content = load_all(folder) if sweep else read(folder)
        if isinstance(content, xr.Dataset):
            _check(content)
        else:
            study = (content.study or "").removeprefix("experiments.")
    except ILL_FORMED as error:
        study = study or _study_of_damaged(path)
        return ResultFolder(folder, study, None, _said(error), "")
    trouble = "" if study else "does not say which study it is of: run it again"
    return ResultFolder(folder, study, content, trouble, written)


def _study_of_damaged(path: Path) -> str:
    """The study that the head of a damaged file names, or else its folder."""
    try:
        with regular(path).open(encoding="utf-8", errors="replace") as file:
            head = file.read(1000)
    except (BadInput, OSError):
        head = ""
    if named := re.search(r'"study": "experiments\.([\w.]+)"', head):
        return named[1]
    item = path.parent.name.partition("-")[0]
    return f"paper.{item}" if item in ITEMS else ""


def _check(results: xr.Dataset) -> None:
    """Refuse a sweep that lacks what the page reads."""
    if "study" in results.attrs:
        raise BadInput("a study that has not finished: give its command again")
    lacking = {"grid", "axes", "statuses", "environment"} - results.attrs.keys()
    if lacking:
        raise BadInput(
            f"of another version: its settings lack {', '.join(sorted(lacking))}"
        )
    require_known_statuses(results)
    if "status" not in results:
        raise BadInput("no run has finished yet: give the sweep's command again")
    if not {"dim", "step_size", "seed"} <= set(results.dims):
        raise BadInput("of another version: its axes are not d, η₀ and seeds")


def _said(error: BaseException) -> str:
    """An error in one line."""
    words = " ".join(str(error).split())
    if isinstance(error, BadInput):
        return words
    return f"damaged, or of another version ({type(error).__name__}: {words})"


def _date(path: Path) -> str:
    when = datetime.datetime.fromtimestamp(path.stat().st_mtime)
    return when.strftime("%Y-%m-%d %H:%M")


def best(found: Iterable[ResultFolder], study: str) -> ResultFolder | None:
    """The folder of a study to draw conclusions from.

    Returns:
        One that can be read; one that is no smoke run if there is any; then the
        one with most runs, then the latest. None where there is none.
    """

    def rank(one: ResultFolder) -> tuple[bool, int, str]:
        if isinstance(one.content, xr.Dataset):
            return True, int((one.content.status.values >= 0).sum()), one.written
        settings = one.content.settings if one.content else {}
        return settings.get("preset") != "smoke", 0, one.written

    there = [one for one in found if one.study == study and one.content is not None]
    return max(there, key=rank, default=None)
