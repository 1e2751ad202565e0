"""Last times at which a flow of p passes events, as differentiable numbers.

A crossing is first located on a path that is computed without derivatives. One last
step of Newton's method, on a flow that is integrated to it, carries the derivative by
the implicit function theorem: ds = −dh/h′ for an event at h = 0.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Scalar

from ..checks import whole
from ..compilation import full_precision
from ..problem import Problem, check
from ..status import Reason
from .adjoint import Doubt
from .cls import Flow, cls_flow, flow_up_to, velocity
from .control import FlowSettings

# Parts of an interval, each a thousandth of the time in which tokens change places.
_PARTS = 32
# The classical Runge-Kutta method: node and weight of each stage.
_STAGES = ((0.0, 1 / 6), (0.5, 1 / 3), (0.5, 1 / 3), (1.0, 1 / 6))
# Halvings that leave of a bracket less than the rounding of its ends.
_HALVINGS = 50


def _carried(
    pace: Callable[[Array, Array], Array],
    time: Float[Scalar, ""],
    change: Float[Scalar, ""],
    query: Float[Array, " dim"],
) -> Float[Array, " dim"]:
    """Carry p over a short change of log-time with the classical Runge–Kutta method."""
    part = change / _PARTS

    def onward(number: Array, query: Array) -> Array:
        begun = time + number * part

        def stage(state: tuple, at: Array) -> tuple[tuple, None]:
            (moved, slope), (reach, weight) = state, at
            slope = pace(begun + reach * part, query + reach * part * slope)
            return (moved + weight * part * slope, slope), None

        stages = jnp.asarray(_STAGES, query.dtype)
        (query, _), _ = jax.lax.scan(stage, (query, jnp.zeros_like(query)), stages)
        return query

    return jax.lax.fori_loop(0, _PARTS, onward, query)


def _crossing_between(
    problem: Problem,
    event: Callable[[Array], Array],
    times: Float[Array, " points"],
    path: Float[Array, "points dim"],
    left: Int[Scalar, ""],
) -> Float[Scalar, ""]:
    """Root of h between two points of a path, on its cubic Hermite interpolant."""
    start, stop = times[left], times[left + 1]
    first, last = path[left], path[left + 1]
    width = stop - start
    leave, arrive = (
        width * velocity(problem, *end) for end in ((start, first), (stop, last))
    )

    def at(x: Float[Scalar, ""]) -> Float[Array, " dim"]:
        chord = last - first
        bend = (1 - x) * (leave - chord) + x * (chord - arrive)
        return first + x * chord + x * (1 - x) * bend

    def halve(_: Int[Scalar, ""], bracket: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bracket
        middle = (low + high) / 2
        after = jax.lax.stop_gradient(event(at(middle))) > 0
        return jnp.where(after, low, middle), jnp.where(after, middle, high)

    bracket = (jnp.zeros_like(width), jnp.ones_like(width))
    _, high = jax.lax.fori_loop(0, _HALVINGS, halve, bracket)
    return jax.lax.stop_gradient(start + high * width)


# The first point of a path, as a share of its end: 1e-2 in log(1+t) by default, where p
# has moved by a hundredth of the first force.
_FIRST_POINT = 1e-8
# Steps of Newton's method from the guess to the root.
_NEWTON_STEPS = 4

# Largest tolerance of a flow that carries derivatives. Steps are chosen by the error of
# p, and that of its derivative is a hundred times as large.
_SLOPE_TOLERANCE = 5e-7

# h(p) of an event: positive after it, piecewise smooth.
EventFunction = Callable[[Float[Array, " dim"]], Float[Scalar, ""]]


def slope_settings(settings: FlowSettings) -> FlowSettings:
    """Settings of a flow that carries derivatives."""
    return replace(settings, atol=min(settings.atol, _SLOPE_TOLERANCE))


class Crossing(eqx.Module):
    """Where a flow passes an event for the last time.

    Attributes:
        query: p there; p_0 if there is none.
        log_time: τ = log(1+t) of the passage: 0 where the function is positive from the
            start, ∞ where it is not at the end of the search, NaN where the flow did
            not get there.
        sudden: whether it is too sudden between two points of the path: the log-time is
            near, its derivative unknown.
    """

    query: Float[Array, " dim"]
    log_time: Float[Scalar, ""]
    sudden: Bool[Scalar, ""]

    @property
    def resolved(self) -> Bool[Scalar, ""]:
        """Whether it happened in between, at a log-time with a derivative."""
        return (self.log_time > 0) & jnp.isfinite(self.log_time) & ~self.sudden


@full_precision
def search_path(
    problem: Problem,
    *,
    until_log_time: Float[Scalar, ""] | float = 1e6,
    points: int = 1024,
    settings: FlowSettings = FlowSettings(),
) -> Flow:
    """Follow a flow to search it for crossings, at geometric log-times and its start.

    It has no derivatives.

    Raises:
        BadInput: fewer than two points.
    """
    check(problem)
    whole("points", points, least=2)
    fixed = jax.lax.stop_gradient(problem)
    end = jax.lax.stop_gradient(jnp.asarray(until_log_time, problem.start.dtype))
    times = end * jnp.geomspace(_FIRST_POINT, 1.0, points, dtype=end.dtype)
    times = jnp.concatenate([jnp.zeros_like(times[:1]), times])
    return cls_flow(fixed, until_log_time=end, path_log_times=times, settings=settings)


@full_precision
def crossings_and_query(
    problem: Problem,
    path: Flow,
    events: Sequence[EventFunction],
    *,
    point: Int[Scalar, ""] | int = 0,
    doubt: Doubt | None = None,
    settings: FlowSettings = FlowSettings(),
) -> tuple[tuple[Crossing, ...], Float[Array, " dim"]]:
    """Find the last log-times at which functions of p turn positive, and p at a point.

    Each crossing is bracketed on the path and found on its cubic interpolant, with an
    error of order `points`⁻⁴. Steps of Newton's method on one flow through all
    crossings then correct p and s, and the last step carries the derivative. If h
    changes sign twice between neighbouring points of the path, both crossings are
    missed.

    Source: mathematics, section 3f.

    Args:
        problem: with its start.
        path: result of `search_path`, for this problem.
        events: h(p), positive after the event, piecewise smooth; at least one. It may
            depend on other traced values: their derivatives count.
        point: index of a point of the path.
        doubt: how the derivatives of that flow are judged.
        settings: tolerances.

    Returns:
        A crossing per event, and p at the point, with derivatives in both modes in E,
        p_0, v, the counts and what h depends on; ∞ where the flow does not get there.

    Example:
        >>> from jaxselect import Parameters, attention, from_sequences
        >>> bags = from_sequences([[0, 1]], [1], vocabulary=2)
        >>> start = Parameters(jnp.eye(2), jnp.zeros(2), jnp.array([1.0, 0.0]))
        >>> problem = attention(start, bags)
        >>> path = jax.jit(partial(search_path, points=8))(problem)
        >>> events = [lambda p: p[0] - p[1] - 5.0]
        >>> find = jax.jit(lambda path: crossings_and_query(problem, path, events))
        >>> (crossing,), _ = find(path)
        >>> round((crossing.query[0] - crossing.query[1]).item(), 6)
        5.0
    """
    fixed, path = jax.lax.stop_gradient((problem, path))
    # In a loop all events are searched for and corrected by the same program.
    numbered = lambda number: partial(jax.lax.switch, number, events)  # noqa: E731
    numbers = jnp.arange(len(events))
    found = jax.lax.map(lambda each: _on_path(fixed, path, numbered(each)), numbers)
    guesses, _, crossed, without = found
    times = jnp.append(guesses, path.path_log_times[point])
    until = jnp.minimum(times.max(), path.log_time)
    settings = slope_settings(settings)
    flow, there = _passing(fixed, times, until, settings)

    def towards(lane: tuple[Array, ...]) -> _Root:
        number, *guess = lane
        return _towards_root(fixed, numbered(number), *guess)

    # The derivative is that at the point where it is taken: go to the roots first.
    roots = jax.lax.map(towards, (numbers, *found[:3], there[:-1]))
    times = times.at[:-1].set(roots.log_time)
    there = there.at[:-1].set(roots.query)
    until = jnp.maximum(until, roots.log_time.max())
    _, there = _passing(problem, times, until, settings, (flow, there), doubt)

    def crossing(lane: tuple) -> Crossing:
        number, *root = lane
        return _crossing(problem, numbered(number), *root)

    lanes = numbers, roots, crossed, without, there[:-1]
    crossings = jax.lax.map(crossing, lanes)
    each = (
        jax.tree.map(lambda leaf, i=i: leaf[i], crossings) for i in range(len(events))
    )
    return tuple(each), there[-1]


def _passing(
    problem: Problem,
    times: Float[Array, " times"],
    until: Float[Scalar, ""],
    settings: FlowSettings,
    known: tuple[Flow, Float[Array, "times dim"]] | None = None,
    doubt: Doubt | None = None,
) -> tuple[Flow, Float[Array, "times dim"]]:
    """A flow, and p at log-times in any order; or derivatives of known ones."""
    order = jnp.argsort(times)
    before = None
    if known is not None:
        flow, there = known
        before = replace(
            flow, log_time=until, path_log_times=times[order], path_query=there[order]
        )
    flow = flow_up_to(
        problem,
        until,
        path_log_times=times[order],
        known=before,
        doubt=doubt,
        settings=settings,
    )
    return flow, flow.path_query[jnp.argsort(order)]


class _Root(NamedTuple):
    """A point at or next to a root: p, its log-time, and dp/dτ and dh/dτ there."""

    query: Float[Array, " dim"]
    log_time: Float[Scalar, ""]
    velocity: Float[Array, " dim"]
    rate: Float[Scalar, ""]


def _towards_root(
    problem: Problem,
    event: EventFunction,
    guess: Float[Scalar, ""],
    reach: Float[Scalar, ""],
    crossed: Bool[Scalar, ""],
    query: Float[Array, " dim"],
) -> _Root:
    """Approach a root by Newton's method, from a guess at most `reach` off."""
    pace, eps = partial(velocity, problem), jnp.finfo(query.dtype).eps

    def unfinished(state: tuple[_Root, Array, Array, Array]) -> Array:
        root, _, step, number = state
        return (jnp.abs(step) > eps * root.log_time) & (number <= _NEWTON_STEPS)

    def closer(
        state: tuple[_Root, Array, Array, Array],
    ) -> tuple[_Root, Array, Array, Array]:
        _, off, _, number = state
        time, there = guess + off, _carried(pace, guess, off, query)
        slope = pace(time, there)
        found = jax.jvp(event, (there,), (slope,))
        value, rate = jax.lax.stop_gradient(found)
        step = -value / rate
        # Where the flow only grazes the event, Newton's method would leave the bracket.
        onward = jnp.where(jnp.abs(off + step) <= reach, off + step, off)
        return _Root(there, time, slope, rate), onward, step, number + 1

    begun = _Root(query, guess, jnp.zeros_like(query), jnp.ones_like(guess))
    first = jnp.where(crossed, jnp.inf, 0.0).astype(guess.dtype)
    state = begun, jnp.zeros_like(guess), first, jnp.asarray(0)
    return jax.lax.while_loop(unfinished, closer, state)[0]


