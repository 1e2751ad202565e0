"""Derivatives of the rates: how right they are, and what they cost.

The table holds, for every rate and argument, the largest relative difference between
automatic and central finite differences over random problems, kinks left out and
counted. Costs are times of the derivative over the time of the value, in one run.
"""

from experiments import console  # isort: skip (it settles the threads first)

import dataclasses
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal

import diffrax
import jax
import jax.numpy as jnp
import numpy as np

from experiments.console import say
from experiments.rates import Problem
from jaxselect.corpus import Corpus
from jaxselect.embedding_step import embedding_step
from jaxselect.gradient_flow import FlowSettings
from jaxselect.limit import LimitStatus
from jaxselect.parameters import Parameters, gaussian_reduced
from jaxselect.rates import Rates, RateSettings, rates, selection_log_time, settle
from jaxselect.synthetic import assumption_one


@dataclasses.dataclass(frozen=True)
class Settings:
    """What to measure.

    Attributes:
        preset: full, or quick: fewer problems, under two minutes.
        quick: the same as `--preset quick`.
        problem: the corpora.
        problems: random problems of the table.
        repeats: timed runs of each; the median counts.
        seed: of the first problem.
        out: folder for the results.
        json: print the results as one JSON object on standard output.
    """

    preset: Literal["full", "quick"] = "full"
    quick: bool = False
    problem: Problem = dataclasses.field(default_factory=Problem)
    problems: int = 50
    repeats: int = 15
    seed: int = 0
    out: Path = Path("results") / "benchmarks" / "rates"
    json: bool = False


PRESETS = {
    "full": Settings(),
    "quick": Settings(problem=Problem(12, 4, 2, 5), problems=6, repeats=7),
}
ARGUMENTS = ("log η₀", "log d", "E", "p_0", "counts")
STEP = 1e-4
TIGHT = FlowSettings(1e-11, 1e-11, adjoint=diffrax.ForwardMode())
REAL = [
    field.name
    for field in dataclasses.fields(Rates)
    if field.name not in ("kink", "history_dim", "status", "selected", "active")
]


def main(settings: Settings) -> dict:
    """The table, then the costs.

    Args:
        settings: of the command line.

    Returns:
        What `--json` prints.
    """
    if settings.quick:
        quick = PRESETS["quick"]
        settings = dataclasses.replace(
            quick, seed=settings.seed, out=settings.out, json=settings.json
        )
    jax.config.update("jax_enable_x64", True)
    results = {"table": table(settings), "cost": cost(settings)}
    described = dataclasses.asdict(settings) | {"results": results}
    console.write_json(settings.out / "rates.json", described)
    return results


def moved(
    problem: Problem, seed: jax.Array, move: jax.Array
) -> tuple[Parameters, Corpus, jax.Array]:
    """A random problem, moved along one random direction per argument."""
    keys = jax.random.split(jax.random.key(seed), 7)
    corpus = assumption_one(keys[0], **dataclasses.asdict(problem))
    # log₁₀ d from 2.3 to 5 and log₁₀ η₀ from 1 to 2.7, where most tokens are selected.
    dim = 10 ** jax.random.uniform(keys[1], minval=2.3, maxval=5.0)
    step_size = 10 ** jax.random.uniform(keys[2], minval=1.0, maxval=2.7)
    start = gaussian_reduced(keys[3], corpus.vocabulary, dim * jnp.exp(move[1]))
    noise = [
        jax.random.normal(key, like.shape)
        for key, like in zip(
            keys[4:], (start.embeddings, start.cls, corpus.counts), strict=True
        )
    ]
    start = Parameters(
        start.embeddings + 0.1 * move[2] * noise[0],
        start.cls + 0.1 * move[3] * noise[1],
        start.head,
    )
    counts = corpus.counts * (1 + 0.1 * move[4] * noise[2])
    bags = Corpus(corpus.tokens, counts, corpus.labels, corpus.vocabulary)
    return start, bags, step_size * jnp.exp(move[0])


