"""Gradient flow dp/dt = −∇_p L of the query p, to any norm or time.

In plain time the flow is lost in floating point: its gradient decays like 1/t while ‖p‖
grows like log t. In τ = log(1+t) the field is

    dp/dτ = e^τ Aᵀ(−∂L/∂a),    a = A p,

where exponents are added before they are evaluated (`negative_entry_gradient`). Late
the solution is the straight line p_mm τ + ρ, on which the solver's step grows without
bound: after the last change of attention a few more steps reach ‖p‖ = 10⁶ (mathematics,
section 3a).
"""

import dataclasses
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PyTree, Scalar

from ..checks import at_least, increasing, of_kind
from ..compilation import full_precision
from ..data.components import centred_in_components
from ..data.corpus import Corpus, as_wide
from ..data.loss import Loss
from ..model.attention import (
    FunctionalMargin,
    OutputMargin,
    attend_bags,
    functional_margin,
    log_strongest_pull,
    negative_entry_gradient,
)
from ..model.curvature import growth_along_values, query_curvature
from ..problem import Problem, Stratum, check
from ..status import Reason
from .adjoint import Doubt, in_both_modes
from .bdf import Equation, integrate_bdf
from .control import (
    ROUNDINGS,
    FlowSettings,
    seen_at,
    skips_a_force,
)
from .integration import End, Events, Integration, cancellation, integrate, status_of
from .rodas import Rodas5P

# Latest checkpoint that counts as earlier than the end, as a fraction of its log-time.
_EARLIER = 0.75
# Forces balance if their sum is below this share of the strongest one, times the
# longest row. Measured: up to 5e-4 at ties, 0.04 and more in overtakings.
_CANCELS = 1e-2
# Share of a tied sequence's weight at which a losing token has returned.
RETURNED = 1e-3
# By how much of a score, in a unit of log-time, contraction may be off.
LEFT_OUT = 1e-3
# Tuned on the default sweep and on float32 grids: an axis of the span is empty below
# this many roundings of the longest.
_EMPTY_AXIS = 100


