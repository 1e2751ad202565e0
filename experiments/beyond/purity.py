"""Which tokens are selected if they are impure and several are in a sequence.

A winner keeps a loser away if its value lies between the loser's and the log-odds of
the labels where it wins (mathematics, section 3l). Counts alone therefore give every
pair a ceiling on η₀. For many purities, numbers of relevant tokens and η₀ the study
compares the share of sequences that select one token with the share of pairs below
their ceilings. It also counts certified winners outside their interval.
"""

import dataclasses
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

from experiments.beyond.problem import Problem
from experiments.common.claims import (
    Claim,
    Measured,
    Shown,
    Verdict,
    of_cases,
)
from experiments.common.console import command, say
from experiments.common.model import outputs
from experiments.common.numbers import in_words, num
from experiments.common.palette import SERIES
from experiments.common.progress import progress_bar
from experiments.common.results import Finished
from experiments.common.study import (
    Count,
    Dimension,
    Experiment,
    Positive,
    Several,
    Share,
    Study,
    in_order,
    presets,
)
from experiments.common.style import subplots
from experiments.theory.betweenness import (
    between,
    foreseen,
    log_odds,
    negative_load,
)
from jaxselect.compilation import compile_options
from jaxselect.data.corpus import Corpus
from jaxselect.data.synthetic import several_relevant
from jaxselect.flow.cls import cls_flow
from jaxselect.margin.certificate import CERTIFIED, certify
from jaxselect.model.parameters import gaussian_reduced
from jaxselect.model.selection import importance
from jaxselect.model.step import embedding_step
from jaxselect.problem import attention


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(Study):
    """Settings of the study.

    Attributes:
        purities: expected posterior differences of relevant tokens.
        per_sequence: relevant tokens in a sequence.
        problem: sizes of the corpora.
        dim: d.
        smallest: smallest η₀.
        largest: largest η₀.
        points: step sizes between the two.
        until_norm: ‖p‖ where the flow stops.
        seeds: number of draws.
    """

    purities: tuple[Share, ...] = (0.6, 0.7, 0.8, 0.9, 1.0)
    per_sequence: tuple[Count, ...] = (1, 2, 3)
    problem: Problem = Problem(400, 6, 2, 8)
    dim: Dimension = 1e6
    smallest: Positive = 10.0
    largest: Positive = 1000.0
    points: Several = 13
    until_norm: Positive = 1e4
    seeds: Count = 6
    out: Path = Path("results/purity")

    def check(self) -> None:
        """Refuse sizes of no family, and step sizes that are not in order."""
        in_order(self, "smallest", "largest")
        for number in self.per_sequence:
            jax.eval_shape(self.family(number), jax.random.key(0))

    def family(
        self, per_sequence: int, purity: jax.Array | float = 1.0
    ) -> Callable[[jax.Array], Corpus]:
        """The data, but for their key."""
        sizes = dataclasses.asdict(self.problem)
        return partial(
            several_relevant, per_sequence=per_sequence, purity=purity, **sizes
        )


PRESETS = presets(
    full=Settings(),
    smoke=Settings(
        purities=(0.7, 1.0),
        per_sequence=(1,),
        problem=Problem(200, 6, 2, 8),
        points=5,
        seeds=2,
    ),
)