def _crossing(
    problem: Problem,
    event: EventFunction,
    root: _Root,
    crossed: Bool[Scalar, ""],
    without: Float[Scalar, ""],
    query: Float[Array, " dim"],
) -> Crossing:
    """Take the last step to a root, which carries the derivative."""
    # Any point will do where there is no crossing, as long as h has a derivative.
    value = event(jnp.where(crossed, query, 1.0))
    step = jnp.where(crossed, -value / root.rate, 0.0)
    # Half of the digits: the derivative, taken there, has as many.
    close = jnp.abs(step) <= jnp.sqrt(jnp.finfo(query.dtype).eps) * root.log_time
    return Crossing(
        query=jnp.where(crossed, query + step * root.velocity, problem.start),
        log_time=jnp.where(crossed, root.log_time + step, without),
        sudden=crossed & ~close,
    )


def _on_path(
    problem: Problem, path: Flow, event: EventFunction
) -> tuple[Float[Scalar, ""], Float[Scalar, ""], Bool[Scalar, ""], Float[Scalar, ""]]:
    """Find a crossing on the path: its log-time, the width of its bracket, if there is.

    The last result is the log-time that stands for one where there is none.
    """
    ahead = jax.vmap(lambda query: jax.lax.stop_gradient(event(query)))(path.path_query)
    after, times = ahead > 0, path.path_log_times
    reached = path.status == Reason.NONE
    crossed = reached & after[-1] & ~after.all()
    without = jnp.where(after[-1], 0.0, jnp.inf).astype(times.dtype)
    without = jnp.where(reached, without, jnp.nan)
    index = len(after) - 1 - jnp.argmax(~after[::-1])
    index = jnp.where(crossed, index, 0)
    guess = _crossing_between(problem, event, times, path.path_query, index)
    reach = times[index + 1] - times[index]
    return jnp.where(crossed, guess, 0.0), reach, crossed, without
