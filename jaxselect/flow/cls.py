"""Gradient flow dp/dt = −∇_p L of the CLS embedding, to any norm or time.

In plain time the flow dies in floating point: its gradient shrinks like 1/t while ‖p‖
grows like log t. In τ = log(1+t) the field is e^τ Eᵀ(−∂L/∂a), whose exponents are exact
(`objective.negative_gradient`), and late the solution is the straight line p_mm τ + ρ,
on which the solver's step grows without bound: ‖p‖ = 10⁶ costs a few steps more than
the last change of attention.

How an event that ends a flow moves with the inputs, without a search for it.

The field dp/dτ of the flow of p in τ = log(1+t), and its linearisation.

A solver that records its solution at given times.

`diffrax.SaveAt(ts=...)` checks its times inside the compiled program. Such a check
raises where a status is wanted, and a program that can raise is not kept by JAX's
compilation cache. Times that are not in order, or off the flow, have no solution here.

A solver for large flows, which are not stiff until weights differ much.

Where nothing decays within a step, an explicit method needs seven fields for it, an
implicit one a Jacobian, which in a large problem costs ten to thirty more (mathematics,
section 3a).

Where a flow of p ended, by any integrator.

How far a flow of p has come: its pace, its errors and its loss.
"""

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import optimistix as optx
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PyTree, Scalar

from ..checks import as_annotated, at_least, increasing
from ..compilation import full_precision, one_program
from ..data.corpus import Corpus, for_corpus
from ..data.synthetic import centred_in_components
from ..model.attention import (
    attend_corpus,
    functional_margin,
    log_strongest_pull,
    negative_gradient,
)
from ..model.curvature import score_curvature
from ..model.parameters import Parameters, frame
from ..status import Status
from .adjoint import in_both_modes
from .control import FlowSettings
from .rodas import DenseOutput, Rodas5P


