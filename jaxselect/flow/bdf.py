"""A variable-order BDF method that keeps its Jacobian over many steps.

A Rosenbrock method needs a Jacobian for each step. That of long or many bags costs as
much as ten to a hundred evaluations of the field, and BDF renews it only when Newton's
method stops converging, about once in twenty steps. It is kept by its eigenvectors,
since it is symmetric: a changed step size or order costs no factorisation, and
curvatures that grow, as those of ties do like e^τ, are foreseen.

Late in a flow the solution is linear in log-time. Every order follows a straight line
exactly, so steps grow without bound (mathematics, section 3a).
"""

from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PyTree, Scalar

from .control import Checkpoints, ScoreControl
from .integration import End, Events, Integration, record, time_of_event

# Numerical differentiation formulas up to this order, of L. F. Shampine and M. W.
# Reichelt, "The MATLAB ODE Suite", SIAM Journal on Scientific Computing 18 (1997).
ORDER = 5
_KAPPA = np.array([0.0, -0.1850, -1 / 9, -0.0823, -0.0415, 0.0])
_GAMMA = np.append(0.0, np.cumsum(1 / np.arange(1, ORDER + 1)))
_ALPHA = (1 - _KAPPA) * _GAMMA
# The error of order k is this times D_{k+1}.
_ERROR = np.append(_KAPPA * _GAMMA, 0.0) + 1 / np.arange(1, ORDER + 3)
# Corrections of Newton's method, and the part of a tolerance that may be left by them.
_CORRECTIONS, _CLOSE = 4, 0.03
# Bounds on the ratio of two steps, and the safety factor of its choice.
_LEAST, _MOST, _SAFETY = 0.2, 10.0, 0.9


class BdfOutput(dfx.AbstractLocalInterpolation):
    """The polynomial through the last points of a solution by BDF.

    Attributes:
        t0: where the last step began.
        t1: where it ended.
        step: spacing of the points, counted back from t1.
        differences: backward differences at t1; zero beyond the order.
    """

    t0: Float[Scalar, ""]  # type: ignore[misc]
    t1: Float[Scalar, ""]  # type: ignore[misc]
    step: Float[Scalar, ""]
    differences: Float[Array, "orders dim"]

    def evaluate(
        self, t0: PyTree, t1: PyTree | None = None, left: bool = True
    ) -> Float[Array, " dim"]:
        """Return the value at t0, or the change from t0 to t1."""
        del left
        if t1 is not None:
            return self.evaluate(t1) - self.evaluate(t0)
        number = jnp.arange(ORDER, dtype=self.t1.dtype)
        steps = ((t0 - self.t1) / self.step + number) / (1 + number)
        return self.differences[0] + jnp.cumprod(steps) @ self.differences[1:]


class Equation(NamedTuple):
    """What BDF is asked to solve, and how accurately.

    Attributes:
        image: y → A y, linear, by which alone the others know y.
        field: (t, A y) → dy/dt.
        jacobian: (t, A y) → its symmetric derivative in y.
        norm_at: A y → (A error → its size in tolerances).
        seen_at: A y → what shows whether a step from or to y misses a force.
        skips: (seen before, seen after) → whether a step misses a force.
    """

    image: Callable[[Array], Array]
    field: Callable[[Array, Array], Array]
    jacobian: Callable[[Array, Array], Array]
    norm_at: Callable[[Array], Callable[[Array], Float[Scalar, ""]]]
    seen_at: Callable[[Array], PyTree]
    skips: Callable[[PyTree, PyTree], Bool[Scalar, ""]]


