"""What a flow to ‖p‖ = 10⁶ costs as the problem grows: seconds, steps over |S| and n.

Exponents are fitted to the largest sizes: small problems cost what any program does.
"""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np

from experiments.benchmarks._flow_instance import instance
from experiments.benchmarks._timing import seconds
from experiments.common.console import at_least_one, command, quickened, say
from experiments.common.devices import configure
from experiments.common.results import kept, write
from experiments.common.statistics import fitted_exponent
from jaxselect.errors import BadInput
from jaxselect.flow.cls_flow import Flow, FlowStatus, cls_flow

LAST = 3
"""Sizes, the largest, that an exponent is fitted to."""
MEASURES = "seconds", "steps", "seconds_per_step"
"""What is measured of every flow."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """What to measure.

    Attributes:
        preset: full, or quick: small problems and two seeds, under a minute.
        quick: the same as `--preset quick`.
        words: |S| to go through, at n = `sequences[-3]`.
        sequences: n to go through, at |S| = `words[-3]`.
        length: T.
        gamma: mean |E_sᵀv| of the important tokens.
        seeds: instances of each size.
        repeats: timed runs of each; the median counts.
        out: folder for the results.
        json: print the results as one JSON object on standard output.
    """

    preset: Literal["full", "quick"] = "full"
    quick: bool = False
    words: tuple[int, ...] = (32, 64, 128, 256, 512)
    sequences: tuple[int, ...] = (250, 500, 1000, 2000, 4000)
    length: int = 32
    gamma: float = 20.0
    seeds: int = 3
    repeats: int = 3
    out: Path = Path("results") / "benchmarks" / "size"
    json: bool = False


PRESETS = {
    "full": Settings(),
    "quick": Settings(
        words=(32, 64, 128), sequences=(100, 200, 400), length=8, seeds=2, repeats=1
    ),
}


def main(settings: Settings) -> dict:
    """Time flows over |S|, then over n.

    Args:
        settings: of the command line.

    Returns:
        What `--json` prints.
    """
    settings = quickened(settings, PRESETS["quick"])
    at_least_one(settings, "length", "seeds", "repeats")
    for name in ("words", "sequences"):
        if len(getattr(settings, name)) < LAST:
            raise BadInput(
                f"--{name}: wanted {LAST} sizes or more, as an exponent does"
            )
    configure("float64")
    results: dict[str, Any] = {}
    words, sequences = settings.words[-LAST], settings.sequences[-LAST]
    with kept(settings.out, settings=settings, results=results):
        results["words"] = {"sequences": sequences} | over(
            settings, [(size, sequences) for size in settings.words], settings.words
        )
        results["sequences"] = {"words": words} | over(
            settings, [(words, size) for size in settings.sequences], settings.sequences
        )
    write(settings.out, settings=settings, results=results, figure="size")
    return results


def over(
    settings: Settings, sizes: list[tuple[int, int]], across: tuple[int, ...]
) -> dict[str, Any]:
    """Flows of several sizes, and the exponents of what they cost.

    Args:
        settings: of the study.
        sizes: |S| and n of each.
        across: the one of both that grows.

    Returns:
        Of each measure the values, a list of seeds for each size; exponents with the
        ends of their intervals.
    """
    flow, seeds = jax.jit(cls_flow), range(settings.seeds)
    measured = [[cost(settings, flow, *size, seed) for seed in seeds] for size in sizes]
    values = {
        name: np.array([[found[name] for found in row] for row in measured])
        for name in MEASURES
    }
    # Seeds of which a flow failed are no part of a fit.
    last = np.array(across[-LAST:], float)
    whole = np.isfinite(values["seconds"][-LAST:]).all(axis=0)
    exponents = {
        name: fitted_exponent(last, table[-LAST:, whole])
        for name, table in values.items()
        if whole.any()
    }
    return {
        "across": list(across),
        "failed": np.isnan(values["seconds"]).sum(axis=1).tolist(),
        "exponents": exponents,
        **{name: table.tolist() for name, table in values.items()},
    }


def cost(
    settings: Settings, flow: Callable, words: int, sequences: int, seed: int
) -> dict[str, float]:
    """One flow: its seconds and steps.

    Args:
        settings: of the study.
        flow: `cls_flow`, jitted.
        words: |S|, a sixteenth of them important for each label.
        sequences: n.
        seed: of the instance.

    Returns:
        The numbers of `MEASURES`; NaN where the flow did not come to its norm.
    """
    relevant = max(1, words // 16)
    shape = {
        "sequences": sequences,
        "length": settings.length,
        "relevant": relevant,
        "irrelevant": words - 2 * relevant,
    }
    start, corpus = instance(shape, 8.0 * words, settings.gamma, seed)

    def run() -> Flow:
        return jax.block_until_ready(flow(start, corpus, until_norm=1e6))

    found, taken = run(), seconds(run, settings.repeats)
    status, steps = FlowStatus(int(found.status)), int(found.num_steps)
    say(f"|S| = {words}, n = {sequences}: {taken:.3f} s, {steps} steps, {status.name}")
    if status is not FlowStatus.REACHED:
        return dict.fromkeys(MEASURES, float("nan"))
    return {"seconds": taken, "steps": steps, "seconds_per_step": taken / steps}


if __name__ == "__main__":
    command(main, PRESETS)