def event_shift(
    excess: Callable[[PyTree, PyTree], Float[Scalar, ""]],
    log_time: Float[Scalar, ""],
    state: Array,
    slope: Array,
    ended: Bool[Scalar, ""],
) -> Float[Scalar, ""]:
    """Change of the log-time at which h(s, y) = 0: −h/h′, h′ along the solution.

    At the event it is zero to rounding, and its derivative is that of the event.

    Args:
        excess: h; differentiable at the state, also where no event ended the flow.
        log_time: s of the event.
        state: y there, as a function of the inputs.
        slope: dy/ds there.
        ended: whether the event ended the flow; else the change is zero.

    Returns:
        The change; NaN where h′ = 0.

    Example:
        >>> def end(rate):  # e^{rate s} = 2 at s = log 2 / rate
        ...     s = lax.stop_gradient(jnp.log(2.0) / rate)
        ...     y = jnp.exp(rate * s)
        ...     return s + event_shift(
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


# Tuned on the default sweep and on float32 grids: an axis of the span is empty below
# this many roundings of the longest.
EMPTY_AXIS = 100

# From this many axes on a Jacobian costs many fields: it is turned in so many blocks,
# and explicit steps are taken where they are stable.
MANY_AXES, BLOCKS = 128, 4


class Problem(NamedTuple):
    """The flow of x = p − p_0 in rotated axes.

    Attributes:
        rows: E, less the mean of each component of tokens that share sequences.
        scores: `rows` times p_0: differences within a sequence are those of E p_0.
        values: b = E v.
        corpus: n labelled bags.
        start: p_0 in the rotated axes.
        until_norm: ‖p‖ to stop at.
        held: sequences whose selection the flow must not change; None for none.
    """

    rows: Float[Array, "vocabulary dim"]
    scores: Float[Array, " vocabulary"]
    values: Float[Array, " vocabulary *classes"]
    corpus: Corpus
    start: Float[Array, " dim"]
    until_norm: Float[Scalar, ""]
    held: Bool[Array, " sequences"] | None = None


def aligned(
    parameters: Parameters,
    corpus: Corpus,
    until_norm: Float[Scalar, ""],
    held: Bool[Array, " sequences"] | None = None,
) -> tuple[Float[Array, "dim dim"], Problem]:
    """A rotation, and the flow of p − p_0 in its axes.

    p − p_0 stays in the span of the differences E_s − E_r within sequences. The rows
    are exactly zero on axes orthogonal to that span, so x is zero there at any time.
    """
    centred = centred_in_components(parameters.embeddings, corpus)
    # Any rotation will do, so its derivative is zero.
    rotation = jnp.linalg.qr(jax.lax.stop_gradient(centred).T, mode="complete")[0]
    rows = centred @ rotation
    size = jnp.linalg.norm(jax.lax.stop_gradient(rows), axis=0, keepdims=True)
    empty = size <= EMPTY_AXIS * jnp.finfo(rows.dtype).eps * size.max()
    return rotation, Problem(
        rows=jnp.where(empty, rows - jax.lax.stop_gradient(rows), rows),
        scores=centred @ parameters.query,
        values=parameters.embeddings @ parameters.head,
        corpus=corpus,
        start=parameters.query @ rotation,
        until_norm=until_norm,
        held=held,
    )


@full_precision
def field(log_time: PyTree, moved: PyTree, problem: PyTree) -> Float[Array, " dim"]:
    """`velocity` at p_0 + x, in the axes of the rows."""
    scores = problem.scores + problem.rows @ moved
    gradient = negative_gradient(scores, problem.values, problem.corpus, log_time)
    return gradient.scores @ problem.rows


@full_precision
def linearise(
    log_time: PyTree, moved: PyTree, problem: PyTree
) -> tuple[PyTree, PyTree, PyTree]:
    """The field, its derivative in τ and its Jacobian."""
    rows, scores = problem.rows, problem.scores + problem.rows @ moved
    gradient, jacobian = score_curvature(
        scores, problem.values, problem.corpus, log_time
    )
    velocity = gradient @ rows
    # The field depends on s through the factor e^τ alone: it is its own derivative.
    turn = _turned if min(rows.shape) < MANY_AXES else _turned_in_blocks
    return velocity, velocity, turn(jacobian, rows)


def _turned(
    jacobian: Float[Array, "vocabulary vocabulary"],
    rows: Float[Array, "vocabulary dim"],
) -> Float[Array, "dim dim"]:
    return rows.T @ (jacobian @ rows)


@jax.custom_jvp
def _turned_in_blocks(
    jacobian: Float[Array, "vocabulary vocabulary"],
    rows: Float[Array, "vocabulary dim"],
) -> Float[Array, "dim dim"]:
    """`_turned` at half the work: `aligned` rows are triangular, the result symmetric.

    A block of columns of the result needs the rows from its first axis on.
    """
    # Laid out beforehand: a product that transposes a factor takes half as long again.
    columns = jax.lax.optimization_barrier(rows.T)
    dim = rows.shape[1]
    edges = [dim * block // BLOCKS for block in range(BLOCKS + 1)]
    below = []
    for begin, end in pairwise(edges):
        moved = jacobian[begin:, begin:] @ rows[begin:, begin:end]
        block = columns[begin:, begin:] @ moved
        below.append(jnp.pad(block, ((begin, 0), (0, 0))))
    lower = jnp.concatenate(below, axis=1)
    return jnp.tril(lower) + jnp.tril(lower, -1).T


@_turned_in_blocks.defjvp
@full_precision
def _turned_in_blocks_jvp(
    primals: tuple[Array, Array], tangents: tuple[Array, Array]
) -> tuple[Array, Array]:
    """Derivative of the whole product: changes of rows need not be triangular."""
    return _turned_in_blocks(*primals), jax.jvp(_turned, primals, tangents)[1]


class Recorder(dfx.AbstractAdaptiveSolver):
    """The steps of another solver, and the solution at given times.

    The solution is part of the solver's state, which is that of the other solver, the
    record and the slope of the interpolant at the end of the last step: integrate with
    `SaveAt(solver_state=True)`, then read it with `record`.

    Attributes:
        solver: takes the steps; its interpolant is a `DenseOutput`.
        times: at which to record.

    Example:
        >>> from jaxselect.flow.rodas import Rodas5P, from_autodiff
        >>> implicit = Rodas5P(from_autodiff(lambda t, y, args: -y))
        >>> solver = Recorder(implicit, jnp.array([0.5, 1.0, 3.0]))
        >>> solver.order(None) == implicit.order(None)
        True
    """

    solver: dfx.AbstractAdaptiveSolver
    times: Float[Array, " times"]
    term_structure: ClassVar = dfx.ODETerm
    interpolation_cls: ClassVar = DenseOutput

    def order(self, terms: PyTree) -> int | None:
        """That of the solver."""
        return self.solver.order(terms)

    def init(
        self, terms: PyTree, t0: PyTree, t1: PyTree, y0: PyTree, args: PyTree
    ) -> tuple[PyTree, Float[Array, "times dim"], Float[Array, " dim"]]:
        """Until a time is passed its record is the start."""
        path = jnp.broadcast_to(y0, (len(self.times), len(y0)))
        return self.solver.init(terms, t0, t1, y0, args), path, jnp.zeros_like(y0)

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
        solver_state: tuple[PyTree, Float[Array, "times dim"], Float[Array, " dim"]],
        made_jump: PyTree,
    ) -> tuple[PyTree, PyTree, dict[str, PyTree], PyTree, PyTree]:
        """One step from t0 to t1, and the times on its way."""
        state, path, _ = solver_state
        y1, error, dense, state, result = self.solver.step(
            terms, t0, t1, y0, args, state, made_jump
        )
        here = (self.times > t0) & (self.times <= t1)
        # Elsewhere the interpolant would overflow, and its derivative be no number.
        times = jnp.where(here, self.times, t0)
        passed = jax.vmap(DenseOutput(t0=t0, t1=t1, **dense).evaluate)(times)
        path = jnp.where(here[:, None], passed, path)
        slope = (dense["y1"] - dense["y0"] - dense["bend"].sum(axis=0)) / (
            jnp.where(t1 > t0, t1 - t0, 1.0)
        )
        return y1, error, dense, (state, path, slope), result


def record(
    solver_state: tuple[PyTree, Float[Array, "times dim"], Float[Array, " dim"]],
    times: Float[Array, " times"],
    begin: Float[Scalar, ""] | float,
    end: Float[Scalar, ""],
) -> tuple[Float[Array, " times"], Float[Array, "times dim"]]:
    """Times and solution of a `Recorder`; ∞ off the flow and where times go back."""
    known = on_flow(times, begin, end)
    path = jnp.where(known[:, None], solver_state[1], jnp.inf)
    return jnp.where(known, times, jnp.inf), path


def on_flow(
    times: Float[Array, " times"],
    begin: Float[Scalar, ""] | float,
    end: Float[Scalar, ""],
) -> Bool[Array, " times"]:
    """Times within the flow, each no earlier than those before."""
    latest = jax.lax.cummax(times)
    return (begin <= times) & (times <= end) & (times == latest)


# Dormand and Prince's steps are stable up to 3.3 times the decay of what moves fastest.
LONGEST = 2.5


class _DominantMode(eqx.Module):
    """The fastest decaying direction and its rate, ∞ where it is not known."""

    rate: Float[Scalar, ""]
    direction: Float[Array, " dim"]


class Switching(dfx.AbstractAdaptiveSolver):
    """Dormand and Prince's explicit steps where they are stable, else implicit ones.

    The spectral radius of the Jacobian comes for nothing: an explicit step evaluates
    the field twice at its end, and the difference is the Jacobian's product with that
    of the two points; an implicit one goes on with the power method, one product a
    step. Both methods have order 5, an interpolant of order 4 and an error estimate: a
    radius that is too small costs a refused step, not a digit.

    Attributes:
        implicit: the other solver.

    Source: E. Hairer and G. Wanner, Solving Ordinary Differential Equations II, section
    IV.2 (the radius); J. R. Dormand and P. J. Prince, Journal of Computational and
    Applied Mathematics 6 (1980).

    Example:
        >>> from jaxselect.flow.rodas import from_autodiff
        >>> Switching(Rodas5P(from_autodiff(lambda t, y, args: -t * y))).order(None)
        5
    """

    implicit: Rodas5P
    # Diffrax chooses the loop by itself only for a solver that it knows.
    explicit: dfx.Dopri5 = dfx.Dopri5(scan_kind="bounded")
    term_structure: ClassVar = dfx.ODETerm
    interpolation_cls: ClassVar = DenseOutput

    def order(self, terms: PyTree) -> int:
        """Order of both."""
        return 5

    def init(
        self, terms: PyTree, t0: PyTree, t1: PyTree, y0: PyTree, args: PyTree
    ) -> tuple[_DominantMode, Any]:
        """Nothing is known of the field: the first step is implicit."""
        unknown = _DominantMode(jnp.asarray(jnp.inf, y0.dtype), jnp.ones_like(y0))
        return unknown, self.explicit.init(terms, t0, t1, y0, args)

    def func(self, terms: PyTree, t0: PyTree, y0: PyTree, args: PyTree) -> PyTree:
        """The field at a point."""
        return terms.vf(t0, y0, args)

    def step(
        self,
        terms: PyTree,
        t0: PyTree,
        t1: PyTree,
        y0: PyTree,
        args: PyTree,
        solver_state: tuple[_DominantMode, Any],
        made_jump: PyTree,
    ) -> tuple[PyTree, PyTree, dict[str, PyTree], tuple[_DominantMode, Any], PyTree]:
        """One step from t0 to t1."""
        fastest, last = solver_state
        # An empty step, in which time stands still, belongs to the implicit method.
        mild = (t1 > t0) & ((t1 - t0) * fastest.rate < LONGEST)

        def explicit() -> tuple[PyTree, ...]:
            y1, error, dense, after, _ = self.explicit.step(
                terms, t0, t1, y0, args, last, made_jump
            )
            error = jnp.where(jnp.isfinite(y1 + error).all(), error, jnp.inf)
            quartic = self.explicit.interpolation_cls(t0=t0, t1=t1, **dense).coeffs
            bend = -jnp.cumsum(quartic[:3], axis=0)[::-1]
            seen = self._seen(lax.stop_gradient(dense["k"]), t1 - t0)
            return y1, error, {"y0": y0, "y1": y1, "bend": bend}, (seen, after)

        def implicit() -> tuple[PyTree, ...]:
            y1, error, dense, jacobian = self.implicit.step_and_jacobian(
                terms, t0, t1, y0, args
            )
            along = lax.stop_gradient(jacobian) @ fastest.direction
            unknown = self.explicit.init(terms, t0, t1, y0, args)
            return y1, error, dense, (_fastest(along, fastest.direction), unknown)

        return *lax.cond(mild, explicit, implicit), dfx.RESULTS.successful

    def _seen(
        self, products: Float[Array, "stages dim"], length: Float[Scalar, ""]
    ) -> _DominantMode:
        """The fastest rate, from the last two stages of an explicit step."""
        before, end = (
            jnp.asarray([*row, *[0.0] * (len(products) - len(row))], products.dtype)
            for row in self.explicit.tableau.a_lower[-2:]
        )
        along = (products[-1] - products[-2]) / length
        return _fastest(along, (end - before) @ products)


def _fastest(along: Float[Array, " dim"], apart: Float[Array, " dim"]) -> _DominantMode:
    """As seen in a Jacobian whose product with `apart` is `along`."""
    length, image = jnp.linalg.norm(apart), jnp.linalg.norm(along)
    rate = image / jnp.where(length > 0, length, 1.0)
    return _DominantMode(rate, along / jnp.where(image > 0, image, 1.0))


class FlowStatus(Status):
    """How a flow ended."""

    REACHED = 0, "At the norm or the time that was asked for."
    NORM_NOT_REACHED = 1, "At `until_log_time`, with ‖p‖ still below `until_norm`."
    TIES_UNPROVED = (
        2,
        "At opposing gradients of tied tokens whose sum is below rounding; the "
        "curvature along v is positive. The flow orthogonal to the ties is not "
        "integrated.",
    )
    OUT_OF_STEPS = 3, "After `max_steps` steps."
    FAILED = (
        4,
        "At a number that is not finite, or a step too short to take; p and log_time "
        "are the last good ones.",
    )
    TIME_UNRESOLVED = (
        5,
        "Where tokens change places, p returns to its course or passes the norm too "
        "suddenly for a log-time to tell when.",
    )
    SELECTION_CHANGED = 6, "Where a token that had lost is back at some weight."


class Flow(eqx.Module):
    """Where a flow ended, and what was saved on the way.

    Attributes:
        query: p at the end.
        log_time: log(1+t) at the end.
        status: a `FlowStatus`.
        num_steps: steps tried.
        num_rejected: of these, rejected; None where they are not counted.
        path_log_times: the log-times asked for; ∞ after the end of the flow.
        path_query: p at these times; ∞ after the end of the flow.
        earlier_log_time: log(1+t) of a step at an eighth to three quarters of the end;
            by BDF, two less than was asked for.
        earlier_query: p there; ∞ where the flow broke off before it.
        num_fields: evaluations of −∇L, where they are counted.
        num_curvatures: evaluations of ∂²L/∂p², likewise.
    """

    query: Float[Array, " dim"]
    log_time: Float[Scalar, ""]
    status: Int[Scalar, ""]
    num_steps: Int[Scalar, ""]
    num_rejected: Int[Scalar, ""] | None
    path_log_times: Float[Array, " times"]
    path_query: Float[Array, "times dim"]
    earlier_log_time: Float[Scalar, ""]
    earlier_query: Float[Array, " dim"]
    num_fields: int | None = None
    num_curvatures: int | None = None

    def turned(self, turn: Callable[[Array], Array]) -> "Flow":
        """The same flow in other coordinates of p, as by `Frame.lift_points`."""
        saved = lambda flow: (flow.query, flow.path_query, flow.earlier_query)  # noqa: E731
        return eqx.tree_at(saved, self, replace_fn=turn)


@as_annotated
@one_program()
def direction_error(
    query: Float[Array, " dim"], direction: Float[Array, " dim"]
) -> Float[Scalar, ""]:
    """‖p/‖p‖ − direction/‖direction‖‖.

    Args:
        query: p.
        direction: of any length, such as p_mm.

    Returns:
        A number in [0, 2]; one where either is zero.

    Example:
        >>> round(direction_error(jnp.array([2.0, 0]), jnp.array([0, 1.0])).item(), 4)
        1.4142
    """
    tiny = jnp.finfo(query.dtype).tiny
    one, other = (x / jnp.maximum(jnp.linalg.norm(x), tiny) for x in (query, direction))
    return jnp.linalg.norm(one - other)


@for_corpus(by_head=True)
@one_program()
@full_precision
def local_exponents(
    after: Parameters,
    corpus: Corpus,
    direction: Float[Array, " dim"],
    log_time: Float[Scalar, ""],
    query: Float[Array, " dim"],
) -> tuple[Float[Scalar, ""], Float[Scalar, ""]]:
    """Exponents of the direction error at one point of a flow.

    Both are exact: the field gives dp/dτ there.

    Source: mathematics, section 3b.

    Args:
        after: (E¹, p_0, v).
        corpus: n labelled bags.
        direction: of any length, such as p_mm.
        log_time: τ = log(1+t) > 0.
        query: p at that time.

    Returns:
        d log(error) / d log‖p‖ and d log(error) / d log s; late both tend to −1.

    Example:
        >>> from jaxselect.data.corpus import from_sequences
        >>> bags = from_sequences([[0, 1]], [1], vocabulary=2)
        >>> start = Parameters(jnp.eye(2), jnp.ones(2), jnp.array([1.0, 0.0]))
        >>> s = jnp.array(1e6)
        >>> late = s / 2 * jnp.array([1.0, -1.0]) + jnp.ones(2)
        >>> target = jnp.array([1.0, -1.0])
        >>> by_norm, _ = local_exponents(start, bags, target, s, late)
        >>> round(by_norm.item(), 4)
        -1.0
    """

    def logs(p: Float[Array, " dim"]) -> Float[Array, " 2"]:
        error = direction_error(p, direction)
        return jnp.log(jnp.stack([error, jnp.linalg.norm(p)]))

    slope = velocity(after, corpus, log_time, query)
    _, (error, norm) = jax.jvp(logs, (query,), (slope,))
    return error / norm, error * log_time


@for_corpus(by_head=True)
@one_program()
@full_precision
def excess_loss(
    after: Parameters,
    corpus: Corpus,
    selected: Bool[Array, "sequences width"],
    query: Float[Array, " dim"],
) -> Float[Scalar, ""]:
    """L(p) − L_∞ without cancellation, for one selected token in a sequence.

    ℓ(y f) − ℓ(y b) with b = b_{s*}: for the logistic loss
    log(1 + σ(−yb) (e^{y(b−f)} − 1)).

    Source: mathematics, sections 1b and 3f.

    Args:
        after: (E¹, ·, v).
        corpus: n labelled bags.
        selected: the final selection.
        query: p.

    Returns:
        The loss still to go; exact down to where it underflows.
    """
    values = after.embeddings @ after.head
    attention = attend_corpus(after.embeddings @ query, values, corpus)
    slot = jnp.argmax(selected, axis=1)[:, None]
    ahead = jax.vmap(lambda own, at: own[at])(attention.advantage, slot[:, 0])
    winner = jnp.take_along_axis(corpus.tokens, slot, axis=1)[:, 0]
    margin = functional_margin(corpus.labels, values[winner])
    return corpus.mean(corpus.loss.excess(margin.value, margin.fall(ahead)))


# Latest checkpoint that counts as earlier than the end, as a fraction of its log-time.
EARLIER = 0.75
# Exponent: a term of the gradient above eps^(−this) leaves no digit of a sum that
# cancels. Tuned on the default sweep and in float32.
CANCELLATION_POWER = 0.7
# Share of a held sequence's weight at which a token that lost is back.
RETURNED = 1e-3


@for_corpus(by_head=True)
def cls_flow(
    parameters: Parameters,
    corpus: Corpus,
    *,
    until_norm: Float[Scalar, ""] | float = jnp.inf,
    until_log_time: Float[Scalar, ""] | float = 1e15,
    from_log_time: Float[Scalar, ""] | float = 0.0,
    path_log_times: Float[Array, " times"] | None = None,
    held: Bool[Array, " sequences"] | None = None,
    settings: FlowSettings = FlowSettings(),
) -> Flow:
    """Gradient flow of p from p_0 with E and v fixed.

    dp/dτ = e^τ Eᵀ(−∂L/∂a), τ = log(1+t), ended where ‖p‖ or τ first reaches its bound.

    Source: mathematics, sections 3, 3a, 3g and 4b.

    Args:
        parameters: (E, p_0, v); d costs one factorisation of E.
        corpus: n labelled bags.
        until_norm: ‖p‖ to stop at; infinite for none.
        until_log_time: log(1+t) to stop at.
        from_log_time: log(1+t) at which p is p_0, to go on from the end of a flow.
        path_log_times: increasing values of log(1+t) to save p at; none by default.
        held: sequences in which another token than the top one must not come back: the
            flow ends as SELECTION_CHANGED where it has a thousandth of the weight.
        settings: tolerances and bounds.

    Returns:
        The flow's end, its status and the path; differentiable once, in both modes.

    Raises:
        BadInput: another vocabulary, labels that do not suit the head, a bound that is
            NaN or a norm below 0, times that go back.

    Example:
        >>> from jaxselect.data.corpus import from_sequences
        >>> bags = from_sequences([[0, 1]], [1], vocabulary=2)
        >>> after = Parameters(jnp.eye(2), jnp.zeros(2), jnp.array([1.0, 0.0]))
        >>> flow = jax.jit(cls_flow)(after, bags, until_norm=1e6)
        >>> FlowStatus(flow.status.item()).name
        'REACHED'
        >>> round(jnp.linalg.norm(flow.query).item())
        1000000
    """
    at_least("until_norm", until_norm, 0.0)
    at_least("until_log_time", until_log_time, from_log_time, "from_log_time")
    if path_log_times is not None:
        increasing("path_log_times", path_log_times)
    bounds = from_log_time, until_norm, until_log_time, path_log_times
    real = partial(jnp.asarray, dtype=parameters.query.dtype)
    inside = frame(parameters)
    inputs = (inside.parameters, corpus, *jax.tree.map(real, bounds), held)
    found, events, _ = _integrate(jax.lax.stop_gradient(inputs), settings)
    return with_derivatives(inputs, settings, found, events).turned(inside.lift_points)


def with_derivatives(
    inputs: PyTree,
    settings: FlowSettings,
    found: Flow,
    events: tuple[Bool[Scalar, ""], ...],
) -> Flow:
    """A flow found without derivatives, differentiable in its inputs."""
    return _arrival((*inputs, found.log_time, events), settings, known=found)


@in_both_modes
@full_precision
def _arrival(inputs: PyTree, settings: FlowSettings, adjoint: Any) -> Flow:
    """The flow to a known log-time, corrected to where it ends.

    No event is searched for. Where one ended the flow, h(s, p) = 0, the end moves by
    dτ = −dh/h′ and p by dp/dτ dτ. The slope dp/dτ is that of the interpolant: the field
    itself multiplies the error of p by e^τ where gradients oppose each other.
    """
    *inputs, end, events = inputs
    parameters, corpus, begin, until_norm, until_log_time, times, held = inputs
    log_time = jnp.where(end < until_log_time, end, until_log_time)
    log_time = jnp.where(end > begin, log_time, begin)
    bounds = begin, jnp.full_like(until_norm, jnp.inf), log_time
    flow, _, slope = _integrate(
        (parameters, corpus, *bounds, times, held), settings, adjoint, events=False
    )
    ended = jnp.stack(events).any()
    # Without an event any point will do at which h has a derivative.
    query, slope = jnp.where(ended, flow.query, 1.0), jax.lax.stop_gradient(slope)

    def excess(log_time: PyTree, query: PyTree) -> Float[Scalar, ""]:
        scores, values = (
            parameters.embeddings @ query,
            parameters.embeddings @ parameters.head,
        )
        strongest = log_time + log_strongest_pull(scores, values, corpus)
        found = jnp.where(events[0], jnp.linalg.norm(query) - until_norm, strongest)
        if held is None:
            return found
        return jnp.where(events[2], _log_returned(scores, values, corpus, held), found)

    step = event_shift(excess, end, query, slope, ended)
    moved = flow.query + step * jnp.where(ended, slope, 0.0), log_time + step
    return eqx.tree_at(lambda flow: (flow.query, flow.log_time), flow, moved)


@full_precision
def _integrate(
    inputs: PyTree,
    settings: FlowSettings,
    adjoint: Any = None,
    *,
    events: bool = True,
) -> tuple[Flow, tuple[Bool[Scalar, ""], ...], Float[Array, " dim"]]:
    """The flow; whether it ended at the norm or in cancellation; dp/dτ.

    The slope is known where no event is searched for, and zero otherwise.
    """
    parameters, corpus, begin, until_norm, until_log_time, *rest = inputs
    path_log_times, held = rest
    rotation, problem = aligned(parameters, corpus, until_norm, held)
    start = jnp.zeros_like(problem.start)
    large = min(problem.rows.shape) >= MANY_AXES
    implicit = Rodas5P(linearise, moving_frame=adjoint is None)
    solver: Any = Switching(implicit) if large else implicit
    recorded = path_log_times is not None or not events
    if recorded:
        times = start[:0] if path_log_times is None else path_log_times
        solver = Recorder(solver, times)
    stops: tuple = (_excess_norm, _excess_pull)
    if held is not None:
        stops += (_excess_return,)
    # An event fires on crossing: a flow that starts beyond it ends where it starts.
    over = jnp.linalg.norm(problem.start) >= until_norm
    solution: Any = dfx.diffeqsolve(
        dfx.ODETerm(field),
        solver,
        t0=begin,
        t1=jnp.where(over, begin, until_log_time),
        dt0=None,
        y0=start,
        args=problem,
        saveat=dfx.SaveAt(t1=True, solver_state=recorded, controller_state=True),
        stepsize_controller=settings.score_control(start.dtype),
        event=dfx.Event(
            stops,
            optx.Newton(rtol=1e-9, atol=1e-9),
            direction=(True,) * len(stops),
        )
        if events
        else None,
        max_steps=settings.max_steps,
        adjoint=adjoint or dfx.RecursiveCheckpointAdjoint(),
        throw=False,
    )
    earlier_time, earlier = _earlier(solution)
    path_times, path = start[:0], start[None][:0]
    if path_log_times is not None:
        path_times, path = record(
            solution.solver_state, path_log_times, begin, solution.ts[0]
        )
        reached = jnp.isfinite(path_times)[:, None]
        path = jnp.where(reached, path, 0.0) @ rotation.T
        path = jnp.where(reached, parameters.query[None] + path, jnp.inf)
    growth = _growth(problem, solution.ts[0], solution.ys[0])
    mask = solution.event_mask if events else (jnp.zeros((), bool),) * len(stops)
    # Check ‖p‖ itself: event location can fail where ‖p‖ changes within rounding of s.
    off = jnp.abs(jnp.linalg.norm(problem.start + solution.ys[0]) - until_norm)
    there = off <= jnp.sqrt(jnp.finfo(start.dtype).eps) * until_norm
    flow = Flow(
        query=parameters.query + solution.ys[0] @ rotation.T,
        log_time=solution.ts[0],
        status=_status(solution, mask, over, until_norm != jnp.inf, there, growth),
        num_steps=solution.stats["num_steps"],
        num_rejected=solution.stats["num_rejected_steps"],
        path_log_times=path_times,
        path_query=path,
        earlier_log_time=earlier_time,
        earlier_query=parameters.query + earlier @ rotation.T,
    )
    slope = start if events else solution.solver_state[2] @ rotation.T
    return flow, mask, slope


@for_corpus(by_head=True)
@full_precision
def velocity(
    parameters: Parameters,
    corpus: Corpus,
    log_time: Float[Scalar, ""] | float,
    query: Float[Array, " dim"],
) -> Float[Array, " dim"]:
    """The field dp/dτ = e^τ Eᵀ(−∂L/∂a) of the flow in τ = log(1+t).

    Source: mathematics, section 3a.

    Args:
        parameters: (E, ·, v).
        corpus: n labelled bags.
        log_time: s.
        query: p.

    Returns:
        dp/dτ; late it is p_mm.

    Example:
        >>> from jaxselect.data.corpus import from_sequences
        >>> bags = from_sequences([[0, 1]], [1], vocabulary=2)
        >>> start = Parameters(jnp.eye(2), jnp.zeros(2), jnp.array([1.0, 0.0]))
        >>> late = velocity(start, bags, 1000.0, jnp.array([500.0, -500.0]))
        >>> [round(x, 4) for x in late.tolist()]
        [0.2689, -0.2689]
    """
    embeddings = parameters.embeddings
    scores, values = embeddings @ query, embeddings @ parameters.head
    return negative_gradient(scores, values, corpus, log_time).scores @ embeddings


def _earlier(solution: Any) -> tuple[Float[Scalar, ""], Float[Array, " dim"]]:
    """Time and displacement of the last checkpoint before `EARLIER` of the end."""
    _, (times, states) = jax.lax.stop_gradient(solution.controller_state)
    end = jax.lax.stop_gradient(solution.ts[0])
    last = jnp.maximum(jnp.sum(times <= EARLIER * end) - 1, 0)
    return times[last], states[last]


def _excess_norm(t: PyTree, y: PyTree, args: PyTree, **_: PyTree) -> Float[Scalar, ""]:
    # diffrax wants the value of an event in the default precision.
    return (jnp.linalg.norm(args.start + y) - args.until_norm).astype(float)


@full_precision
def _excess_pull(t: PyTree, y: PyTree, args: PyTree, **_: PyTree) -> Float[Scalar, ""]:
    """Positive where pulls are so strong that their sum is rounding."""
    scores = args.scores + args.rows @ y
    strongest = t + log_strongest_pull(scores, args.values, args.corpus)
    most = -CANCELLATION_POWER * jnp.log(jnp.finfo(y.dtype).eps)
    return (strongest - most).astype(float)


@full_precision
def _excess_return(t: PyTree, y: PyTree, args: PyTree, **_: PyTree) -> PyTree:
    """Positive where a token that lost is back in a held sequence."""
    scores = args.scores + args.rows @ y
    return _log_returned(scores, args.values, args.corpus, args.held).astype(float)


def _log_returned(
    scores: Float[Array, " vocabulary"],
    values: Float[Array, " vocabulary *classes"],
    corpus: Corpus,
    held: Bool[Array, " sequences"],
) -> Float[Scalar, ""]:
    """Log of the largest share off the top in a held sequence, over `RETURNED`."""
    attention = attend_corpus(scores, values, corpus)
    watched = corpus.present & held[:, None] & ~corpus.marks(attention.top)
    log_share = jnp.max(jnp.where(watched, attention.log_weights, -jnp.inf))
    # Newton's method, which finds the time of an event, wants a number.
    return jnp.where(watched.any(), log_share - jnp.log(RETURNED), -1.0)


def _growth(
    problem: Problem, log_time: Float[Scalar, ""], moved: Float[Array, " dim"]
) -> Float[Scalar, ""]:
    """−e^τ vᵀ(∂²L/∂p²)v: below zero where the pulls oppose a move of p along v.

    Along v each f moves by the variance of b under its weights, so that every pair of
    tokens takes part: in a balance against the move, in a change of places with it.
    With several heads all of them must not grow: the sum, or the largest above zero.
    """
    values, scores = problem.values, problem.scores + problem.rows @ moved

    def pull(scores: Float[Array, " vocabulary"]) -> Float[Array, " vocabulary"]:
        return negative_gradient(scores, values, problem.corpus, log_time).scores

    def along(value: Float[Array, " vocabulary"]) -> Float[Scalar, ""]:
        return jax.jvp(lambda scores: value @ pull(scores), (scores,), (value,))[1]

    if values.ndim == 1:
        return along(values)
    each = jax.vmap(along)(values.T)
    return jnp.where(jnp.any(each > 0), each.max(), each.sum())


def _status(
    solution: Any,
    events: tuple[Bool[Scalar, ""], ...],
    over: Bool[Scalar, ""],
    bounded: Bool[Scalar, ""],
    there: Bool[Scalar, ""],
    growth: Float[Scalar, ""],
) -> Int[Scalar, ""]:
    at_norm, too_strong, *returned = events
    at_time = solution.result == dfx.RESULTS.successful
    slow = solution.result == dfx.RESULTS.max_steps_reached
    status = jnp.where(slow, FlowStatus.OUT_OF_STEPS, FlowStatus.FAILED)
    missed = jnp.where(bounded, FlowStatus.NORM_NOT_REACHED, FlowStatus.REACHED)
    status = jnp.where(at_time, missed, status)
    spent = (solution.result == dfx.RESULTS.dt_min_reached) & jnp.isfinite(growth)
    status = jnp.where(spent, FlowStatus.TIME_UNRESOLVED, status)
    held = jnp.where(growth < 0, FlowStatus.TIES_UNPROVED, FlowStatus.TIME_UNRESOLVED)
    status = jnp.where(too_strong, held, status)
    passed = jnp.where(there, FlowStatus.REACHED, FlowStatus.TIME_UNRESOLVED)
    status = jnp.where(at_norm, passed, status)
    for back in returned:
        status = jnp.where(back, FlowStatus.SELECTION_CHANGED, status)
    status = jnp.where(over, FlowStatus.REACHED, status)
    finite = jnp.all(jnp.isfinite(solution.ys[0]))
    return jnp.where(finite, status, FlowStatus.FAILED).astype(jnp.int32)
