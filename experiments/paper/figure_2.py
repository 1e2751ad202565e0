"""Figure 2: E·v and E·p over the posterior difference, on synthetic data.

Tokens are drawn independently given the label, with a share of irrelevant ones, so the
data do not fulfil Assumption 1; E, p and v are trained together, with one layer of
attention and with two. The authors' formula (15) is not at hand: `independent_tokens`
has its properties in a parametrisation of our own (mathematics, definition 3.3).
Numbers of the authors' figure were not published, its shape is what is compared.

    python -m experiments.paper.figure_2
"""

import dataclasses
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.stats import spearmanr

from experiments.common import memory
from experiments.common.claims import Claim, Measured, Verdict, of_cases
from experiments.common.console import command, say
from experiments.common.numbers import num
from experiments.common.palette import CLASSES
from experiments.common.progress import progress_bar
from experiments.common.results import Finished
from experiments.common.study import Count, Experiment, Positive, Share, Study, presets
from experiments.common.style import legend_above, subplots
from experiments.networks.network import (
    Design,
    Network,
    Variables,
    alignments,
    outputs,
    start,
    tables_of,
)
from experiments.networks.training import evaluate, train
from jaxselect.data.corpus import Corpus
from jaxselect.data.synthetic import independent_tokens

LAYERS = (1, 2)
RANK = 0.9
"""Rank correlation from which a column follows the posterior difference."""
CLOUD = 0.25
"""Mean size of a column of irrelevant tokens, over that of relevant ones, up to which
they are a concentrated cloud around zero."""
ROUNDING = 1e-4
"""Largest difference of outputs of one model, in units of the largest, of rounding."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(Study):
    """The data and the training.

    Attributes:
        sequences: n.
        length: T.
        relevant: relevant tokens per class.
        irrelevant: irrelevant tokens.
        irrelevant_share: δ̃ of formula (15).
        weakest: least posterior difference of a relevant token, were δ̃ zero.
        dim: d.
        steps: of Adam, over all sequences, E, p and v together.
        learning_rate: of Adam.
        preset: full or smoke.
    """

    sequences: Count = 1000
    length: Count = 20
    relevant: Count = 60
    irrelevant: Count = 120
    irrelevant_share: Share = 0.4
    weakest: Share = 0.05
    dim: Count = 512
    steps: Count = 150
    learning_rate: Positive = 3e-3
    out: Path = Path("results/paper/figure_2")

    def check(self) -> None:
        """Refuse sizes beyond memory."""
        memory.require(4 * self.dim * (2 * self.relevant + self.irrelevant), "--dim")


PRESETS = presets(
    full=Settings(),
    smoke=Settings(sequences=200, relevant=10, irrelevant=40, dim=64, steps=40),
)


def run(settings: Settings, results: dict) -> dict[str, np.ndarray]:
    """Draw the data, train one layer and two, keep both columns of each."""
    corpus = drawn(settings)
    arrays = {"posterior": posterior_difference(corpus), "kind": kinds(settings)}
    with progress_bar("training", len(LAYERS) * settings.steps) as advance:
        for layers in LAYERS:
            network = Network(corpus.vocabulary, settings.dim, Design(layers))
            end = trained(network, corpus, settings, advance)
            scores, values = (np.asarray(one) for one in alignments(network, end))
            arrays |= {f"scores {layers}": scores, f"values {layers}": values[:, 0]}
            loss, right = evaluate(network, end, (corpus,))
            results[f"layers {layers}"] = {
                "loss": float(loss),
                "accuracy": float(right),
                "disagreement": disagreement(
                    network, end, corpus, arrays[f"scores {layers}"], values
                ),
            }
            say(f"{layers} layer(s): loss {loss:.4f}, accuracy {right:.4f}")
    return arrays


def drawn(settings: Settings) -> Corpus:
    """The data of formula (15)."""
    return independent_tokens(
        jax.random.key(settings.seed),
        sequences=settings.sequences,
        length=settings.length,
        relevant=settings.relevant,
        irrelevant=settings.irrelevant,
        irrelevant_share=settings.irrelevant_share,
        weakest=settings.weakest,
    )


def kinds(settings: Settings) -> np.ndarray:
    """+1 for tokens drawn as positive, −1 as negative, 0 as irrelevant."""
    each = [settings.relevant, settings.relevant, settings.irrelevant]
    return np.repeat([1, -1, 0], each)


def posterior_difference(corpus: Corpus) -> np.ndarray:
    """P(+1|s) − P(−1|s) of every token, from its occurrences; NaN without one."""
    empty = jnp.zeros(corpus.vocabulary)
    total = empty.at[corpus.tokens].add(corpus.counts)
    labels = corpus.labels[:, None].astype(corpus.counts.dtype)
    signed = empty.at[corpus.tokens].add(labels * corpus.counts)
    return np.asarray(jnp.where(total > 0, signed / total, jnp.nan))


def trained(
    network: Network,
    corpus: Corpus,
    settings: Settings,
    advance: Callable[[float], None],
) -> Variables:
    """E, p and v trained together."""
    return train(
        network,
        start(network, jax.random.key(settings.seed + 1)),
        (corpus,),
        optax.adam(settings.learning_rate),
        steps=settings.steps,
        report=lambda step, _: advance(int(step > 0)),
    )


def disagreement(
    network: Network,
    end: Variables,
    corpus: Corpus,
    scores: np.ndarray,
    values: np.ndarray,
) -> float:
    """How far the model's outputs are from those of the columns that are drawn."""
    tables = tables_of(network, end)
    shown = tables._replace(scores=jnp.asarray(scores), values=jnp.asarray(values))
    own, theirs = (outputs(one, corpus, network.design) for one in (tables, shown))
    return float(jnp.abs(own - theirs).max() / jnp.abs(own).max())


