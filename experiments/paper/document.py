"""The paper's table and figures as a document of Markdown, without Yelp's."""

from collections.abc import Iterator
from pathlib import Path

from matplotlib import rc_context

from experiments.common.style import draw_in_style, in_style
from experiments.paper.rows import Item, Row, command, data_of, study
from jaxselect.files import replacing

SHOWN = ("", "imdb_reviews")
"""Data of which numbers may be handed on: what is invented, and IMDB."""
PICTURES = Path("experiments/figures")
DPI = 100
"""Of pictures that travel with the checkout: about 60 kB each."""


def document(items: list[Item], path: Path) -> Iterator[Path]:
    """Write the table, and a figure for each item and set of data.

    Args:
        items: with their rows.
        path: of the document; figures go into `PICTURES` of the same checkout.

    Yields:
        The files that were written.
    """
    root = path.absolute().parent.parent
    parts = []
    for item in items:
        parts.append(f"## {item.title}\n")
        parts.append("\n".join(_rows(item)))
        for results in item.results:
            main = study(item.name)
            if data_of(results) not in SHOWN or main.draw is None:
                continue
            name = "-".join(filter(None, ("paper", item.name, data_of(results))))
            figure = draw_in_style(main.draw, results.content)
            assert figure is not None
            picture = root / PICTURES / f"{name}.png"
            style = rc_context({"savefig.dpi": DPI})
            with in_style(), style, replacing(picture) as aside:
                figure.savefig(aside, format="png")
            yield picture
            caption = (main.draw.__doc__ or "").partition("\n")[0]
            parts.append(f"![{caption}](../{PICTURES}/{name}.png)\n\n*{caption}*\n")
    with replacing(path) as aside:
        aside.write_text(HEAD + "\n".join(parts), encoding="utf-8")
    yield path


HEAD = """# The paper, item by item

Every lemma, figure and table of Wu, Shevchenko, Oymak and Mondelli (NeurIPS 2025) and
of its public discussion, beside what is found here. `make paper` runs what needs no
download and writes the same as a page, `results/paper.html`; with `TRAIN=… TEST=…` or
`DATASET=imdb_reviews` it runs the rest, too. This text was written from results by
`python -m experiments.paper --markdown docs/paper.md`; it shows invented data and IMDB.

"""


def _rows(item: Item) -> Iterator[str]:
    """The statements of an item as a table."""
    yield "| the paper | ours | verdict | command |"
    yield "|---|---|---|---|"
    shown = [row for row in item.rows if row.data in SHOWN]
    for row in item.rows:
        if row.claim not in [one.claim for one in shown]:
            shown.append(Row(item.name, "", row.claim, None, command(item.name)))
    for row in shown:
        ours = row.found.value if row.found else "–"
        if row.data:
            ours = f"{row.data}: {ours}"
        says = f"{row.claim.statement} ({row.claim.source})"
        verdict = row.verdict if row.found or row.trouble else "not shown"
        cells = (says, ours, verdict, f"`{_short(row.command)}`")
        yield "| " + " | ".join(one.replace("|", "\\|") for one in cells) + " |"
    yield ""


def _short(given: str) -> str:
    """A command without the places of files, which are another's."""
    words = given.split()
    program = " ".join(words[:3])
    if "FILE" in words:
        return given
    named = "--dataset" in words or "--train" in words
    return f"{program} --dataset imdb_reviews" if named else program
