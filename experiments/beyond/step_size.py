"""The step size η₀ with the earliest selection, found by gradient descent.

All rates are differentiated in log η₀ over a grid of seeds, d and η₀. At each d the
mean time to selection over seeds is then minimised by gradient descent on log η₀
(optax) and by a fine grid, both timed. If the time of one draw is unresolved, the mean
is unknown; both searches omit such η₀, and their share is reported.
"""

import dataclasses
import time
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import optax.contrib
from matplotlib.figure import Figure
from scipy.interpolate import CubicHermiteSpline

from experiments.beyond.problem import Problem
from experiments.common.claims import Claim, Measured, Shown, of_cases
from experiments.common.console import command, say
from experiments.common.numbers import in_words, num, percent
from experiments.common.progress import progress_bar
from experiments.common.rates import REAL_RATES
from experiments.common.results import Finished
from experiments.common.study import (
    Count,
    Dimension,
    Experiment,
    Positive,
    Several,
    Study,
    in_order,
    presets,
)
from experiments.common.style import subplots
from jaxselect.convergence import (
    RateSettings,
    rates,
    resolve_limit,
    selection_event,
)
from jaxselect.flow.crossing import crossings_and_query
from jaxselect.model.step import embedding_step
from jaxselect.problem import attention
from jaxselect.status import Reason


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(Study):
    """Settings of the study.

    Attributes:
        problem: the corpora.
        dims: dimensions d.
        smallest: smallest η₀.
        largest: largest η₀.
        phase_points: values of η₀ in the phase diagram.
        grid_points: values of η₀ in the search by grid.
        coarse: values of η₀ that descent chooses its start from.
        candidates: starts tried between them.
        steps: of descent.
        seeds: draws that a time is averaged over.
    """

    problem: Problem = Problem()
    dims: tuple[Dimension, ...] = (256.0, 1024.0, 4096.0, 65536.0, 1e6)
    smallest: Positive = 1.0
    largest: Positive = 1e4
    phase_points: Count = 24
    grid_points: Count = 200
    coarse: Several = 7
    candidates: Count = 2
    steps: Count = 6
    seeds: Count = 4
    out: Path = Path("results/step-size")

    def check(self) -> None:
        """Refuse step sizes that are not in order."""
        in_order(self, "smallest", "largest")


PRESETS = presets(
    full=Settings(),
    smoke=Settings(
        problem=Problem(8, 3, 1, 4),
        dims=(256.0, 1e6),
        phase_points=4,
        grid_points=20,
        seeds=2,
    ),
)
RATES = RateSettings(until_log_time=1e3, points=512)


def run(settings: Settings, results: dict) -> dict[str, np.ndarray]:
    """Phase diagram of the derivative, then both searches at every d."""
    seeds = settings.seed + jnp.arange(settings.seeds)
    low, high = np.log([settings.smallest, settings.largest])
    time_at = partial(mean_selection_time, settings.problem, seeds)

    def mean_and_slope(dim: jax.Array, log_step: jax.Array) -> tuple:
        return jax.jvp(partial(time_at, dim), (log_step,), (jnp.ones_like(log_step),))

    value, slope = jax.jit(time_at), jax.jit(mean_and_slope)
    diagram = phase_diagram(settings, np.linspace(low, high, settings.phase_points))
    # Compiled before anything is timed, the optimiser's own programs included.
    jax.block_until_ready(value(jnp.array(256.0), jnp.array(1.0)))
    descend(partial(slope, jnp.array(256.0)), settings)
    found: list[dict] = []
    results["optima"] = found
    with progress_bar("best step sizes", len(settings.dims)) as advance:
        for dim in settings.dims:
            begin = time.perf_counter()
            grid = np.linspace(low, high, settings.grid_points)
            tried = [float(value(jnp.array(dim), jnp.array(x))) for x in grid]
            grid_seconds = time.perf_counter() - begin
            known = np.nan_to_num(tried, nan=np.inf)
            begin = time.perf_counter()
            best, reached = descend(partial(slope, jnp.array(dim)), settings)
            seconds = time.perf_counter() - begin
            found.append(
                {
                    "dim": dim,
                    "step_size_descent": float(np.exp(best)),
                    "log_time_descent": reached,
                    "step_size_grid": float(np.exp(grid[int(np.argmin(known))])),
                    "log_time_grid": float(np.min(known)),
                    "unknown_share": float(np.isnan(tried).mean()),
                    "seconds_descent": seconds,
                    "seconds_grid": grid_seconds,
                    "cost_share": seconds / grid_seconds,
                }
            )
            say(in_words(found[-1]))
            advance(1)
    results |= {
        "cost_share": sum(cell["seconds_descent"] for cell in found)
        / sum(cell["seconds_grid"] for cell in found),
        "unknown_share": float(np.mean([cell["unknown_share"] for cell in found])),
    }
    return diagram


