"""The flow of p to ‖p‖ = 10⁶ in every regime: ours, SciPy, diffrax.

Every competitor gets the same instances, float64 and the same cores. SciPy's BDF and
Radau drive our own field and Jacobian; Kvaerno5 and KenCarp4 of diffrax drive our
field, compiled, each with the faster of two root finders.
A tolerance bounds the error of a step, and each method adds these errors up in its own
way: at equal tolerances two paths are not equally accurate.
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
from matplotlib.lines import Line2D

from experiments.common.claims import Shown
from experiments.common.console import command, say
from experiments.common.numbers import num
from experiments.common.results import Finished
from experiments.common.study import Count, Experiment, Study, presets
from experiments.common.style import subplots

GAMMAS = (0.4, 4.0, 20.0, 80.0, 250.0)
"""Mean |E_sᵀv| of the important tokens after the step: from no step to a huge one."""
SMALL = {"sequences": 200, "length": 8, "relevant": 8, "irrelevant": 48}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(Study):
    """Settings of the comparison.

    Attributes:
        preset: full, or quick (the same).
        quick: the same as `--preset quick`.
        repeats: timed runs of each; the median counts.
        cores: the process is bound to that many.
        seed: random seed of the instances.
    """

    quick: bool = False
    repeats: Count = 3
    cores: Count = 1
    out: Path = Path("results/benchmarks/flow")


PRESETS = presets(full=Settings(), quick=Settings())


def run(settings: Settings, results: dict) -> None:
    """Run the comparison."""
    available = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, available[: settings.cores])

    results["small"] = regimes(settings)


def regimes(settings: Settings) -> list[dict]:
    """Every γ: ours, SciPy's methods and those of diffrax."""
    import jax

    from jaxselect.flow.cls import cls_flow, direction_error
    from jaxselect.margin.certificate import certify
    from jaxselect.problem import attention

    rivals: dict[str, Callable] = {
        f"scipy {method}": partial(scipy_implicit, method=method)
        for method in ("BDF", "Radau")
    }
    for method in ("Kvaerno5", "KenCarp4"):
        rivals[f"diffrax {method}"] = partial(
            diffrax_implicit, method=method, repeats=settings.repeats
        )
    records: list[dict] = []
    compiled: Any = None
    for gamma in GAMMAS:
        start, corpus = instance(SMALL, 256.0, gamma, settings.seed)
        problem = attention(start, corpus)
        if compiled is None:
            compiled = jax.jit(cls_flow).lower(problem, until_norm=1e6).compile()
        flow, seconds = timed(to_norm(compiled, problem), 1e6, settings.repeats)
        # All are held against the max-margin solution of our flow's selection.
        wanted = jax.jit(certify)(problem, flow).ending.margin.direction
        found: dict[str, Any] = {
            "jaxselect": {
                "steps": int(flow.num_steps),
                "seconds": seconds,
                "query": flow.query,
                "log_time": float(flow.log_time),
            }
        }
        for name, rival in rivals.items():
            found[name] = rival(start, corpus)
            found[name]["slower_than_ours"] = found[name]["seconds"] / seconds
        for name, record in found.items():
            query = jax.numpy.asarray(record.pop("query"), float)
            record["cls_norm"] = float(np.linalg.norm(query))
            record["direction_error"] = float(direction_error(query, wanted))
            records.append({"gamma": gamma, "solver": name, **record})
            say(
                f"γ {gamma:5g}  {name:22} {record['steps']:6} steps "
                f"{record['seconds']:8.3f} s  ‖p‖ {record['cls_norm']:8.2g}  "
                f"direction error {record['direction_error']:8.2e}"
            )
    return records


def to_norm(compiled: Callable, problem: Any) -> Callable[[float], Any]:
    """A compiled flow as a function of the norm at which it ends."""
    return lambda norm: compiled(problem, until_norm=norm)


def timed(run: Callable, argument: Any, repeats: int) -> tuple[Any, float]:
    """The result, and the median time of a call."""
    import jax

    seconds = []
    for _ in range(repeats):
        begin = time.perf_counter()
        result = jax.block_until_ready(run(argument))
        seconds.append(time.perf_counter() - begin)
    return result, statistics.median(seconds)


def instance(
    shape: dict[str, int], dim: float, gamma: float, seed: int
) -> tuple[Any, Any]:
    """A corpus and the parameters after a step that makes the mean |E_sᵀv| be γ.

    Args:
        shape: of the corpus, as `assumption_one` takes it.
        dim: d.
        gamma: γ.
        seed: random seed of the corpus and of the parameters.

    Returns:
        The parameters, the corpus.
    """
    import jax

    from jaxselect.data.synthetic import assumption_one
    from jaxselect.model.parameters import gaussian_reduced
    from jaxselect.model.selection import importance, important_tokens
    from jaxselect.model.step import embedding_step

    corpus_key, key = jax.random.split(jax.random.key(seed))
    corpus = assumption_one(corpus_key, **shape)
    mean = np.abs(importance(corpus))[np.asarray(important_tokens(corpus))].mean()
    start = gaussian_reduced(key, vocabulary=corpus.vocabulary, dim=dim)
    return embedding_step(start, corpus, 2 * gamma / float(mean)), corpus


FIRST_STEP = 0.01