class KeptJacobian(NamedTuple):
    """A symmetric Jacobian, and how its curvatures grow.

    That of tied tokens grows like e^τ, that along a late flow stays the same. What was
    seen for some time is taken to go on for as long.

    Attributes:
        eigenvalues: of the Jacobian.
        eigenvectors: of the Jacobian.
        growth: of the logarithms of its eigenvalues, per unit of time.
        since: when it was computed.
        trusted: until when this growth is taken to go on.
    """

    eigenvalues: Float[Array, " dim"]
    eigenvectors: Float[Array, "dim dim"]
    growth: Float[Array, " dim"]
    since: Float[Scalar, ""]
    trusted: Float[Scalar, ""]

    def values_at(self, time: Float[Scalar, ""]) -> Float[Array, " dim"]:
        """Eigenvalues at a later time."""
        elapsed = jnp.minimum(time, self.trusted) - self.since
        return self.eigenvalues * jnp.exp(self.growth * elapsed)

    def renewed(
        self, jacobian: Float[Array, "dim dim"], time: Float[Scalar, ""]
    ) -> "KeptJacobian":
        """Take a new Jacobian, and the growth of its curvatures since this one."""
        values, vectors = jnp.linalg.eigh(jacobian)
        before = self.eigenvalues @ (self.eigenvectors.T @ vectors) ** 2
        elapsed = time - self.since
        known = (before < 0) & (values < 0) & (elapsed > 0)
        ratio = jnp.where(known, values / jnp.where(known, before, 1.0), 1.0)
        rate = jnp.log(ratio) / jnp.where(elapsed > 0, elapsed, 1.0)
        growth = jnp.clip(rate, 0.0, 1.0)
        return KeptJacobian(values, vectors, growth, time, time + elapsed)


class BdfState(NamedTuple):
    """The state of a solution by BDF.

    Attributes:
        time: where the last accepted step ended.
        step: size of the next one.
        order: of the next one.
        equal: number of steps since its size or order changed.
        differences: D_0 … D_7 of the solution, D_0 the solution itself.
        kept: the last Jacobian.
        renew: whether the Jacobian is to be computed before the next step.
        jacobians: number of Jacobians.
        seen: `Equation.seen_at` where the last step ended.
    """

    time: Float[Scalar, ""]
    step: Float[Scalar, ""]
    order: Int[Scalar, ""]
    equal: Int[Scalar, ""]
    differences: Float[Array, "differences dim"]
    kept: KeptJacobian
    renew: Bool[Scalar, ""]
    jacobians: Int[Scalar, ""]
    seen: PyTree

    @property
    def solution(self) -> Float[Array, " dim"]:
        """The solution y where the last accepted step ended."""
        return self.differences[0]


def start_bdf(
    equation: Equation,
    start: Float[Array, " dim"],
    time: Float[Scalar, ""],
    until: Float[Scalar, ""],
) -> BdfState:
    """Start at order one, with a step whose error is about a tenth of the tolerance."""
    image = equation.image(start)
    slope = equation.field(time, image)
    # dp/dτ has a factor e^τ: until forces change it is its own derivative.
    size = equation.norm_at(image)(equation.image(slope))
    tiny = jnp.finfo(start.dtype).tiny
    step = jnp.minimum(0.1, jnp.sqrt(0.2 / jnp.maximum(size, tiny)))
    step = jnp.minimum(step, until - time)
    differences = jnp.zeros((ORDER + 3, len(start)), start.dtype)
    one, none = jnp.asarray(1, jnp.int32), jnp.asarray(0, jnp.int32)
    return BdfState(
        time=time,
        step=step,
        order=one,
        equal=none,
        differences=differences.at[0].set(start).at[1].set(step * slope),
        kept=KeptJacobian(
            eigenvalues=jnp.zeros_like(start),
            eigenvectors=jnp.eye(len(start), dtype=start.dtype),
            growth=jnp.zeros_like(start),
            since=time,
            trusted=time,
        ),
        renew=jnp.asarray(True),
        jacobians=none,
        seen=equation.seen_at(image),
    )


