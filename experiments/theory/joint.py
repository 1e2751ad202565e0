"""Does p keep its bias when v is trained as well, or behind a key-query matrix W?

With v trained, v = v_mm log t + … and p = p_mm τ + ρ in the time τ = log(½ log² t):
p heads where it does alone, if v_mm, the max-margin solution of v on the selected
tokens, needs every sequence. One that v fits with room to spare has a loss that fades
faster than 1/t; it asks p for a lead of zero, not one, and p heads for the solution of
that relaxed problem. Behind W, u = W p moves as p does alone, and
W_t = W_0 + (u_t − u_0) pᵀ/‖p‖².
"""

import dataclasses
from functools import partial
from pathlib import Path
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from experiments.common.console import command, say
from experiments.common.devices import configure
from experiments.common.progress import announce
from experiments.common.results import write
from experiments.theory import _key_query, _trained_head
from experiments.theory.problem import Problem
from jaxselect.errors import BadInput
from jaxselect.model.corpus import Corpus
from jaxselect.model.embedding_step import embedding_step
from jaxselect.model.parameters import Parameters


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of the study.

    Attributes:
        preset: where the defaults come from.
        problem: corpora in which all important tokens are equally frequent.
        unequal_relevant: relevant tokens per class where they are not; |S| is the same.
        dim: embedding dimension d.
        step_size: η₀ of the step on E.
        until_log_time: log(1+t) at which p alone, and p beside v, stop.
        matrix_log_time: log(1+‖p‖²t) at which W p stops.
        points: of each path.
        tolerance: ‖dp/dτ − p_mm‖/‖p_mm‖ that counts as heading for p_mm.
        identity_tolerance: likewise ‖W − direct W‖/‖W − W_0‖ for the same W.
        identity_log_time: log(1+‖p‖²t) until which W itself is integrated.
        seeds: number of draws of each kind.
        seed: of the first draw.
        out: folder for results.
        json: print the results as one JSON object on standard output.
    """

    preset: Literal["full", "smoke"] = "full"
    problem: Problem = dataclasses.field(default_factory=lambda: Problem(20, 6, 2, 14))
    unequal_relevant: int = 3
    dim: float = 4096.0
    step_size: float = 100.0
    until_log_time: float = 1e8
    matrix_log_time: float = 1e5
    points: int = 29
    tolerance: float = 0.01
    identity_tolerance: float = 1e-6
    identity_log_time: float = 8.0
    seeds: int = 16
    seed: int = 0
    out: Path = Path("results") / "joint"
    json: bool = False

    @property
    def unequal(self) -> Problem:
        """The same corpora with other numbers of relevant and irrelevant tokens."""
        more = self.unequal_relevant - self.problem.relevant
        return dataclasses.replace(
            self.problem,
            relevant=self.unequal_relevant,
            irrelevant=self.problem.irrelevant - 2 * more,
        )

    def check(self) -> None:
        """Refuse numbers that no study can be made of.

        Raises:
            BadInput: what arrived and what was wanted.
        """
        self.problem.check()
        if self.seeds < 1 or self.points < 8:
            raise BadInput(
                f"seeds {self.seeds}, points {self.points}: wanted ≥ 1 and ≥ 8"
            )
        each = self.problem.sequences // 2
        if each % max(self.problem.relevant, 1):
            raise BadInput(
                f"relevant {self.problem.relevant}, sequences {self.problem.sequences}:"
                f" wanted a divisor of the {each} sequences of a class"
            )
        if not (self.unequal_relevant > 0 < self.unequal.irrelevant) or not (
            each % self.unequal_relevant
        ):
            raise BadInput(
                f"unequal relevant {self.unequal_relevant}: wanted no divisor of the "
                f"{each} sequences of a class, and room for irrelevant tokens"
            )
        # Later the exponent log t − y f of a sequence has no digit left.
        if not 1e3 <= self.until_log_time <= 1e9:
            raise BadInput(
                f"until log time {self.until_log_time}: wanted 10³ … 10⁹, where p has "
                "a late time and float64 still follows it"
            )
        for name in ("dim", "step_size", "tolerance", "identity_tolerance"):
            if not 0 < getattr(self, name) < float("inf"):
                spoken = name.replace("_", " ")
                raise BadInput(f"{spoken} {getattr(self, name)}: wanted a number > 0")
        if not 0 < self.identity_log_time <= 12:
            raise BadInput(
                f"identity log time {self.identity_log_time}: wanted > 0, and ≤ 12 for "
                "an explicit method"
            )
        if not self.identity_log_time < self.matrix_log_time <= 1e9:
            raise BadInput(
                f"matrix log time {self.matrix_log_time}: wanted more than the "
                f"identity's {self.identity_log_time}, up to 10⁹"
            )


PRESETS = {
    "full": Settings(),
    "smoke": Settings(
        problem=Problem(6, 3, 1, 5),
        unequal_relevant=2,
        dim=65536.0,
        step_size=40.0,
        points=8,
        seeds=3,
        out=Path("results") / "joint-smoke",
    ),
}
SMALL = Problem(8, 3, 2, 4)
"""Corpora before which a matrix stands: W has as many rows as |S| + 2."""
KEPT = ("status", "norms", "errors", "exponents", "off", "off_relaxed", "supports")
"""Columns of a draw with a trained head that are written."""


def main(settings: Settings) -> dict:
    """Both claims, over all draws.

    Args:
        settings: of the command line.

    Returns:
        What `--json` prints.
    """
    settings.check()
    configure("float64")
    announce(settings.out, "joint")
    seeds = settings.seed + jnp.arange(settings.seeds)
    marks = jnp.geomspace(10.0, settings.until_log_time, settings.points)
    arrays = {"log_times": np.asarray(marks)}
    found = {}
    follow = jax.jit(jax.vmap(_trained_head.follow, (0, 0, None)))
    for name, problem in (("equal", settings.problem), ("unequal", settings.unequal)):
        after, corpus = jax.jit(jax.vmap(partial(draw, settings, problem)))(seeds)
        columns = _numbers(follow(after, corpus, marks))
        columns |= _trained_head.judge(columns, settings.tolerance)
        found[name] = _trained_head.summary(columns, arrays["log_times"])
        arrays |= {f"{name}_{key}": columns[key] for key in KEPT}
    follow = jax.jit(jax.vmap(partial(matrix, settings), (0, None)))
    marks = jnp.geomspace(
        settings.identity_log_time, settings.matrix_log_time, settings.points
    )
    columns = _numbers(follow(seeds, marks)) | {"log_times": np.asarray(marks)}
    found["matrix"] = _key_query.summary(columns, settings.identity_tolerance)
    arrays |= {f"matrix_{key}": column for key, column in columns.items()}
    for kind, shown in found.items():
        for key, value in shown.items():
            say(f"{kind:8} {key.replace('_', ' '):32} {value}")
    write(settings.out, settings=settings, results=found, arrays=arrays, figure="joint")
    return found


def draw(
    settings: Settings, problem: Problem, seed: jax.Array
) -> tuple[Parameters, Corpus]:
    """Parameters after the step on E, and a corpus."""
    before, corpus = problem.draw(seed, settings.dim)
    return embedding_step(before, corpus, settings.step_size), corpus


def matrix(
    settings: Settings, seed: jax.Array, marks: jax.Array
) -> dict[str, jax.Array]:
    """One draw with a Gaussian W_0."""
    after, corpus = draw(settings, SMALL, seed)
    key = jax.random.fold_in(jax.random.key(seed), 1)
    size = len(after.cls)
    start = jax.random.normal(key, (size, size)) / size**0.5
    return _key_query.behind_matrix(after, corpus, start, marks)


def _numbers(columns: dict[str, jax.Array]) -> dict[str, np.ndarray]:
    return {name: np.asarray(column) for name, column in columns.items()}


if __name__ == "__main__":
    command(main, PRESETS)