def draw(finished: Finished) -> Figure:
    """E·p (left) and E·v (right) over the posterior difference; one layer, and two."""
    figure, axes = subplots(2, 2, figsize=(7.0, 5.2), sharex=True)
    arrays = finished.arrays
    for row, layers in zip(axes, LAYERS, strict=True):
        number = "one layer" if layers == 1 else "two layers"
        for panel, part, label in zip(row, ("scores", "values"), "pv", strict=True):
            scatter(panel, arrays, arrays[f"{part} {layers}"])
            panel.set(ylabel=f"E·{label}, {number}")
    for panel in axes[1]:
        panel.set_xlabel("posterior difference P(+1|s) − P(−1|s)")
    legend_above(figure, axes[0, 0])
    return figure


def scatter(panel: Axes, arrays: dict, column: np.ndarray) -> None:
    """A dot for every token, in the colour of its kind."""
    for sign, name in ((0, "irrelevant"), (1, "positive"), (-1, "negative")):
        look, here = CLASSES[name], arrays["kind"] == sign
        dots: dict[str, Any] = {
            "s": 14,
            "alpha": 0.7,
            "linewidths": 0,
            "color": look.colour,
        }
        panel.scatter(arrays["posterior"][here], column[here], label=look.words, **dots)
    panel.axhline(0, color="black", linewidth=0.5)


def shape(arrays: dict, layers: int) -> dict[str, float]:
    """What the authors' figure shows, in numbers, of one network.

    Returns:
        Rank correlations over all tokens of E·v with the posterior difference, of E·p
        with its absolute value, and of the tokens' drawn signs with it; by column the
        mean size of irrelevant tokens, as a share of that of relevant ones.
    """
    kept = ~np.isnan(arrays["posterior"])
    x, kind = arrays["posterior"][kept], arrays["kind"][kept]
    scores, values = (arrays[f"{part} {layers}"][kept] for part in ("scores", "values"))

    def cloud(column: np.ndarray) -> float:
        size = np.abs(column)
        return float(size[kind == 0].mean() / size[kind != 0].mean())

    return {
        "values": float(spearmanr(x, values).statistic),
        "scores": float(spearmanr(np.abs(x), scores).statistic),
        "drawn": float(spearmanr(kind[kind != 0], x[kind != 0]).statistic),
        "cloud of values": cloud(values),
        "cloud of scores": cloud(scores),
    }


def faults(found: Finished) -> str:
    """Why the columns decide nothing; empty where they do."""
    off = max(found.results[f"layers {layers}"]["disagreement"] for layers in LAYERS)
    if off > ROUNDING:
        return f"the columns are not those of the model: outputs differ by {num(off)}"
    if shape(found.arrays, LAYERS[0])["drawn"] < 0:
        return "labels are swapped: positive tokens have negative differences"
    return ""


def rises(found: Finished, part: str) -> Measured:
    """A column of both networks follows the posterior difference, or its size."""
    if wrong := faults(found):
        return Measured(Verdict.NOT_RUN, wrong)
    ranks = [shape(found.arrays, layers)[part] for layers in LAYERS]
    what = "the posterior difference" if part == "values" else "its size"
    return Measured(
        of_cases(sum(rank >= RANK for rank in ranks), len(ranks)),
        f"rank correlation of E·{LETTER[part]} with {what} {num(ranks[0], 2)} with one "
        f"layer, {num(ranks[1], 2)} with two",
        f"{len(found.arrays['kind'])} tokens",
        "–",
        f"{RANK:g} or more with one layer and with two",
    )


def cloud(found: Finished, part: str) -> Measured:
    """A column of irrelevant tokens is small beside that of relevant ones."""
    if wrong := faults(found):
        return Measured(Verdict.NOT_RUN, wrong)
    grey, said, good = found.arrays["kind"] == 0, [], 0
    for layers, words in zip(LAYERS, ("one layer", "two"), strict=True):
        share = shape(found.arrays, layers)[f"cloud of {part}"]
        column = found.arrays[f"{part} {layers}"][grey]
        good += share <= CLOUD
        said.append(
            f"with {words} from {num(column.min(), 2)} to {num(column.max(), 2)}, mean "
            f"size {num(share, 2)} times that of relevant tokens"
        )
    return Measured(
        of_cases(good, len(LAYERS)),
        f"E·{LETTER[part]} of irrelevant tokens: {'; '.join(said)}",
        f"{int(grey.sum())} irrelevant tokens",
        "–",
        f"{CLOUD:g} times or less with one layer and with two"
        + ("; a constant added to all scores changes no output" * (part == "scores")),
    )


LETTER = {"values": "v", "scores": "p"}
SOURCE = "Figure 2, synthetic data of formula (15); the poster's first figure"
CLAIMS = (
    Claim(
        "E·v rises with the posterior difference of a token.",
        partial(rises, part="values"),
        SOURCE,
    ),
    Claim(
        "E·p rises with the size of the posterior difference.",
        partial(rises, part="scores"),
        SOURCE,
    ),
    Claim(
        "E·v of irrelevant tokens is a concentrated cloud around zero.",
        partial(cloud, part="values"),
        SOURCE,
    ),
    Claim(
        "E·p of irrelevant tokens is a concentrated cloud around zero.",
        partial(cloud, part="scores"),
        SOURCE,
    ),
)

main = Experiment(
    run, draw=draw, claims=CLAIMS, title="Figure 2: synthetic data", precision="float32"
)


if __name__ == "__main__":
    command(main, PRESETS)