def table(settings: Settings) -> dict:
    """Automatic against finite differences."""
    rate_settings = RateSettings(flow=TIGHT)
    still = jnp.zeros(len(ARGUMENTS))

    def found(seed: jax.Array, move: jax.Array) -> tuple[jax.Array, tuple]:
        numbers = rates(*moved(settings.problem, seed, move), settings=rate_settings)
        real = jnp.stack([getattr(numbers, name) for name in REAL])
        smooth = ~numbers.kink & (numbers.history_dim == 0)
        smooth &= numbers.status == LimitStatus.PREDICTED
        return real, (smooth, numbers.selected, numbers.active)

    value = jax.jit(jax.vmap(found, (0, None)))

    def along(seed: jax.Array, towards: jax.Array) -> jax.Array:
        return jax.jvp(lambda move: found(seed, move)[0], (still,), (towards,))[1]

    slope = jax.jit(jax.vmap(along, (0, None)))
    seeds = settings.seed + jnp.arange(settings.problems)
    middle, (smooth, *structure) = value(seeds, still)
    entries = {}
    for number, argument in enumerate(ARGUMENTS):
        towards = jnp.zeros(len(ARGUMENTS)).at[number].set(1.0)
        sides = [value(seeds, sign * STEP * towards) for sign in (1, -1)]
        difference = (sides[0][0] - sides[1][0]) / (2 * STEP)
        forward = slope(seeds, towards)
        kept = smooth & np.all(
            [
                np.all(np.asarray(side) == np.asarray(here), axis=(1, 2))
                for _, (_, *there) in sides
                for side, here in zip(there, structure, strict=True)
            ],
            axis=0,
        )
        kept = np.asarray(kept)
        # A derivative that is nothing beside the value is held against the value.
        scale = np.maximum(np.abs(difference), 1e-3 * np.abs(middle))
        off = np.abs(forward - difference) / scale
        for column, name in enumerate(REAL):
            there = kept & np.isfinite(np.asarray(off[:, column]))
            errors = np.asarray(off[:, column])[there]
            entries[f"{name} / {argument}"] = {
                "largest_error": float(errors.max(initial=0.0)),
                "median_error": float(np.median(errors)) if errors.size else None,
                "above_1e-5": int((errors > 1e-5).sum()),
                "excluded_share": float(1 - there.mean()),
            }
            say(f"{name:20} {argument:8} {entries[f'{name} / {argument}']}")
    return entries


def cost(settings: Settings) -> dict:
    """Time and memory of derivatives over those of the value, for one problem."""
    start, corpus, step_size = moved(
        settings.problem, jnp.array(settings.seed), jnp.zeros(len(ARGUMENTS))
    )
    forward = RateSettings(FlowSettings(adjoint=diffrax.ForwardMode()))
    groups: dict[str, Callable] = {"late": late, "selection": early}
    costs = {}
    for name, rate in groups.items():

        def one_argument(eta: jax.Array, rate: Callable = rate) -> tuple:
            run = partial(rate, start.embeddings, start, corpus, settings=forward)
            return jax.jvp(run, (eta,), (jnp.ones_like(eta),))

        def all_of_embeddings(embeddings: jax.Array, rate: Callable = rate) -> tuple:
            return jax.value_and_grad(rate)(embeddings, start, corpus, step_size)

        def alone(embeddings: jax.Array, rate: Callable = rate) -> jax.Array:
            return rate(embeddings, start, corpus, step_size)

        programs = {
            "value": (alone, start.embeddings),
            "forward": (one_argument, step_size),
            "reverse": (all_of_embeddings, start.embeddings),
        }
        compiled = {
            who: (jax.jit(run).lower(argument).compile(), argument)
            for who, (run, argument) in programs.items()
        }
        seconds = timed(compiled, settings.repeats)
        costs[name] = {
            "value_seconds": seconds["value"],
            "forward_over_value": seconds["forward"] / seconds["value"],
            "reverse_over_value": seconds["reverse"] / seconds["value"],
            "bytes": {who: _temporary_bytes(run) for who, (run, _) in compiled.items()},
        }
        say(f"{name}: {costs[name]}")
    return costs


def late(
    embeddings: jax.Array,
    start: Parameters,
    corpus: Corpus,
    step_size: jax.Array,
    settings: RateSettings = RateSettings(),  # noqa: B008
) -> jax.Array:
    """The constant of the direction error."""
    after = embedding_step(
        Parameters(embeddings, start.cls, start.head), corpus, step_size
    )
    return settle(after, corpus, settings).late.error_constant


def early(
    embeddings: jax.Array,
    start: Parameters,
    corpus: Corpus,
    step_size: jax.Array,
    settings: RateSettings = RateSettings(),  # noqa: B008
) -> jax.Array:
    """The log-time to selection."""
    after = embedding_step(
        Parameters(embeddings, start.cls, start.head), corpus, step_size
    )
    selected = settle(after, corpus, settings).selected
    return selection_log_time(after, corpus, selected, settings)[0]


def timed(programs: dict[str, tuple[Any, Any]], repeats: int) -> dict[str, float]:
    """Median seconds of each program, taken in turns so that all share the weather."""
    seconds: dict[str, list[float]] = {name: [] for name in programs}
    for turn in range(repeats + 1):
        for name, (program, argument) in programs.items():
            begin = time.perf_counter()
            jax.block_until_ready(program(argument))
            if turn:
                seconds[name].append(time.perf_counter() - begin)
    return {name: statistics.median(taken) for name, taken in seconds.items()}


def _temporary_bytes(run: Any) -> int:
    """Memory that a compiled program asks for beside its arguments and results."""
    return int(run.memory_analysis().temp_size_in_bytes)


if __name__ == "__main__":
    console.command(main, PRESETS)