class TieBounds(NamedTuple):
    """Contracted ties, and the thresholds at which contraction stops being valid.

    Attributes:
        tied: sequences in which no token but the top one may regain `RETURNED`.
        tokens: the tokens of every sequence, before the contraction.
        rows: of every token, in axes of the ties and units of H^{−½}.
        means: of a tied sequence, the mean of its selected rows in equilibrium; else
            zero.
        bends: of a tied sequence, their covariance with its values there; else zero.
        slopes: −∂ℓ/∂f of every sequence there.
        reach: of every sequence, per unit of w_X (−ℓ′) (1 − max q): bound on the
            curvature of the ties, in units of H, that losing tokens take away, and on
            the motion of a score by a unit of displacement of the ties.
        allowed: the force that all sequences may exert together.
    """

    tied: Bool[Array, " sequences"]
    tokens: Int[Array, "sequences width"]
    rows: Float[Array, "vocabulary axes"]
    means: Float[Array, "sequences axes"]
    bends: Float[Array, " sequences *classes axes"]
    slopes: Float[Array, " sequences *classes"]
    reach: Float[Array, "sequences 2"]
    allowed: Float[Scalar, ""]

    def excess(
        self,
        log_time: Float[Scalar, ""] | float,
        rows: Float[Array, "vocabulary dim"],
        parts: Sequence[tuple[Array, Array, Corpus]],
        groups: Sequence[Int[Array, " _"]] = (),
    ) -> Float[Array, " 3"]:
        """Compute how far what a contraction leaves out exceeds its bounds.

        That are the share of a losing token beside ties, the force of all of them on
        the ties, and how fast the response of the ties to it moves scores. In
        equilibrium the forces of tied tokens on each other cancel, but for the change
        of their factor (−∂ℓ/∂f)(1 − Q_X) in every sequence.

        Source: mathematics, lemma 3g.5 and remark 3g.7.

        Args:
            log_time: τ of the flow.
            rows: of the contracted problem.
            parts: logits, values and sequences, of each group.
            groups: the groups; none for one of all.

        Returns:
            Three logarithms, negative where ties may stay contracted.
        """
        every: Sequence[Any] = groups or (slice(None),)
        each = list(zip(every, parts, strict=True))
        found = [self._of_part(sequences, *part) for sequences, part in each]
        shares, forces, rests = zip(*found, strict=True)
        back, force = jnp.stack(shares).max(), sum(forces[1:], forces[0])
        tiny = jnp.finfo(back.dtype).tiny
        taken, most = sum(rests[1:], rests[0])
        left, size = jnp.maximum(1 - 2 * taken, tiny**0.5), jnp.linalg.norm(force)

        def left_out() -> Float[Scalar, ""]:
            # To first order the force is the displacement, in units of H^{−½}.
            changes = [
                part[2].scatter(self._response(sequences, *part, log_time, force))
                for sequences, part in each
            ]
            moved = rows @ (sum(changes[1:], changes[0]) @ rows)
            return jnp.log(jnp.maximum((moved.max() - moved.min()) / LEFT_OUT, tiny))

        # Newton's method, which finds the time of an event, needs numbers.
        numbers = back / RETURNED, size / left / self.allowed, most * size / LEFT_OUT
        logs = jnp.log(jnp.maximum(jnp.stack(numbers), tiny))
        # Most of the time a bound on it will do.
        bound = jnp.where(numbers[2] > tiny, logs[2] + log_time, logs[2])
        return logs.at[2].set(lax.cond(bound > 0, left_out, lambda: bound))

    def _response(
        self,
        sequences: Int[Array, " _"] | slice,
        logits: Float[Array, "sequences width"],
        values: Float[Array, " sequences width *classes"],
        corpus: Corpus,
        log_time: Float[Scalar, ""] | float,
        displacement: Float[Array, " axes"],
    ) -> Float[Array, "sequences width"]:
        """The change of forces by a displacement of the ties, to first order."""
        tokens = as_wide(self.tokens[sequences], logits.shape[1])
        top = attend_bags(logits, values, corpus).top
        here = self.tied[sequences, None] & corpus.marks(top)
        means, bends = (x[sequences] @ displacement for x in (self.means, self.bends))
        shift = jnp.where(here, means[:, None], (self.rows @ displacement)[tokens])
        here = here.reshape(*here.shape, *[1] * (values.ndim - 2))
        bend = jnp.where(here, bends[:, None], 0.0)

        def forces(logits: Array, values: Array) -> Array:
            return negative_entry_gradient(logits, values, corpus, log_time)[0]

        return jax.jvp(forces, (logits, values), (shift, bend))[1]

    def _of_part(
        self,
        sequences: Int[Array, " _"] | slice,
        logits: Float[Array, "sequences width"],
        values: Float[Array, " sequences width *classes"],
        corpus: Corpus,
    ) -> tuple[Float[Scalar, ""], Float[Array, " axes"], Float[Array, " 2"]]:
        """The largest share of losers, their force, and `reach`, of some sequences."""
        tokens = as_wide(self.tokens[sequences], logits.shape[1])
        means, bends, slopes, reach = (
            each[sequences]
            for each in (self.means, self.bends, self.slopes, self.reach)
        )
        attention = attend_bags(logits, values, corpus)
        tied, top = self.tied[sequences, None], corpus.marks(attention.top)
        share = jnp.exp(attention.log_weights)
        lost = jnp.sum(jnp.where(corpus.present & ~top, share, 0.0), axis=1)
        forces, _ = negative_entry_gradient(logits, values, corpus)
        margin = functional_margin(corpus.labels, attention.output, corpus.loss)
        before = dataclasses.replace(corpus, tokens=tokens)
        force = before.scatter(jnp.where(tied & top, 0.0, forces)) @ self.rows
        force += jnp.sum(jnp.where(tied & top, forces, 0.0), axis=1) @ means
        pulls = output_forces(margin, corpus.loss)
        kept = (1 - lost).reshape(-1, *[1] * (pulls.ndim - 1))
        change = corpus.weighted(pulls * kept - slopes)
        force += jnp.tensordot(change, bends, change.ndim)
        slope = corpus.loss.slope(margin.value) * margin.steepness
        back = jnp.max(jnp.where(tied & ~top, share, 0.0))
        return back, force, corpus.weighted(slope * lost) @ reach


