"""Where theory draws the edges of a phase diagram: step sizes over the dimension.

No run is integrated: each edge is a formula, or the root of one function of (d, η₀)
(mathematics, section 6). The report draws them over a sweep of the same problem.
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
from experiments.common.results import write
from experiments.theory._edges import every_edge
from experiments.theory.problem import Problem
from jaxselect.errors import BadInput
from jaxselect.theory.domain import in_domain
from jaxselect.theory.two_classes import Ensemble


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of the study.

    Attributes:
        preset: where the defaults come from.
        problem: sizes of the corpora; by default those of the sweep `default`.
        smallest: smallest d.
        largest: largest d.
        points: dimensions between them, both included.
        out: folder for results.
        json: print the results as one JSON object on standard output.
    """

    preset: Literal["default", "smoke"] = "default"
    problem: Problem = dataclasses.field(default_factory=lambda: Problem(200, 8, 8, 48))
    smallest: float = 16.0
    largest: float = 1e7
    points: int = 7
    out: Path = Path("results") / "edges"
    json: bool = False

    def check(self) -> None:
        """Refuse numbers that no study can be made of.

        Raises:
            BadInput: what arrived and what was wanted.
        """
        self.problem.check()
        if not 1 <= self.smallest < self.largest < float("inf"):
            raise BadInput(
                f"smallest {self.smallest}, largest {self.largest}: wanted two finite "
                "dimensions ≥ 1 in this order"
            )
        if self.points < 2:
            raise BadInput(f"points {self.points}: wanted ≥ 2")


PRESETS = {
    "default": Settings(),
    "smoke": Settings(
        problem=Problem(20, 4, 2, 8), points=2, out=Path("results") / "edges-smoke"
    ),
}


def main(settings: Settings) -> dict:
    """Every edge at every dimension.

    Args:
        settings: of the command line.

    Returns:
        What `--json` prints.
    """
    settings.check()
    configure("float64")
    ensemble = Ensemble(*dataclasses.astuple(settings.problem))
    dims = jnp.geomspace(settings.smallest, settings.largest, settings.points)

    found = jax.jit(jax.vmap(partial(every_edge, ensemble)))(dims)
    arrays = {name: np.asarray(column) for name, column in found.items()}
    say(f"{'d':16}" + "".join(f"{dim:10.4g}" for dim in dims))
    for name, column in arrays.items():
        say(f"{name:16}" + "".join(f"{value:10.4g}" for value in column))
    within = jax.jit(jax.vmap(partial(in_domain, ensemble)))
    for name in ("breaking_lower", "breaking_upper", "capture_lower", "capture_upper"):
        known = np.asarray(within(dims, found[name]))
        outside = np.asarray(dims)[~known & (arrays[name] > 0)]
        if len(outside):
            say(f"{name:16} outside the theory's domain up to d = {outside.max():.3g}")
        arrays[f"{name}_in_domain"] = known
    results = {name: arrays[name].tolist() for name in found}
    results["dims"] = np.asarray(dims).tolist()
    write(settings.out, settings=settings, results=results, arrays=arrays)
    return results


if __name__ == "__main__":
    command(main, PRESETS)
