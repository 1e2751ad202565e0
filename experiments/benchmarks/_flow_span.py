"""A flow in R^d beside the same one in reduced coordinates: what d costs."""

from typing import Any

from experiments.benchmarks._flow_batch import SMALL
from experiments.benchmarks._flow_instance import instance
from experiments.benchmarks._timing import in_turn
from experiments.common.console import say

WIDE = 1024
# Many steps, and few.
WIDE_GAMMAS = (4.0, 80.0)


def span(seed: int, repeats: int) -> dict:
    """Flows to ‖p‖ = 10⁶ at d = 1,024, |S| = 64, and derivatives of their ends.

    Args:
        seed: of the instances.
        repeats: timed runs of each; the median counts.

    Returns:
        Seconds in R^d and reduced, summed over the instances, and their ratio, for the
        value, a derivative forward and all of them in reverse; steps and seconds of a
        step; the largest relative difference of the two log-times at the end.
    """
    import jax
    import jax.numpy as jnp

    from jaxselect.flow.cls_flow import cls_flow
    from jaxselect.model.corpus import Corpus
    from jaxselect.model.parameters import Parameters, reduce

    def end(start: Parameters, corpus: Corpus) -> tuple[jax.Array, jax.Array]:
        flow = cls_flow(start, corpus, until_norm=1e6)
        return flow.log_time, flow.num_steps

    def forward(start: Parameters, corpus: Corpus) -> tuple:
        change = jax.tree.map(jnp.ones_like, start)
        late = lambda start: end(start, corpus)[0]  # noqa: E731
        return jax.jvp(late, (start,), (change,))

    wide = [instance(SMALL, WIDE, gamma, seed, wide=True) for gamma in WIDE_GAMMAS]
    reduced = [(reduce(start), corpus) for start, corpus in wide]
    record: dict[str, Any] = {"dim": WIDE, "tokens": wide[0][1].vocabulary}
    reverse = jax.value_and_grad(end, has_aux=True)
    for name, way in {"value": end, "forward": forward, "reverse": reverse}.items():
        works = tuple(_all_of(way, problems) for problems in (wide, reduced))
        ours, theirs = in_turn(works, repeats)
        record[name] = {
            "seconds": ours,
            "reduced_seconds": theirs,
            "ratio": ours / theirs,
        }
        say(
            f"d = {WIDE:,}, {name}: {ours:.3g} s, reduced {theirs:.3g} s, "
            f"ratio {ours / theirs:.2f}"
        )
        if name == "value":
            here, there = (work() for work in works)
            record["steps"] = sum(int(steps) for _, steps in here)
            record["seconds_per_step"] = ours / record["steps"]
            record["log_times_apart"] = max(
                abs(float(one / other) - 1)
                for (one, _), (other, _) in zip(here, there, strict=True)
            )
            say(
                f"{1e3 * record['seconds_per_step']:.2f} ms a step; log-times agree to "
                f"{record['log_times_apart']:.0e}"
            )
    return record


def _all_of(way: Any, problems: list) -> Any:
    """A call of one compiled program on every problem."""
    import jax

    run = jax.jit(way).lower(*problems[0]).compile()
    return lambda: jax.block_until_ready([run(*problem) for problem in problems])
