"""The start of the flow of one lane of a grid."""

from typing import Any

import jax

from ..model.corpus import Corpus
from ..model.parameters import Parameters
from ..outcome.trial import prepare
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
    found = prepare(key, cell.draw, cell.dim, cell.step_size, embed=cell.embed)
    return *found, cell.step_size
