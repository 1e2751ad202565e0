"""Attention and alignment of every word of a sentence in a trained model.

python -m experiments.text.explain "A dull film, a fine cast" --model results/reviews
"""

import dataclasses
import html
import math
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import jax.numpy as jnp
import numpy as np
import tyro

from experiments.common.console import command, say
from experiments.common.results import read
from experiments.common.study import Program, check, presets
from jaxselect.checks import BadInput
from jaxselect.files import replacing
from jaxselect.model.attention import attend
from jaxselect.text.words import words_of


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(Program):
    """The text and the model.

    Attributes:
        text: the sentence, or a file that holds it.
        model: folder of a finished `experiments.reviews`.
        stage: "stopped", where held-out reviews were best, or "last".
        html: file for a coloured view; by default explanation.html in the folder.
    """

    text: Annotated[str, tyro.conf.Positional] = ""
    model: Path = Path("results") / "reviews"
    stage: Literal["stopped", "last"] = "stopped"
    html: Path | None = None


PRESETS = presets(full=Settings())


class Explained(NamedTuple):
    """One word of the text.

    Attributes:
        word: as the model sees it.
        weight: attention q at this place; zero for an unknown word.
        alignment: E_sᵀv; its sign is the side the word is on.
        importance: α_s in the training reviews.
    """

    word: str
    weight: float
    alignment: float
    importance: float


def main(settings: Settings) -> dict:
    """Explain one text: on standard error, as HTML, and as plain data.

    Returns:
        What `--json` prints.
    """
    check(settings)
    text = settings.text
    if not text.strip():
        raise BadInput("no text: give a sentence in quotes, or a file that holds one")
    if len(text) < 256 and Path(text).is_file():
        text = Path(text).read_text(encoding="utf-8")
    rows, output = explain(text, settings.model, settings.stage)
    for row in rows:
        bar = "█" * round(40 * row.weight)
        say(
            f"{row.word:18s} weight {row.weight:6.3f}   E·v {row.alignment:+8.3f}   "
            f"α {row.importance:+.1e}   {bar}"
        )
    side = sides(settings.model)[output > 0]
    chance = 1 / (1 + math.exp(-abs(output)))
    say(f"f = {output:+.3f}: {side}, with probability {chance:.3f} by the model")
    path = settings.html or settings.model / "explanation.html"
    with replacing(path) as aside:
        aside.write_text(page(rows, output, side), encoding="utf-8")
    say(f"{path}")
    return {
        "output": output,
        "label": 1 if output > 0 else -1,
        "side": side,
        "words": [row._asdict() for row in rows],
    }


def explain(text: str, model: Path, stage: str) -> tuple[list[Explained], float]:
    """Weight and alignment of each word of a text, and the model's output.

    Returns:
        The words in order, and f = Σ weight · alignment.

    Raises:
        BadInput: no text, no known word in it, or no model in the folder.
    """
    if not (model / "results.json").exists():
        raise BadInput(
            f"{model} holds no model: train first, with python -m experiments.reviews "
            f"--out {model}"
        )
    columns = read(model).arrays
    scores, values = columns[f"scores_{stage}"], columns[f"values_{stage}"]
    place = {word: number for number, word in enumerate(columns["words"].tolist())}
    said = words_of(text)
    known = [place[word] for word in said if word in place]
    if not known:
        raise BadInput(f"no word of {text[:60]!r} is in the model's vocabulary")
    # Every place is a token: a word said twice has its weight at each.
    counts = jnp.ones(len(known), scores.dtype)
    bag = attend(jnp.asarray(scores[known]), jnp.asarray(values[known]), counts)
    weights = iter(np.exp(np.asarray(bag.log_weights, float)))
    rows = []
    for word in said:
        if word in place:
            s = place[word]
            numbers = (next(weights), values[s], columns["importance"][s])
            rows.append(Explained(word, *map(float, numbers)))
        else:
            rows.append(Explained(word, 0.0, 0.0, 0.0))
    return rows, float(bag.output)


def sides(model: Path) -> tuple[str, str]:
    """Names of the two classes in the data, where they are words."""
    names = tuple(read(model).results.get("labels", {}))
    numbers = ((), ("0", "1"), ("-1", "1"))
    return ("negative", "positive") if names in numbers else names


def page(rows: list[Explained], output: float, side: str) -> str:
    """The text as HTML: hue by sign of E·v, depth by attention weight."""
    heaviest = max(row.weight for row in rows)
    spans = []
    for row in rows:
        hue = 130 if row.alignment > 0 else 0
        shade = 0.9 * row.weight / heaviest
        note = f"weight {row.weight:.3f}, E·v {row.alignment:+.3f}"
        note += f", α {row.importance:+.1e}" if row.weight else " (unknown word)"
        spans.append(
            f'<span title="{note}" style="background:hsla({hue},70%,45%,{shade:.2f})">'
            f"{html.escape(row.word)}</span>"
        )
    return (
        '<!doctype html><meta charset="utf-8"><title>Explanation</title>'
        "<style>body{font:18px/1.8 serif;max-width:45em;margin:2em auto}"
        "span{border-radius:3px;padding:1px 3px}</style>"
        f"<p>{' '.join(spans)}</p><p>f = {output:+.3f}: {html.escape(side)}. Colour is "
        "the sign of E·v, depth the attention weight; hover for numbers.</p>\n"
    )


if __name__ == "__main__":
    command(main, PRESETS)
