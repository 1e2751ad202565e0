"""The flow of p to ‖p‖ = 10⁶ in every regime: ours, SciPy's BDF, and the usual ways.

Every competitor gets the same instances, float64 and the same cores. SciPy's BDF drives
our own field and Jacobian, on the large problem also at the tolerance at which it is as
accurate as we are; PyTorch's normalised gradient descent is given the best of
three step sizes, torchdiffeq's dopri5 the plain time that it can follow. Flows
in R^d stand beside the same flows in reduced coordinates.
"""

import dataclasses
import os
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from experiments.benchmarks import _flow_batch as flow_batch
from experiments.benchmarks import _flow_rivals as flow_rivals
from experiments.benchmarks._flow_accuracy import as_accurate
from experiments.benchmarks._flow_batch import GAMMAS, SMALL
from experiments.benchmarks._flow_instance import instance
from experiments.benchmarks._flow_span import span
from experiments.common.console import command, say
from experiments.common.study import Count, Study, presets, study


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(Study):
    """What to compare.

    Attributes:
        preset: full, quick (the small problem alone, under two minutes), or huge (that
            and the huge one, ten minutes on two cores).
        quick: the same as `--preset quick`.
        large: also n = 1000, T = 32, |S| = 256, d = 2048.
        huge: also n = 4000, T = 64, |S| = 1024, d = 8192, beside SciPy's BDF alone.
        repeats: timed runs of each; the median counts.
        lanes: seeds of the batch.
        chunk: lanes that run in lockstep.
        cores: the process is bound to that many.
        seed: of the instances.
    """

    quick: bool = False
    large: bool = True
    huge: bool = False
    repeats: Count = 3
    lanes: Count = 64
    chunk: Count = 8
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
    sizes = settings.seed, settings.lanes, settings.chunk
    results["batch"] = flow_batch.speed(*sizes, settings.repeats)
    results["convergence"] = flow_batch.convergence(*sizes)
    results["span"] = span(settings.seed, settings.repeats)


def regimes(settings: Settings, shape: dict[str, int], dim: float) -> list[dict]:
    """Every γ: ours, SciPy's BDF and, on the small problem, the usual ways."""
    import jax

    from jaxselect.flow.cls_flow import cls_flow

    records: list[dict] = []
    compiled: Any = None
    for gamma in GAMMAS:
        start, corpus = instance(shape, dim, gamma, settings.seed)
        if compiled is None:
            begin = time.perf_counter()
            compiled = jax.jit(cls_flow).lower(start, corpus, until_norm=1e6).compile()
            compile_seconds = time.perf_counter() - begin
        run = to_norm(compiled, start, corpus)
        flow, seconds = timed(run, 1e6, settings.repeats)
        judge = Judge(start, corpus, flow)
        near, _ = timed(run, 1e5, 1)
        modest, modest_seconds = timed(run, 1e4, settings.repeats)
        ours: dict[str, Any] = {
            "gamma": gamma,
            "who": "jaxselect",
            "steps": int(flow.num_steps),
            "seconds": seconds,
            "compile_seconds": compile_seconds,
            "cls_norm": float(np.linalg.norm(flow.cls)),
            "log_time": float(flow.log_time),
            "direction_error": judge.error(flow.cls),
            "constant": judge.constant(flow.cls),
            "constant_at_1e5": judge.constant(near.cls),
            "constant_predicted": float(judge.predicted_constant),
            "status": judge.status,
            "constant_finished_from_1e4": judge.finished(modest),
            "seconds_to_1e4": modest_seconds,
        }
        records.append(ours)
        records.append(single_precision(gamma, start, corpus, run, judge))
        rivals: list[tuple[str, Callable]] = [("scipy BDF", flow_rivals.scipy_bdf)]
        if shape is SMALL:
            rivals += [
                ("torch normalised GD", flow_rivals.normalised_descent),
                ("torchdiffeq dopri5", flow_rivals.dopri5),
            ]
        else:
            rivals.append(("scipy BDF, as accurate", as_accurate))
        for who, rival in rivals:
            outcome: Any = rival(start, corpus)
            if isinstance(outcome, str):
                say(f"{who}: {outcome}")
                continue
            cls = outcome.pop("cls")
            outcome.pop("path_cls", None)
            outcome["cls_norm"] = float(np.linalg.norm(cls))
            outcome["direction_error"] = judge.error(cls)
            outcome["constant"] = judge.constant(cls)
            outcome["slower_than_ours"] = outcome["seconds"] / seconds
            records.append({"gamma": gamma, "who": who, **outcome})
        for record in records:
            if record["gamma"] == gamma:
                say(
                    f"γ {gamma:5g}  {record['who']:20} {record['steps']:6} steps "
                    f"{record['seconds']:8.3f} s  ‖p‖ {record['cls_norm']:8.2g}  "
                    f"direction error {record['direction_error']:8.2e}  "
                    f"constant {record['constant']:.6g}"
                )
        say(
            f"         {judge.status.lower()}; predicted constant "
            f"{ours['constant_predicted']:.6g}, at 10⁵ {ours['constant_at_1e5']:.6g}, "
            f"finished from 10⁴ {ours['constant_finished_from_1e4']:.6g}"
        )
    return records