def try_step(
    equation: Equation, state: BdfState, until: Float[Scalar, ""]
) -> tuple[BdfState, Bool[Scalar, ""], BdfOutput, Float[Array, " dim"]]:
    """Try one step, not beyond `until`.

    Returns:
        The state after it, whether it was accepted, its interpolant, and where it led.
    """
    left = until - state.time
    last = state.step >= left
    state = _with_step(state, jnp.where(last, left / state.step, 1.0))
    time, order = jnp.where(last, until, state.time + state.step), state.order
    old, fresh = state.differences, state.renew
    used = (jnp.arange(ORDER + 3, dtype=order.dtype) <= order).astype(old.dtype)
    guess = used @ old
    image = equation.image(guess)
    scale = _entry(_ALPHA, order, old)
    gamma = jnp.asarray(np.append(_GAMMA, [0.0, 0.0]), old.dtype)
    history, reach = (used * gamma) @ old / scale, state.step / scale
    kept = lax.cond(
        fresh,
        lambda: state.kept.renewed(equation.jacobian(time, image), time),
        lambda: state.kept,
    )
    norm = equation.norm_at(image)
    change, moved, converged, number = _newton(
        lambda change, moved: (
            reach * equation.field(time, image + moved) - history - change
        ),
        (1 - reach * kept.values_at(time), kept.eigenvectors),
        equation.image,
        norm,
    )
    error = _entry(_ERROR, order, old) * norm(moved)
    reached = guess + change
    # Not by `moved`: events compute the same image of what is reached.
    seen = equation.seen_at(equation.image(reached))
    skips = equation.skips(state.seen, seen)
    fits = converged & (error <= 1)
    accepted = fits & ~skips
    tried = state._replace(
        kept=kept,
        renew=~converged,
        jacobians=state.jacobians + fresh.astype(jnp.int32),
    )
    taken = 2 * _CORRECTIONS + number.astype(old.dtype)
    safety = _SAFETY * (2 * _CORRECTIONS + 1) / taken
    # Newton's method with a new Jacobian that does not converge needs a shorter step.
    shorter = jnp.where(
        converged, safety * error ** (-1 / (order + 1).astype(old.dtype)), 0.5
    )
    shorter = jnp.where(skips, 0.5, jnp.clip(shorter, _LEAST, 1.0))
    shorter = jnp.where(~converged & ~fresh, 1.0, shorter)
    refused = _with_step(tried, shorter)
    stepped = _advanced(tried, change)._replace(time=time, seen=seen)
    output = BdfOutput(
        t0=state.time,
        t1=time,
        step=state.step,
        differences=(used[:, None] * stepped.differences)[: ORDER + 1],
    )
    following = _adapted(stepped, error, safety, lambda y: norm(equation.image(y)))
    after = jax.tree.map(partial(jnp.where, accepted), following, refused)
    return after, accepted, output, reached


def _newton(
    residual: Callable[[Array, Array], Array],
    matrix: tuple[Float[Array, " dim"], Float[Array, "dim dim"]],
    image: Callable[[Array], Array],
    norm: Callable[[Array], Float[Scalar, ""]],
) -> tuple[Float[Array, " dim"], Array, Bool[Scalar, ""], Int[Scalar, ""]]:
    """Solve for the correction of a step; say whether it converged, and how soon.

    The second result is the image of the correction.

    The matrix is given by its eigenvalues and eigenvectors. It is not positive if
    something grows faster than the step resolves: that counts as no convergence.
    """
    denominator, vectors = matrix

    def correct(now: tuple) -> tuple:
        change, moved, _, _, before, number = now
        step = vectors @ ((residual(change, moved) @ vectors) / denominator)
        further = image(step)
        size = norm(further)
        # What is left is at most as long as this one, until they are known to shrink,
        # and where rounding keeps them from it.
        rate = jnp.where(number > 0, size / before, 1.0)
        to_come = jnp.minimum(rate / jnp.maximum(1 - rate, 0.5), 1.0) * size
        left = (_CORRECTIONS - 1 - number).astype(rate.dtype)
        close = to_come < _CLOSE
        hopeless = (rate >= 1) | (rate**left * to_come > _CLOSE)
        fails = ~jnp.isfinite(size) | (hopeless & (number > 0) & ~close)
        change = jnp.where(fails, change, change + step)
        moved = jnp.where(fails, moved, moved + further)
        return change, moved, close & ~fails, ~close & ~fails, size, number + 1

    def unfinished(now: tuple) -> Array:
        return now[3] & (now[5] < _CORRECTIONS)

    change, positive = jnp.zeros_like(denominator), jnp.all(denominator > 0)
    size, none = jnp.ones((), denominator.dtype), jnp.asarray(0, jnp.int32)
    start = change, image(change), jnp.asarray(False), positive, size, none
    change, moved, converged, _, _, number = lax.while_loop(unfinished, correct, start)
    return change, moved, converged, number


def _entry(table: np.ndarray, number: Int[Scalar, ""], like: Array) -> Array:
    return jnp.asarray(table, like.dtype)[number]


