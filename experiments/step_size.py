"""The step size η₀ that selects soonest: its gradient, and descent on it.

The time to selection is differentiated in log η₀ over a grid of d and η₀. At each d its
mean over seeds is then minimised by gradient descent on log η₀ (optax's Rprop) and by a
fine grid, both counted in seconds and in evaluations.
"""

from experiments import console  # isort: skip (it settles the threads first)

import dataclasses
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Literal

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import optax

from experiments.console import say
from experiments.rates import Problem
from jaxselect.embedding_step import embedding_step
from jaxselect.gradient_flow import FlowSettings
from jaxselect.limit import LimitStatus
from jaxselect.rates import (
    RateSettings,
    log_time_to_error,
    selection_log_time,
    settle,
)


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of the study.

    Attributes:
        preset: where the defaults come from.
        problem: the corpora.
        dims: dimensions d.
        smallest: smallest η₀.
        largest: largest η₀.
        phase_points: values of η₀ in the phase diagram.
        grid_points: values of η₀ in the search by grid.
        coarse: values of η₀ that descent chooses its start from.
        steps: of descent.
        seeds: draws that a time is averaged over.
        seed: of the first draw.
        out: folder for results.
        json: print the results as one JSON object on standard output.
    """

    preset: Literal["full", "smoke"] = "full"
    problem: Problem = dataclasses.field(default_factory=Problem)
    dims: tuple[float, ...] = (256.0, 1024.0, 4096.0, 65536.0, 1e6)
    smallest: float = 1.0
    largest: float = 1e4
    phase_points: int = 24
    grid_points: int = 200
    coarse: int = 6
    steps: int = 6
    seeds: int = 4
    seed: int = 0
    out: Path = Path("results") / "step-size"
    json: bool = False

    def check(self) -> None:
        """Refuse numbers that no study can be made of.

        Raises:
            ValueError: what arrived and what was wanted.
        """
        if not 0 < self.smallest < self.largest < float("inf"):
            raise ValueError(
                f"smallest {self.smallest}, largest {self.largest}: wanted two finite "
                "step sizes > 0 in this order"
            )
        counts = ("phase_points", "grid_points", "coarse", "steps", "seeds")
        for name in counts:
            if getattr(self, name) < 1:
                raise ValueError(f"{name} {getattr(self, name)}: wanted ≥ 1")


PRESETS = {
    "full": Settings(),
    "smoke": Settings(
        problem=Problem(8, 3, 1, 4),
        dims=(256.0, 1e6),
        phase_points=4,
        grid_points=20,
        seeds=2,
        out=Path("results") / "step-size-smoke",
    ),
}
# Early rates are wanted in forward mode: one argument, few outputs.
RATES = RateSettings(
    FlowSettings(adjoint=diffrax.ForwardMode()),
    search_points=512,
    search_log_time=200.0,
)


def main(settings: Settings) -> dict:
    """Phase diagram of the derivative, then both searches at every d.

    Args:
        settings: of the command line.

    Returns:
        What `--json` prints.
    """
    settings.check()
    jax.config.update("jax_enable_x64", True)
    seeds = settings.seed + jnp.arange(settings.seeds)
    low, high = np.log([settings.smallest, settings.largest])
    study = partial(times, settings.problem)

    def mean(dim: jax.Array, log_step: jax.Array) -> jax.Array:
        each = jax.vmap(study, (0, None, None))(seeds, dim, log_step)[0]
        return each.mean()

    def mean_and_slope(dim: jax.Array, log_step: jax.Array) -> tuple:
        return jax.jvp(partial(mean, dim), (log_step,), (jnp.ones_like(log_step),))

    value, slope = jax.jit(mean), jax.jit(mean_and_slope)
    diagram = phase_diagram(
        settings, study, np.linspace(low, high, settings.phase_points)
    )
    for compiled in (value, slope):
        jax.block_until_ready(compiled(jnp.array(256.0), jnp.array(1.0)))
    found = []
    for dim in settings.dims:
        begin = time.perf_counter()
        grid = np.linspace(low, high, settings.grid_points)
        tried = [float(value(jnp.array(dim), jnp.array(x))) for x in grid]
        grid_seconds = time.perf_counter() - begin
        begin = time.perf_counter()
        best, reached = descend(
            partial(value, jnp.array(dim)), partial(slope, jnp.array(dim)), settings
        )
        seconds = time.perf_counter() - begin
        found.append(
            {
                "dim": dim,
                "step_size_descent": float(np.exp(best)),
                "log_time_descent": reached,
                "step_size_grid": float(np.exp(grid[int(np.argmin(tried))])),
                "log_time_grid": float(np.min(tried)),
                "seconds_descent": seconds,
                "seconds_grid": grid_seconds,
                "cost_share": seconds / grid_seconds,
            }
        )
        say(
            f"d {dim:9g}   descent η₀ {np.exp(best):8.4g}, log time {reached:.5g}   "
            f"grid η₀ {found[-1]['step_size_grid']:8.4g}, log time "
            f"{found[-1]['log_time_grid']:.5g}   cost {seconds / grid_seconds:.3f}"
        )
    results = {
        "optima": found,
        "as_good_as_grid": sum(
            cell["log_time_descent"] <= cell["log_time_grid"] for cell in found
        ),
        "kinks_share": float(diagram["kink"].mean()),
    }
    console.write_arrays(settings.out / "phase.npz", diagram)
    described = dataclasses.asdict(settings) | {"results": results}
    console.write_json(settings.out / "results.json", described)
    console.draw("step_size", settings.out)
    return results


def times(
    problem: Problem, seed: jax.Array, dim: jax.Array, log_step: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Log-time to selection, log t to a direction error of 10⁻³, status and kink."""
    before, corpus = problem.draw(seed, dim)
    after = embedding_step(before, corpus, jnp.exp(log_step))
    settled = settle(after, corpus, RATES)
    selection, undecided = selection_log_time(after, corpus, settled.selected, RATES)
    # What was not selected in the search counts as its end.
    selection = jnp.minimum(selection, RATES.search_log_time)
    return (
        selection,
        log_time_to_error(settled.late, 1e-3),
        settled.late.status,
        settled.kink | undecided,
    )


