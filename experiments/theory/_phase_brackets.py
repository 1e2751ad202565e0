"""Brackets around the predicted edges of one shape, and their bisection."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.common.edges import every_edge
from experiments.theory._kept import write_columns
from experiments.theory._phase_lanes import EDGES, Run, Shape, program
from jaxselect.data.corpus import Corpus
from jaxselect.data.synthetic import independent_tokens, several_relevant
from jaxselect.sweep.store import read_chunk
from jaxselect.theory import phases
from jaxselect.theory.two_classes import Ensemble, critical_alignment
from jaxselect.theory.two_classes import step_size as step_size_of

NAMES = tuple(EDGES)
# A bracket reaches this factor to either side of its prediction; that of d_c further.
REACH, REACH_OF_DIM = 2.0, 30.0
# Dimension whose predicted capture edges are the step sizes at which d_c is measured.
MIDDLE_DIM = 1e6


@dataclass(frozen=True)
class Case:
    """A shape, the law of its tokens, and the dimensions it is asked about."""

    name: str
    shape: Shape
    dims: tuple[float, ...]
    purity: float = 1.0
    irrelevant_share: float | None = None

    @property
    def ensemble(self) -> Ensemble:
        """The sizes that predictions are made from."""
        n, length, relevant, irrelevant = map(float, self.shape[:4])
        return Ensemble(n, length, relevant, irrelevant, self.irrelevant_share)

    @property
    def draw(self) -> Callable[[jax.Array], Corpus]:
        """Its corpus as a function of a key."""
        sizes = self.shape._asdict()
        if self.irrelevant_share is None:
            return partial(several_relevant, **sizes, purity=self.purity)
        del sizes["per_sequence"]
        share = self.irrelevant_share
        return partial(independent_tokens, **sizes, irrelevant_share=share)

    def run(self, until_norm: float) -> Callable[..., Run]:
        """Its compiled runs."""
        return program(self.draw, self.shape, until_norm)


class Brackets(NamedTuple):
    """Brackets to bisect, one a row.

    Attributes:
        edge: place in `NAMES`.
        seed: of the draw.
        fixed: the coordinate that is not bisected, d, or η₀ where d is.
        predicted: where theory sees the edge.
        low: the bracket's lower end.
        high: its upper end.
    """

    edge: np.ndarray
    seed: np.ndarray
    fixed: np.ndarray
    predicted: np.ndarray
    low: np.ndarray
    high: np.ndarray


class Prediction(NamedTuple):
    """Predicted edges of one case at its dimensions.

    Attributes:
        edges: η₀ by dimension and by `NAMES[:5]`.
        middle: both edges of capture at `MIDDLE_DIM`.
        critical: η₀ at γ_c.
    """

    edges: np.ndarray
    middle: np.ndarray
    critical: float


@jax.jit
def _edges(ensemble: Ensemble, dims: jax.Array) -> tuple[jax.Array, jax.Array]:
    def at(dim: jax.Array) -> jax.Array:
        found = every_edge(ensemble, dim)
        return jnp.stack([found[name] for name in NAMES[:5]])

    critical = step_size_of(ensemble, critical_alignment(ensemble))
    return jax.vmap(at)(dims), jnp.asarray(critical)


recovery = jax.jit(jax.vmap(phases.recovery_log_time, (None, 0, 0)))
"""Predicted log(1+t) of the return, over pairs of d and η₀."""


@jax.jit
def exponents(ensemble: Ensemble, dim: jax.Array) -> jax.Array:
    """∂ log edge / ∂ log of n, T, R and I, by edge and size."""

    def logs(sizes: jax.Array) -> jax.Array:
        found = _edges(Ensemble(*jnp.exp(sizes)), dim[None])[0][0]
        return jnp.log(found)

    return jax.jacfwd(logs)(jnp.log(jnp.stack(ensemble[:4])))


def is_edge(step_size: np.ndarray) -> np.ndarray:
    """Whether a predicted step size is an edge: not 0, ∞ or NaN."""
    return (step_size > 0.0) & (step_size < np.inf)


def predict(case: Case, dims: tuple[float, ...]) -> Prediction:
    """Every edge of a case at some dimensions, by theory alone."""
    ensemble = jax.tree.map(jnp.asarray, case.ensemble)
    edges, critical = _edges(ensemble, jnp.array([*dims, MIDDLE_DIM]))
    found = np.asarray(edges)
    return Prediction(edges=found[:-1], middle=found[-1, 3:], critical=critical.item())


def brackets(case: Case, prediction: Prediction, seeds: np.ndarray) -> Brackets:
    """Brackets around each predicted edge that there is, for each seed."""
    rows = []
    for dim, at in zip(case.dims, prediction.edges, strict=True):
        # No bracket reaches beyond the middle between two edges.
        # Edges that are absent are 0 or ∞: their middle is NaN, and bounds nothing.
        with np.errstate(invalid="ignore"):
            products = at[0] * at[1], at[1] * at[2], at[3] * at[4]
            lowest, lower, upper = np.sqrt(products)
        walls = {
            "selection": (0.0, lowest),
            "breaking_lower": (lowest, lower),
            "breaking_upper": (lower, np.inf),
            "capture_lower": (lowest, upper),
            "capture_upper": (upper, np.inf),
        }
        for place, edge in enumerate(at):
            below, above = walls[NAMES[place]]
            low, high = max(edge / REACH, below), min(edge * REACH, above)
            if is_edge(edge) and 0 < low < edge < high < np.inf:
                rows.append((place, dim, edge, low, high))
    for step_size in prediction.middle[is_edge(prediction.middle)]:
        ends = MIDDLE_DIM / REACH_OF_DIM, MIDDLE_DIM * REACH_OF_DIM
        rows.append((len(NAMES) - 1, step_size, MIDDLE_DIM, *ends))
    edge, fixed, predicted, low, high = (
        np.repeat(np.asarray(column, float), len(seeds))
        for column in zip(*rows, strict=True)
    )
    return Brackets(
        edge=edge.astype(int),
        seed=np.tile(seeds, len(rows)),
        fixed=fixed,
        predicted=predicted,
        low=low,
        high=high,
    )


def bisect(asked: Brackets, rounds: int, ask: Callable[..., Run]) -> Brackets:
    """Brackets that are 2^rounds times narrower."""
    in_dim = asked.edge == len(NAMES) - 1
    for _ in range(rounds):
        middle = np.sqrt(asked.low * asked.high)
        dim = np.where(in_dim, np.round(middle), asked.fixed)
        step_size = np.where(in_dim, asked.fixed, middle)
        found = ask(asked.seed, dim, step_size)
        holds = np.zeros(len(middle), bool)
        for place, name in enumerate(NAMES):
            condition, above = EDGES[name]
            here = asked.edge == place
            holds[here] = (condition(found) == above)[here]
        asked = asked._replace(
            low=np.where(holds, asked.low, middle),
            high=np.where(holds, middle, asked.high),
        )
    return asked


def kept(folder: Path, index: int, whole: Iterable[int], run: Callable[[], Run]) -> Run:
    """A round's runs from disk, or made now and written there."""
    if index not in whole:
        write_columns(folder, index, run()._asdict())
    rows = read_chunk(folder, index)
    return Run(**{name: rows[name] for name in Run._fields})