def _with_step(state: BdfState, factor: Float[Scalar, ""]) -> BdfState:
    """Change the step size."""
    same = factor == 1
    changed = rescaled(state.differences, state.order, factor)
    return state._replace(
        step=jnp.where(same, state.step, state.step * factor),
        differences=jnp.where(same, state.differences, changed),
        equal=jnp.where(same, state.equal, 0),
    )


def rescaled(
    differences: Float[Array, "differences dim"],
    order: Int[Scalar, ""],
    factor: Float[Scalar, ""],
) -> Float[Array, "differences dim"]:
    """Change the spacing of backward differences up to an order by a factor.

    Example:
        >>> squares = jnp.array([9.0, 5.0, 2.0, *[0.0] * 5])[:, None]  # of 1, 4, 9
        >>> rescaled(squares, jnp.array(2), jnp.array(0.5))[:3, 0].tolist()
        [9.0, 2.75, 0.5]
    """
    number = jnp.arange(ORDER + 1, dtype=differences.dtype)
    inside = jnp.arange(ORDER + 1, dtype=order.dtype) <= order
    beyond = ~(inside[:, None] & inside[None])

    def points(factor: Array) -> Array:
        """Binomials that lead from differences to points with a spacing, or back."""
        row, column = number[1:, None], number[None]
        ratios = jnp.where(column > 0, (row - 1 - factor * column) / row, 0.0)
        ratios = jnp.concatenate([jnp.ones((1, ORDER + 1), ratios.dtype), ratios])
        products = jnp.cumprod(ratios, axis=0)
        return jnp.where(beyond, jnp.eye(ORDER + 1, dtype=products.dtype), products)

    matrix = points(factor) @ points(jnp.ones_like(factor))
    return differences.at[: ORDER + 1].set(matrix.T @ differences[: ORDER + 1])


def _advanced(state: BdfState, change: Float[Array, " dim"]) -> BdfState:
    """Take the step: D_{k+1} is the correction, and lower differences add up."""
    order, old = state.order, state.differences
    number = jnp.arange(ORDER + 3, dtype=order.dtype)[:, None]
    new = jnp.where(number == order + 2, change - jnp.take(old, order + 1, axis=0), old)
    new = jnp.where(number == order + 1, change, new)
    below = jnp.where(number <= order + 1, new, 0.0)
    sums = jnp.cumsum(below[::-1], axis=0)[::-1]
    new = jnp.where(number <= order, sums, new)
    return state._replace(differences=new, equal=state.equal + 1)


def _adapted(
    state: BdfState,
    error: Float[Scalar, ""],
    safety: Float[Scalar, ""],
    norm: Callable[[Array], Float[Scalar, ""]],
) -> BdfState:
    """Choose order and size of the next step, after k + 1 equal ones."""
    enough = state.equal >= state.order + 1
    return lax.cond(enough, lambda: _chosen(state, error, safety, norm), lambda: state)


def _chosen(
    state: BdfState,
    error: Float[Scalar, ""],
    safety: Float[Scalar, ""],
    norm: Callable[[Array], Float[Scalar, ""]],
) -> BdfState:
    """Choose the order, one up or down at most, that allows the longest step."""
    order, differences = state.order, state.differences

    def error_of(there: Int[Scalar, ""]) -> Float[Scalar, ""]:
        size = norm(jnp.take(differences, there + 1, axis=0))
        possible = (there >= 1) & (there <= ORDER)
        size = size * _entry(_ERROR, there, differences)
        return jnp.where(possible, size, jnp.inf)

    errors = jnp.stack([error_of(order - 1), error, error_of(order + 1)])
    powers = -1 / (order + jnp.arange(3, dtype=order.dtype)).astype(errors.dtype)
    factors = jnp.maximum(errors, jnp.finfo(errors.dtype).tiny) ** powers
    best = jnp.argmax(factors)
    factor = jnp.clip(safety * factors[best], _LEAST, _MOST)
    changed = state._replace(order=order + best.astype(order.dtype) - 1)
    return _with_step(changed, factor)._replace(equal=jnp.zeros_like(state.equal))