def one(
    settings: Settings,
    number: int,
    seed: jax.Array,
    purity: jax.Array,
    step_size: jax.Array,
) -> dict[str, jax.Array]:
    """A run, beside what its counts foresee.

    Returns:
        By name: `certified`; `decided`, the share of sequences that keep one token;
        `foreseen`, the share of pairs inside their windows; `ceiling`, the median one;
        `test`, the accuracy on new sequences; of the active pairs the number, those
        `outside` their interval, those `at_odds` with the sign of c, and the load.
    """
    family = settings.family(number, purity)
    keys = jax.random.split(jax.random.key(seed), 3)
    corpus, unseen = family(keys[0]), family(keys[1])
    before = gaussian_reduced(keys[2], vocabulary=corpus.vocabulary, dim=settings.dim)
    after = embedding_step(before, corpus, step_size)
    counted = foreseen(corpus, importance(corpus), step_size)
    slots = counted.selected.argmax(axis=1)
    pair = corpus.at(corpus.tokens, slots)[:, None], corpus.tokens
    problem = attention(after, corpus)
    flow = cls_flow(problem, until_norm=settings.until_norm)
    found = certify(problem, flow)
    end, active = found.ending, found.ending.margin.active
    lead = end.pairs.leads(after.embeddings @ end.late.offset)
    duals = jnp.where(active, end.late.strength.times_exp(-lead), 0.0)
    odds = log_odds(corpus, end.selected)
    held = between(after.embeddings @ after.head, odds)
    said = jnp.sign(outputs(dataclasses.replace(after, query=flow.query), unseen))
    return {
        "certified": jnp.isin(found.status, jnp.array(CERTIFIED)),
        "decided": (end.selected.sum(axis=1) == 1).astype(float).mean(),
        "foreseen": counted.share,
        "ceiling": jnp.nanmedian(
            jnp.where(counted.loses, counted.window.most[pair], jnp.nan)
        ),
        "test": (said == unseen.labels).astype(float).mean(),
        "active": active.sum(),
        "outside": (active & ~held).sum(),
        "at_odds": (active & (held != (duals > 0))).sum(),
        "load": negative_load(after.embeddings, duals),
    }


def run(settings: Settings, results: dict) -> dict[str, np.ndarray]:
    """Every cell over purity, relevant tokens per sequence and η₀."""
    sizes = np.geomspace(settings.smallest, settings.largest, settings.points)
    seeds = settings.seed + jnp.arange(settings.seeds)
    shape = (len(settings.per_sequence), len(settings.purities), settings.points)
    arrays: dict[str, np.ndarray] = {}
    with progress_bar("cells", int(np.prod(shape))) as advance:
        for row, number in enumerate(settings.per_sequence):
            lanes = jax.vmap(partial(one, settings, number), (0, None, None))
            program = jax.jit(lanes, compiler_options=compile_options(fast=True))
            for column, place in np.ndindex(*shape[1:]):
                purity = jnp.array(settings.purities[column])
                found = program(seeds, purity, jnp.array(sizes[place]))
                for name, value in jax.device_get(found).items():
                    whole = np.zeros((*shape, settings.seeds))
                    arrays.setdefault(name, whole)[row, column, place] = value
                advance(1)
    results["edges"] = [
        edge(sizes, {name: array[row, column] for name, array in arrays.items()})
        | {"per_sequence": number, "purity": purity}
        for row, number in enumerate(settings.per_sequence)
        for column, purity in enumerate(settings.purities)
    ]
    sound = arrays["certified"].astype(bool)
    names = ("active", "outside", "at_odds")
    results["pairs"] = {name: int(arrays[name][sound].sum()) for name in names} | {
        "certified": int(sound.sum()),
        "runs": int(sound.size),
        "runs_outside": int((arrays["outside"][sound] > 0).sum()),
        "largest_load": float(arrays["load"][sound].max()) if sound.any() else None,
    }
    for row in (*results["edges"], results["pairs"]):
        say(in_words(row))
    return arrays | {"sizes": sizes}


def edge(sizes: np.ndarray, cell: dict[str, np.ndarray]) -> dict:
    """The median ceiling; η₀ of half the sequences over that of half the pairs."""
    ratio = [
        half(sizes, one) / half(sizes, other)
        for one, other in zip(cell["decided"].T, cell["foreseen"].T, strict=True)
    ]
    known = np.isfinite(ratio)
    return {
        "ceiling": float(np.median(cell["ceiling"])),
        "ratio": float(np.median(np.array(ratio)[known])) if known.any() else None,
    }


def half(sizes: np.ndarray, share: np.ndarray) -> float:
    """The η₀ at which a falling share passes one half for the first time, or ∞.

    Example:
        >>> sizes = np.array([1.0, 10.0, 1000.0])
        >>> round(half(sizes, np.array([1.0, 0.55, 0.45])), 6)
        100.0
    """
    below = np.flatnonzero(share < 0.5)
    if not below.size:
        return float("inf")
    last = below[0]
    if not last:
        return float(sizes[0])
    part = (share[last - 1] - 0.5) / (share[last - 1] - share[last])
    return float(sizes[last - 1] * (sizes[last] / sizes[last - 1]) ** part)