def output_forces(
    margin: FunctionalMargin | OutputMargin, loss: Loss
) -> Float[Array, " sequences *classes"]:
    """Compute −∂ℓ/∂f = −ℓ′(m) ∂m/∂f of every sequence."""
    slope = loss.slope(margin.value)
    return slope.reshape(-1, *[1] * (margin.gradient.ndim - 1)) * margin.gradient


class Flow(eqx.Module):
    """The end of a flow, and the path saved before it.

    Source: mathematics, section 3a.

    Attributes:
        query: p at the end.
        log_time: log(1+t) at the end.
        status: the `Reason` why it did not reach its norm or time; NONE if it did.
        num_steps: number of steps, rejected ones included.
        path_log_times: the values of log(1+t) asked for; ∞ after the end of the flow.
        path_query: p at these times; ∞ after the end of the flow.
        earlier_log_time: log(1+t) of one earlier step, between an eighth and three
            quarters of `log_time`; in a flow by BDF, two less than the log-time asked
            for.
        earlier_query: p there; ∞ where the flow broke off before it.
    """

    query: Float[Array, " dim"]
    log_time: Float[Scalar, ""]
    status: Int[Scalar, ""]
    num_steps: Int[Scalar, ""]
    path_log_times: Float[Array, " times"]
    path_query: Float[Array, "times dim"]
    earlier_log_time: Float[Scalar, ""]
    earlier_query: Float[Array, " dim"]


def arrived(query: Float[Array, " dim"], log_time: Float[Scalar, ""]) -> Flow:
    """Describe a flow that was followed elsewhere by its end."""
    return Flow(
        query=query,
        log_time=log_time,
        status=jnp.asarray(Reason.NONE, jnp.int32),
        num_steps=jnp.asarray(0, jnp.int32),
        path_log_times=jnp.zeros((0,), query.dtype),
        path_query=jnp.zeros((0, len(query)), query.dtype),
        earlier_log_time=log_time,
        earlier_query=query,
    )