class _Outcome(NamedTuple):
    """How an integration went, in the words of `diffrax.Solution`.

    Attributes:
        result: a member of `diffrax.RESULTS`.
        stats: numbers of steps and of Jacobians.
        controller_state: checkpoints of the solution.
    """

    result: PyTree
    stats: dict[str, Int[Scalar, ""]]
    controller_state: ScoreControl


class _Loop(NamedTuple):
    """The state of an integration.

    Attributes:
        state: that of BDF.
        checkpoints: some earlier points.
        path: y at the times asked for.
        excess: h of every event where the last step ended.
        passed: whether it passed zero in that step.
        output: the interpolant of the last accepted step.
        tried: number of steps, refused ones included.
    """

    state: BdfState
    checkpoints: Checkpoints
    path: Float[Array, "times dim"]
    excess: Float[Array, " events"]
    passed: Bool[Array, " events"]
    output: BdfOutput
    tried: Int[Scalar, ""]


def integrate_bdf(
    equation: Equation,
    problem: PyTree,
    start: Float[Array, " dim"],
    span: tuple[Float[Scalar, ""], Float[Scalar, ""]],
    events: Events,
    *,
    max_steps: int,
    path_log_times: Float[Array, " times"] | None = None,
) -> Integration:
    """Integrate dy/ds = field(s, y) by BDF to the first of its ends.

    Arguments and result are those of `integration.integrate`; it has no derivatives.
    """
    begin, until = span
    times = start[:0] if path_log_times is None else path_log_times

    def excess_at(time: Array, state: Array) -> Float[Array, " events"]:
        found = [event(time, state, problem) for event in events.values()]
        return jnp.array(found, start.dtype)

    def going(loop: _Loop) -> Bool[Scalar, ""]:
        state = loop.state
        moves = state.time + state.step > state.time
        ended = (state.time >= until) | jnp.any(loop.passed)
        return ~ended & moves & (loop.tried < max_steps)

    def step(loop: _Loop) -> _Loop:
        state, accepted, output, reached = try_step(equation, loop.state, until)
        here = accepted & (times > output.t0) & (times <= output.t1)
        there = jax.vmap(output.evaluate)(jnp.where(here, times, output.t1))
        # Of one and the same array attention is computed once.
        excess = excess_at(output.t1, reached)
        excess = jnp.where(accepted, excess, loop.excess)
        passed = accepted & (excess > 0) & ~(loop.excess > 0)
        return _Loop(
            state=state,
            checkpoints=loop.checkpoints.after(accepted, state.time, state.solution),
            path=jnp.where(here[:, None], there, loop.path),
            excess=excess,
            passed=passed & (jnp.cumsum(passed) == 1),
            output=jax.tree.map(partial(jnp.where, accepted), output, loop.output),
            tried=loop.tried + 1,
        )

    state = start_bdf(equation, start, begin, until)
    none = jnp.asarray(0, jnp.int32)
    nothing = BdfOutput(
        begin, begin, jnp.ones_like(begin), jnp.zeros_like(state.differences[:-2])
    )
    loop = _Loop(
        state=state,
        checkpoints=Checkpoints(jnp.stack([begin] * 3), jnp.stack([start] * 3)),
        path=jnp.broadcast_to(start, (len(times), len(start))),
        excess=excess_at(begin, start),
        passed=jnp.zeros(len(events), bool),
        output=nothing,
        tried=none,
    )
    loop = lax.while_loop(going, step, loop)
    state, output = loop.state, loop.output
    end = End(state.time, OrderedDict(zip(events, loop.passed, strict=True)))
    passage = time_of_event(problem, events, end, output)
    by_event = end.by_event
    log_time = jnp.where(by_event, passage, state.time)
    solution = jnp.where(by_event, output.evaluate(passage), state.solution)
    results = dfx.RESULTS
    unfinished = ~by_event & (state.time < until)
    spent = results.where(
        loop.tried < max_steps, results.dt_min_reached, results.max_steps_reached
    )
    outcome = _Outcome(
        result=results.where(unfinished, spent, results.successful),
        stats={"num_steps": loop.tried, "num_jacobians": state.jacobians},
        controller_state=ScoreControl(None, loop.checkpoints, state.seen),
    )
    reached, path = record(loop.path, times, begin, log_time)
    end = end._replace(log_time=log_time)
    return Integration(log_time, solution, end, reached, path, outcome)
