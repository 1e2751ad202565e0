"""How fast the direction of p converges: error against ‖p‖ and log t, with exponents.

One flow per seed. Exponents are exact at every point of the path and fitted over its
late part; the constant in front is predicted without integrating.
"""

import dataclasses
from functools import partial
from pathlib import Path
from typing import Annotated

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

from experiments.beyond.problem import Problem
from experiments.common import memory
from experiments.common.claims import Claim, Measured, Shown, Verdict, at_most, of_cases
from experiments.common.console import command, say_each
from experiments.common.numbers import num, percent
from experiments.common.results import Finished
from experiments.common.statistics import largest, mean
from experiments.common.study import (
    Bound,
    Count,
    Dimension,
    Experiment,
    Positive,
    Study,
    presets,
)
from experiments.common.style import subplots
from jaxselect.convergence import resolve_limit
from jaxselect.flow.cls import cls_flow, direction_error, excess_loss, local_exponents
from jaxselect.margin.limit import LimitStatus
from jaxselect.model.step import embedding_step
from jaxselect.problem import attention


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(Study):
    """Settings of the study.

    Attributes:
        problem: the corpora.
        dim: embedding dimension d.
        step_size: η₀ of the step on E.
        seeds: number of draws.
        points: of each path.
    """

    problem: Problem = Problem()
    dim: Dimension = 256.0
    step_size: Positive = 100.0
    seeds: Count = 32
    points: Annotated[int, Bound(8, 10**12, "8 or more")] = 80
    out: Path = Path("results/rates")

    def check(self) -> None:
        """Refuse paths beyond memory."""
        tokens = 2 * self.problem.relevant + self.problem.irrelevant
        memory.require(
            8 * self.seeds * self.points * tokens,
            f"{self.seeds} seeds of {self.points} points",
        )


PRESETS = presets(
    full=Settings(), smoke=Settings(problem=Problem(8, 3, 1, 4), seeds=2, points=16)
)


def run(settings: Settings, results: dict) -> dict[str, np.ndarray]:
    """Follow every seed, fit exponents, compare constants."""
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
    results |= {
        "seeds": settings.seeds,
        "predicted": int(predicted.sum()),
        "exponent_norm": mean(slopes["norms"]),
        "exponent_log_time": mean(slopes["log_times"]),
        "exponent_predicted": -1.0,
        "constant_largest_deviation": largest(off),
        "loss_constant_largest_deviation": largest(np.abs(last - 1)),
        "kinks": int(found["kink"].sum()),
    }
    say_each(results)
    return found


def path(settings: Settings, seed: jax.Array) -> dict[str, jax.Array]:
    """One seed: errors, norms and exponents along the flow, and the prediction."""
    before, corpus = settings.problem.draw(seed, settings.dim)
    after = embedding_step(before, corpus, settings.step_size)
    problem = attention(after, corpus)
    resolved = resolve_limit(problem)
    times = jnp.geomspace(1.0, 1e5, settings.points)
    flow = cls_flow(problem, until_log_time=1e5, path_log_times=times)
    direction = resolved.margin.direction
    by_norm, by_time = jax.vmap(partial(local_exponents, problem, direction))(
        times, flow.path_query
    )
    to_go = jax.vmap(partial(excess_loss, problem, resolved.selected))(flow.path_query)
    return {
        "log_times": times,
        "norms": jax.vmap(jnp.linalg.norm)(flow.path_query),
        "errors": jax.vmap(lambda query: direction_error(query, direction))(
            flow.path_query
        ),
        "exponents_norm": by_norm,
        "exponents_log_time": by_time,
        "loss_constants": to_go * jnp.exp(jnp.minimum(times, 700.0)),
        "loss_limit": resolved.margin.norm**2,
        "constant": resolved.late.error_constant,
        "growth": resolved.margin.norm,
        "status": resolved.late.status,
        "kink": resolved.kink,
    }


def draw(finished: Finished) -> Figure:
    """Error against ‖p‖ and log t beside the prediction; local exponents."""
    found = finished.arrays
    figure, axes = subplots(1, 3, figsize=(12, 3.8))
    constant, growth = found["constant"][:, None], found["growth"][:, None]
    for panel, across, scale, label in (
        (axes[0], found["norms"], constant, "‖p‖"),
        (axes[1], found["log_times"], constant / growth, "log t"),
    ):
        panel.loglog(across.T, (found["errors"] / scale).T, color="C0", alpha=0.4)
        ends = np.array([across[across > 0].min(), across.max()])
        panel.loglog(ends, 1 / ends, "k--", label="predicted, exponent −1")
        panel.set(xlabel=label, ylabel="direction error / predicted constant")
        panel.legend()
    axes[2].semilogx(found["log_times"].T, found["exponents_norm"].T, "C0", alpha=0.4)
    axes[2].semilogx(
        found["log_times"].T, found["exponents_log_time"].T, "C1", alpha=0.4
    )
    axes[2].plot([], [], "C0", label="d log error / d log ‖p‖")
    axes[2].plot([], [], "C1", label="d log error / d log log t")
    axes[2].axhline(-1, color="k", linestyle="--")
    axes[2].set(xlabel="log t", ylabel="local exponent", ylim=(-3, 1))
    axes[2].legend()
    return figure


EXPONENT = 0.02
"""Largest distance of a fitted exponent from its prediction, for a few seeds."""
CLOSE = 1e-2
"""Largest relative deviation of a constant from its prediction."""


def exponents(found: Finished) -> Measured:
    """The direction error falls like 1/‖p‖, with a predicted constant."""
    results = found.results
    off, predicted = results["constant_largest_deviation"], results["predicted"]
    exponent = results["exponent_norm"]
    near = {at_most(abs(exponent + 1), EXPONENT), at_most(off, CLOSE)}
    good = near == {Verdict.AGREES}
    verdict = Verdict.FAILS if Verdict.FAILS in near else Verdict.OPEN
    if good:
        verdict = of_cases(predicted, results["seeds"], Verdict.HOLDS)
    return Measured(
        verdict,
        f"exponent {num(exponent, 6)}; the constant is off by {num(off)} at most",
        f"{predicted} of {results['seeds']} draws predicted",
        percent(0 if good else predicted, predicted),
        "exact local exponents; the constant is predicted without integrating",
    )


CLAIMS = (
    Claim(
        "The direction error falls like 1/‖p‖, its constant known beforehand.",
        exponents,
    ),
)


def show(found: Finished) -> Shown:
    """Exponents of the direction error, and its constant."""
    results = found.results
    return Shown(
        [
            f"Over {results['seeds']} draws the direction error falls with exponent "
            f"{num(results['exponent_norm'], 6)} in ‖p‖ and "
            f"{num(results['exponent_log_time'], 5)} in log t; its constant deviates "
            f"from the prediction by {num(results['constant_largest_deviation'])} "
            "at most."
        ]
    )


main = Experiment(
    run, draw=draw, claims=CLAIMS, show=show, title="Error constant and exponents"
)


if __name__ == "__main__":
    command(main, PRESETS)
