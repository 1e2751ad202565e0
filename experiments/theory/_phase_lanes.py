"""One run of the flow, and the properties that change at edges of the diagram."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key, Scalar

from jaxselect.data.corpus import Corpus
from jaxselect.flow.cls import FlowStatus, cls_flow
from jaxselect.model.attention import attend_corpus
from jaxselect.model.parameters import gaussian_reduced
from jaxselect.model.step import embedding_step

MARKS = np.geomspace(0.05, 80.0, 192)
"""Values of log(1+t) at which weights are looked at."""
TWICE = float(np.log(2.0))
"""Log-ratio of the classes' weights beyond which their symmetry is broken."""
WHOLE = 0.999
"""Mean weight of important tokens from which all of them count as selected."""
LANES = 32
"""Runs to a call."""


class Shape(NamedTuple):
    """Sizes of a corpus: n, T, relevant tokens per class and per sequence, others."""

    sequences: int
    length: int
    relevant: int
    irrelevant: int
    per_sequence: int = 1


class Run(NamedTuple):
    """Measurements of one run.

    Attributes:
        ratio: max_t |log q₊/q₋| of the classes' mean weights of important tokens.
        log_time: log(1+t) at which the losing class then holds half of its
            weight; NaN where it never does.
        least: the smaller mean weight at the end.
        most: the greater one.
        reached: whether the flow came to the norm asked for.
    """

    ratio: Any
    log_time: Any
    least: Any
    most: Any
    reached: Any


def weights_of(
    draw: Callable[[Key[Array, ""]], Corpus],
    shape: Shape,
    seed: Int[Scalar, ""] | int,
    dim: Float[Scalar, ""],
    step_size: Float[Scalar, ""],
    until_norm: float,
) -> tuple[Float[Array, "marks 2"], Float[Array, " 2"], Int[Scalar, ""]]:
    """Mean weights of important tokens by class, at `MARKS` and the end."""
    corpus_key, key = jax.random.split(jax.random.key(seed))
    corpus = draw(corpus_key)
    before = gaussian_reduced(key, vocabulary=corpus.vocabulary, dim=dim)
    after = embedding_step(before, corpus, step_size)
    flow = cls_flow(
        after, corpus, until_norm=until_norm, path_log_times=jnp.asarray(MARKS)
    )
    values = after.embeddings @ after.head
    important = corpus.tokens < 2 * shape.relevant
    positive = corpus.labels > 0

    def weights(query: Float[Array, " dim"]) -> Float[Array, " 2"]:
        found = attend_corpus(after.embeddings @ query, values, corpus)
        own = jnp.where(important, jnp.exp(found.log_weights), 0.0).sum(axis=1)
        sides = jnp.stack([positive, ~positive])
        return jnp.where(sides, own[None], 0.0).sum(axis=1) / sides.sum(axis=1)

    # After its end the flow stays as it is.
    there = jnp.isfinite(flow.path_query)
    path = jax.vmap(weights)(jnp.where(there, flow.path_query, flow.query[None]))
    return path, weights(flow.query), flow.status


def observe(
    path: Float[Array, "marks 2"], end: Float[Array, " 2"], status: Int[Scalar, ""]
) -> Run:
    """Measurements on a path of weights."""
    marks = jnp.asarray(MARKS)
    logs = jnp.log(jnp.maximum(path, 1e-300))
    apart = logs[:, 0] - logs[:, 1]
    widest = jnp.argmax(jnp.abs(apart))
    loser = jnp.where(apart[widest] > 0, logs[:, 1], logs[:, 0])
    below = (loser < -TWICE) & (jnp.arange(len(MARKS)) >= widest)
    last = len(MARKS) - 1 - jnp.argmax(below[::-1])
    to = jnp.minimum(last + 1, len(MARKS) - 1)
    share = (-TWICE - loser[last]) / (loser[to] - loser[last])
    back = marks[last] + share * (marks[to] - marks[last])
    returned = below.any() & (last < len(MARKS) - 1)
    return Run(
        ratio=jnp.abs(apart[widest]),
        log_time=jnp.where(returned, back, jnp.nan),
        least=end.min(),
        most=end.max(),
        reached=(status == FlowStatus.REACHED).astype(jnp.int32),
    )


def program(
    draw: Callable[[Key[Array, ""]], Corpus], shape: Shape, until_norm: float
) -> Callable:
    """Compiled runs of one shape: seeds, d and η₀ → `Run`, `LANES` to a call."""

    def lane(row: tuple) -> Run:
        seed, dim, step_size = row
        return observe(*weights_of(draw, shape, seed, dim, step_size, until_norm))

    compiled = jax.jit(lambda *rows: jax.lax.map(lane, rows))

    def run(seed: np.ndarray, dim: np.ndarray, step_size: np.ndarray) -> Run:
        found = []
        for cut in range(0, len(seed), LANES):
            here = slice(cut, cut + LANES)
            rows = seed[here].astype(np.int32), dim[here], step_size[here]
            there = len(rows[0])
            full = (np.pad(row, (0, LANES - there), mode="edge") for row in rows)
            got = jax.device_get(compiled(*map(jnp.asarray, full)))
            found.append(Run(*(column[:there] for column in got)))
        return Run(*(np.concatenate(column) for column in zip(*found, strict=True)))

    return run


def selected(run: Run) -> np.ndarray:
    """Whether every important token is selected."""
    return (run.least >= WHOLE) & (run.reached == 1)


def broken(run: Run) -> np.ndarray:
    """Whether one class ever had twice the other's weight."""
    return run.ratio >= TWICE


def captured(run: Run) -> np.ndarray:
    """Whether one class is served and the other is not, for good."""
    return (run.least < 0.5) & (run.most >= WHOLE)


# The property that changes at an edge, and whether it holds above the edge.
EDGES: dict[str, tuple[Callable[[Run], np.ndarray], bool]] = {
    "selection": (selected, True),
    "breaking_lower": (broken, True),
    "breaking_upper": (broken, False),
    "capture_lower": (captured, True),
    "capture_upper": (captured, False),
    "largest_dim": (captured, False),
}
