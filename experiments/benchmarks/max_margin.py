"""The max-margin problem: time and gap of ours and of other people's solvers.

Two families. `bags`: d = |S| + 2, and in each of 2|S| random bags of 8 the token on top
under a hidden p must beat the rest. `wide`: d = 16 |S|, brought to |S| + 2 coordinates
for everyone, and a quarter of the tokens must each beat half of the rest, as after a
long flow in many dimensions. Every solver gets the same problems in float64, one core
and one thread. The gap of an answer is measured alike for all: the answer is scaled
until it is feasible, and its ½‖p‖² compared with our certified lower bound.
"""

import dataclasses
import importlib.util
import os
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from experiments.benchmarks._max_margin_rivals import RIVALS, Problem, problem
from experiments.common.console import command, say
from experiments.common.study import Count, Study, presets, study
from jaxselect.checks import BadInput


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(Study):
    """Settings of the comparison.

    Attributes:
        preset: full, or quick: two sizes and small budgets, under two minutes.
        quick: the same as `--preset quick`.
        sizes: vocabularies |S|.
        lanes: problems in a batch.
        budget: seconds for one solver's batch; lanes beyond it are not run, and the
            mean is over those that were.
        patience: a solver that needs more seconds than this for one problem sits out
            the larger sizes.
        seed: of the problems.
    """

    quick: bool = False
    sizes: tuple[Count, ...] = (64, 256, 512)
    lanes: Count = 64
    budget: float = 8.0
    patience: float = 4.0
    out: Path = Path("results/benchmarks/max_margin")


PRESETS = presets(
    full=Settings(),
    quick=Settings(sizes=(64, 128), budget=1.5, patience=1.0),
)
FAMILIES = ("bags", "wide")


@study()
def main(settings: Settings, results: dict) -> None:
    """Run the comparison."""
    available = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, available[:1])

    present = installed()
    records: list[dict] = []
    results |= {"lanes": settings.lanes, "records": records}
    for family in FAMILIES:
        rivals = dict(present)
        for size in settings.sizes:
            found = compare(settings, family, size, rivals)
            records += found
            table(found)
            for record in found:
                if record["seconds"] > settings.patience:
                    rivals.pop(record["solver"], None)


def installed() -> dict[str, Callable[[Problem], np.ndarray]]:
    """The rivals that are there, warmed up; the others sit out and it is said.

    Returns:
        Rivals by name.
    """
    present = {}
    trial = problem(np.eye(3), np.eye(3, k=1, dtype=bool))
    for name, (package, rival) in RIVALS.items():
        if importlib.util.find_spec(package) is None:
            say(f"{name} sits out: no {package} here; pip install '.[benchmark]'")
        else:
            # The first call pays for imports and caches.
            rival(trial)
            present[name] = rival
    return present


