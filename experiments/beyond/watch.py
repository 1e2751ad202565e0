"""The flow of p in a few cells of a sweep, point by point.

Sweeps store how runs end, but no trajectories. This study repeats one run for each of
some d and η₀, with the seed of a sweep over the same problem, and saves the scores of
all tokens along the flow and the attention of a few sequences.
"""

import dataclasses
import itertools
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.beyond.problem import Problem
from experiments.common.claims import Claim, Measured, Verdict, of_cases, of_status
from experiments.common.console import command, say
from experiments.common.numbers import counted, num
from experiments.common.results import Finished
from experiments.common.study import (
    Count,
    Dimension,
    Experiment,
    Positive,
    Several,
    Study,
    presets,
)
from jaxselect.compilation import fast_compile_options
from jaxselect.flow.cls import FlowStatus, cls_flow
from jaxselect.model.attention import attend_corpus
from jaxselect.model.selection import important_tokens, token_classes
from jaxselect.model.step import embedding_step
from jaxselect.problem import attention


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(Study):
    """Settings of the study.

    Attributes:
        problem: the corpora; by default those of the sweep `default`.
        dims: dimensions d.
        step_sizes: η₀ of the step on E.
        until_norm: the flows stop where ‖p‖ is this.
        earliest: log(1+t) of the first point.
        points: of each path, geometric in log(1+t).
        sequences_shown: of each class.
        seed: random seed of corpus and parameters.
    """

    problem: Problem = Problem(200, 8, 8, 48)
    dims: tuple[Dimension, ...] = (100.0, 1000.0, 10_000.0, 100_000.0, 1e6)
    step_sizes: tuple[Positive, ...] = (0.1, 1.0, 10.0, 100.0, 316.2, 1000.0, 10_000.0)
    until_norm: Positive = 1e6
    earliest: Positive = 0.05
    points: Several = 320
    sequences_shown: Count = 3
    out: Path = Path("results/watch")


PRESETS = presets(
    default=Settings(),
    smoke=Settings(
        problem=Problem(20, 4, 2, 8),
        dims=(64.0, 1e6),
        step_sizes=(1.0, 100.0),
        until_norm=1e3,
        points=40,
        sequences_shown=2,
    ),
)
HELD, LOST = 0.9, 0.1
"""Mean weights of important tokens from which a class counts as captured."""


def run(settings: Settings, results: dict) -> dict[str, np.ndarray]:
    """Follow one run in every cell."""
    follow = jax.jit(partial(path, settings), compiler_options=fast_compile_options())
    cells = list(itertools.product(settings.dims, settings.step_sizes))
    ran = []
    results["cells"] = []
    for dim, step_size in cells:
        found = jax.device_get(follow(jnp.array(dim), jnp.array(step_size)))
        ran.append(found)
        name = FlowStatus(found["status"].item()).name
        cell = {
            "dim": dim,
            "step_size": step_size,
            "status": name,
            "cls_norm": float(found["cls_norm"]),
            "log_time": float(found["log_time"]),
            "capture": capture(found),
        }
        results["cells"].append(cell)
        say(f"d {dim:9g}   η₀ {step_size:9g}   {name.lower().replace('_', ' ')}")
    arrays = {name: np.stack([found[name] for found in ran]) for name in ran[0]}
    dims, step_sizes = np.array(cells).T
    return arrays | {"dims": dims, "step_sizes": step_sizes}


def capture(found: dict[str, np.ndarray]) -> dict:
    """Log-times at which one class held attention and the other did not.

    Args:
        found: of `path`: `log_times`, and the mean weight of the important tokens in
            `positive` and `negative` sequences.

    Returns:
        The class, and the log-times `first` and `last` at which its sequences gave
        their important tokens `HELD` of their attention or more and the others'
        `LOST` or less; empty where that never was.

    Example:
        >>> times, ones = np.array([1.0, 2.0, 3.0]), np.ones(3)
        >>> back = np.array([0.5, 0.0, 1.0])
        >>> capture({"log_times": times, "positive": ones, "negative": back})
        {'class': 'positive', 'first': 2.0, 'last': 2.0}
    """
    for name, other in (("positive", "negative"), ("negative", "positive")):
        during = found["log_times"][(found[name] >= HELD) & (found[other] <= LOST)]
        if during.size:
            return {"class": name, "first": float(during[0]), "last": float(during[-1])}
    return {}


