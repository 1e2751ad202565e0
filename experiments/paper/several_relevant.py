"""Several relevant tokens in a sequence (reply to reviewer q6jg, W2).

The authors expect: where p converges in direction, it selects one relevant token of
each sequence at least, since the loss does not rise; and where it selects all of them,
its direction is that of p_mm. Flows of p after one step on E, with one, two or three
relevant tokens in each sequence, are held against both. A certificate of a run's end is
what shows convergence here; runs without one decide nothing.

    python -m experiments.paper.several_relevant
"""

import dataclasses
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from matplotlib.figure import Figure

from experiments.common.claims import Claim, Measured, Verdict, of_cases
from experiments.common.console import command, say
from experiments.common.numbers import num
from experiments.common.palette import SERIES
from experiments.common.progress import progress_bar
from experiments.common.results import Finished
from experiments.common.study import (
    Count,
    Dimension,
    Experiment,
    Positive,
    Study,
    presets,
)
from experiments.common.style import subplots
from jaxselect import (
    certify,
    cls_flow,
    embedding_step,
    gaussian_reduced,
    several_relevant,
)
from jaxselect.margin.certificate import CERTIFIED
from jaxselect.model.selection import important_tokens
from jaxselect.problem import attention

ENDS = [
    "all of them in every sequence",
    "one or more, not all, in every sequence",
    "none in some sequence",
    "not certified",
]
"""What a run selects of the relevant tokens, in the order of the codes."""
CLOSE = 0.01
"""Largest relative distance of ‖p‖ · (direction error) from its limit that agrees."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(Study):
    """The data, and the grid of d and η₀.

    Attributes:
        per_sequence: relevant tokens in a sequence.
        sequences: n.
        length: T.
        relevant: relevant tokens per class.
        irrelevant: irrelevant tokens.
        dims: values of d.
        step_sizes: values of η₀.
        seeds: draws at each d and η₀.
        until_norm: ‖p‖ at which the flow stops.
        preset: full or smoke.
    """

    per_sequence: tuple[Count, ...] = (1, 2, 3)
    sequences: Count = 100
    length: Count = 8
    relevant: Count = 6
    irrelevant: Count = 24
    dims: tuple[Dimension, ...] = (1e3, 1e6)
    step_sizes: tuple[Positive, ...] = (10.0, 100.0, 1000.0, 10000.0)
    seeds: Count = 8
    until_norm: Positive = 1e5
    out: Path = Path("results/paper/several_relevant")


PRESETS = presets(
    full=Settings(),
    smoke=Settings(
        sequences=20, length=4, relevant=2, irrelevant=8, step_sizes=(100.0,), seeds=2
    ),
)


def run(settings: Settings, results: dict) -> dict[str, np.ndarray]:
    """Follow every flow to its end, and count what it selects."""
    axes = settings.per_sequence, settings.dims, settings.step_sizes
    ends = np.zeros((*map(len, axes), settings.seeds), int)
    off = np.full(ends.shape, np.nan)
    with progress_bar("flows", ends.size) as advance:
        for one, number in enumerate(settings.per_sequence):
            follow = jax.jit(partial(followed, settings, number))
            for row, column, seed in np.ndindex(*ends.shape[1:]):
                dim, step_size = settings.dims[row], settings.step_sizes[column]
                place = one, row, column, seed
                key = jax.random.key(settings.seed + seed)
                ends[place], off[place] = follow(key, dim, step_size)
                advance(1)
            counts = np.bincount(ends[one].ravel(), minlength=len(ENDS)).tolist()
            results[f"{number} per sequence"] = dict(zip(ENDS, counts, strict=True))
            shown = [f"{counts[code]} select {ENDS[code]}" for code in range(3)]
            say(f"{number} relevant in each sequence: {', '.join(shown)}")
    return {"ends": ends, "off": off}


def followed(
    settings: Settings,
    number: int,
    key: Array,
    dim: Float[Array, ""],
    step_size: Float[Array, ""],
) -> tuple[Array, Array]:
    """The place in `ENDS` of one run, and how far its direction is from the limit.

    Args:
        settings: of the study.
        number: of relevant tokens in a sequence.
        key: of the data and the start.
        dim: d.
        step_size: η₀.

    Returns:
        A code; and |‖p‖ · (direction error) / (its predicted limit) − 1|.
    """
    data, model = jax.random.split(key)
    corpus = several_relevant(
        data,
        sequences=settings.sequences,
        length=settings.length,
        relevant=settings.relevant,
        irrelevant=settings.irrelevant,
        per_sequence=number,
    )
    start = gaussian_reduced(model, vocabulary=corpus.vocabulary, dim=dim)
    after = embedding_step(start, corpus, step_size)
    problem = attention(after, corpus)
    flow = cls_flow(problem, until_norm=settings.until_norm)
    end = certify(problem, flow)
    relevant = important_tokens(corpus)[corpus.tokens] & corpus.present
    hit = (end.ending.selected & relevant).any(axis=1)
    missed = (~end.ending.selected & relevant).any(axis=1)
    certified = jnp.isin(end.status, jnp.array(CERTIFIED))
    code = jnp.where(~missed.any(), 0, jnp.where(hit.all(), 1, 2))
    norm = jnp.linalg.norm(flow.query)
    p_mm = end.ending.margin
    error = jnp.linalg.norm(flow.query / norm - p_mm.direction / p_mm.norm)
    limit = end.ending.late.error_constant
    return jnp.where(certified, code, 3), jnp.abs(error * norm / limit - 1)


def draw(finished: Finished) -> Figure:
    """Share of runs by which relevant tokens they select, against η₀."""
    settings, ends = finished.settings, finished.arrays["ends"]
    numbers = settings["per_sequence"]
    size = (2.6 * len(numbers) + 0.4, 3.0)
    figure, panels = subplots(1, len(numbers), figsize=size, sharey=True, squeeze=False)
    steps = settings["step_sizes"]
    for panel, number, here in zip(panels[0], numbers, ends, strict=True):
        bottom = np.zeros(len(steps))
        for code, label in enumerate(ENDS):
            share = (here == code).mean(axis=(0, 2))
            colour = (*SERIES[2:3], *SERIES[:2], SERIES[-1])[code]
            panel.bar(
                range(len(steps)), share, bottom=bottom, label=label, color=colour
            )
            bottom = bottom + share
        panel.set_xticks(range(len(steps)), [num(step) for step in steps])
        panel.set(xlabel="η₀", title=f"{number} relevant in each")
    panels[0, 0].set_ylabel("share of runs")
    handles = panels[0, 0].get_legend_handles_labels()
    figure.legend(
        *handles, loc="outside lower center", ncols=2, title="relevant tokens selected"
    )
    return figure


def one_at_least(found: Finished) -> Measured:
    """Certified runs that select no relevant token of some sequence."""
    ends = found.arrays["ends"]
    certified = ends < 3
    misses, number = int((ends == 2).sum()), int(certified.sum())
    steps = np.array(found.settings["step_sizes"])[(ends == 2).any(axis=(0, 1, 3))]
    each = [f"{int((here == 2).sum())} with {one}" for one, here in _each(found)]
    where = f", all at η₀ = {', '.join(map(num, steps))}" if misses else ""
    return Measured(
        Verdict.REFUTED if misses else of_cases(number, number, Verdict.CERTIFIED),
        f"in {misses} of {number} certified runs some sequence has no relevant token "
        f"selected, although the loss decreases{where}: {', '.join(each)} relevant "
        "tokens in each sequence",
        f"{ends.size} runs, {ends.size - number} of them not certified",
        f"{misses / max(number, 1):.0%}",
        "the selection at p, final by its certificate",
    )


def then_max_margin(found: Finished) -> Measured:
    """Certified runs that select all relevant tokens: their direction is p_mm's."""
    ends, off = found.arrays["ends"], found.arrays["off"]
    if not (ends == 0).any():
        return Measured(Verdict.NOT_RUN, "no certified run selects all relevant tokens")
    worst, others = (float(np.max(off[where])) for where in (ends == 0, ends < 3))
    each = [f"{int((here == 0).sum())} with {number}" for number, here in _each(found)]
    return Measured(
        of_cases(int((off[ends == 0] <= CLOSE).sum()), int((ends == 0).sum())),
        "‖p‖ · (direction error) differs from the limit of p_mm by a relative "
        f"{num(worst, 2)} at most; over all certified runs by {num(others, 2)} at most",
        f"certified runs that select all: {', '.join(each)} relevant in each sequence",
        "–",
        f"within {CLOSE:.0%} in every one of them",
    )


def _each(found: Finished) -> list[tuple[int, np.ndarray]]:
    """Ends of the runs by the number of relevant tokens in a sequence."""
    numbers = found.settings["per_sequence"]
    return list(zip(numbers, found.arrays["ends"], strict=True))


CLAIMS = (
    Claim(
        "If p converges in direction, it selects at least one relevant token of each "
        "sequence, simply because the loss is non-increasing.",
        one_at_least,
        "Reply to reviewer q6jg, W2 (1)",
    ),
    Claim(
        "If p converges in direction and selects all relevant tokens, its direction is "
        "the max-margin one of that selection.",
        then_max_margin,
        "Reply to reviewer q6jg, W2 (2)",
    ),
)

main = Experiment(
    run, draw=draw, claims=CLAIMS, title="Several relevant tokens in a sequence"
)


if __name__ == "__main__":
    command(main, PRESETS)