def scipy_implicit(
    start: Any,
    corpus: Any,
    *,
    method: str,
    tolerance: float = 1e-6,
) -> dict:
    """SciPy's method in log(1 + log(1+t)), on our exact field, Jacobian and axes."""
    import jax
    import jax.numpy as jnp
    from scipy import integrate

    from jaxselect.flow import cls
    from jaxselect.problem import attention

    rotation, problem = cls.aligned(attention(start, corpus), jnp.asarray(jnp.inf))

    @jax.jit
    def field(r: Any, query: Any) -> Any:
        return jnp.exp(r) * cls.field(jnp.expm1(r), query, problem)

    @jax.jit
    def jacobian(r: Any, query: Any) -> Any:
        return jnp.exp(r) * cls.linearise(jnp.expm1(r), query, problem)[2]

    origin = np.asarray(problem.start)
    first = np.zeros_like(origin)
    np.asarray(field(0.0, first)), np.asarray(jacobian(0.0, first))
    begin = time.perf_counter()
    solver = getattr(integrate, method)(
        lambda r, y: np.asarray(field(r, y)),
        0.0,
        first,
        1e3,
        rtol=tolerance,
        atol=tolerance,
        jac=lambda r, y: np.asarray(jacobian(r, y)),
        # Its own guess is so long for some instances that the field overflows.
        first_step=FIRST_STEP,
    )
    steps = 0
    while np.linalg.norm(origin + solver.y) < 1e6 and solver.status == "running":
        solver.step()
        steps += 1
    return {
        "steps": steps,
        "fields": solver.nfev,
        "jacobians": solver.njev,
        "seconds": time.perf_counter() - begin,
        "query": rotation @ (origin + solver.y),
    }


FINDERS = ("VeryChord", "Chord")
"""Root finders of a diffrax method; the first is the one that it ships with."""
LATEST, MOST = 1e15, 2**11
"""Log(1+t) and number of steps that end an integration by diffrax."""


def diffrax_implicit(start: Any, corpus: Any, *, method: str, repeats: int) -> dict:
    """A stiff method of diffrax in log(1+t), by the faster root finder that arrives.

    Returns:
        Its steps, seconds and p, and the seconds of each finder that arrives.
    """
    import jax.numpy as jnp

    from jaxselect.flow import cls
    from jaxselect.problem import attention

    rotation, problem = cls.aligned(attention(start, corpus), jnp.asarray(1e6))
    outcomes: dict[str, dict] = {}
    for finder in FINDERS:
        run = _diffrax_program(method, finder)
        found, _ = timed(run, problem, 1)
        norm = np.linalg.norm(problem.start + found.ys[0])
        if outcomes and not norm > 0.99e6:
            continue
        found, seconds = timed(run, problem, repeats)
        outcomes[finder] = {
            "steps": int(found.stats["num_steps"]),
            "seconds": seconds if norm > 0.99e6 else float("inf"),
            "query": rotation @ (problem.start + found.ys[0]),
        }
    best = min(outcomes, key=lambda finder: outcomes[finder]["seconds"])
    each = {finder: found["seconds"] for finder, found in outcomes.items()}
    return outcomes[best] | {"finder": best, "finders": each}


@cache
def _diffrax_program(method: str, finder: str) -> Callable:
    """A compiled integration of a `QueryProblem` to its norm."""
    import diffrax as dfx
    import jax
    import jax.numpy as jnp
    import optimistix as optx

    from jaxselect.flow import cls

    library = dfx if finder == "VeryChord" else optx
    root_finder = dfx.with_stepsize_controller_tols(getattr(library, finder))()

    def past(t: Any, y: Any, args: Any, **_: Any) -> Any:
        return jnp.linalg.norm(args.start + y) - args.until_norm

    terms: Any = dfx.ODETerm(cls.field)
    if method.startswith("KenCarp"):
        # It splits the field in two: here all of it is implicit.
        terms = dfx.MultiTerm(dfx.ODETerm(lambda t, y, args: 0 * y), terms)

    @jax.jit
    def run(problem: Any) -> Any:
        return dfx.diffeqsolve(
            terms,
            getattr(dfx, method)(root_finder=root_finder),
            t0=0.0,
            t1=LATEST,
            dt0=FIRST_STEP,
            y0=jnp.zeros_like(problem.start),
            args=problem,
            stepsize_controller=dfx.PIDController(rtol=1e-6, atol=1e-6),
            event=dfx.Event(past, optx.Newton(rtol=1e-9, atol=1e-9)),
            max_steps=MOST,
            throw=False,
        )

    return run


MARKS = "os^vD<>px*"
"""A mark for each γ, the smallest first."""


def draw(finished: Finished) -> Figure:
    """Time against the direction error reached: a colour per solver, a mark per γ."""
    records = finished.results["small"]
    solvers = list(dict.fromkeys(record["solver"] for record in records))
    marks = dict(zip(GAMMAS, MARKS, strict=False))
    figure, panel = subplots(figsize=(4.4, 4.4))
    for record in records:
        panel.loglog(
            record["seconds"],
            record["direction_error"],
            marks[record["gamma"]],
            color=f"C{solvers.index(record['solver'])}",
            markersize=5,
        )
    handles = [
        Line2D([], [], color=f"C{place}", marker="", lw=3, label=solver)
        for place, solver in enumerate(solvers)
    ]
    handles += [
        Line2D([], [], color="0.3", marker=mark, lw=0, label=f"γ = {gamma:g}")
        for gamma, mark in marks.items()
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=3)
    panel.set(xlabel="seconds", ylabel="direction error reached")
    return figure


def show(found: Finished) -> Shown:
    """Time of every rival over ours, and the direction error it reaches."""
    rows = [["γ", "rival", "rival / ours", "its direction error"]]
    rows += [
        [
            f"{record['gamma']:g}",
            record["solver"],
            num(record["slower_than_ours"]),
            num(record["direction_error"]),
        ]
        for record in found.results["small"]
        if "slower_than_ours" in record
    ]
    return Shown([], rows)


main = Experiment(run, draw=draw, show=show, title="The flow of p")


if __name__ == "__main__":
    command(main, PRESETS)
