"""Ends of the runs of a chunk: certified by their flow, or proved in a second pass."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int, Shaped

from ..model.parameters import Parameters
from ..outcome.proof import prove
from ..outcome.trial_status import CERTIFIED, TrialStatus
from ..sparse.bdf import LOOK_BACK, REPRESENTABLE
from ..sparse.end import End
from .grid import Grid, Shape, lane_values
from .start import lane_kinds, start

# Statuses that no larger norm would help; any other run is certified sooner by going
# on, unless it has gone on for long.
OPEN = (TrialStatus.TIES_UNPROVED, TrialStatus.NORM_NOT_REACHED)
LONG = 1e3


def ends(
    grid: Grid,
    shape: Shape,
    rows: Shaped[np.ndarray, " lanes"],
) -> Int[np.ndarray, " lanes"]:
    """An `End` for every lane; open lanes and late ones cost time.

    Args:
        grid: of trials.
        shape: values on the axes that decide shapes.
        rows: of `run_chunk`: lane, `TrialStatus`, p and log(1+t) at the end of each.

    Returns:
        Codes of `End`.

    Example:
        >>> sizes = dict(sequences=(8,), length=(3,), relevant=(2,), irrelevant=(4,))
        >>> grid = Grid(axes=sizes)
        >>> kinds = [("status", int), ("log_time", float)]
        >>> ends(grid, grid.shapes()[0], np.zeros(1, kinds)).tolist()
        [0]
    """
    certified = np.isin(rows["status"], CERTIFIED)
    found = np.where(certified, End.SELECTED, End.UNPROVED).astype(np.int32)
    if grid.precision != "float64":
        return found
    late = rows["log_time"] > LONG
    left = np.isin(rows["status"], OPEN)
    left |= late & (rows["status"] == TrialStatus.NOT_CERTIFIED)
    # Whatever runs the chunk, a proof runs where its NumPy is.
    with jax.default_device(jax.local_devices(backend="cpu")[0]):
        for place in np.flatnonzero(left):
            row = rows[place]
            values = lane_values(grid, rows["lane"][place : place + 1]).values()
            cells = zip(values, lane_kinds(grid), strict=True)
            numbers = (np.asarray(value[0], kind.dtype) for value, kind in cells)
            _, after, corpus, _ = _started(grid, shape)(*numbers)
            begun = float(row["log_time"])
            if begun <= REPRESENTABLE - LOOK_BACK:
                cls = jnp.asarray(row["cls_end"])
                ended = Parameters(after.embeddings, cls, after.head)
                found[place] = prove(ended, corpus, from_log_time=begun)
            if found[place] == End.UNPROVED:
                # Late p is known to the rounding of opposing gradients only.
                found[place] = prove(after, corpus)
    return found


@functools.cache
def _started(grid: Grid, shape: Shape) -> Callable[..., Any]:
    """The compiled start of a lane."""
    return jax.jit(functools.partial(start, grid, shape))
