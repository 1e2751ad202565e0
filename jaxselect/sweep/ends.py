"""Ends of the runs of a chunk: certified by their flow, or proved in a second pass."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jaxtyping import Int

from ..outcome.proof import prove
from ..outcome.trial_status import CERTIFIED, End, TrialStatus
from .grid import Grid, Shape, lane_values
from .start import start

# Where no larger norm would help; any other run is certified sooner by going on.
OPEN = (TrialStatus.TIES_UNPROVED, TrialStatus.NORM_NOT_REACHED)


def ends(
    grid: Grid,
    shape: Shape,
    lanes: Int[np.ndarray, " lanes"],
    statuses: Int[np.ndarray, " lanes"],
) -> Int[np.ndarray, " lanes"]:
    """An `End` for every lane; only those of a status in `OPEN` cost time.

    Args:
        grid: of trials.
        shape: values on the axes that decide shapes.
        lanes: flat indices into the grid.
        statuses: a `TrialStatus` each.

    Returns:
        Codes of `End`.

    Example:
        >>> sizes = dict(sequences=(8,), length=(3,), relevant=(2,), irrelevant=(4,))
        >>> grid = Grid(axes=sizes)
        >>> ends(grid, grid.shapes()[0], np.array([0]), np.array([0])).tolist()
        [0]
    """
    certified = np.isin(statuses, CERTIFIED)
    found = np.where(certified, End.SELECTED, End.UNPROVED).astype(np.int32)
    if grid.precision != "float64":
        return found
    left = np.flatnonzero(np.isin(statuses, OPEN))
    # Whatever runs the chunk, a proof runs where its NumPy is.
    with jax.default_device(jax.local_devices(backend="cpu")[0]):
        for place in left:
            values = lane_values(grid, lanes[place : place + 1])
            kinds = {name: "int32" if name == "seed" else "float64" for name in values}
            numbers = (np.asarray(x[0], kinds[name]) for name, x in values.items())
            _, after, corpus, _ = _started(grid, shape)(*numbers)
            found[place] = prove(after, corpus)
    return found


@functools.cache
def _started(grid: Grid, shape: Shape) -> Callable[..., Any]:
    """The compiled start of a lane."""
    return jax.jit(functools.partial(start, grid, shape))
