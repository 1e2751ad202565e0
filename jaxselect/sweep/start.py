"""The start of the flow of one lane of a grid, and the kinds of its numbers."""

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
    grid: Grid, lanes: int | None = None
) -> tuple[jax.ShapeDtypeStruct, ...]:
    """Kinds of the arguments of a `program`, to compile it before there are values.

    Args:
        grid: its precision is used.
        lanes: in step in a call; none for a call of one lane.

    Returns:
        A kind for each of `Grid.traced`.

    Example:
        >>> [kind.dtype.name for kind in lane_kinds(Grid(), 8)][-2:]
        ['float64', 'int32']
    """
    shape = () if lanes is None else (lanes,)
    return tuple(
        jax.ShapeDtypeStruct(shape, "int32" if name == "seed" else grid.precision)
        for name in grid.traced
    )
