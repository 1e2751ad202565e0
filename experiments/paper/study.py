"""Run every item of the paper, one after the other, and lay out what came out.

Items that need no download run always, those on reviews where some are given. An item
whose results are on disk, of the same settings, is not run again. In the end stand the
table of all statements, printed, and results/paper.html with the figures.

    python -m experiments.paper
    python -m experiments.paper --dataset imdb_reviews
"""

import dataclasses
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from experiments.common.console import say
from experiments.common.results import read, to_json
from experiments.common.study import Program, check, presets
from experiments.paper import ITEMS
from experiments.paper.document import document
from experiments.paper.page import page
from experiments.paper.rows import Item, items, needs_reviews, presets_of, study
from experiments.report.folders import search
from experiments.text.source import Source
from jaxselect.checks import BadInput
from jaxselect.files import replacing


@dataclass(frozen=True, kw_only=True)
class Settings(Program):
    """What to run, and where it goes.

    Attributes:
        source: reviews; without any, items on reviews alone are not run.
        items: to run, all by default; the page shows what is on disk of the others.
        drop: label of the class to leave out where reviews have five of them.
        again: run items whose results are on disk, too.
        markdown: write the table and its figures as a document into this file, too;
            of invented data and of IMDB alone.
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
        """Refuse names that are no item."""
        for name in self.items:
            if name not in ITEMS:
                raise BadInput(f"--items {name}: wanted some of {', '.join(ITEMS)}")


PRESETS = presets(full=Settings(), smoke=Settings(out=Path("results/paper-smoke")))


def run(settings: Settings) -> dict:
    """Run the items, print the table, write the page; see the module.

    Returns:
        The results that `--json` prints: the page, the rows, what failed.

    Raises:
        BadInput: an item or a folder that cannot be used.
    """
    check(settings)
    begun, failed = time.perf_counter(), {}
    for number, name in enumerate(settings.items, 1):
        where = f"{number} of {len(settings.items)}, {name}"
        chosen = settings_of(settings, name)
        if not chosen:
            say(f"— {where}: wants reviews (--train and --test, or --dataset) —")
        for one in chosen:
            if not settings.again and is_there(one):
                say(f"— {where}: {one.out} is there —")
                continue
            say(f"— {where}: after {time.perf_counter() - begun:.0f} s —")
            try:
                study(name)(one)
            except BadInput as error:
                failed[name] = str(error)
                say(f"error: {error}")
    found = list(items(search([settings.out / "paper"])))
    say_table(found)
    path = settings.out / "paper.html"
    with replacing(path) as aside:
        aside.write_text(page(found), encoding="utf-8")
    say(f"{path}: {time.perf_counter() - begun:.0f} s")
    if settings.markdown is not None:
        for file in document(found, settings.markdown):
            say(str(file))
    rows = [
        {"item": row.item, "data": row.data, "verdict": row.verdict}
        for item in found
        for row in item.rows
    ]
    return {"page": path, "rows": rows, "failed": failed}


def settings_of(settings: Settings, name: str) -> list[Any]:
    """Settings of an item, of invented data and of the reviews that are given."""
    preset = "smoke" if settings.preset == "smoke" else None
    known = presets_of(name)
    chosen = known[preset or next(iter(known))]
    source, folder = settings.source, settings.out / "paper" / name
    found = []
    if not needs_reviews(name) or preset is not None:
        found.append(dataclasses.replace(chosen, out=folder))
    given = source.train is not None or source.dataset is not None
    # The reviews of IMDB have two classes, and the item is on more.
    if name == "classes":
        given &= source.name != "imdb_reviews"
        chosen = dataclasses.replace(chosen, drop=settings.drop)
    if given and hasattr(chosen, "source"):
        # Yelp's stand beside those of IMDB.
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


def say_table(found: list[Item]) -> None:
    """Print one line for each row, and how many have which verdict."""
    say(f"\n{'verdict':24}{'item':34}what the paper says, and where; ours")
    rows = [row for item in found for row in item.rows]
    for row in rows:
        name = f"{row.item} ({row.data})" if row.data else row.item
        say(f"{row.verdict:24}{name:34}{row.claim.statement} [{row.claim.source}]")
        ours = row.found.value if row.found else row.trouble or row.command
        say(f"{'':58}→ {ours}")
    counts = Counter(row.verdict for row in rows)
    say("\n" + ", ".join(f"{number} {words}" for words, number in counts.items()))
