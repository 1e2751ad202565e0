"""The flow of p to a late time: seconds that a given accuracy costs, ours and others'.

Five sizes of the step on E, then a text-like problem of 400 bags. Every solver gets the
same field, Jacobian and axes in float64, on one core, at several tolerances, and goes
to the time at which ‖p‖ is 10⁶; nothing is compiled in a timed run. Errors of steps add
up in each method in its own way, so solvers are compared at equal error and not at
equal tolerance: the error is the largest of a score, from Radau at the smallest
tolerance at which it comes to its end.
"""

import dataclasses
import os
import statistics
import time
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from experiments.common.claims import Shown
from experiments.common.console import command, say
from experiments.common.numbers import num
from experiments.common.results import Finished
from experiments.common.study import Count, Experiment, Study, presets
from experiments.common.style import subplots

GAMMAS = (0.4, 4.0, 20.0, 80.0, 250.0)
"""Mean |E_sᵀv| of the important tokens after the step: from no step to a huge one."""
SHAPE = {"sequences": 200, "length": 8, "relevant": 8, "irrelevant": 48}
ERRORS = (1e-2, 1e-4, 1e-6)
"""Errors of a score at which solvers are compared."""
TOLERANCES = (1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8)
FIRST_STEP = 0.01
"""Others' own guess is so long for some problems that the field overflows."""
PATIENCE = 20.0
"""Seconds of a call beyond which a solver has no answer, and is asked for no smaller
error."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(Study):
    """Settings of the comparison.

    Attributes:
        preset: full, or quick (without the text-like problem).
        quick: the same as `--preset quick`.
        large: also 400 bags of up to 600 words, 600 words, d = 128, to log t = 30.
        repeats: timed runs of each; the median counts.
        cores: the process is bound to that many.
        seed: random seed of the problems.
    """

    quick: bool = False
    large: bool = True
    repeats: Count = 3
    cores: Count = 1
    out: Path = Path("results/benchmarks/flow")


PRESETS = presets(full=Settings(), quick=Settings(large=False))


def run(settings: Settings, results: dict) -> None:
    """Run the comparison."""
    from jaxselect.flow.cls import cls_flow

    available = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, available[: settings.cores])
    results["points"] = points = []
    for gamma in GAMMAS:
        problem = assumption_one(gamma, settings.seed)
        until = float(cls_flow(problem, until_norm=1e6).log_time)
        points += compared(f"γ = {gamma:g}", problem, until, settings.repeats)
    if settings.large:
        problem = zipf(settings.seed)
        # There the field is rounded by more, and a smaller tolerance has no end.
        smallest = 1e-7, 1e-7
        points += compared("400 bags", problem, 30.0, settings.repeats, smallest)


def compared(
    name: str,
    problem: Any,
    until: float,
    repeats: int,
    smallest: tuple[float, float] = (1e-11, 1e-13),
) -> list[dict]:
    """Seconds and error of every solver at every tolerance, on one problem.

    Errors are measured from Radau at the `smallest` tolerances, absolute and relative.
    """
    import jax.numpy as jnp

    from jaxselect.flow import cls

    rotation, axes = cls.aligned(problem, jnp.asarray(jnp.inf))
    solvers: dict[str, Callable] = {
        "jaxselect Rodas5P": partial(ours, problem, rotation, "rodas"),
        "jaxselect NDF": partial(ours, problem, rotation, "bdf"),
        # Relative to ‖p‖ = 10⁶, or absolute: either may be its best form.
        "SciPy BDF": partial(scipy_method, "BDF", axes),
        "SciPy BDF, absolute": partial(scipy_method, "BDF", axes, relative=1e-12),
        "SciPy Radau": partial(scipy_method, "Radau", axes),
        "SciPy Radau, absolute": partial(scipy_method, "Radau", axes, relative=1e-12),
        "diffrax Kvaerno5": partial(kvaerno5, "VeryChord", axes),
        "diffrax Kvaerno5, Chord": partial(kvaerno5, "Chord", axes),
    }
    exact, *_ = scipy_method("Radau", axes, until, *smallest, patience=np.inf)
    points = []
    for solver, solve in solvers.items():
        for tolerance in TOLERANCES:
            # The first call compiles.
            query, steps, seconds = solve(until, tolerance)
            if np.isfinite(query).all():
                # One will do of what takes long, but for its compilation.
                number = repeats if seconds <= PATIENCE else 1
                outcomes = [solve(until, tolerance) for _ in range(number)]
                seconds = statistics.median(seconds for *_, seconds in outcomes)
            error = float(np.abs(np.asarray(axes.rows) @ (query - exact)).max())
            points.append(
                {"problem": name, "solver": solver, "tolerance": tolerance}
                | {"steps": steps, "seconds": seconds, "error": error}
            )
            say(
                f"{name}  {solver:24} at {tolerance:g} {steps:6} steps "
                f"{seconds:8.3f} s  error {error:8.1e}"
            )
            if seconds > PATIENCE and np.isfinite(error):
                break
    return points


def assumption_one(gamma: float, seed: int) -> Any:
    """A problem of synthetic bags after a step that makes the mean |E_sᵀv| be γ."""
    import jax

    from jaxselect.data import synthetic
    from jaxselect.model.parameters import gaussian_reduced
    from jaxselect.model.selection import importance, important_tokens
    from jaxselect.model.step import embedding_step
    from jaxselect.problem import attention

    corpus_key, key = jax.random.split(jax.random.key(seed))
    corpus = synthetic.assumption_one(corpus_key, **SHAPE)
    mean = np.abs(importance(corpus))[np.asarray(important_tokens(corpus))].mean()
    start = gaussian_reduced(key, vocabulary=corpus.vocabulary, dim=256.0)
    return attention(embedding_step(start, corpus, 2 * gamma / float(mean)), corpus)


def zipf(seed: int, sequences: int = 400, words: int = 600, dim: int = 128) -> Any:
    """A problem of bags of up to 600 words whose frequencies follow Zipf's law."""
    import jax

    from jaxselect.data.corpus import from_sequences
    from jaxselect.model.parameters import gaussian
    from jaxselect.model.step import embedding_step
    from jaxselect.problem import attention

    random = np.random.default_rng(seed)
    frequency, leaning = 1 / np.arange(1.0, words + 1), random.normal(size=words)
    labels = random.choice([-1, 1], sequences)
    bags = []
    for label in labels:
        weight = frequency * np.exp(0.7 * label * leaning)
        length = int(np.clip(random.lognormal(4.0, 0.7), 8, 600))
        bags.append(random.choice(words, length, p=weight / weight.sum()))
    corpus = from_sequences(bags, labels, vocabulary=words)
    start = gaussian(jax.random.key(seed), vocabulary=words, dim=dim)
    return attention(embedding_step(start, corpus, 100.0), corpus)


