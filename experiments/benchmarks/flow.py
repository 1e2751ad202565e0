"""The flow of p to ‖p‖ = 10⁶ in every regime: ours, SciPy's BDF, and the usual ways.

Every competitor gets the same instances, float64 and the same cores. SciPy's BDF drives
our own field and Jacobian, on the large problem also at the tolerance at which it is as
accurate as we are; PyTorch's normalised gradient descent is given the best of
three step sizes, torchdiffeq's dopri5 the plain time that it can follow.
"""

import dataclasses
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from experiments.benchmarks import _flow_rivals as flow_rivals
from experiments.benchmarks._flow_accuracy import as_accurate
from experiments.benchmarks._flow_instance import instance
from experiments.common.console import command, say
from experiments.common.study import Count, Study, presets, study

GAMMAS = (0.4, 4.0, 20.0, 80.0, 250.0)
"""Mean |E_sᵀv| of the important tokens after the step: from no step to a huge one."""
SMALL = {"sequences": 200, "length": 8, "relevant": 8, "irrelevant": 48}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(Study):
    """Settings of the comparison.

    Attributes:
        preset: full, quick (the small problem alone, under two minutes), or huge (that
            and the huge one, ten minutes on two cores).
        quick: the same as `--preset quick`.
        large: also n = 1000, T = 32, |S| = 256, d = 2048.
        huge: also n = 4000, T = 64, |S| = 1024, d = 8192, beside SciPy's BDF alone.
        repeats: timed runs of each; the median counts.
        cores: the process is bound to that many.
        seed: of the instances.
    """

    quick: bool = False
    large: bool = True
    huge: bool = False
    repeats: Count = 3
    cores: Count = 1
    out: Path = Path("results/benchmarks/flow")


PRESETS = presets(
    full=Settings(),
    quick=Settings(large=False),
    huge=Settings(large=False, huge=True, cores=2),
)
LARGE = {"sequences": 1000, "length": 32, "relevant": 16, "irrelevant": 224}
HUGE = {"sequences": 4000, "length": 64, "relevant": 64, "irrelevant": 896}


@study(figure="flow")
def main(settings: Settings, results: dict) -> None:
    """Run the comparison."""
    available = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, available[: settings.cores])

    results["small"] = regimes(settings, SMALL, 256.0)
    if settings.large:
        results["large"] = regimes(settings, LARGE, 2048.0)
    if settings.huge:
        results["huge"] = huge(settings.seed)


def regimes(settings: Settings, shape: dict[str, int], dim: float) -> list[dict]:
    """Every γ: ours, SciPy's BDF and, on the small problem, the usual ways."""
    import jax

    from jaxselect.flow.cls import cls_flow, direction_error
    from jaxselect.margin.certificate import certify

    rivals: dict[str, Callable] = {"scipy BDF": flow_rivals.scipy_bdf}
    if shape is SMALL:
        rivals["torch normalised GD"] = flow_rivals.normalised_descent
        rivals["torchdiffeq dopri5"] = flow_rivals.dopri5
    else:
        rivals["scipy BDF, as accurate"] = as_accurate
    records: list[dict] = []
    compiled: Any = None
    for gamma in GAMMAS:
        start, corpus = instance(shape, dim, gamma, settings.seed)
        if compiled is None:
            compiled = jax.jit(cls_flow).lower(start, corpus, until_norm=1e6).compile()
        flow, seconds = timed(to_norm(compiled, start, corpus), 1e6, settings.repeats)
        # All are held against the max-margin solution of our flow's selection.
        wanted = jax.jit(certify)(start, corpus, flow).ending.margin.direction
        found: dict[str, Any] = {
            "jaxselect": {
                "steps": int(flow.num_steps),
                "seconds": seconds,
                "query": flow.query,
                "log_time": float(flow.log_time),
            }
        }
        for name, rival in rivals.items():
            outcome = rival(start, corpus)
            if isinstance(outcome, str):
                say(f"{name}: {outcome}")
                continue
            outcome.pop("path_query", None)
            found[name] = outcome
            found[name]["slower_than_ours"] = outcome["seconds"] / seconds
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


def huge(seed: int) -> list[dict]:
    """Every γ at the size where a Jacobian costs as much as fifty fields."""
    import jax

    from jaxselect.flow.cls import FlowStatus, cls_flow

    records: list[dict] = []
    compiled: Any = None
    for gamma in GAMMAS:
        start, corpus = instance(HUGE, 8192.0, gamma, seed)
        if compiled is None:
            compiled = jax.jit(cls_flow).lower(start, corpus, until_norm=1e6).compile()
        flow, seconds = timed(to_norm(compiled, start, corpus), 1e6, 1)
        theirs = flow_rivals.scipy_bdf(start, corpus)
        status = FlowStatus(int(flow.status)).name
        ours = {
            "gamma": gamma,
            "solver": "jaxselect",
            "steps": int(flow.num_steps),
            "seconds": seconds,
            "cls_norm": float(np.linalg.norm(flow.query)),
            "status": status,
        }
        rival = {
            "gamma": gamma,
            "solver": "scipy BDF",
            **{name: theirs[name] for name in ("steps", "jacobians", "seconds")},
            "cls_norm": float(np.linalg.norm(theirs["query"])),
            "slower_than_ours": theirs["seconds"] / seconds,
        }
        say(
            f"γ {gamma:5g}  |S| = 1,024: {status.lower()} in {seconds:.1f} s, "
            f"{ours['steps']} steps; SciPy's BDF {rival['seconds']:.1f} s, "
            f"{rival['steps']} steps, {rival['jacobians']} Jacobians; "
            f"ratio {rival['slower_than_ours']:.2f}"
        )
        records += [ours, rival]
    return records


def to_norm(compiled: Callable, start: Any, corpus: Any) -> Callable[[float], Any]:
    """A compiled flow as a function of the norm at which it ends."""
    return lambda norm: compiled(start, corpus, until_norm=norm)


def timed(run: Callable, argument: float, repeats: int) -> tuple[Any, float]:
    """The result, and the median time of a call."""
    import jax

    seconds = []
    for _ in range(repeats):
        begin = time.perf_counter()
        result = jax.block_until_ready(run(argument))
        seconds.append(time.perf_counter() - begin)
    return result, statistics.median(seconds)


if __name__ == "__main__":
    command(main, PRESETS)
