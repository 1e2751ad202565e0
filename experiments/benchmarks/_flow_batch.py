"""Many small flows at once: how fast, how much is wasted, and do their claims hold."""

from functools import partial
from typing import Any

import numpy as np

from experiments.benchmarks._timing import seconds
from experiments.common.console import say

GAMMAS = (0.4, 4.0, 20.0, 80.0, 250.0)
"""Mean |E_sᵀv| of the important tokens after the step: from no step to a huge one."""
SMALL: dict[str, Any] = {"sequences": 200, "length": 8, "relevant": 8, "irrelevant": 48}


def speed(seed: int, lanes: int, chunk: int, repeats: int) -> dict:
    """Seeds to ‖p‖ = 10⁴ at η₀ = 100, vmapped in chunks, one chunk after the other.

    Args:
        seed: of the lanes' keys.
        lanes: number of flows.
        chunk: flows that run in lockstep.
        repeats: timed runs; the median counts.

    Returns:
        Seconds, runs per second and the share of steps that lanes waited for others.
    """
    import jax

    from jaxselect.flow.cls_flow import cls_flow
    from jaxselect.model.embedding_step import embedding_step
    from jaxselect.model.parameters import gaussian_reduced
    from jaxselect.model.synthetic import assumption_one

    def one(key: jax.Array) -> jax.Array:
        corpus_key, key = jax.random.split(key)
        corpus = assumption_one(corpus_key, **SMALL)
        start = gaussian_reduced(key, vocabulary=corpus.vocabulary, dim=256.0)
        after = embedding_step(start, corpus, 100.0)
        return cls_flow(after, corpus, until_norm=1e4).num_steps

    chunks = _chunks(seed, lanes, chunk)
    run = jax.jit(jax.vmap(one)).lower(chunks[0]).compile()

    steps = np.zeros((len(chunks), chunk), int)

    def run_all() -> None:
        for place, keys in enumerate(chunks):
            steps[place] = run(keys)

    median = seconds(run_all, repeats)
    wasted = 1 - steps.sum() / (steps.max(axis=1).sum() * chunk)
    record = {
        "lanes": lanes,
        "chunk": chunk,
        "seconds": median,
        "runs_per_second": lanes / median,
        "wasted_in_lockstep": float(wasted),
    }
    say(
        f"{lanes} seeds to ‖p‖ = 10⁴ in chunks of {chunk}: "
        f"{record['runs_per_second']:.1f} runs/s, "
        f"{wasted:.0%} of the work wasted in lockstep"
    )
    return record


def convergence(seed: int, lanes: int, chunk: int) -> list[dict]:
    """Every lane that claims convergence at ‖p‖ = 10⁵, held to its claim at 10⁶.

    Args:
        seed: of the lanes' keys.
        lanes: number of trials for each γ.
        chunk: trials that run in lockstep.

    Returns:
        One record per γ: how many claim, and the largest relative change of
        direction error · ‖p‖ and distance from its prediction among those.
    """
    import jax

    from jaxselect.model.synthetic import assumption_one
    from jaxselect.outcome.trial import run_trial
    from jaxselect.outcome.trial_status import TrialStatus

    draw = partial(assumption_one, **SMALL)

    def one(key: jax.Array, step_size: float, norm: float) -> Any:
        return run_trial(key, draw, 256.0, step_size, until_norm=norm)

    run = jax.jit(jax.vmap(one, (0, None, None)))
    chunks = _chunks(seed, lanes, chunk)
    # Each of the 2 m relevant tokens is one in T of n / 2 m sequences.
    importance = 1 / (2 * SMALL["relevant"] * SMALL["length"])
    records = []
    for gamma in GAMMAS:
        ends = [
            [run(keys, 2 * gamma / importance, norm) for keys in chunks]
            for norm in (1e5, 1e6)
        ]
        near, far = (jax.tree.map(lambda *x: np.concatenate(x), *end) for end in ends)
        claims = near.status < TrialStatus.NOT_CERTIFIED
        constant = far.direction_error * far.cls_norm
        moved = np.abs(constant / (near.direction_error * near.cls_norm) - 1)
        missed = np.abs(constant / near.error_constant - 1)
        record = {
            "gamma": gamma,
            "lanes": lanes,
            "claims": int(claims.sum()),
            "selected_all": int((near.status == TrialStatus.SELECTED_ALL).sum()),
            "failed": int((near.status == TrialStatus.FAILED).sum()),
            "moved": float(moved[claims].max(initial=0)),
            "missed": float(missed[claims].max(initial=0)),
        }
        say(
            f"γ {gamma:5g}  {record['claims']} of {lanes} lanes claim "
            f"convergence at 10⁵ ({record['selected_all']} with all selected, "
            f"{record['failed']} failed); their constant moves by at most "
            f"{record['moved']:.0e} to 10⁶, predicted to {record['missed']:.0e}"
        )
        records.append(record)
    return records


def _chunks(seed: int, lanes: int, chunk: int) -> list:
    import jax

    keys = jax.random.split(jax.random.key(seed), lanes)
    return jax.numpy.split(keys, lanes // chunk)