Outcome = tuple[np.ndarray, int, float]
"""p in the axes of the comparison, steps, seconds."""


def ours(
    problem: Any, rotation: Any, stepper: str, until: float, tolerance: float
) -> Outcome:
    """Our flow, with 30 times the tolerance: 10⁻⁶ is its default then."""
    run = our_program(stepper)
    flow, seconds = timed(run, problem, until, 30 * tolerance)
    return np.asarray(rotation.T @ flow.query), int(flow.num_steps), seconds


@cache
def our_program(stepper: str) -> Callable:
    """A compiled flow to a log-time, at a tolerance."""
    import jax

    from jaxselect.flow.cls import cls_flow
    from jaxselect.flow.control import FlowSettings

    @jax.jit
    def run(problem: Any, until: Any, atol: Any) -> Any:
        settings = FlowSettings(atol=atol, stepper=stepper)
        return cls_flow(problem, until_log_time=until, settings=settings)

    return run


def timed(run: Callable, *arguments: Any) -> tuple[Any, float]:
    """The result of a call, and its seconds."""
    import jax

    begin = time.process_time()
    result = jax.block_until_ready(run(*arguments))
    return result, time.process_time() - begin


def scipy_method(
    method: str,
    axes: Any,
    until: float,
    tolerance: float,
    relative: float | None = None,
    patience: float = PATIENCE,
) -> Outcome:
    """SciPy's method in r = log(1 + log(1+t)), on our exact field and Jacobian."""
    from scipy import integrate

    field, jacobian = scipy_program()

    begun = time.process_time()

    def slope(r: Any, y: Any) -> np.ndarray:
        if time.process_time() - begun > patience:
            raise TimeoutError
        return np.asarray(field(np.float64(r), y, axes))

    def solve() -> Any:
        return integrate.solve_ivp(
            slope,
            (0.0, np.log1p(until)),
            np.zeros_like(axes.start),
            method=method,
            t_eval=(np.log1p(until),),
            rtol=relative or tolerance,
            atol=tolerance,
            jac=lambda r, y: np.asarray(jacobian(np.float64(r), y, axes)),
            first_step=FIRST_STEP,
        )

    try:
        found, seconds = timed(solve)
    except (ValueError, TimeoutError):
        # At a loose tolerance its numbers overflow.
        return np.full(len(axes.start), np.nan), 0, time.process_time() - begun
    arrived = found.y[:, -1] if found.success else np.full(len(axes.start), np.nan)
    return np.asarray(axes.start) + arrived, found.nfev, seconds