@full_precision
def cls_flow(
    problem: Problem,
    *,
    until_norm: Float[Scalar, ""] | float = jnp.inf,
    until_log_time: Float[Scalar, ""] | float = 1e15,
    from_log_time: Float[Scalar, ""] | float = 0.0,
    path_log_times: Float[Array, " times"] | None = None,
    tie_bounds: TieBounds | None = None,
    settings: FlowSettings = FlowSettings(),
) -> Flow:
    """Follow the gradient flow of the query p from p_0.

    dp/dτ = e^τ Aᵀ(−∂L/∂a) with τ = log(1+t), until ‖p‖ or τ reaches its bound.

    Source: mathematics, sections 3, 3a, 3g and 4b.

    Args:
        problem: rows A, values b, labels, and the start p_0.
        until_norm: ‖p‖ to stop at; infinite for none.
        until_log_time: log(1+t) to stop at.
        from_log_time: log(1+t) at which p is p_0, to go on from the end of a flow.
        path_log_times: increasing values of log(1+t) to save p at; none by default.
        tie_bounds: of contracted ties; the flow ends as TIES_DISTURBED when a token
            returns to them, or when forces of others move them from equilibrium.
        settings: tolerances and bounds.

    Returns:
        The flow's end, its status and the path, in coordinates of the problem;
        differentiable once, in both modes.

    Raises:
        BadInput: not a problem, a bound that is NaN, a norm below 0, or times that
            go back.

    Example:
        >>> from jaxselect.data.corpus import from_sequences
        >>> bags = from_sequences([[0, 1]], [1], vocabulary=2)
        >>> from jaxselect import Parameters, attention
        >>> after = Parameters(jnp.eye(2), jnp.zeros(2), jnp.array([1.0, 0.0]))
        >>> flow = jax.jit(cls_flow)(attention(after, bags), until_norm=1e6)
        >>> bool(flow.status == Reason.NONE)
        True
        >>> round(jnp.linalg.norm(flow.query).item())
        1000000
    """
    check(problem)
    of_kind("settings", settings, FlowSettings)
    at_least("until_norm", until_norm, 0.0)
    at_least("from_log_time", from_log_time, 0.0)
    at_least("until_log_time", until_log_time, from_log_time, "from_log_time")
    if path_log_times is not None:
        increasing("path_log_times", path_log_times)
    # A norm that is never reached is not looked for.
    endless = isinstance(until_norm, float) and until_norm == jnp.inf
    bounds = from_log_time, None if endless else until_norm, until_log_time
    inputs = problem, *_real(problem, *bounds, path_log_times), tie_bounds
    known, end = _flow(lax.stop_gradient(inputs), settings)
    return _again((inputs, end), settings, known=known)


@full_precision
def flow_up_to(
    problem: Problem,
    log_time: Float[Scalar, ""],
    *,
    until_norm: Float[Scalar, ""] | None = None,
    path_log_times: Float[Array, " times"] | None = None,
    known: Flow | None = None,
    doubt: Doubt | None = None,
    settings: FlowSettings = FlowSettings(),
) -> Flow:
    """Follow a flow up to a log-time before which no event has ended it.

    Args:
        problem: with its start.
        log_time: log(1+t) to stop at.
        until_norm: ‖p‖ that a known flow has there if it is REACHED: both move.
        path_log_times: increasing values of log(1+t) to save p at.
        known: this flow, if it was found before: its derivatives alone are computed.
        doubt: how these are judged; NaN where they are not known.
        settings: tolerances and bounds.

    Returns:
        As `cls_flow`.
    """
    inputs = problem, *_real(problem, 0.0, until_norm, log_time, path_log_times), None
    events = OrderedDict()
    if known is not None and until_norm is not None:
        events["norm"] = known.status == Reason.NONE
    fixed, end = lax.stop_gradient((inputs, End(log_time, events)))
    if known is None:
        known, _ = _flow(fixed, settings, known=end)
    return _again((inputs, end), settings, known=known, doubt=doubt)


def _real(problem: Problem, *numbers: Any) -> Any:
    """Numbers as the problem has them."""
    return jax.tree.map(partial(jnp.asarray, dtype=problem.start.dtype), numbers)


@in_both_modes
def _again(inputs: PyTree, settings: FlowSettings, adjoint: Any) -> Flow:
    """Integrate the flow again to a known end."""
    given, end = inputs
    return _flow(given, settings, adjoint, end)[0]


def _flow(
    inputs: PyTree,
    settings: FlowSettings,
    adjoint: Any = None,
    known: End | None = None,
) -> tuple[Flow, End]:
    """The flow, and its end."""
    given, begin, until_norm, until_log_time, path_log_times, tie_bounds = inputs
    rotation, problem = aligned(given, until_norm, tie_bounds)
    # An event fires on crossing: a flow that starts beyond it ends where it starts.
    over = jnp.asarray(False)
    if until_norm is not None:
        over = jnp.linalg.norm(problem.start) >= until_norm
    search = adjoint is None and known is None
    integrated = _by_bdf if settings.stepper == "bdf" and search else _by_rodas
    span = begin, jnp.where(over, begin, until_log_time)
    found = integrated(problem, span, path_log_times, settings, adjoint, known)
    checkpoints = found.solution.controller_state.checkpoints
    before = _earlier(checkpoints.times, checkpoints.states, found.log_time)
    earlier_time, earlier = lax.stop_gradient(before)
    reached = jnp.isfinite(found.path_log_times)[:, None]
    path = jnp.where(reached, found.path, 0.0) @ rotation.T
    flow = Flow(
        query=given.start + found.state @ rotation.T,
        log_time=found.log_time,
        status=_status(problem, found, over),
        num_steps=found.solution.stats["num_steps"],
        path_log_times=found.path_log_times,
        path_query=jnp.where(reached, given.start[None] + path, jnp.inf),
        earlier_log_time=earlier_time,
        earlier_query=given.start + earlier @ rotation.T,
    )
    return flow, found.end