def mean_selection_time(
    problem: Problem, seeds: jax.Array, dim: jax.Array, log_step: jax.Array
) -> jax.Array:
    """Mean log-time to selection over the seeds; NaN if one is unknown.

    A mean over the others would be of the soonest alone, for what is late is sudden.
    """
    draws = jax.vmap(partial(selection_time, problem), (0, None, None))
    times, sudden = draws(seeds, dim, log_step)
    return jnp.where(jnp.any(sudden), jnp.nan, times.mean())


def selection_time(
    problem: Problem, seed: jax.Array, dim: jax.Array, log_step: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Log-time to selection, and whether it is sudden; none counts as the end."""
    before, corpus = problem.draw(seed, dim)
    after = embedding_step(before, corpus, jnp.exp(log_step))
    flowing = attention(after, corpus)
    resolved = resolve_limit(flowing, settings=RATES)
    marks = [selection_event(flowing, resolved.selected)]
    (selection,), _ = crossings_and_query(
        flowing, resolved.path, marks, settings=RATES.flow
    )
    return jnp.minimum(selection.log_time, RATES.until_log_time), selection.sudden


def phase_diagram(settings: Settings, log_steps: np.ndarray) -> dict[str, np.ndarray]:
    """Every rate and its derivative in log η₀, over d, η₀ and seeds."""

    def lane(seed: jax.Array, dim: jax.Array, log_step: jax.Array) -> tuple:
        before, corpus = settings.problem.draw(seed, dim)

        def real(x: jax.Array) -> tuple[dict, jax.Array]:
            found = vars(rates(before, corpus, jnp.exp(x), settings=RATES))
            return {name: found[name] for name in REAL_RATES}, found["status"]

        one = jnp.ones_like(log_step)
        values, slopes, status = jax.jvp(real, (log_step,), (one,), has_aux=True)
        slopes = {f"{name}_slope": slope for name, slope in slopes.items()}
        return values | slopes | {"status": status}

    seeds = settings.seed + jnp.arange(settings.seeds)
    cell = jax.jit(jax.vmap(lane, (0, None, None)))
    rows = []
    with progress_bar("phase diagram", len(settings.dims)) as advance:
        for dim in settings.dims:
            cells = [cell(seeds, jnp.array(dim), jnp.array(x)) for x in log_steps]
            rows.append(jax.tree.map(lambda *leaves: np.stack(leaves), *cells))
            advance(1)
    diagram = jax.tree.map(lambda *leaves: np.stack(leaves), *rows)
    diagram["predicted"] = diagram["status"] == Reason.NONE
    return diagram | {"dims": np.array(settings.dims), "step_sizes": np.exp(log_steps)}


def descend(value_and_slope: Callable, settings: Settings) -> tuple[float, float]:
    """The best log η₀ that descent comes by, and the time there.

    The time has several basins, so a coarse grid comes first: the lowest points of its
    cubic interpolant, by values and slopes, are tried, and descent starts at the best.
    It follows the sign of the slope, which a kink or a jump does not spoil as it does
    its size, from the best place so far, by steps that shrink where they fail.
    """
    low, high = np.log([settings.smallest, settings.largest])
    tried: list[tuple[float, float, float]] = []

    def look(place: float) -> None:
        now, slope = map(float, value_and_slope(jnp.array(place)))
        if np.isnan(now):
            # No better than never selected.
            now, slope = RATES.until_log_time, 0.0
        tried.append((now, float(place), slope))

    coarse = np.linspace(low, high, settings.coarse + 2)[1:-1]
    for place in coarse:
        look(place)
    value, _, slope = np.array(tried).T
    between = CubicHermiteSpline(coarse, np.log(value), slope / value)
    inside = coarse[:-1, None] + np.diff(coarse)[:, None] * np.linspace(0.05, 0.95, 19)
    height = between(inside)
    for interval in np.argsort(height.min(axis=1))[: settings.candidates]:
        look(inside[interval, np.argmin(height[interval])])

    state, update = follower(float(high - low) / (4 * settings.coarse))
    now = min(tried)[0]
    for _ in range(settings.steps):
        _, best, downhill = min(tried)
        change, state = update(jnp.array(downhill), state, value=now)
        look(float(np.clip(best + float(change), low, high)))
        now = tried[-1][0]
    reached, best, _ = min(tried)
    return best, reached


@cache
def follower(width: float) -> tuple[Any, Callable]:
    """The optimiser: its state at the start, and its compiled update."""
    optimiser = optax.chain(
        optax.sign_sgd(width),
        optax.contrib.reduce_on_plateau(factor=0.35, patience=1, rtol=0.0, atol=1e-12),
    )
    return optimiser.init(jnp.zeros(())), jax.jit(optimiser.update)


def draw(finished: Finished) -> Figure:
    """Derivative of both times in log η₀ over d and η₀, and the optima found."""
    found = finished.arrays
    optima = finished.results["optima"]
    dims, steps = found["dims"], found["step_sizes"]
    figure, axes = subplots(1, 3, figsize=(13, 3.8))
    for panel, name, title in (
        (axes[0], "selection_log_time", "∂ log time to selection / ∂ log η₀"),
        (axes[1], "log_time_to_error", "∂ log(log t to error 10⁻⁴) / ∂ log η₀"),
    ):
        slope = found[f"{name}_slope"]
        if name == "log_time_to_error":
            slope = slope / np.abs(found[name])
        kept = found["predicted"] & np.isfinite(slope)
        number = kept.sum(axis=2)
        shown = np.where(kept, slope, 0).sum(axis=2) / np.maximum(number, 1)
        shown = np.where(number > 0, shown, np.nan)
        size = np.nanquantile(np.abs(shown), 0.9) if number.any() else 1.0
        mesh = panel.pcolormesh(
            steps, dims, shown, cmap="RdBu", vmin=-size, vmax=size, shading="nearest"
        )
        figure.colorbar(mesh, ax=panel)
        panel.set(xscale="log", yscale="log", xlabel="η₀", ylabel="d", title=title)
    best = [cell["step_size_descent"] for cell in optima]
    across = [cell["dim"] for cell in optima]
    axes[0].plot(best, across, "*", color="0.1", label="optimum")
    axes[0].legend()
    for search, mark in (("grid", "o"), ("descent", "*")):
        axes[2].semilogx(
            across, [cell[f"log_time_{search}"] for cell in optima], mark, label=search
        )
    axes[2].set(xlabel="d", ylabel="log time to selection at the best η₀")
    axes[2].legend()
    return figure


def as_good_as_grid(optima: list[dict[str, float]]) -> int:
    """Number of dimensions in which descent is no later than the best of the grid.

    Example:
        >>> as_good_as_grid([{"log_time_descent": 2.0, "log_time_grid": 2.0}])
        1
    """
    return sum(cell["log_time_descent"] <= cell["log_time_grid"] for cell in optima)


def descent(found: Finished) -> Measured:
    """Gradient descent on η₀ finds a step size as good as a fine grid does."""
    results = found.results
    cells = len(results["optima"])
    good = as_good_as_grid(results["optima"])
    best = ", ".join(
        f"{num(cell['step_size_descent'])} at d = {num(cell['dim'])}"
        for cell in results["optima"][:3]
    )
    return Measured(
        of_cases(good, cells),
        f"best η₀ {best}; {percent(results['cost_share'], 1)} of the grid's cost",
        f"{cells} dimensions",
        percent(cells - good, cells),
        "the time it reaches, beside the best of the grid",
    )


CLAIMS = (
    Claim(
        "Descent through the flow finds the step size η₀ that selects soonest.",
        descent,
    ),
)


def show(found: Finished) -> Shown:
    """The best η₀ that descent and a grid find, at every d."""
    optima = found.results["optima"]
    rows = [["d", "η₀ by descent", "by grid", "log t by descent", "by grid", "cost"]]
    rows += [
        [
            num(cell["dim"]),
            num(cell["step_size_descent"]),
            num(cell["step_size_grid"]),
            num(cell["log_time_descent"], 4),
            num(cell["log_time_grid"], 4),
            num(cell["cost_share"]),
        ]
        for cell in optima
    ]
    return Shown(
        [
            f"Descent does as well as the grid in {as_good_as_grid(optima)} "
            f"of {len(optima)} dimensions, at {num(found.results['cost_share'])} of "
            "its cost. Where some draw passes too suddenly to say when, in a share of "
            f"{num(found.results.get('unknown_share'))} of the grid, η₀ is left out."
        ],
        rows,
    )


main = Experiment(
    run, draw=draw, claims=CLAIMS, show=show, title="Derivatives in η₀, and the best η₀"
)


if __name__ == "__main__":
    command(main, PRESETS)
