"""Where theory draws the edges of a phase diagram: step sizes over the dimension.

No run is integrated: each edge is a formula, or the root of one function of (d, η₀)
(mathematics, section 6). The report draws them over a sweep of the same problem.
"""

import dataclasses
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from experiments.common.console import command, say
from experiments.common.study import Dimension, Several, Study, in_order, presets, study
from experiments.theory._edges import every_edge
from experiments.theory.problem import Problem
from jaxselect.theory.phases import in_domain
from jaxselect.theory.two_classes import Ensemble


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(Study):
    """Settings of the study.

    Attributes:
        problem: sizes of the corpora; by default those of the sweep `default`.
        smallest: smallest d.
        largest: largest d.
        points: dimensions between them, both included.
        seed: of nothing; no edge is drawn.
    """

    problem: Problem = Problem(200, 8, 8, 48)
    smallest: Dimension = 16.0
    largest: Dimension = 1e7
    points: Several = 7
    out: Path = Path("results/edges")

    def check(self) -> None:
        """Refuse dimensions that are not in order."""
        in_order(self, "smallest", "largest")


PRESETS = presets(
    default=Settings(), smoke=Settings(problem=Problem(20, 4, 2, 8), points=2)
)


@study()
def main(settings: Settings, results: dict) -> dict[str, np.ndarray]:
    """Every edge at every dimension."""
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
    results |= {name: arrays[name].tolist() for name in found}
    results["dims"] = np.asarray(dims).tolist()
    return arrays


if __name__ == "__main__":
    command(main, PRESETS)
