"""Run every item of the paper, one after the other, and write the page of all results.

Items that need no download run always, those on reviews where some are given. An item
whose results are on disk, of the same settings, is not run again. Each item ends with
the verdict on each of its clauses; results/report.html shows them with their figures.

    python -m experiments.paper
    python -m experiments.paper --dataset imdb_reviews
"""

import dataclasses
import importlib
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from experiments.common.claims import Verdict
from experiments.common.console import say
from experiments.common.results import read, to_json
from experiments.common.study import Program, check, presets
from experiments.paper import ITEMS, REVIEWS
from experiments.paper.document import document
from experiments.report.folders import search
from experiments.report.rows import items, study
from experiments.report.study import write_page
from experiments.text.source import Source
from jaxselect.checks import BadInput


@dataclass(frozen=True, kw_only=True)
class Settings(Program):
    """What to run, and where it goes.

    Attributes:
        source: reviews; without any, items on reviews alone are not run.
        items: to run, all by default; the page shows what is on disk of the others.
        drop: label of the class to leave out where reviews have five of them.
        again: run items whose results are on disk, too.
        markdown: write the items and their figures as a document into this file, too;
            of synthetic data and of IMDB alone.
        out: folder of the page, and of the results of items, in paper/.
        preset: full, or smoke (seconds for each item).
    """

    source: Source = field(default_factory=Source)
    items: tuple[str, ...] = ITEMS
    drop: str = "2"
    again: bool = False
    markdown: Path | None = None
    out: Path = Path("results")

    def check(self) -> None:
        """Refuse names that are not items."""
        for name in self.items:
            if name not in ITEMS:
                raise BadInput(f"--items {name}: wanted some of {', '.join(ITEMS)}")


PRESETS = presets(full=Settings(), smoke=Settings(out=Path("results/paper-smoke")))


def run(settings: Settings) -> dict:
    """Run the items and write the page; see the module.

    Returns:
        The results that `--json` prints: the page, the rows, what failed.

    Raises:
        BadInput: an item or a folder that cannot be used.
    """
    check(settings)
    begun, failed = time.perf_counter(), {}
    for number, name in enumerate(settings.items, 1):
        where = f"[{number} of {len(settings.items)}] {name}"
        chosen = settings_of(settings, name)
        if not chosen:
            say(f"{where}: not run, it needs reviews (TRAIN=… TEST=… NAMED=…)")
        for one in chosen:
            if not settings.again and is_there(one):
                say(f"{where}: its results are on disk")
                study(f"paper.{name}").judge(read(one.out))
                continue
            say(f"{where} ({time.perf_counter() - begun:.0f} s so far)")
            try:
                study(f"paper.{name}")(one)
            except BadInput as error:
                failed[name] = str(error)
                say(f"error: {error}")
    found = search([settings.out])
    path = settings.out / "report.html"
    write_page(found, path)
    shown = list(items(found))
    rows = [(part, row) for part in shown for row in part.rows]
    for part, row in rows:
        if row.found and row.verdict is Verdict.DAMAGED:
            say(f"{row.verdict}: {part.name}: {row.found.value}; {row.command}")
    counts = Counter(row.verdict.words for _, row in rows)
    say(", ".join(f"{number} {words}" for words, number in counts.items()))
    say(f"{path}: {time.perf_counter() - begun:.0f} s")
    if settings.markdown is not None:
        for file in document(shown, settings.markdown):
            say(str(file))
    listed = [
        {"item": part.name, "data": row.data, "verdict": row.verdict.words}
        for part, row in rows
    ]
    return {"page": path, "rows": listed, "failed": failed}


def settings_of(settings: Settings, name: str) -> list[Any]:
    """Settings of an item, of synthetic data and of the reviews that are given."""
    preset = "smoke" if settings.preset == "smoke" else None
    known = importlib.import_module(f"experiments.paper.{name}").PRESETS
    chosen = known[preset or next(iter(known))]
    source, folder = settings.source, settings.out / "paper" / name
    found = []
    if name not in REVIEWS or name == "classes" or preset is not None:
        found.append(dataclasses.replace(chosen, out=folder))
    given = source.train is not None or source.dataset is not None
    # The reviews of IMDB have two classes, and the item is on more.
    if name == "classes":
        given &= source.name != "imdb_reviews"
        chosen = dataclasses.replace(chosen, drop=settings.drop)
    if given and hasattr(chosen, "source"):
        # Yelp's results are beside those of IMDB.
        folder = folder.with_name(f"{name}-{source.name or 'reviews'}")
        found.append(dataclasses.replace(chosen, source=source, out=folder))
    return found


def is_there(chosen: Any) -> bool:
    """Whether results of these very settings are on disk."""
    try:
        there = read(chosen.out).settings
    except BadInput:
        return False
    wanted = to_json(dataclasses.asdict(chosen))
    return all(there[name] == wanted[name] for name in wanted.keys() - {"out", "json"})