def huge(seed: int) -> list[dict]:
    """Every γ at the size where a Jacobian costs as much as fifty fields."""
    import jax

    from jaxselect.flow.cls_flow import FlowStatus, cls_flow

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
            "who": "jaxselect",
            "steps": int(flow.num_steps),
            "seconds": seconds,
            "cls_norm": float(np.linalg.norm(flow.cls)),
            "status": status,
        }
        rival = {
            "gamma": gamma,
            "who": "scipy BDF",
            **{name: theirs[name] for name in ("steps", "jacobians", "seconds")},
            "cls_norm": float(np.linalg.norm(theirs["cls"])),
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


def single_precision(
    gamma: float, start: Any, corpus: Any, double: Callable, judge: "Judge"
) -> dict:
    """Float32 against float64 on the way, at 10⁶, and finished there from 10³."""
    single, seconds = flow_rivals.float32(start, corpus)
    apart = {}
    for norm in (1e3, 1e4, 1e6):
        ends = [np.asarray(run(norm).cls, float) for run in (single, double)]
        first, second = (end / np.linalg.norm(end) for end in ends)
        apart[f"{norm:.0e}"] = float(np.linalg.norm(first - second))
    end = single(1e6)
    finished = judge.finished(single(1e3))
    say(
        f"γ {gamma:5g}  float32 against float64: direction differs by "
        + ", ".join(f"{value:.1e} at ‖p‖ = {norm}" for norm, value in apart.items())
        + f"; constant finished from 10³ {finished:.6g}"
    )
    return {
        "gamma": gamma,
        "who": "jaxselect, float32",
        "steps": int(end.num_steps),
        "seconds": seconds,
        "cls_norm": float(np.linalg.norm(end.cls)),
        "direction_error": judge.error(end.cls),
        "constant": judge.constant(end.cls),
        "direction_against_float64": apart,
        "constant_finished_from_1e3": finished,
    }


class Judge:
    """Holds directions against the max-margin solution of our flow's selection."""

    def __init__(self, start: Any, corpus: Any, flow: Any) -> None:
        """Solve for the selection that the flow ended in."""
        import jax

        from jaxselect.margin.limit import limit
        from jaxselect.outcome.trial_certificate import certify
        from jaxselect.outcome.trial_status import TrialStatus

        found = jax.jit(certify)(start, corpus, flow)
        chosen = found.ending
        self.margin = chosen.margin
        self.predicted_constant = chosen.late.error_constant
        self.predict = partial(
            jax.jit(limit), start, corpus, chosen.selected, chosen.pairs, chosen.margin
        )
        self.status = TrialStatus(int(found.status)).name

    def error(self, cls: Any) -> float:
        """‖p/‖p‖ − p_mm/‖p_mm‖‖."""
        import jax.numpy as jnp

        from jaxselect.flow.progress import direction_error

        return float(direction_error(jnp.asarray(cls, float), self.margin.direction))

    def constant(self, cls: Any) -> float:
        """Direction error times ‖p‖."""
        return self.error(cls) * float(np.linalg.norm(np.asarray(cls, float)))

    def finished(self, flow: Any) -> float:
        """The constant at ‖p‖ = 10⁶ of a shorter flow carried on by prediction."""
        from jaxselect.outcome.trial_certificate import finish

        late = self.predict(late_cls=flow.cls.astype(float))
        return self.constant(finish(flow, late, 1e6).cls)


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