def draw(finished: Finished) -> Figure:
    """Sequences with one token over η₀, measured and foreseen, and the accuracy."""
    found, settings = finished.arrays, finished.settings
    numbers, purities = settings["per_sequence"], settings["purities"]
    figure, axes = subplots(
        2, len(numbers), figsize=(3.6 * len(numbers) + 1, 5.6), squeeze=False
    )
    for row, number in enumerate(numbers):
        upper, lower = axes[:, row]
        for column, (purity, colour) in enumerate(zip(purities, SERIES, strict=False)):
            for panel, name, look in (
                (upper, "decided", {"ls": "", "label": f"purity {purity:g}"}),
                (upper, "foreseen", {"marker": ""}),
                (lower, "test", {}),
            ):
                share = found[name][row, column].mean(axis=1)
                look = {"marker": "o", "color": colour} | look
                panel.semilogx(found["sizes"], share, **look)
            lower.axvline(
                np.median(found["ceiling"][row, column]), color=colour, ls=":"
            )
        upper.set(title=f"{number} relevant per sequence", ylim=(-0.03, 1.03))
        lower.set(xlabel="η₀", xlim=upper.get_xlim())
    axes[0, 0].set_ylabel("one token kept (points)\npairs below their ceiling (lines)")
    axes[1, 0].set_ylabel("accuracy on new sequences\n(dotted: median ceiling)")
    axes[0, 0].legend(fontsize="small")
    return figure


NEAR = 1.1
"""Ratio up to which half of the sequences are undecided where it is foreseen."""


def foretold(found: Finished) -> Measured:
    """With one relevant token per sequence half are undecided where counts say so."""
    rows = [row for row in found.results["edges"] if row["per_sequence"] == 1]
    # What was not there is NaN on disk.
    ratios = [row["ratio"] for row in rows if not math.isnan(row["ratio"])]
    hits = sum(1 / NEAR <= ratio <= NEAR for ratio in ratios)
    extremes = f"{num(min(ratios))} … {num(max(ratios))}" if ratios else "none"
    return Measured(
        of_cases(hits, len(ratios)),
        f"η₀ where half is undecided over the one foreseen: {extremes}",
        f"{len(ratios)} purities below one",
        num((len(ratios) - hits) / max(len(ratios), 1)),
        "selected tokens where the flow ends",
    )


def held(found: Finished) -> Measured:
    """Other pairs compensate those outside their interval: the load is below one."""
    pairs = found.results["pairs"]
    load = pairs["largest_load"]
    verdict = Verdict.NOT_RUN
    if not math.isnan(load):
        verdict = (
            Verdict.CERTIFIED if load < 1 and not pairs["at_odds"] else Verdict.REFUTED
        )
    return Measured(
        verdict,
        f"{pairs['outside']} of {pairs['active']} active pairs outside, in "
        f"{pairs['runs_outside']} runs; greatest load {num(load)}",
        f"{pairs['certified']} certified runs of {pairs['runs']}",
        "0",
        "theorem 3e.4; signs of c and the load from the computed ρ",
    )


CLAIMS = (
    Claim(
        "Counts alone say up to which η₀ tokens that are pure in part are selected.",
        foretold,
    ),
    Claim(
        "A pair outside its interval ends certified only where others compensate it.",
        held,
    ),
)


def show(found: Finished) -> Shown:
    """Ceilings and where ties begin, by purity."""
    pairs = found.results["pairs"]
    sentences = [
        f"Of {pairs['active']} active pairs of {pairs['certified']} certified runs "
        f"{pairs['outside']} are outside their interval.",
        "With several relevant tokens per sequence those of positive and of negative "
        "bags meet, and ties begin below the ceilings, which bound from above alone.",
    ]
    sentences += [
        f"{row['per_sequence']} relevant per sequence, purity {num(row['purity'])}: "
        f"median ceiling {num(row['ceiling'])}, measured over foreseen "
        f"{num(row['ratio'])}."
        for row in found.results["edges"]
    ]
    return Shown(sentences)


main = Experiment(
    run, draw=draw, claims=CLAIMS, show=show, title="Tokens that are pure in part"
)


if __name__ == "__main__":
    command(main, PRESETS)
