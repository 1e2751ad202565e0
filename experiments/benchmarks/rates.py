"""What derivatives of the rates cost: their time and memory over those of the value.

Forward mode in one argument, η₀, and reverse mode in all of E, in one run.
"""

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp

from experiments.benchmarks._case import Case, draw
from experiments.benchmarks._timing import in_turn
from experiments.common.console import at_least_one, command, quickened, say
from experiments.common.devices import configure
from experiments.common.results import kept, write
from experiments.theory.problem import Problem
from jaxselect.model.embedding_step import embedding_step
from jaxselect.model.parameters import Parameters
from jaxselect.outcome.rates import REAL_RATES, rates
from jaxselect.outcome.settle import settle


@dataclasses.dataclass(frozen=True)
class Settings:
    """What to measure.

    Attributes:
        preset: full, or quick: one group on small problems, under two minutes.
        quick: the same as `--preset quick`.
        problem: the corpora.
        problems: that costs are summed over.
        groups: of rates: the constant of the error, the time to selection, all.
        repeats: timed runs of each; the median counts.
        seed: of the first problem.
        out: folder for the results.
        json: print the results as one JSON object on standard output.
    """

    preset: Literal["full", "quick"] = "full"
    quick: bool = False
    problem: Problem = dataclasses.field(default_factory=Problem)
    problems: int = 5
    groups: tuple[Literal["late", "selection", "all"], ...] = (
        "late",
        "selection",
        "all",
    )
    repeats: int = 15
    seed: int = 0
    out: Path = Path("results") / "benchmarks" / "rates"
    json: bool = False


PRESETS = {
    "full": Settings(),
    "quick": Settings(
        problem=Problem(12, 4, 2, 5), problems=2, groups=("all",), repeats=5
    ),
}


def main(settings: Settings) -> dict:
    """Time value, forward and reverse mode of each group.

    Args:
        settings: of the command line.

    Returns:
        What `--json` prints.
    """
    settings = quickened(settings, PRESETS["quick"], "seed")
    at_least_one(settings, "problems", "repeats")
    settings.problem.check()
    configure("float64")
    drawn = jax.jit(partial(draw, settings.problem))
    cases = [drawn(settings.seed + number) for number in range(settings.problems)]
    known = {"late": late, "selection": early, "all": every}
    results: dict = {}
    with kept(settings.out, settings=settings, results=results):
        for name in settings.groups:
            compiled = {
                who: jax.jit(run).lower(cases[0]).compile()
                for who, run in programs(known[name]).items()
            }
            seconds = timed(compiled, cases, settings.repeats)
            results[name] = {
                "value_seconds": seconds["value"] / len(cases),
                "forward_over_value": seconds["forward"] / seconds["value"],
                "reverse_over_value": seconds["reverse"] / seconds["value"],
                "bytes": {who: _temporary_bytes(run) for who, run in compiled.items()},
            }
            say(f"{name}: {results[name]}")
    write(settings.out, settings=settings, results=results)
    return results


def programs(rate: Callable) -> dict[str, Callable]:
    """A rate, with its derivative in η₀, and with its gradient in E.

    Args:
        rate: of (E, η₀, case).

    Returns:
        Functions of a case, by name.
    """

    def value(case: Case) -> jax.Array:
        return rate(case.start.embeddings, case.step_size, case)

    def one_argument(case: Case) -> tuple:
        def run(step_size: jax.Array) -> jax.Array:
            return rate(case.start.embeddings, step_size, case)

        return jax.jvp(run, (case.step_size,), (jnp.ones_like(case.step_size),))

    def all_embeddings(case: Case) -> tuple:
        def run(embeddings: jax.Array) -> jax.Array:
            return rate(embeddings, case.step_size, case)

        return jax.value_and_grad(run)(case.start.embeddings)

    return {"value": value, "forward": one_argument, "reverse": all_embeddings}


def late(
    embeddings: jax.Array,
    step_size: jax.Array,
    case: Case,
) -> jax.Array:
    """The constant of the direction error."""
    before = Parameters(embeddings, case.start.cls, case.start.head)
    after = embedding_step(before, case.corpus, step_size)
    return settle(after, case.corpus).late.error_constant


def early(
    embeddings: jax.Array,
    step_size: jax.Array,
    case: Case,
) -> jax.Array:
    """The log-time to selection."""
    before = Parameters(embeddings, case.start.cls, case.start.head)
    return rates(before, case.corpus, step_size).selection_log_time


def every(
    embeddings: jax.Array,
    step_size: jax.Array,
    case: Case,
) -> jax.Array:
    """All real rates, summed."""
    before = Parameters(embeddings, case.start.cls, case.start.head)
    found = rates(before, case.corpus, step_size)
    return jnp.stack([getattr(found, name) for name in REAL_RATES]).sum()


def timed(
    programs: Mapping[str, Callable], cases: list[Case], repeats: int
) -> dict[str, float]:
    """Median seconds of each program over all cases, taken in turns."""

    def over_all(program: Callable) -> None:
        for case in cases:
            jax.block_until_ready(program(case))

    works = tuple(partial(over_all, program) for program in programs.values())
    return dict(zip(programs, in_turn(works, repeats), strict=True))


def _temporary_bytes(run: Any) -> int:
    """Memory that a compiled program asks for beside its arguments and results."""
    return int(run.memory_analysis().temp_size_in_bytes)


if __name__ == "__main__":
    command(main, PRESETS)
