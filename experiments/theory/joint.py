"""Limits of attention when E, p and v are trained together, or any of them.

The joint flow is followed to log t = 10⁶ on draws in d dimensions, beside its laws:
the weight off the important tokens for every subset of {E, p, v}; the values' memory
of frequency; the crossover over the rate η of E; and which tokens are selected where
the classes have unequal numbers of them. `--preset phases` draws the plane of (d, η₀)
when nothing is frozen. Lanes are kept as they finish: the same command goes on where
it was stopped.

Two further parts freeze E: p beside a trained v heads for the max-margin solution of
its selection where v needs every sequence; and W before p moves W p as p moves alone.
"""

import dataclasses
from functools import partial
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from experiments.common.console import command, say
from experiments.common.study import Count, Positive, presets, study
from experiments.theory import _joint_laws as laws
from experiments.theory import _joint_selection as selection
from experiments.theory import _key_query, _trained_head
from experiments.theory._joint_lanes import BLOCK, block, table
from experiments.theory._joint_plan import Plan
from experiments.theory._kept import resumed
from experiments.theory.problem import Problem
from jaxselect.checks import BadInput
from jaxselect.data.corpus import Corpus
from jaxselect.model.parameters import Parameters
from jaxselect.model.step import embedding_step

PARTS = {
    "laws": (laws.laws_cells, laws.laws),
    "frequency": (laws.frequency_cells, laws.frequency),
    "crossover": (laws.crossover_cells, laws.crossover),
    "selection": (selection.selection_cells, selection.selection),
    "phases": (selection.phases_cells, selection.phases),
}
"""The lanes of each part and its summary; `frozen` has no lanes."""
FROZEN = {"equal": Problem(20, 6, 2, 14), "unequal": Problem(20, 6, 3, 12)}
"""Corpora for p beside v: important tokens equally frequent, and not."""
MATRIX = Problem(8, 3, 2, 4)
"""Corpora before which a matrix stands: W has as many rows as |S| + 2."""
FROZEN_DIM, FROZEN_STEP = 4096.0, 100.0
FROZEN_MARKS = np.geomspace(10.0, 1e8, 29)
MATRIX_MARKS = np.geomspace(8.0, 1e5, 8)
"""At the first W itself is integrated to, too, by an explicit method."""
KEPT = ("status", "norms", "errors", "exponents", "off", "off_relaxed", "supports")
"""Columns of a draw with a trained head that are written."""


