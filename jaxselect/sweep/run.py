"""Cutting a grid into chunks of runs, and running one chunk.

The random numbers of a trial depend on its seed alone and chunks are independent, so
they may run in any order, on any machine, and more than once.
"""

import functools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from ..checks import BadInput, whole
from ..flow.control import FlowSettings
from ..stages import STAGES, Next, Point
from ..trial import Trial, TrialSettings, run_trial
from .grid import Grid, Shape, lane_values


def lane_kinds(
    grid: Grid, shape: Shape, lanes: int | None = None
) -> tuple[jax.ShapeDtypeStruct, ...]:
    """Return shapes and types of a program's arguments, to compile it without values.

    There is a kind for each of `Grid.traced`, of the fields of a `Point`, and of the
    bound on the number of stages; of so many `lanes` in step, or of one run.

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
    query = jax.ShapeDtypeStruct((*batch, grid.coordinates(shape)), grid.precision)
    times, codes = [kind(grid.precision)] * 2, [kind("int32")] * 2
    return *numbers, query, *times, *codes


ONWARD = tuple(Point.__dataclass_fields__)
"""Fields of a trial that only a further stage needs."""


class Chunk(NamedTuple):
    """Runs on one device that are written to one file.

    Attributes:
        shape: values on the axes that decide shapes.
        lanes: flat indices into the grid.
    """

    shape: Shape
    lanes: np.ndarray


def plan(grid: Grid, chunk_size: int) -> list[Chunk]:
    """Cut a grid into chunks of runs that should take equally long.

    A batch takes as long as its slowest run and a sweep as long as its last chunk. Runs
    are therefore sorted by predicted steps, the longest first, with the seeds of a cell
    in a row. A list position is a chunk's number in the store; the last chunk of a
    shape may hold fewer runs.

    Raises:
        BadInput: no grid, or a chunk size that is no whole number ≥ 1.

    Example:
        >>> chunks = plan(Grid(seed=(0, 1), dim=(64.0, 1e6)), chunk_size=3)
        >>> [chunk.lanes.tolist() for chunk in chunks]
        [[0, 1, 2], [3]]
    """
    if not isinstance(grid, Grid):
        raise BadInput(f"grid of type {type(grid).__name__}: wanted a Grid")
    whole("chunk size", chunk_size)
    shapes = grid.shapes()
    lanes = np.arange(grid.size).reshape(len(shapes), -1)
    chunks = []
    for shape, row in zip(shapes, lanes, strict=True):
        values, of = lane_values(grid, row), dict(shape)
        # A relevant token is one of T in one of 2 m sequences; its loss slope is ½.
        # Sizes that a family does not name count as one: they decide the order only.
        classes, length = of.get("relevant", 1), of.get("length", 1)
        rarity = 4 * classes * length / of.get("per_sequence", 1)
        steps = predicted_steps(values["dim"], values["step_size"] / rarity)
        row = row[np.lexsort((row, -steps))]
        cuts = range(0, len(row), chunk_size)
        chunks += [Chunk(shape, row[cut : cut + chunk_size]) for cut in cuts]
    return chunks


def predicted_steps(dim: np.ndarray, alignment: np.ndarray) -> np.ndarray:
    """Estimate the steps of a flow by a rough fit, used only to sort runs.

    With γ the predicted |E_sᵀv| of an important token, a clean flow takes 60 steps.
    More are needed where random overlaps rival the step on E (γ√d below 3), where
    attention is captured along ± v (γ around 2), and in the sharp ravines of a large γ.

    Example:
        >>> predicted_steps(np.array([32.0, 1e6]), np.array([0.1, 0.1])).round()
        array([379.,  60.])
    """
    noise = 330 / (1 + (alignment * dim**0.5 / 3) ** 2)
    capture = 120 * np.exp(-(np.log(alignment / 2.2) ** 2))
    ravine = 12 * np.maximum(alignment - 10, 0) ** 0.5 * (1 + 10 * dim**-0.5)
    return 60 + noise + capture + ravine


@functools.cache
def program(grid: Grid, shape: Shape, vmapped: bool) -> jax.stages.Wrapped:
    """Return the jitted trials of one shape: of one run a call, or of many in step.

    A flow has stages (`trial.flow_to_end`), and runs in lockstep wait for each other.
    Runs that need more than one stage therefore form a second batch. Both programs take
    the arguments of `lane_kinds`; a point at t = 0 means p_0.
    """
    # In single precision a step cannot be held to more than a few roundings.
    atol = FlowSettings().atol if grid.precision == "float64" else 1e-4
    settings = TrialSettings(FlowSettings(atol=atol), grid.path_points)

    def lane(*arguments: Any) -> Trial:
        *numbers, query, origin, own, following, stages = arguments
        cell = grid.cell(shape, *numbers)
        return run_trial(
            jax.random.key(cell.pop("seed")),
            **cell,
            until_norm=grid.until_norm,
            point=Point(query, origin, own, following),
            stages=stages,
            settings=settings,
        )

    return jax.jit(jax.vmap(lane) if vmapped else lane)


def run_chunk(
    grid: Grid,
    chunk: Chunk,
    run: Callable[..., Any],
    *,
    in_step: int | None = None,
    device: Any = None,
) -> np.ndarray:
    """Run a chunk by the `program` of its shape: a table with one row per run.

    Runs in lockstep, `in_step` of them a call, share every instruction, which suits
    accelerators, but all take as many steps as the slowest. On a CPU it is as fast or
    faster to run them one by one.
    """
    kinds = lane_kinds(grid, chunk.shape)
    values = list(lane_values(grid, chunk.lanes).values())

    def followed(lanes: np.ndarray, point: list[np.ndarray], stages: int) -> dict:
        columns = [column[lanes] for column in values]
        columns += [*point, np.full(len(lanes), stages)]
        typed = zip(columns, kinds, strict=True)
        columns = [np.asarray(column, kind.dtype) for column, kind in typed]
        return _called(run, columns, in_step, device)

    every, start = np.arange(len(chunk.lanes)), kinds[-1 - len(ONWARD) : -1]
    point = [np.zeros((len(every), *kind.shape)) for kind in start]
    found = followed(every, point, STAGES if in_step is None else 1)
    left = np.flatnonzero(found["next"] != Next.NOTHING)
    if in_step is not None and left.size:
        later = followed(left, [found[name][left] for name in ONWARD], STAGES)
        later["num_steps"] = later["num_steps"] + found["num_steps"][left]
        for name in later.keys() - {"path_log_times", "path_norms", "path_errors"}:
            found[name] = np.array(found[name])
            found[name][left] = later[name]
    return _table(chunk.lanes, found)


def _called(
    run: Callable[..., Any],
    columns: Sequence[np.ndarray],
    in_step: int | None,
    device: Any = None,
) -> dict[str, np.ndarray]:
    """Call a program on a row of columns per run, and return its fields by run.

    In step, fewer runs than a call has are filled up, and cut again, so that no second
    program is compiled.
    """

    def call(arguments: Sequence[Any]) -> dict[str, np.ndarray]:
        asked = jax.device_put(list(arguments), device)
        # Waited for: two calls at once may wait for each other without end on a CPU.
        return jax.device_get(vars(run(*asked)))

    number = len(columns[0])
    if in_step is None:
        each = [call([column[lane] for column in columns]) for lane in range(number)]
        return {name: np.stack([one[name] for one in each]) for name in each[0]}
    filled = np.minimum(np.arange(in_step), number - 1)
    found = call([column[filled] for column in columns])
    return {name: column[:number] for name, column in found.items()}


def _table(lanes: np.ndarray, found: dict[str, np.ndarray]) -> np.ndarray:
    """Make a table with one row per run: `lane`, then the fields of a record."""
    kind = [("lane", np.int64)] + [
        (name, column.dtype, column.shape[1:]) for name, column in found.items()
    ]
    rows = np.zeros(len(lanes), kind)
    rows["lane"] = lanes
    for name, column in found.items():
        rows[name] = column
    return rows