def phase_diagram(
    settings: Settings, study: Callable, log_steps: np.ndarray
) -> dict[str, np.ndarray]:
    """Both times and their derivatives in log η₀ over d and η₀, mean over seeds."""

    def lane(seed: jax.Array, dim: jax.Array, log_step: jax.Array) -> tuple:
        def smooth(x: jax.Array) -> tuple:
            selection, error, status, kink = study(seed, dim, x)
            return (selection, error), (status, kink)

        one = jnp.ones_like(log_step)
        values, slopes, flags = jax.jvp(smooth, (log_step,), (one,), has_aux=True)
        return *values, *slopes, *flags

    names = ("selection", "error", "selection_slope", "error_slope", "status", "kink")
    seeds = settings.seed + jnp.arange(settings.seeds)
    row = jax.jit(jax.vmap(jax.vmap(lane, (0, None, None)), (None, None, 0)))
    rows = [row(seeds, jnp.array(dim), jnp.array(log_steps)) for dim in settings.dims]
    columns = [np.stack(column) for column in zip(*rows, strict=True)]
    diagram = dict(zip(names, columns, strict=True))
    diagram["predicted"] = diagram["status"] == LimitStatus.PREDICTED
    return diagram | {"dims": np.array(settings.dims), "step_sizes": np.exp(log_steps)}


def descend(
    value: Callable, value_and_slope: Callable, settings: Settings
) -> tuple[float, float]:
    """The best log η₀ that descent comes by, and the log-time there.

    Args:
        value: of log η₀.
        value_and_slope: of log η₀.
        settings: of the study.

    Returns:
        Log η₀ and the mean log-time to selection.
    """
    low, high = np.log([settings.smallest, settings.largest])
    starts = np.linspace(low, high, 2 * settings.coarse + 1)[1::2]
    place = jnp.array(min(starts, key=lambda x: float(value(jnp.array(x)))))
    # Rprop follows signs, which a kink does not spoil as it does the size of a slope.
    width = float(high - low) / (4 * settings.coarse)
    optimiser = optax.rprop(width, eta_minus=0.4, eta_plus=1.2)
    state = optimiser.init(place)
    best, reached = float(place), float("inf")
    for _ in range(settings.steps):
        now, slope = value_and_slope(place)
        if float(now) < reached:
            best, reached = float(place), float(now)
        update, state = optimiser.update(slope, state)
        place = jnp.clip(optax.apply_updates(place, update), low, high)
    last = float(value(place))
    return (float(place), last) if last < reached else (best, reached)


if __name__ == "__main__":
    console.command(main, PRESETS)