Part = Literal["laws", "frequency", "crossover", "selection", "phases", "frozen"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(Plan):
    """Settings of the study.

    Attributes:
        parts: of the study.
        tolerance: of the frozen parts, ‖dp/dτ − p_mm‖/‖p_mm‖ that counts as heading.
        identity_tolerance: likewise ‖W − direct W‖/‖W − W_0‖ for the same W.
        workers: processes that run lanes side by side.
    """

    parts: tuple[Part, ...] = ("laws", "frequency", "crossover", "selection", "frozen")
    tolerance: Positive = 0.01
    identity_tolerance: Positive = 1e-6
    workers: Count = 2
    out: Path = Path("results/joint")

    @property
    def sizes(self) -> Problem:
        """The shape that all lanes share."""
        number = 2 * self.problem.relevant
        if {"selection", "frequency"} & {*self.parts}:
            number = max(number, 8, *(sum(pair) for pair in self.classes))
        return dataclasses.replace(self.problem, relevant=(number + 1) // 2)

    def check(self) -> None:
        """Refuse bags that would hold a token twice."""
        if self.problem.irrelevant < self.problem.length - 1:
            raise BadInput(
                f"irrelevant {self.problem.irrelevant}: wanted T − 1 = "
                f"{self.problem.length - 1} or more, as a bag holds none twice"
            )


PRESETS = presets(
    full=Settings(),
    smoke=Settings(
        problem=Problem(40, 3, 2, 4),
        dims=(1e6,),
        etas=(0.1, 10.0),
        alignments=(1.0,),
        selection_etas=(1.0,),
        classes=((1, 5),),
        until_log_time=1e4,
        points=4,
        workers=1,
        seeds=2,
    ),
    phases=Settings(
        parts=("phases",),
        problem=Problem(96, 8, 6, 20),
        dims=(1e2, 1e4, 1e6, 1e8),
        step_sizes=tuple(10.0 ** (0.5 * power) for power in range(-2, 8)),
        points=4,
        seeds=4,
        out=Path("results/joint-phases"),
    ),
)


@study(figure="joint")
def main(settings: Settings, results: dict) -> dict[str, np.ndarray]:
    """Run the lanes of all parts, and hold them against theory."""
    parts = [name for name in PARTS if name in settings.parts]
    cells = {name: PARTS[name][0](settings) for name in parts}
    rows = lanes(settings, table([cell for name in parts for cell in cells[name]]))
    arrays = {"log_times": settings.marks}
    for name in parts:
        here, rows = rows[: len(cells[name])], rows[len(cells[name]) :]
        results[name], columns = PARTS[name][1](settings, here)
        arrays |= {f"{name}_{key}": column for key, column in columns.items()}
        for row in results[name]:
            say(f"{name}: " + ", ".join(f"{key} {_text(row[key])}" for key in row))
    if "frozen" in settings.parts:
        shown, columns = frozen(settings)
        results |= shown
        arrays |= columns
        for kind, row in shown.items():
            say(f"{kind}: " + ", ".join(f"{key} {_text(row[key])}" for key in row))
    return arrays


def lanes(settings: Settings, cells: np.ndarray) -> np.ndarray:
    """One row per cell, from disk or run now."""
    if not len(cells):
        return cells
    work = partial(block, marks=settings.marks, sizes=settings.sizes)
    pieces = np.split(cells, range(BLOCK, len(cells), BLOCK))
    found = resumed(
        settings,
        work,
        pieces,
        "blocks of lanes",
        ignored=("tolerance", "identity_tolerance"),
        study="joint",
        form=2,  # Version of the columns of a lane.
    )
    return np.concatenate(found)


def frozen(settings: Settings) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """With E fixed: p beside a trained v, and a key-query matrix before p."""
    seeds = settings.seed + jnp.arange(settings.seeds)
    found, arrays = {}, {"frozen_log_times": FROZEN_MARKS}
    follow = jax.jit(jax.vmap(_trained_head.follow, (0, 0, None)))
    for name, problem in FROZEN.items():
        after, corpus = jax.jit(jax.vmap(partial(drawn, problem)))(seeds)
        columns = jax.device_get(follow(after, corpus, jnp.asarray(FROZEN_MARKS)))
        columns |= _trained_head.classify(columns, settings.tolerance)
        found[name] = _trained_head.summary(columns, FROZEN_MARKS)
        arrays |= {f"{name}_{key}": columns[key] for key in KEPT}
    follow = jax.jit(jax.vmap(matrix, (0, None)))
    columns = jax.device_get(follow(seeds, jnp.asarray(MATRIX_MARKS)))
    found["matrix"] = _key_query.summary(columns, settings.identity_tolerance)
    return found, arrays


def drawn(problem: Problem, seed: jax.Array) -> tuple[Parameters, Corpus]:
    """Parameters after the step on E, and a corpus, of the frozen parts."""
    before, corpus = problem.draw(seed, FROZEN_DIM)
    return embedding_step(before, corpus, FROZEN_STEP), corpus


def matrix(seed: jax.Array, marks: jax.Array) -> dict[str, jax.Array]:
    """One draw with a Gaussian W_0."""
    after, corpus = drawn(MATRIX, seed)
    key = jax.random.fold_in(jax.random.key(seed), 1)
    size = len(after.query)
    start = jax.random.normal(key, (size, size)) / size**0.5
    return _key_query.compare_flows(after, corpus, start, marks)


def _text(value: Any) -> str:
    if isinstance(value, dict) and "mean" in value:
        shown = f"{value['mean']:.4g} [{value['low']:.4g}, {value['high']:.4g}]"
        rest = {key: value[key] for key in value if key not in ("mean", "low", "high")}
        return shown + (f" {rest}" if rest else "")
    return f"{value:.4g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    command(main, PRESETS)
