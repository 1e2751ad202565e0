"""Where theory draws the edges of a phase diagram, for the sizes at hand.

No run is integrated: each edge is a formula, or the root of one function of (d, η₀)
(mathematics, section 6). The map of a sweep and the report draw them.
"""

import itertools
from collections.abc import Mapping
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.theory.phases import (
    breaking_edges,
    capture_edges,
    in_domain,
    selection_edge,
)
from experiments.theory.two_classes import Ensemble
from jaxselect.compilation import compile_options

SIZES = ("sequences", "length", "relevant", "irrelevant")
ASSUMPTION_ONE = {
    "family": "exact",
    "embed": "embedding_step",
    "per_sequence": [1],
    "purity": [1.0],
    "irrelevant_share": [0.0],
}
"""Settings of a sweep under which its tokens fulfil Assumption 1."""
POINTS = 13
"""Dimensions at which the edges of a map are computed."""
NAMES = (
    "selection",
    "breaking_lower",
    "breaking_upper",
    "capture_lower",
    "capture_upper",
)


class Edge(NamedTuple):
    """One predicted edge of one shape.

    Attributes:
        name: of `NAMES`.
        dims: d.
        step_sizes: η₀ there; NaN where there is no edge.
        within: the same in the domain of the theory alone.
    """

    name: str
    dims: np.ndarray
    step_sizes: np.ndarray
    within: np.ndarray


class Predicted(NamedTuple):
    """The edges over a map.

    Attributes:
        edges: of every shape of the sweep.
        note: what the lines do not say: why there is none, or where the theory ends.
    """

    edges: list[Edge]
    note: str


def every_edge(ensemble: Ensemble, dim: jax.Array) -> dict[str, jax.Array]:
    """η₀ of each edge at one d, from selection upwards."""
    breaking, captured = breaking_edges(ensemble, dim), capture_edges(ensemble, dim)
    return {
        "selection": selection_edge(ensemble, dim),
        "breaking_lower": breaking.lower,
        "breaking_upper": breaking.upper,
        "capture_lower": captured.lower,
        "capture_upper": captured.upper,
    }


def predicted(grid: Mapping[str, Any]) -> Predicted:
    """The edges over the map of a sweep, for each of its shapes.

    Args:
        grid: of the sweep, as its settings have it.

    Returns:
        No edge where the theory does not cover how its tokens are drawn.
    """
    if any(grid.get(name, value) != value for name, value in ASSUMPTION_ONE.items()):
        return Predicted(
            [],
            "no predicted lines: the theory of edges is of the family exact, one "
            "important token a sequence, after one step on E",
        )
    low, *_, high = borders(np.array(sorted(grid["dim"])))
    dims = np.geomspace(low, high, POINTS)
    edges = []
    for shape in itertools.product(*(grid[name] for name in SIZES)):
        for name, steps, known in zip(NAMES, *over(shape, tuple(dims)), strict=True):
            there = (steps > 0) & (steps < np.inf)
            # The domain is that of the edges above, where the symmetry breaks.
            within = there & (known | (name == "selection"))
            both = (np.where(mask, steps, np.nan) for mask in (there, within))
            edges.append(Edge(name, dims, *both))
    beyond = any(
        np.isfinite(e.step_sizes).sum() > np.isfinite(e.within).sum() for e in edges
    )
    return Predicted(edges, "pale lines: beyond the theory's domain" if beyond else "")


@cache
def over(
    shape: tuple[float, ...], dims: tuple[float, ...]
) -> tuple[np.ndarray, np.ndarray]:
    """η₀ of every edge of one shape (n, T, R, I) over d, and if in the domain.

    Returns:
        Two arrays (edges, dims), in the order of `NAMES`.
    """
    program = jax.jit(_over_dims, compiler_options=compile_options(fast=True))
    steps, known = program(jnp.asarray(shape, float), jnp.asarray(dims))
    return np.asarray(steps), np.asarray(known)


def borders(values: np.ndarray) -> np.ndarray:
    """Borders of cells centred, on a logarithmic axis, at increasing values.

    Example:
        >>> borders(np.array([1.0, 100.0])).round(9).tolist()
        [0.1, 10.0, 1000.0]
    """
    logs = np.log(values)
    if len(logs) == 1:
        return np.exp([logs[0] - 1, logs[0] + 1])
    inner = (logs[1:] + logs[:-1]) / 2
    return np.exp([2 * logs[0] - inner[0], *inner, 2 * logs[-1] - inner[-1]])


def _over_dims(shape: jax.Array, dims: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The program of `over`."""
    ensemble = Ensemble(*shape)

    def at(dim: jax.Array) -> tuple[jax.Array, jax.Array]:
        edges = every_edge(ensemble, dim)
        steps = jnp.stack([edges[name] for name in NAMES])
        return steps, jax.vmap(partial(in_domain, ensemble, dim))(steps)

    steps, known = jax.lax.map(at, dims)
    return steps.T, known.T