def _by_rodas(
    problem: "QueryProblem",
    span: tuple[Float[Scalar, ""], Float[Scalar, ""]],
    path_log_times: Float[Array, " times"] | None,
    settings: FlowSettings,
    adjoint: Any,
    known: End | None,
) -> Integration:
    """Integrate with a Hessian for each step; differentiable."""
    return integrate(
        field,
        Rodas5P(linearise, moving_frame=adjoint is None),
        settings.score_control(problem.start.dtype),
        problem,
        jnp.zeros_like(problem.start),
        span,
        _events(problem),
        max_steps=settings.max_steps,
        path_log_times=path_log_times,
        adjoint=adjoint,
        known=known,
        pace=1 / jnp.linalg.norm(lax.stop_gradient(problem.rows), axis=1).max(),
    )


def _by_bdf(
    problem: "QueryProblem",
    span: tuple[Float[Scalar, ""], Float[Scalar, ""]],
    path_log_times: Float[Array, " times"] | None,
    settings: FlowSettings,
    *_: Any,
) -> Integration:
    """Integrate with a Hessian that is kept for many steps."""
    rows, start = problem.rows, jnp.zeros_like(problem.start)
    rounding = ROUNDINGS * jnp.finfo(start.dtype).eps

    def norm_at(image: Array) -> Callable[[Array], Float[Scalar, ""]]:
        allowed = settings.atol + rounding * jnp.max(jnp.abs(image))
        return lambda error: jnp.max(jnp.abs(error)) / allowed

    def jacobian(log_time: Array, image: Array) -> Array:
        return query_curvature(rows, problem.bags_of(image), log_time)[1]

    equation = Equation(
        image=lambda moved: rows @ moved,
        field=lambda log_time, image: _field_of(log_time, image, problem),
        jacobian=jacobian,
        norm_at=norm_at,
        seen_at=lambda image: seen_at(problem.bags_of(image)),
        skips=skips_a_force,
    )
    return integrate_bdf(
        equation,
        problem,
        start,
        span,
        _events(problem),
        max_steps=settings.max_steps,
        path_log_times=path_log_times,
    )


class QueryProblem(NamedTuple):
    """The flow of x = p − p_0 in rotated axes.

    Attributes:
        rows: A, less the mean of each component of tokens that share sequences.
        scores: `rows` times p_0: differences within a sequence are those of A p_0.
        strata: offsets, values and bags, in groups whose forces are added up.
        start: p_0 in the rotated axes.
        until_norm: ‖p‖ to stop at; None for none.
        tie_bounds: ties that are to stay in equilibrium; None for none.
        groups: which bags the groups hold; none for a single one.
    """

    rows: Float[Array, "vocabulary dim"]
    scores: Float[Array, " vocabulary"]
    strata: tuple[Stratum, ...]
    start: Float[Array, " dim"]
    until_norm: Float[Scalar, ""] | None
    tie_bounds: TieBounds | None = None
    groups: tuple[Int[Array, " _"], ...] = ()

    def bags_at(self, moved: Float[Array, " dim"]) -> list[tuple[Array, Array, Corpus]]:
        """Compute the logits at p_0 + x of every stratum, with its values and bags."""
        return self.bags_of(self.rows @ moved)

    def bags_of(
        self, image: Float[Array, " vocabulary"]
    ) -> list[tuple[Array, Array, Corpus]]:
        """Compute the same from A x."""
        scores = self.scores + image
        return [(part.logits(scores), *part[1:]) for part in self.strata]