def instance(family: str, size: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Embeddings in |S| + 2 coordinates and the pairs that must be kept apart.

    Returns:
        E and the mask of pairs.
    """
    rng = np.random.default_rng([seed, size, FAMILIES.index(family)])
    pairs = np.zeros((size, size), bool)
    if family == "bags":
        embeddings = rng.normal(size=(size, size + 2)) / size**0.5
        scores = embeddings @ rng.normal(size=size + 2)
        for _ in range(2 * size):
            bag = rng.choice(size, 8, replace=False)
            pairs[bag[np.argmax(scores[bag])], bag] = True
        np.fill_diagonal(pairs, False)
        return embeddings, pairs
    wide = rng.normal(size=(size, 16 * size)) / (16 * size) ** 0.5
    upper = np.linalg.qr(wide.T)[1]
    relevant, irrelevant = np.split(rng.permutation(size), [size // 4])
    for winner in relevant:
        beaten = rng.choice(irrelevant, len(irrelevant) // 2, replace=False)
        pairs[winner, beaten] = True
    return np.pad(upper.T, [(0, 0), (0, 2)]), pairs


def compare(
    settings: Settings,
    family: str,
    size: int,
    rivals: dict[str, Callable[[Problem], np.ndarray]],
) -> list[dict]:
    """Ours and every rival on one family and size.

    Returns:
        One record per solver, ours first.
    """
    import jax
    import jax.numpy as jnp

    from jaxselect.margin.max_margin import MaxMarginStatus, max_margin

    drawn = [
        instance(family, size, settings.seed + lane) for lane in range(settings.lanes)
    ]
    problems = [problem(*each) for each in drawn]
    embeddings, pairs = (
        jnp.asarray(np.stack(each)) for each in zip(*drawn, strict=True)
    )
    one = jax.jit(max_margin)
    # On a CPU lanes one after another beat lanes in lockstep.
    batch = jax.jit(lambda e, p: jax.lax.map(lambda each: max_margin(*each), (e, p)))
    solution = jax.block_until_ready(batch(embeddings, pairs))
    first = embeddings[0], pairs[0]
    jax.block_until_ready(one(*first))
    if (solution.status != MaxMarginStatus.SOLVED).any():
        raise BadInput(f"{family} at |S| = {size}: a lane of ours was not solved")
    # The value of the duals bounds ½‖p‖² from below, whoever found p.
    bound = np.asarray(solution.norm) ** 2 * (1 - np.asarray(solution.gap)) / 2

    def record(name: str, seconds: float, each: float, ran: int, gap: float) -> dict:
        return {
            "family": family,
            "size": size,
            "pairs": len(problems[0].rows),
            "solver": name,
            "seconds": seconds,
            "seconds_per_lane": each,
            "lanes_run": ran,
            "largest_gap": gap,
        }

    def solve_batch() -> Any:
        return jax.block_until_ready(batch(embeddings, pairs))

    ours = record(
        "ours",
        median_seconds(lambda: jax.block_until_ready(one(*first)), 1.0),
        median_seconds(solve_batch, 1.0) / settings.lanes,
        settings.lanes,
        float(np.max(np.asarray(solution.gap))),
    )
    ours["iterations"] = float(np.mean(np.asarray(solution.iterations)))
    records = [ours]
    for name, rival in rivals.items():
        alone = median_seconds(partial(rival, problems[0]), 1.0)
        taken, gaps = 0.0, []
        for lane, given in enumerate(problems):
            start = time.perf_counter()
            answer = rival(given)
            taken += time.perf_counter() - start
            gaps.append(relative_gap(answer, given, bound[lane]))
            if taken > settings.budget:
                break
        each = taken / len(gaps)
        records.append(record(name, alone, each, len(gaps), max(gaps)))
    return records


def median_seconds(call: Callable[[], Any], budget: float) -> float:
    """Median time of a call, over at most nine runs or a budget.

    Args:
        call: what to time.
        budget: seconds after which no further run begins.

    Returns:
        Seconds.
    """
    times: list[float] = []
    while not times or (len(times) < 9 and sum(times) < budget):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def relative_gap(answer: np.ndarray | None, given: Problem, bound: float) -> float:
    """How far ½‖p‖² is above a lower bound, once p is scaled to be feasible.

    Args:
        answer: p, or None where a solver gave none.
        given: the problem.
        bound: a value of the dual.

    Returns:
        1 − bound / value: zero is exact, one means that p keeps some pair on the wrong
        side.
    """
    least = -1.0 if answer is None else float((given.rows @ answer).min())
    if answer is None or not least > 0:
        return 1.0
    return 1 - bound / (0.5 * float(answer @ answer) / least**2)


def table(records: list[dict]) -> None:
    """Print the records of one family and size, each beside ours."""
    ours = records[0]
    say(f"\n{ours['family']}, |S| = {ours['size']}, {ours['pairs']} pairs")
    say("  solver             one, ms  × ours  batch, ms each  × ours  lanes    gap")
    for record in records:
        one, each = record["seconds"], record["seconds_per_lane"]
        say(
            f"  {record['solver']:<17}{1e3 * one:9.2f}{one / ours['seconds']:8.1f}"
            f"{1e3 * each:16.2f}{each / ours['seconds_per_lane']:8.1f}"
            f"{record['lanes_run']:7d}{record['largest_gap']:7.0e}"
        )


if __name__ == "__main__":
    command(main, PRESETS)
