"""How fast the direction of p converges: error against ‖p‖ and log t, with exponents.

One flow per seed. Exponents are exact at every point of the path and fitted over its
late part; the constant in front is predicted without integrating.
"""

import dataclasses
from functools import partial
from pathlib import Path
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from experiments.common import memory
from experiments.common.console import command, say
from experiments.common.devices import configure
from experiments.common.progress import announce
from experiments.common.results import write
from experiments.theory.problem import Problem
from jaxselect.errors import BadInput
from jaxselect.flow.cls_flow import cls_flow
from jaxselect.flow.progress import direction_error, excess_loss, local_exponents
from jaxselect.margin.limit import LimitStatus
from jaxselect.model.embedding_step import embedding_step
from jaxselect.outcome.resolved_limit import resolve_limit


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of the study.

    Attributes:
        preset: where the defaults come from.
        problem: the corpora.
        dim: embedding dimension d.
        step_size: η₀ of the step on E.
        seeds: number of draws.
        points: of each path.
        seed: of the first draw.
        out: folder for results.
        json: print the results as one JSON object on standard output.
    """

    preset: Literal["full", "smoke"] = "full"
    problem: Problem = dataclasses.field(default_factory=Problem)
    dim: float = 256.0
    step_size: float = 100.0
    seeds: int = 32
    points: int = 80
    seed: int = 0
    out: Path = Path("results") / "rates"
    json: bool = False

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
        if not (self.dim >= 1 and 0 < self.step_size < float("inf")):
            raise BadInput(
                f"dim {self.dim}, step size {self.step_size}: wanted d ≥ 1 and a "
                "finite step size > 0"
            )
        tokens = 2 * self.problem.relevant + self.problem.irrelevant
        memory.require(
            8 * self.seeds * self.points * tokens,
            f"{self.seeds} seeds of {self.points} points",
        )


PRESETS = {
    "full": Settings(),
    "smoke": Settings(
        problem=Problem(8, 3, 1, 4),
        seeds=2,
        points=16,
        out=Path("results") / "rates-smoke",
    ),
}


def main(settings: Settings) -> dict:
    """Follow every seed, fit exponents, compare constants.

    Args:
        settings: of the command line.

    Returns:
        What `--json` prints.
    """
    settings.check()
    configure("float64")
    announce(settings.out, "rates")
    seeds = settings.seed + jnp.arange(settings.seeds)
    follow = jax.jit(jax.vmap(partial(path, settings)))
    found = {name: np.asarray(value) for name, value in follow(seeds).items()}
    predicted = found["status"] == LimitStatus.PREDICTED
    late = found["log_times"][0] > 1e3
    slopes = {"norms": [], "log_times": []}  # type: dict[str, list[float]]
    for lane in np.flatnonzero(predicted):
        for name, slope in slopes.items():
            across = np.log(found[name][lane][late])
            upward = np.log(found["errors"][lane][late])
            slope.append(float(np.polyfit(across, upward, 1)[0]))
    measured = found["errors"][:, -1] * found["norms"][:, -1]
    off = np.abs(measured / found["constant"] - 1)[predicted]
    # Beyond log t = 600 the loss still to go is no number any more.
    early = found["log_times"][0] < 600
    decay = np.where(early, found["loss_constants"] / found["loss_limit"][:, None], 0)
    last = decay[predicted][:, np.flatnonzero(early)[-1]]
    results = {
        "seeds": settings.seeds,
        "predicted": int(predicted.sum()),
        "exponent_norm": _mean(slopes["norms"]),
        "exponent_log_time": _mean(slopes["log_times"]),
        "exponent_predicted": -1.0,
        "constant_largest_deviation": _largest(off),
        "loss_constant_largest_deviation": _largest(np.abs(last - 1)),
        "kinks": int(found["kink"].sum()),
    }
    for name, value in results.items():
        say(f"{name.replace('_', ' '):34} {value}")
    write(
        settings.out, settings=settings, results=results, arrays=found, figure="rates"
    )
    return results


def path(settings: Settings, seed: jax.Array) -> dict[str, jax.Array]:
    """One seed: errors, norms and exponents along the flow, and the prediction.

    Args:
        settings: of the study.
        seed: traced.

    Returns:
        Arrays by name.
    """
    before, corpus = settings.problem.draw(seed, settings.dim)
    after = embedding_step(before, corpus, settings.step_size)
    resolved = resolve_limit(after, corpus)
    times = jnp.geomspace(1.0, 1e5, settings.points)
    flow = cls_flow(after, corpus, until_log_time=1e5, path_log_times=times)
    direction = resolved.margin.direction
    by_norm, by_time = jax.vmap(partial(local_exponents, after, corpus, direction))(
        times, flow.path_cls
    )
    to_go = jax.vmap(partial(excess_loss, after, corpus, resolved.selected))(
        flow.path_cls
    )
    return {
        "log_times": times,
        "norms": jax.vmap(jnp.linalg.norm)(flow.path_cls),
        "errors": jax.vmap(lambda cls: direction_error(cls, direction))(flow.path_cls),
        "exponents_norm": by_norm,
        "exponents_log_time": by_time,
        "loss_constants": to_go * jnp.exp(jnp.minimum(times, 700.0)),
        "loss_limit": resolved.margin.norm**2,
        "constant": resolved.late.error_constant,
        "growth": resolved.margin.norm,
        "status": resolved.late.status,
        "kink": resolved.kink,
    }


def _mean(values: list[float]) -> float | None:
    return float(np.mean(values)) if values else None


def _largest(values: np.ndarray) -> float | None:
    return float(values.max()) if values.size else None


if __name__ == "__main__":
    command(main, PRESETS)