def aligned(
    problem: Problem,
    until_norm: Float[Scalar, ""] | None,
    tie_bounds: TieBounds | None = None,
) -> tuple[Float[Array, "dim dim"], QueryProblem]:
    """Rotate the axes so that p − p_0 has few non-zero coordinates.

    p − p_0 stays in the span of the differences A_s − A_r within sequences. On axes
    orthogonal to that span the rows are exactly zero, and so is x at all times.
    """
    centred = centred_in_components(problem.rows, problem.corpus)
    # Any rotation will do, so its derivative is zero.
    rotation = jnp.linalg.qr(lax.stop_gradient(centred).T, mode="complete")[0]
    rows = centred @ rotation
    size = jnp.linalg.norm(lax.stop_gradient(rows), axis=0, keepdims=True)
    empty = size <= _EMPTY_AXIS * jnp.finfo(rows.dtype).eps * size.max()
    return rotation, QueryProblem(
        rows=jnp.where(empty, rows - lax.stop_gradient(rows), rows),
        scores=centred @ problem.start,
        strata=problem.by_width(),
        start=problem.start @ rotation,
        until_norm=until_norm,
        tie_bounds=tie_bounds,
        groups=problem.groups,
    )


def field(
    log_time: PyTree, moved: PyTree, problem: QueryProblem
) -> Float[Array, " dim"]:
    """Compute `velocity` at p_0 + x, in rotated axes."""
    return _field_of(log_time, problem.rows @ moved, problem)


def _field_of(
    log_time: PyTree, image: Float[Array, " vocabulary"], problem: QueryProblem
) -> Float[Array, " dim"]:
    """Compute the field at p_0 + x from A x."""
    forces = [
        bags.scatter(negative_entry_gradient(logits, values, bags, log_time)[0])
        for logits, values, bags in problem.bags_of(image)
    ]
    return sum(forces[1:], forces[0]) @ problem.rows


def linearise(
    log_time: PyTree, moved: PyTree, problem: QueryProblem
) -> tuple[PyTree, PyTree, PyTree]:
    """Compute the field, its derivative in τ and its Jacobian."""
    parts = problem.bags_at(moved)
    velocity, jacobian = query_curvature(problem.rows, parts, log_time)
    # The field depends on τ through the factor e^τ alone: it is its own derivative.
    return velocity, velocity, jacobian


def _events(problem: QueryProblem) -> Events:
    """What may end a flow."""
    events: Events = OrderedDict()
    if problem.until_norm is not None:
        events["norm"] = _past_norm
    events["cancellation"] = _cancelled
    if problem.tie_bounds is not None:
        events["return"] = _released
    return events


def _past_norm(log_time: PyTree, moved: PyTree, problem: QueryProblem) -> Array:
    """‖p‖ less the norm to stop at."""
    assert problem.until_norm is not None
    return jnp.linalg.norm(problem.start + moved) - problem.until_norm


def _cancelled(log_time: PyTree, moved: PyTree, problem: QueryProblem) -> Array:
    return _over_parts(partial(cancellation, log_time), problem.bags_at(moved))


def _over_parts(
    function: Callable[..., Array], parts: Sequence[tuple[Array, Array, Corpus]]
) -> Float[Scalar, ""]:
    """The largest of some numbers, one for each part of the bags."""
    return jnp.stack([function(*part) for part in parts]).max()


def _released(log_time: PyTree, moved: PyTree, problem: QueryProblem) -> Array:
    """Event that contracted ties are not at rest any more."""
    assert problem.tie_bounds is not None
    parts, tie_bounds = problem.bags_at(moved), problem.tie_bounds
    return tie_bounds.excess(log_time, problem.rows, parts, problem.groups).max()


