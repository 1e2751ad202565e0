"""The start of the flow of one lane of a grid, and the kinds of its numbers."""

from functools import partial
from typing import Any

import jax

from ..corpora.corpus import Corpus
from ..model.parameters import Parameters
from ..outcome.trial import initialise
from .grid import Grid, Shape


def start(
    grid: Grid, shape: Shape, *numbers: Any
) -> tuple[Parameters, Parameters, Corpus, Any]:
    """Parameters before and after the step on E, corpus and η₀ of one lane.

    Args:
        grid: of trials.
        shape: values on the axes that decide shapes.
        *numbers: of `lane_values`, traced or not.

    Returns:
        (E⁰, p_0, v), (E¹, p_0, v), the corpus, and η₀.

    Example:
        >>> sizes = dict(sequences=(8,), length=(3,), relevant=(2,), irrelevant=(4,))
        >>> grid = Grid(axes=sizes)
        >>> purity, dim, step_size, seed = 1.0, 1e6, 10.0, 3
        >>> _, after, *_ = start(grid, grid.shapes()[0], purity, dim, step_size, seed)
        >>> after.embeddings.shape
        (8, 10)
    """
    cell = grid.cell(shape, *numbers)
    key = jax.random.key(cell.seed)
    found = initialise(key, cell.draw, cell.dim, cell.step_size, embed=cell.embed)
    return *found, cell.step_size


def lane_kinds(
    grid: Grid, shape: Shape, lanes: int | None = None
) -> tuple[jax.ShapeDtypeStruct, ...]:
    """Kinds of the arguments of a `program`, to compile it before there are values.

    Args:
        grid: its precision is used, and how its data and embeddings are made.
        shape: values on the axes that decide shapes.
        lanes: in step in a call; none for a call of one lane.

    Returns:
        A kind for each of `Grid.traced`, of the fields of a `Point`, and of the bound
        on the number of stages.

    Example:
        >>> sizes = dict(sequences=(8,), length=(3,), relevant=(2,), irrelevant=(4,))
        >>> grid = Grid(axes=sizes)
        >>> kinds = lane_kinds(grid, grid.shapes()[0], 16)
        >>> [f"{kind.dtype}{list(kind.shape)}" for kind in kinds[2:5]]
        ['float64[16]', 'int32[16]', 'float64[16, 10]']
    """
    batch = () if lanes is None else (lanes,)
    kind = partial(jax.ShapeDtypeStruct, batch)
    numbers = tuple(
        kind("int32" if name == "seed" else grid.precision) for name in grid.traced
    )
    bags = grid.bags(shape)
    # The coordinates of `gaussian_reduced`.
    axes = bags.vocabulary + 1 + (bags.classes or 1)
    query = jax.ShapeDtypeStruct((*batch, axes), grid.precision)
    times, flags = [kind(grid.precision)] * 2, [kind("bool")] * 2
    return *numbers, query, *times, *flags, kind("int32")
