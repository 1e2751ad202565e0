"""The true flow of p to any s = log(1 + t), through returns and overtakings.

Rodas4 (Hairer and Wanner, Solving Ordinary Differential Equations II) on the curve of
`forces`, which is autonomous. Ends where p rests in the span of tied tokens are proved
by Newton's method and the signs of the pulls of all others; elsewhere the truth is
`UNKNOWN` rather than a guess.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from .forces import Lanes, Scaled, scaled, tangent, tangent_and_jacobian
from .ties import rests


class Outcome(IntEnum):
    """How a course ended."""

    GOING = 0
    REACHED = 1
    RESTS = 2
    UNKNOWN = 3
    STOPPED = 4


GAMMA = 0.25
A: tuple[tuple[float, ...], ...] = (
    (),
    (1.544,),
    (0.9466785280815826, 0.2557011698983284),
    (3.314825187068521, 2.896124015972201, 0.9986419139977817),
    (1.221224509226641, 6.019134481288629, 12.53708332932087, -0.6878860361058950),
)
C: tuple[tuple[float, ...], ...] = (
    (),
    (-5.6688,),
    (-2.430093356833875, -0.2063599157091915),
    (-0.1073529058151375, -9.594562251023355, -20.47028614809616),
    (7.496443313967647, -10.24680431464352, -33.99990352819905, 11.70890893206160),
    (
        8.083246795921522,
        -7.981132988064893,
        -31.52159432874371,
        16.31930543123136,
        -6.058818238834054,
    ),
)
# Errors of a step, in scores and log-times; of coordinates, in roundings.
TOLERANCE = 1e-9
ROUNDINGS = 64
# A growing pull is not to be strode over: steps take it half of the way, in logarithms,
# to this share of the force. A token gets half of the way to the top one in a step, or
# this far in its score: where it gets there, opposed forces may cancel.
SEEN, CLOSER = 1e-3, 0.5
# Single pulls over their sum: from the first on ties are looked for, beyond the second
# the sum has too few digits.
CANCELLING, LOST = 1e6, 1e12
STEPS = 6_000
# From this log-time on, at each multiple by its own, p is measured from its line.
STRAIGHT_FROM, AGAIN = 1e3, 10.0

Callback: TypeAlias = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]


def step(
    lanes: Lanes, y: np.ndarray, size: np.ndarray
) -> tuple[np.ndarray, np.ndarray, Scaled, np.ndarray]:
    """One step of Rodas4: the new y, its error, and what was found at the old y."""
    slope, jacobian, at = tangent_and_jacobian(lanes, y)
    matrix = np.eye(y.shape[1]) / (GAMMA * size[:, None, None]) - jacobian
    inverse = np.linalg.inv(matrix)
    stages: list[np.ndarray] = []
    moved = y
    for i in range(6):
        if i == 5:
            moved = moved + stages[4]
        elif i > 0:
            moved = y + sum(a * u for a, u in zip(A[i], stages, strict=True))
        right = slope if i == 0 else tangent(lanes, moved)
        carried = sum((c * u for c, u in zip(C[i], stages, strict=True)), 0.0 * y)
        right = right + carried / size[:, None]
        solved = np.einsum("bij,bj->bi", inverse, right)
        missing = right - np.einsum("bij,bj->bi", matrix, solved)
        stages.append(solved + np.einsum("bij,bj->bi", inverse, missing))
    return moved + stages[5], stages[5], at, slope


def _longest(at: Scaled, slope: np.ndarray) -> np.ndarray:
    """How far the curve may go.

    Until a pull that grows unseen is to be seen, or a token overtakes the top one of
    its bag.
    """
    unit, pace = at.force / at.length()[:, None], slope[:, -1, None, None]
    closing = np.einsum("bxwk,bk->bxw", at.pull.from_top, unit)
    growth = pace + closing
    with np.errstate(divide="ignore"):
        seen = np.log(SEEN) + at.scale + np.log(at.length())
    missing = seen[:, None, None] - at.pull.log_size
    grows = (growth > 0) & (missing > 0) & np.isfinite(missing)
    room = np.maximum(0.5 * missing, 1.0) / np.where(grows, growth, 1.0)
    room = np.where(grows, room, np.inf)
    behind = -at.pull.log_weight
    comes = (closing > 0) & np.isfinite(behind)
    near = np.maximum(0.5 * behind, CLOSER) / np.where(comes, closing, 1.0)
    return np.minimum(room, np.where(comes, near, np.inf)).min((1, 2))


def cancelling(at: Scaled) -> np.ndarray:
    """The largest single pull over their sum, or over 1 where the sum is less."""
    sizes = np.abs(at.terms) * np.sqrt((at.pull.from_top**2).sum(3))
    return sizes.max((1, 2)) / at.length()


@dataclass
class Course:
    """Lanes on their way."""

    lanes: Lanes
    y: np.ndarray
    outcome: np.ndarray
    size: np.ndarray
    steps: np.ndarray

    @property
    def moved(self) -> np.ndarray:
        """How far p is from p_0."""
        return self.y[:, :-1] + self.lanes.growth * self.y[:, -1:]

    def measure_from_line(self, index: np.ndarray, growth: np.ndarray) -> None:
        """Go on with g = growth, from where p is."""
        moved = self.moved[index]
        every = self.lanes.growth.copy()
        every[index] = growth
        self.lanes = self.lanes.growing(every)
        self.y[index, :-1] = moved - growth * self.y[index, -1:]


def begin(
    lanes: Lanes,
    log_time: np.ndarray | float = 0.0,
    moved: np.ndarray | None = None,
) -> Course:
    """The start of a course: p = p_0 + moved at log_time."""
    number, dim = len(lanes), lanes.apart.shape[-1]
    y = np.zeros((number, dim + 1))
    y[:, -1] = log_time
    if moved is not None:
        y[:, :-1] = moved
    return Course(
        lanes,
        y,
        outcome=np.full(number, Outcome.GOING),
        size=np.full(number, 1e-3),
        steps=np.zeros(number, int),
    )


def follow(
    course: Course,
    until: ArrayLike,
    *,
    callback: Callback | None = None,
    tolerance: float = TOLERANCE,
    rest: bool = True,
) -> Course:
    """The course at s = until, one number per lane, or where it rests or gets lost.

    `callback(index, y, g)` sees every step of the lanes `index` and returns True for
    those that are to stop. Without `rest` a course goes on along ties that rest.
    """
    until = np.broadcast_to(np.asarray(until, float), len(course.lanes))
    course.outcome[course.outcome == Outcome.REACHED] = Outcome.GOING
    tried = np.full(len(course.lanes), CANCELLING if rest else np.inf)
    straight = np.full(len(course.lanes), STRAIGHT_FROM)
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        while True:
            late = np.abs(course.y[:, -1] - until) <= 1e-12 * (1 + until)
            going = course.outcome == Outcome.GOING
            course.outcome[going & late] = Outcome.REACHED
            index = np.flatnonzero(going & ~late)
            if not len(index):
                return course
            _advance(course, index, until[index], tried, callback, tolerance)
            _straighten(course, index, straight)


def _advance(
    course: Course,
    index: np.ndarray,
    until: np.ndarray,
    tried: np.ndarray,
    callback: Callback | None,
    tolerance: float,
) -> None:
    """One step, accepted or not, of some lanes."""
    lanes, y = course.lanes.of(index), course.y[index]
    slope = tangent(lanes, y)
    left = until - y[:, -1]
    room = _longest(scaled(lanes, y), slope)
    size = np.minimum(course.size[index], room)
    # Onto s = until: exactly on a straight line, else in a few steps.
    last = slope[:, -1] * size >= left
    size = np.where(last, left / np.maximum(slope[:, -1], 1e-300), size)
    moved, off, at, _ = step(lanes, y, size)
    bound = tolerance + ROUNDINGS * np.finfo(float).eps * np.abs(y)
    error = np.abs(off / bound).max(1)
    # Beyond `until` there is nothing to go back on.
    over = moved[:, -1] - until
    error = np.where(over > 1e-12 * (1 + until), np.maximum(error, 10.0), error)
    error = np.where(np.isfinite(moved).all(1) & np.isfinite(error), error, 1e8)
    fine = error <= 1
    factor = np.clip(0.9 * np.maximum(error, 1e-10) ** -0.25, 0.1, 5.0)
    short = last & fine
    course.size[index] = np.where(short, np.maximum(course.size[index], size), size)
    course.size[index] *= np.where(short, 1.0, factor)
    course.steps[index] += 1
    done = index[fine]
    course.y[done] = moved[fine]
    course.outcome[index[course.steps[index] > STEPS]] = Outcome.UNKNOWN
    ratio = cancelling(at)
    course.outcome[index[ratio > LOST]] = Outcome.UNKNOWN
    for place in np.flatnonzero(ratio > tried[index]):
        lane = index[place]
        tried[lane] = 10 * ratio[place]
        if rests(lanes.of([place]), y[[place]]):
            course.outcome[lane] = Outcome.RESTS
    if callback is not None and len(done):
        stop = callback(done, course.y[done], lanes.growth[fine])
        course.outcome[done[stop]] = Outcome.STOPPED


def _straighten(course: Course, index: np.ndarray, straight: np.ndarray) -> None:
    """Measure late lanes of a moderate pace from the line along which they go."""
    index = index[course.y[index, -1] > straight[index]]
    if not len(index):
        return
    straight[index] = AGAIN * course.y[index, -1]
    at = scaled(course.lanes.of(index), course.y[index])
    force = np.exp(at.scale)[:, None] * at.force
    calm = np.isfinite(force).all(1) & (np.abs(force).max(1) < 1e3)
    course.measure_from_line(index[calm], force[calm])