def _earlier(
    times: Float[Array, " 3"], states: Float[Array, "3 dim"], end: Float[Scalar, ""]
) -> tuple[Float[Scalar, ""], Float[Array, " dim"]]:
    """Return the last checkpoint at or before `_EARLIER` of the final log-time."""
    last = jnp.maximum(jnp.sum(times <= _EARLIER * end) - 1, 0)
    return times[last], states[last]


def _status(
    problem: QueryProblem, found: Integration, over: Bool[Scalar, ""]
) -> Int[Scalar, ""]:
    log_time, moved = found.log_time, found.state
    parts = problem.bags_at(moved)
    growth = growth_along_values(parts, log_time)
    strongest = _over_parts(log_strongest_pull, parts) + log_time
    longest = jnp.linalg.norm(problem.rows, axis=1).max()
    net = jnp.linalg.norm(field(log_time, moved, problem)) * jnp.exp(-strongest)
    status = status_of(found, growth, balanced=~(net > _CANCELS * longest))
    if problem.until_norm is not None:
        bounded = (status == Reason.NONE) & (problem.until_norm != jnp.inf)
        status = jnp.where(bounded, Reason.NORM_NOT_REACHED, status)
        # Check ‖p‖ itself: its event may pass within a rounding of τ.
        off = jnp.abs(_past_norm(log_time, moved, problem))
        there = off <= jnp.sqrt(jnp.finfo(moved.dtype).eps) * problem.until_norm
        passed = jnp.where(there, Reason.NONE, Reason.TIME_UNRESOLVED)
        status = jnp.where(found.end.by("norm"), passed, status)
    status = jnp.where(found.end.by("return"), Reason.TIES_DISTURBED, status)
    status = jnp.where(over, Reason.NONE, status)
    finite = jnp.isfinite(moved).all()
    return jnp.where(finite, status, Reason.FAILED).astype(jnp.int32)


@full_precision
def velocity(
    problem: Problem,
    log_time: Float[Scalar, ""] | float,
    query: Float[Array, " dim"],
) -> Float[Array, " dim"]:
    """Compute the field dp/dτ = e^τ Aᵀ(−∂L/∂a) of the flow in τ = log(1+t).

    Source: mathematics, section 3a.

    Args:
        problem: rows A, values b and labels.
        log_time: τ.
        query: p.

    Returns:
        dp/dτ; late it is p_mm.

    Example:
        >>> from jaxselect import Parameters, attention, from_sequences
        >>> bags = from_sequences([[0, 1]], [1], vocabulary=2)
        >>> start = Parameters(jnp.eye(2), jnp.zeros(2), jnp.array([1.0, 0.0]))
        >>> late = jnp.array([500.0, -500.0])
        >>> late = velocity(attention(start, bags), 1000.0, late)
        >>> [round(x, 4) for x in late.tolist()]
        [0.2689, -0.2689]
    """
    corpus, logits = problem.corpus, problem.logits(problem.scores(query))
    forces, _ = negative_entry_gradient(logits, problem.values, corpus, log_time)
    return corpus.scatter(forces) @ problem.rows


@partial(jax.jit, inline=True)
def direction_error(
    query: Float[Array, " dim"], direction: Float[Array, " dim"]
) -> Float[Scalar, ""]:
    """Compute ‖p/‖p‖ − q/‖q‖‖ of p and a direction q of any length, such as p_mm.

    The result is in [0, 2]; it is one if either vector is zero.

    Example:
        >>> round(direction_error(jnp.array([2.0, 0]), jnp.array([0, 1.0])).item(), 4)
        1.4142
    """
    tiny = jnp.finfo(query.dtype).tiny
    one, other = (x / jnp.maximum(jnp.linalg.norm(x), tiny) for x in (query, direction))
    return jnp.linalg.norm(one - other)