@cache
def scipy_program() -> tuple[Callable, Callable]:
    """The compiled field and Jacobian in r."""
    import jax
    import jax.numpy as jnp

    from jaxselect.flow import cls

    @jax.jit
    def field(r: Any, y: Any, axes: Any) -> Any:
        return jnp.exp(r) * cls.field(jnp.expm1(r), y, axes)

    @jax.jit
    def jacobian(r: Any, y: Any, axes: Any) -> Any:
        return jnp.exp(r) * cls.linearise(jnp.expm1(r), y, axes)[2]

    return field, jacobian


def kvaerno5(finder: str, axes: Any, until: float, tolerance: float) -> Outcome:
    """Kvaerno5 of diffrax in log(1+t), with one of two root finders."""
    found, seconds = timed(diffrax_program(finder), axes, until, tolerance)
    return (
        np.asarray(axes.start + found.ys[0]),
        int(found.stats["num_steps"]),
        seconds,
    )


@cache
def diffrax_program(finder: str) -> Callable:
    """A compiled integration to a log-time, at a tolerance."""
    import diffrax as dfx
    import jax
    import jax.numpy as jnp
    import optimistix as optx

    from jaxselect.flow import cls

    library = dfx if finder == "VeryChord" else optx
    root_finder = dfx.with_stepsize_controller_tols(getattr(library, finder))()

    @jax.jit
    def run(axes: Any, until: Any, tolerance: Any) -> Any:
        return dfx.diffeqsolve(
            dfx.ODETerm(cls.field),
            dfx.Kvaerno5(root_finder=root_finder),
            t0=0.0,
            t1=until,
            dt0=FIRST_STEP,
            y0=jnp.zeros_like(axes.start),
            args=axes,
            stepsize_controller=dfx.PIDController(rtol=tolerance, atol=tolerance),
            max_steps=2**13,
            throw=False,
        )

    return run


def least_seconds(points: list[dict], solver: str, error: float) -> float:
    """The least time in which a solver, in any of its forms, keeps within an error.

    Example:
        >>> points = [
        ...     {"solver": "BDF", "seconds": 1.0, "error": 1e-3},
        ...     {"solver": "BDF, absolute", "seconds": 2.0, "error": 1e-5},
        ... ]
        >>> least_seconds(points, "BDF", 1e-2), least_seconds(points, "BDF", 1e-4)
        (1.0, 2.0)
    """
    good = [
        point["seconds"]
        for point in points
        if point["solver"].split(",")[0] == solver and point["error"] <= error
    ]
    return min(good, default=float("nan"))


def names(points: list[dict], key: str) -> list[str]:
    """Problems, or solvers without their forms, in their order."""
    return list(dict.fromkeys(point[key].split(",")[0] for point in points))


def draw(finished: Finished) -> Figure:
    """Error against seconds: a panel per problem, a line per solver."""
    points = finished.results["points"]
    problems, solvers = names(points, "problem"), names(points, "solver")
    figure, panels = subplots(2, 3, figsize=(9.0, 5.6), sharey=True)
    for panel, problem in zip(panels.flat, problems, strict=False):
        here = [point for point in points if point["problem"] == problem]
        for place, solver in enumerate(solvers):
            curve = [
                (least_seconds(here, solver, 10.0**-k), 10.0**-k) for k in range(9)
            ]
            panel.loglog(
                *zip(*curve, strict=True), "o-", color=f"C{place}", ms=3, label=solver
            )
        panel.set(title=problem, xlabel="seconds")
    panels[0, 0].set_ylabel("largest error of a score")
    panels[1, 0].set_ylabel("largest error of a score")
    for panel in panels.flat[len(problems) :]:
        panel.set_axis_off()
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5)
    return figure


def show(found: Finished) -> Shown:
    """The time of every solver for an error, over that of our default."""
    points = found.results["points"]
    solvers = names(points, "solver")
    rows = [["problem", "error", f"{solvers[0]} (s)", *solvers[1:]]]
    for problem in names(points, "problem"):
        here = [point for point in points if point["problem"] == problem]
        for error in ERRORS:
            first, *others = (least_seconds(here, solver, error) for solver in solvers)
            rows.append(
                [problem, f"{error:g}", num(first)] + [num(s / first) for s in others]
            )
    return Shown([], rows)


main = Experiment(run, draw=draw, show=show, title="The flow of p")


if __name__ == "__main__":
    command(main, PRESETS)
