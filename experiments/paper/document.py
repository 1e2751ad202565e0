"""The paper's items and their figures as a document of Markdown, without Yelp's."""

from collections.abc import Iterator
from pathlib import Path

from experiments.common.claims import Measured, Shown, Verdict
from experiments.common.results import Finished
from experiments.common.style import draw_in_style, save
from experiments.report.rows import Part, Row, command, data_of, study
from experiments.report.sections import CALLED, caption_of, made
from jaxselect.files import replacing

SHOWN = ("", "imdb_reviews")
"""Data of which numbers may be passed on: what is synthetic, and IMDB."""
PICTURES = Path("experiments/figures")


def document(items: list[Part], path: Path) -> Iterator[Path]:
    """Write the items: their clauses, and a figure for each set of data.

    Args:
        items: of the paper.
        path: of the document; figures go into `PICTURES` of the same checkout.

    Yields:
        The files that were written.
    """
    root = path.absolute().parent.parent
    parts = []
    for item in items:
        parts += [f"## {item.title}\n", "\n".join(_rows(item))]
        main = study(item.name)
        for results in item.results:
            assert isinstance(results.content, Finished)
            if data_of(results) not in SHOWN:
                continue
            if main.show is not None:
                parts.append("\n".join(_table(main.show(results.content))))
            if main.draw is None:
                continue
            name = "-".join(
                filter(None, (item.name.replace(".", "-"), data_of(results)))
            )
            figure = draw_in_style(main.draw, results.content)
            assert figure is not None
            yield from save(figure, root / PICTURES / name, ["png"])
            said = f"*{caption_of(main.draw)} {made(results)}.*"
            parts.append(f"![{item.title}](../{PICTURES}/{name}.png)\n\n{said}\n")
    with replacing(path) as aside:
        aside.write_text(HEAD + "\n".join(parts), encoding="utf-8")
    yield path


HEAD = """# The paper, item by item

Each clause of the lemmas, figures and tables of Wu, Shevchenko, Oymak and Mondelli
(NeurIPS 2025) and of its public discussion, beside what is found here. *Certified*:
every run in question has a certificate; *refuted*: a counterexample; *not reproduced*:
other numbers than those said. `make paper` runs what needs no download; `make paper
TRAIN=FILE TEST=FILE NAMED=imdb_reviews` runs all. Written from results on synthetic
data and IMDB by `python -m experiments.paper --markdown docs/paper.md`.

"""


def _rows(item: Part) -> Iterator[str]:
    """The clauses of an item as a table, and the commands that measure them."""
    shown = [row for row in item.rows if row.data in SHOWN]
    for row in item.rows:
        if row.claim not in [one.claim for one in shown]:
            damaged = row.verdict is Verdict.DAMAGED
            found = Measured(row.verdict, "–") if damaged else None
            shown.append(Row(row.claim, found, command(item.name)))
    sources = {row.claim.source for row in shown}
    if len(sources) == 1:
        yield f"*{sources.pop()}.*\n"
    yield "| the paper | verdict | ours |"
    yield "|---|---|---|"
    before = None
    for row in shown:
        ours = row.found.value if row.found else "–"
        if row.data:
            ours = f"{CALLED[row.data]}: {ours}"
        says = row.claim.statement
        if sources:
            says += f" ({row.claim.source})"
        cells = ("the same" if row.claim == before else says, str(row.verdict), ours)
        yield "| " + " | ".join(one.replace("|", "\\|") for one in cells) + " |"
        before = row.claim
    commands = dict.fromkeys(f"`{_short(row.command)}`" for row in shown)
    yield f"\n{', '.join(commands)}\n"


def _table(shown: Shown) -> Iterator[str]:
    """The table of a study."""
    if shown.table:
        head, *rows = shown.table
        for row in (head, ["---"] * len(head), *rows):
            yield "| " + " | ".join(row) + " |"
        yield ""


def _short(given: str) -> str:
    """A command without the paths of files, which are another's."""
    words = given.split()
    program = " ".join(words[:3])
    if "FILE" in words:
        return given
    named = "--dataset" in words or "--train" in words
    return f"{program} --dataset imdb_reviews" if named else program
