"""Joint flows of a study: a family with unequal classes, one lane, kept in blocks."""

import dataclasses
import functools
import threading
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from experiments.common.devices import configure
from experiments.theory._kept import write_columns
from experiments.theory.problem import Problem
from jaxselect.compilation import fast_compile_options
from jaxselect.data.corpus import Corpus
from jaxselect.flow.joint import LearningRates, joint_flow
from jaxselect.model.attention import attend_corpus, empirical_risk
from jaxselect.model.parameters import Parameters, gaussian_reduced
from jaxselect.model.step import embedding_step
from jaxselect.sweep.store import read_chunk
from jaxselect.theory.joint import joint_limit

BLOCK = 32
"""Lanes of one file."""


@dataclasses.dataclass(frozen=True)
class Cell:
    """One lane.

    Attributes:
        seed: of the draw.
        dim: embedding dimension d.
        step_size: η₀ of the one step on E before the flow; zero for none.
        eta: rate of E.
        cls_rate: rate of p.
        head_rate: rate of v.
        positive: important tokens of the positive class R₊.
        negative: of the negative one, R₋.
        irrelevant: irrelevant tokens I.
        skew: important token i of a class is in a share ∝ 2^{−skew·i} of its sequences.
    """

    seed: int
    dim: float
    step_size: float
    eta: float = 1.0
    cls_rate: float = 1.0
    head_rate: float = 1.0
    positive: int = 2
    negative: int = 2
    irrelevant: int = 4
    skew: float = 0.0


FIELDS = [(field.name, float) for field in dataclasses.fields(Cell)]


def table(cells: list[Cell]) -> np.ndarray:
    """Cells as a structured array."""
    return np.array([dataclasses.astuple(cell) for cell in cells], FIELDS)


def draw(cell: dict, sizes: Problem) -> tuple[Parameters, Corpus]:
    """Parameters after the step on E, and bags of distinct tokens.

    The first slot holds the important token; a positive and a negative sequence share
    their T − 1 irrelevant ones, so that α of these is zero.

    Args:
        cell: numbers by name of `Cell`, which may be traced.
        sizes: n, T and the vocabulary, which are shapes; R and I stand in the cell.

    Example:
        >>> cell = dataclasses.asdict(Cell(0, 1e4, 0.0, positive=1, negative=3))
        >>> _, bags = draw(cell, Problem(12, 3, 2, 4))
        >>> bags.tokens[:, 0].tolist()
        [0, 0, 0, 0, 0, 0, 1, 2, 3, 1, 3, 2]
    """
    half, vocabulary = sizes.sequences // 2, 2 * sizes.relevant + sizes.irrelevant
    keys = jax.random.split(jax.random.key(jnp.asarray(cell["seed"], int)), 4)
    most = jnp.arange(vocabulary)
    whole = ("positive", "negative", "irrelevant")
    positive, negative, irrelevant = (jnp.asarray(cell[x], int) for x in whole)
    skew = jnp.asarray(cell["skew"], float)

    def deck(key: jax.Array, number: jax.Array) -> jax.Array:
        share = jnp.where(most < number, 2.0 ** (-skew * most.astype(float)), 0.0)
        places = (jnp.arange(half).astype(float) + 0.5) / half
        found = jnp.searchsorted(jnp.cumsum(share) / share.sum(), places)
        return jax.random.permutation(key, found).astype(int)

    own = deck(keys[0], positive), positive + deck(keys[1], negative)
    order = jax.random.uniform(keys[2], (half, vocabulary))
    order = jnp.where(most[None] < irrelevant, order, 2.0)
    context = positive + negative + jnp.argsort(order, axis=1)[:, : sizes.length - 1]
    both = jnp.tile(context, (2, 1)).astype(int)
    tokens = jnp.concatenate([jnp.concatenate(own)[:, None], both], axis=1)
    labels = jnp.repeat(jnp.array([1, -1]), half)
    corpus = Corpus(
        tokens.astype(jnp.int32), jnp.ones(tokens.shape), labels, vocabulary
    )
    start = gaussian_reduced(keys[3], vocabulary=vocabulary, dim=cell["dim"])
    return embedding_step(start, corpus, cell["step_size"]), corpus