def path(
    settings: Settings, dim: jax.Array, step_size: jax.Array
) -> dict[str, jax.Array]:
    """Scores along the flow of one run, and attention of some sequences.

    Returns:
        Arrays by name. Along the path they are NaN after the end of the flow, but for
        the last point, which is that end.
    """
    before, corpus = settings.problem.draw(settings.seed, dim)
    after = embedding_step(before, corpus, step_size)
    times = jnp.geomspace(settings.earliest, settings.until_norm, settings.points)
    flow = cls_flow(
        attention(after, corpus), until_norm=settings.until_norm, path_log_times=times
    )
    values = after.embeddings @ after.head
    important = important_tokens(corpus)[corpus.tokens] & (corpus.counts > 0)
    classes = token_classes(corpus)
    each = settings.sequences_shown
    order = jnp.argsort(-corpus.labels, stable=True)
    shown = jnp.concatenate([order[:each], order[-each:]])

    def look(query: jax.Array) -> dict[str, jax.Array]:
        scores = after.embeddings @ query
        weights = jnp.exp(attend_corpus(scores, values, corpus).log_weights)
        held = jnp.sum(jnp.where(important, weights, 0.0), axis=1)
        return {
            "scores": scores,
            "norms": jnp.linalg.norm(query),
            "weights": weights[shown],
            "positive": jnp.mean(held, where=corpus.labels > 0),
            "negative": jnp.mean(held, where=corpus.labels < 0),
        }

    # The path, and the end itself: the norm that was asked for.
    path_times = jnp.append(flow.path_log_times, flow.log_time)
    points = jnp.concatenate([flow.path_query, flow.query[None]])
    reached = jnp.isfinite(path_times)
    along = jax.lax.map(look, jnp.where(reached[:, None], points, 0.0))

    def within(column: jax.Array) -> jax.Array:
        mask = reached.reshape(-1, *[1] * (column.ndim - 1))
        return jnp.where(mask, column, jnp.nan)

    return {
        "status": flow.status,
        "cls_norm": jnp.linalg.norm(flow.query),
        "log_time": flow.log_time,
        "log_times": jnp.where(reached, path_times, jnp.nan),
        "values": values,
        "classes": classes.positive.astype(int) - classes.negative.astype(int),
        "shown_tokens": corpus.tokens[shown],
        "shown_counts": corpus.counts[shown],
        "shown_labels": corpus.labels[shown],
        **{name: within(column) for name, column in along.items()},
    }


FLOWS = {"REACHED": Verdict.HOLDS} | dict.fromkeys(
    (
        "NORM_NOT_REACHED",
        "TIES_UNPROVED",
        "OUT_OF_STEPS",
        "FAILED",
        "TIME_UNRESOLVED",
        "SELECTION_CHANGED",
    ),
    Verdict.OPEN,
)
"""How a flow of p ended: what a flow that was not followed shows is open."""
LASTING = 0.5
"""Share of a flow's log-time up to which a capture counts as one that passed."""


def lasts(cell: dict[str, Any]) -> bool:
    """Whether the capture of a cell was there in the later part of its flow.

    Example:
        >>> lasts({"capture": {"first": 2.0, "last": 5.0}, "log_time": 10.0})
        True
    """
    return cell["capture"]["last"] >= LASTING * cell["log_time"]


def passing_capture(found: Finished) -> Measured:
    """In large dimensions a captured class comes back."""
    cells = found.results["cells"]
    ended = [
        cell for cell in cells if of_status(cell["status"], FLOWS) is not Verdict.OPEN
    ]
    held = [cell for cell in ended if cell["capture"]]
    passed = [cell for cell in held if not lasts(cell)]
    if not passed:
        return Measured(Verdict.OPEN, "no cell shows it", counted(len(cells), "run"))
    largest = max(cell["dim"] for cell in held)
    there = [cell for cell in held if cell["dim"] == largest]
    cell = max(passed, key=lambda cell: (cell["dim"], cell["step_size"]))
    during = cell["capture"]
    return Measured(
        of_cases(sum(cell in passed for cell in there), len(there)),
        f"at d = {num(cell['dim'])}, η₀ = {num(cell['step_size'])} the "
        f"{during['class']} class holds all from log t = {num(during['first'])} to "
        f"{num(during['last'])}, then both do",
        f"{counted(len(cells), 'run')}, {len(held) - len(passed)} captured to the end",
        "–",
        f"weights along one flow, integrated to ‖p‖ = {num(cell['cls_norm'])}",
    )


CLAIMS = (
    Claim(
        "In large dimensions a capture passes: the class that lost comes back at a "
        "finite log t.",
        passing_capture,
    ),
)


main = Experiment(run, claims=CLAIMS)


if __name__ == "__main__":
    command(main, PRESETS)
