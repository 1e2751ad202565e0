"""Build one page of all results on disk, report.html.

The map, every item of the paper, then our own studies; what was not run says which
command runs it, and what is damaged or of another version says so. The page opens from
disk, holds no script and asks no network.

python -m experiments.report results --out results
"""

import time
from dataclasses import dataclass
from pathlib import Path

import tyro

from experiments.common.console import say
from experiments.common.devices import configure
from experiments.common.study import Program, check, presets
from experiments.report.folders import ResultFolder, search
from jaxselect.checks import BadInput
from jaxselect.files import replacing


@dataclass(frozen=True, kw_only=True)
class Settings(Program):
    """Settings of the report.

    Attributes:
        folders: results, or folders that hold some, at any depth.
        out: folder for report.html.
    """

    folders: tyro.conf.Positional[tuple[Path, ...]] = (Path("results"),)
    out: Path = Path("results")


PRESETS = presets(all=Settings())


def report(settings: Settings) -> dict:
    """Read every result, write the page; see the module.

    Returns:
        The results that `--json` prints: the page, its bytes, what it shows and what it
        could not.

    Raises:
        BadInput: a package of the extra `experiments` is not installed; a folder that
            is not there, or no results that can be read: an earlier page stays.
    """
    check(settings)
    begun = time.perf_counter()
    path = settings.out / "report.html"
    for folder in settings.folders:
        if not folder.is_dir():
            raise BadInput(f"{folder} is not a folder; {path} stays as it is")
    found = search(settings.folders)
    troubles = [f"{one.folder}: {one.trouble}" for one in found if one.trouble]
    for trouble in troubles:
        say(trouble)
    if all(one.content is None for one in found):
        raise BadInput(
            "there are no results to show: run a study first, such as make sweep; "
            f"{path} stays as it is"
        )
    configure("float64")
    write_page(found, path)
    seconds = time.perf_counter() - begun
    size = path.stat().st_size
    say(f"{path}: {size / 1e6:.1f} MB from {len(found)} folders, {seconds:.1f} s")
    return {
        "page": path,
        "bytes": size,
        "shown": [str(one.folder) for one in found if not one.trouble],
        "troubles": troubles,
        "seconds": seconds,
    }


def write_page(found: list[ResultFolder], path: Path) -> None:
    """Write the page of some results.

    Raises:
        BadInput: a package of the extra `experiments` is not installed.
    """
    try:
        from experiments.report.page import page
    except ModuleNotFoundError as error:
        raise BadInput(
            f"the report needs {error.name}, which is not installed: "
            "pip install 'jaxselect[experiments]'"
        ) from None
    text = page(found)
    with replacing(path) as aside:
        aside.write_text(text, encoding="utf-8")
