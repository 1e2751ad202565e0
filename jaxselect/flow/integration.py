"""The integration of a flow dy/ds = field(s, y) in log-time s, to its end.

A flow ends at a given s, or when the first of some events h(s, y) becomes positive. Its
end is differentiated without searching again: the flow is integrated to the known s,
and s is then moved by −h/h′, with h′ along the solution. This correction is zero up to
rounding, and its derivative is that of the event.

Steps do not move with the inputs, but a sudden change of y does: the derivative at a
step within it is as large as dy/ds, and its error stays behind. So the part of a
derivative along dy/ds is carried as that of a shift of s, which a flow passes on
unchanged (mathematics, section 3f).

`diffrax.SaveAt(ts=...)` checks its times inside the compiled program. Such a check
raises an error where a status is wanted, and JAX does not cache programs that can
raise. `Recorder` replaces it: times that are not in order, or outside the flow, get no
solution.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, TypeAlias

import diffrax as dfx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PyTree, Scalar

from ..data.corpus import Corpus
from ..model.attention import log_strongest_pull
from ..status import Reason
from .rodas import DenseOutput

# (s, y, problem) → h.
Event: TypeAlias = Callable[[PyTree, PyTree, PyTree], Float[Scalar, ""]]
# By name, in an order that JAX keeps, as it does not that of a `dict`.
Events: TypeAlias = OrderedDict[str, Event]

# Exponent: a term of the gradient above eps^(−this) leaves no digit of a sum that
# cancels. Tuned on the default sweep and in float32.
_CANCELLATION_POWER = 0.7
# Newton's method for the time of an event ends with a step of 1e-9, the last that it
# needs: the error left is of the order of its square.
_CLOSE, _NEWTON_STEPS = 1e-9, 32


class End(NamedTuple):
    """The end of an integration.

    Attributes:
        log_time: s.
        passed: whether it was ended by an event, for every one that was looked for.
    """

    log_time: Float[Scalar, ""]
    passed: OrderedDict[str, Bool[Scalar, ""]]

    @property
    def by_event(self) -> Bool[Scalar, ""]:
        """Whether one of them ended it."""
        return jnp.any(jnp.array(list(self.passed.values()), bool))

    def by(self, name: str) -> Bool[Scalar, ""]:
        """Whether that event ended it; no, if it was not looked for."""
        return self.passed.get(name, jnp.asarray(False))


class Integration(NamedTuple):
    """The result of an integration.

    Attributes:
        log_time: s at its end.
        state: y there.
        end: the same s without a derivative, and the event.
        path_log_times: times asked for; ∞ off the flow and where they go back.
        path: y at these times, likewise.
        solution: result of `diffrax.diffeqsolve`.
    """

    log_time: Float[Scalar, ""]
    state: Float[Array, " dim"]
    end: End
    path_log_times: Float[Array, " times"]
    path: Float[Array, "times dim"]
    solution: Any


def integrate(
    field: Callable[[PyTree, PyTree, PyTree], Array],
    solver: dfx.AbstractAdaptiveSolver,
    control: dfx.AbstractStepSizeController,
    problem: PyTree,
    start: Float[Array, " dim"],
    span: tuple[Float[Scalar, ""], Float[Scalar, ""]],
    events: Events,
    *,
    max_steps: int,
    path_log_times: Float[Array, " times"] | None = None,
    adjoint: dfx.AbstractAdjoint | None = None,
    known: End | None = None,
    pace: Float[Scalar, ""] | float = 1.0,
) -> Integration:
    """Integrate dy/ds = field(s, y, problem) from y_0 to the first of its ends.

    Args:
        field: field of the flow.
        solver: takes the steps; its interpolant is a `DenseOutput`.
        control: control of the step size.
        problem: what field, control and events depend on.
        start: y_0.
        span: s at the start, and the last one to go to.
        events: end the flow where they turn positive; of several within a step the
            first of them does. A known end has no others.
        max_steps: bound on the number of steps.
        path_log_times: increasing s at which y is wanted.
        adjoint: how the integration is differentiated.
        known: the end, found before; it moves with the inputs, and is not searched for.
        pace: ‖dy/ds‖ beyond which derivatives are carried as shifts of s. They do not
            depend on it, their errors do.

    Returns:
        The end and the path.
    """
    begin, until = span
    if known is not None:
        until = jnp.where(known.log_time < until, known.log_time, until)
        until = jnp.where(known.log_time > begin, until, begin)
    times = start[:0] if path_log_times is None else path_log_times
    solution: Any = dfx.diffeqsolve(
        dfx.ODETerm(field),
        Recorder(solver, times, None if adjoint is None else pace),
        t0=begin,
        t1=until,
        dt0=None,
        y0=start,
        args=problem,
        saveat=dfx.SaveAt(t1=True, solver_state=True, controller_state=True),
        stepsize_controller=control,
        event=_first_of(events) if known is None else None,
        max_steps=max_steps,
        adjoint=adjoint or dfx.ForwardMode(),
        throw=False,
    )
    log_time, state = solution.ts[0], solution.ys[0]
    _, _, last, shift = solution.solver_state
    if adjoint is not None:
        state = state - shift * _slope(last)
    if known is None:
        end = End(log_time, solution.event_mask)
        passage = time_of_event(problem, events, end, last)
        log_time = jnp.where(end.by_event, passage, log_time)
        state = jnp.where(end.by_event, last.evaluate(passage), state)
        end = end._replace(log_time=log_time)
    else:
        end = known
        log_time = until
        if end.passed:
            arrived = until, state, last.slope
            log_time, state = _at_event(problem, events, end, arrived)
    recorded = solution.solver_state[1]
    path_times, path = record(recorded, times, begin, log_time)
    return Integration(log_time, state, end, path_times, path, solution)


def _first_of(events: Events) -> dfx.Event:
    def condition(event: Event) -> Callable[..., Float[Scalar, ""]]:
        # Diffrax expects the value of an event in the default precision.
        return lambda t, y, args, **_: event(t, y, args).astype(float)

    upwards = jax.tree.map(lambda _: True, events)
    return dfx.Event(jax.tree.map(condition, events), direction=upwards)


def _excess(
    problem: PyTree, events: Events, end: End
) -> Callable[[PyTree, PyTree], Float[Scalar, ""]]:
    """h(s, y) of the event that ended a flow; one without an event."""

    def excess(log_time: PyTree, state: PyTree) -> Float[Scalar, ""]:
        found = jnp.ones_like(log_time)
        for name, passed in end.passed.items():
            found = jnp.where(passed, events[name](log_time, state, problem), found)
        return found

    return excess


def time_of_event(
    problem: PyTree,
    events: Events,
    end: End,
    step: dfx.AbstractLocalInterpolation,
) -> Float[Scalar, ""]:
    """Find where h = 0 within a step, by Newton's method, if an event ended it."""
    excess = _excess(problem, events, end)
    latest = jnp.asarray(step.t1)

    def unfinished(state: tuple[Array, Array, Array]) -> Array:
        log_time, moved, number = state
        far = moved > _CLOSE * jnp.maximum(jnp.abs(log_time), 1.0)
        return far & (number < _NEWTON_STEPS)

    def closer(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        log_time, _, number = state
        along = lambda s: excess(s, step.evaluate(s))  # noqa: E731
        value, rate = jax.jvp(along, (log_time,), (jnp.ones_like(log_time),))
        found = jnp.clip(log_time - value / rate, step.t0, latest)
        return found, jnp.abs(found - log_time), number + 1

    far = jnp.where(end.by_event, jnp.inf, 0.0).astype(latest.dtype)
    begun = latest, far, jnp.asarray(0)
    return lax.while_loop(unfinished, closer, begun)[0]


def _at_event(
    problem: PyTree,
    events: Events,
    end: End,
    arrived: tuple[Float[Scalar, ""], Float[Array, " dim"], Float[Array, " dim"]],
) -> tuple[Float[Scalar, ""], Float[Array, " dim"]]:
    """Move a known end to the event, by ds = −h/h′ and dy = y′ ds.

    The slope y′ is that of the interpolant; the field itself would multiply the error
    of y by e^s where gradients cancel.
    """
    log_time, state, slope = arrived
    excess, ended = _excess(problem, events, end), end.by_event
    # Without an event any point will do at which h has a derivative.
    there, slope = jnp.where(ended, state, 1.0), jnp.where(ended, slope, 0.0)
    step = _event_shift(excess, end.log_time, there, slope, ended)
    return log_time + step, state + step * slope


def _event_shift(
    excess: Callable[[PyTree, PyTree], Float[Scalar, ""]],
    log_time: Float[Scalar, ""],
    state: Array,
    slope: Array,
    ended: Bool[Scalar, ""],
) -> Float[Scalar, ""]:
    """Compute the change −h/h′ of the log-time at which h(s, y) = 0; NaN if h′ = 0.

    Zero where no event ended the flow. `state` is y as a function of the inputs,
    `slope` is dy/ds.

    Example:
        >>> def end(rate):  # e^{rate s} = 2 at s = log 2 / rate
        ...     s = lax.stop_gradient(jnp.log(2.0) / rate)
        ...     y = jnp.exp(rate * s)
        ...     return s + _event_shift(
        ...         lambda s, y: y - 2, s, y, rate * y, jnp.array(True)
        ...     )
        >>> round(jax.grad(end)(1.0).item(), 4)
        -0.6931
    """
    here, slope, log_time = lax.stop_gradient((state, slope, log_time))
    _, rate = jax.jvp(excess, (log_time, here), (jnp.ones_like(log_time), slope))
    rate = lax.stop_gradient(jnp.where(ended, rate, 1.0))
    step = -excess(log_time, state) / jnp.where(rate != 0, rate, jnp.nan)
    return jnp.where(ended, step, 0.0).astype(state.dtype)


def cancellation(
    log_time: PyTree,
    logits: Float[Array, "sequences width"],
    values: Float[Array, " sequences width *classes"],
    corpus: Corpus,
) -> Float[Scalar, ""]:
    """Event that forces cancel to below rounding (mathematics, section 3g)."""
    strongest = log_time + log_strongest_pull(logits, values, corpus)
    return strongest + _CANCELLATION_POWER * jnp.log(jnp.finfo(logits.dtype).eps)


def status_of(
    found: Integration,
    growth: Float[Scalar, ""],
    *,
    balanced: Bool[Scalar, ""] | bool = True,
) -> Int[Scalar, ""]:
    """Return the `Reason` that an integration ended for, at a time or by cancellation.

    At a tie forces are `balanced`, and the growth rate of a displacement of p along v
    is negative.
    """
    solution = found.solution
    slow = solution.result == dfx.RESULTS.max_steps_reached
    status = jnp.where(slow, Reason.OUT_OF_STEPS, Reason.FAILED)
    reached = solution.result == dfx.RESULTS.successful
    status = jnp.where(reached, Reason.NONE, status)
    spent = (solution.result == dfx.RESULTS.dt_min_reached) & jnp.isfinite(growth)
    status = jnp.where(spent, Reason.TIME_UNRESOLVED, status)
    tied = balanced & (growth < 0)
    tied = jnp.where(tied, Reason.FORCES_CANCEL, Reason.TIME_UNRESOLVED)
    status = jnp.where(found.end.by("cancellation"), tied, status)
    finite = jnp.isfinite(found.state).all()
    return jnp.where(finite, status, Reason.FAILED).astype(jnp.int32)


class Recorder(dfx.AbstractAdaptiveSolver):
    """A solver that also records the solution at given times.

    Its state holds that of the wrapped solver, the record, the interpolant of the last
    step, without derivatives, and a shift of time, zero but for its derivative: y is
    the solution at t plus the shift. Integrate with `SaveAt(solver_state=True)`;
    `record` drops what is outside the flow.

    Attributes:
        solver: takes the steps; its interpolant is a `DenseOutput`.
        times: at which to record.
        pace: of `integrate`; None for a shift without a derivative.
    """

    solver: dfx.AbstractAdaptiveSolver
    times: Float[Array, " times"]
    pace: Float[Scalar, ""] | float | None = None
    term_structure: ClassVar = dfx.ODETerm
    interpolation_cls: ClassVar = DenseOutput

    def order(self, terms: PyTree) -> int | None:
        """Order of the other solver."""
        return self.solver.order(terms)

    def init(
        self, terms: PyTree, t0: PyTree, t1: PyTree, y0: PyTree, args: PyTree
    ) -> "_Record":
        """Fill the record with the start."""
        path = jnp.broadcast_to(y0, (len(self.times), len(y0)))
        bend = jnp.zeros((3, len(y0)), y0.dtype)
        nothing = DenseOutput(t0=t0, t1=t0, y0=y0, y1=y0, bend=bend)
        state = self.solver.init(terms, t0, t1, y0, args)
        return state, path, lax.stop_gradient(nothing), jnp.zeros((), y0.dtype)

    def func(self, terms: PyTree, t0: PyTree, y0: PyTree, args: PyTree) -> PyTree:
        """The field at a point."""
        return self.solver.func(terms, t0, y0, args)

    def step(
        self,
        terms: PyTree,
        t0: PyTree,
        t1: PyTree,
        y0: PyTree,
        args: PyTree,
        solver_state: "_Record",
        made_jump: PyTree,
    ) -> tuple[PyTree, PyTree, dict[str, PyTree], PyTree, PyTree]:
        """Take one step from t0 to t1 and record the times within it."""
        state, path, _, shift = solver_state
        if self.pace is not None:
            t0, t1 = t0 + shift, t1 + shift
        y1, error, dense, state, result = self.solver.step(
            terms, t0, t1, y0, args, state, made_jump
        )
        here = (self.times > t0) & (self.times <= t1)
        # Elsewhere the interpolant would overflow, and its derivative be no number.
        times = jnp.where(here, self.times, t0)
        last = DenseOutput(t0=t0, t1=t1, **dense)
        path = jnp.where(here[:, None], jax.vmap(last.evaluate)(times), path)
        if self.pace is not None:
            slope = _slope(last)
            # Zero, with the derivative of a time.
            off = slope @ (y1 - lax.stop_gradient(y1))
            onward = -off / (self.pace**2 + slope @ slope)
            y1, shift = y1 + onward * slope, shift + onward
        return y1, error, dense, (state, path, lax.stop_gradient(last), shift), result


_Record: TypeAlias = tuple[
    PyTree, Float[Array, "times dim"], DenseOutput, Float[Scalar, ""]
]


def _slope(step: DenseOutput) -> Float[Array, " dim"]:
    """dy/ds at the end of a step; zero where a refused one went too far.

    It is that of the interpolant: the field itself would multiply the error of y by e^s
    where gradients cancel.
    """
    slope = lax.stop_gradient(step.slope)
    return jnp.where(jnp.isfinite(slope).all(), slope, 0.0)


def record(
    path: Float[Array, "times dim"],
    times: Float[Array, " times"],
    begin: Float[Scalar, ""] | float,
    end: Float[Scalar, ""],
) -> tuple[Float[Array, " times"], Float[Array, "times dim"]]:
    """Keep times and solutions between the ends of a flow; ∞ elsewhere."""
    known = (begin <= times) & (times <= end) & (times == lax.cummax(times))
    path = jnp.where(known[:, None], path, jnp.inf)
    return jnp.where(known, times, jnp.inf), path