def lane(cell: dict, marks: jax.Array, sizes: Problem) -> dict[str, jax.Array]:
    """Measures of one joint flow along the marks and at its end.

    Args:
        cell: numbers by name of `Cell`.
        marks: log(1+t) to look at; the last one ends the flow.
        sizes: see `draw`.

    Returns:
        Along the marks `log_off`, of the mean weight off the important tokens, `value`,
        the mean y b_s of these, `log_loss`, |p|² and |v|², and all `values`; at the end
        `log_offs` and weights of the important tokens by sequence, what `joint_limit`
        says, and how far the conserved form EᵀE/η − ppᵀ/r_p − vvᵀ/r_v is off.
    """
    start, corpus = draw(cell, sizes)
    rates = LearningRates(cell["eta"], cell["cls_rate"], cell["head_rate"])
    flow = joint_flow(
        start, corpus, rates=rates, until_log_time=marks[-1], path_log_times=marks
    )

    def look(embeddings: jax.Array, query: jax.Array, head: jax.Array) -> dict:
        scores, values = embeddings @ query, embeddings @ head
        log_weights = attend_corpus(scores, values, corpus).log_weights
        log_off = jax.nn.logsumexp(log_weights[:, 1:], axis=1)
        own = corpus.labels * values[corpus.tokens[:, 0]]
        return {
            "log_off": jax.nn.logsumexp(log_off) - jnp.log(len(log_off)),
            "value": own.mean(),
            "loss": empirical_risk(Parameters(embeddings, query, head), corpus),
            "cls_square": query @ query,
            "head_square": head @ head,
            "values": values,
        }

    seen = jax.vmap(look)(flow.path_embeddings, flow.path_query, flow.path_head)
    scores, values = flow.embeddings @ flow.query, flow.embeddings @ flow.head
    log_weights = attend_corpus(scores, values, corpus).log_weights
    limit = joint_limit(scores, values, corpus)
    chosen = log_weights[:, 0] > jnp.log(0.5)
    number = jnp.zeros(corpus.vocabulary).at[corpus.tokens[:, 0]].add(1.0)
    return seen | {
        "status": flow.status,
        "steps": flow.num_steps,
        "selected": limit.selected,
        "square": limit.square,
        "stationarity": limit.stationarity,
        "slackness": limit.slackness,
        "balance": limit.balance,
        "covered": jnp.stack(
            [chosen[: len(chosen) // 2], chosen[len(chosen) // 2 :]]
        ).mean(axis=1, dtype=float),
        "frequency": number / len(corpus.labels),
        "form_change": form_change(
            start, Parameters(flow.embeddings, flow.query, flow.head), cell
        ),
    }


def form_change(start: Parameters, end: Parameters, cell: dict) -> jax.Array:
    """Change of EᵀE/η − ppᵀ/r_p − vvᵀ/r_v over its size; NaN for a zero rate."""

    def form(of: Parameters, sign: float) -> jax.Array:
        parts = ((of.embeddings, 1.0), (of.query[None], sign), (of.head[None], sign))
        rates = cell["eta"], cell["cls_rate"], cell["head_rate"]
        return sum(
            by * rows.T @ rows / rate
            for (rows, by), rate in zip(parts, rates, strict=True)
        )

    change = jnp.abs(form(end, -1.0) - form(start, -1.0)).max()
    return change / jnp.abs(form(end, 1.0)).max()


def block(
    folder: Path,
    whole: set[int],
    stop: threading.Event,
    number: int,
    cells: np.ndarray,
    *,
    marks: np.ndarray,
    sizes: Problem,
) -> np.ndarray:
    """A block of lanes from disk, or run now and written there.

    Returns:
        One row per cell, with the fields of `Cell` and of `lane`.
    """
    if number not in whole:
        if stop.is_set():
            raise KeyboardInterrupt
        configure("float64")
        # Every block has one shape, and one program.
        padded = np.resize(cells, BLOCK)
        columns = {name: padded[name] for name in cells.dtype.names or ()}
        found = jax.device_get(_lanes()(columns, marks, sizes))
        made = {name: one[: len(cells)] for name, one in (columns | found).items()}
        write_columns(folder, number, made, first=BLOCK * number)
    return read_chunk(folder, number)


def _run(cells: dict, marks: jax.Array, sizes: Problem) -> dict[str, jax.Array]:
    return jax.lax.map(lambda cell: lane(cell, marks, sizes), cells)


@functools.cache
def _lanes() -> Callable[..., dict[str, jax.Array]]:
    """The program of a block; its options need the device."""
    options = fast_compile_options()
    return jax.jit(_run, static_argnums=2, compiler_options=options)
