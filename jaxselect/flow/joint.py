"""Gradient flow of any of E, p and v together, at any rates, in log-time.

dE/dt = η (h_a pᵀ + h_b vᵀ), dp/dt = η_p Eᵀh_a, dv/dt = η_v Eᵀh_b, with h_a = −∂L/∂a and
h_b = −∂L/∂b. `experiments.theory.joint` shows where they lead.

Rates at which E, p and v are trained together.

The joint flow of E, p and v in inner products, and its linearised step.

The rows of Z = [E; pᵀ; vᵀ] obey dZ/dτ = D Σ(h) Z, where h = e^τ (−∂L/∂a, −∂L/∂b) has a
column for p and one for v, Σ(h) = [[0, h], [hᵀ, 0]], and D = diag(η, …, η, η_p, η_v)
holds the rates. h depends on W = E [p v] alone, a block of the Gram matrix
Z Zᵀ = [[K, W], [Wᵀ, G]], which obeys an equation without Z. Late all its blocks are
linear in τ where E, p and v alone grow like √τ: a Rosenbrock method follows them in
long steps, and Z follows along (mathematics, section 3i).

Gradient flow of p and v together, with E fixed.

The flow of a key-query matrix W before a fixed p, which is that of u = W p.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import optimistix as optx
from jax import lax
from jax.scipy.linalg import lu_factor, lu_solve
from jaxtyping import Array, Bool, Float, Int, PyTree, Scalar

from ..checks import BadInput, at_least, increasing
from ..compilation import full_precision
from ..data.corpus import Corpus, for_corpus
from ..model.attention import log_strongest_pull, negative_gradient
from ..model.parameters import Parameters
from .adjoint import in_both_modes
from .cls import (
    CANCELLATION_POWER,
    Flow,
    FlowStatus,
    Recorder,
    cls_flow,
    event_shift,
    record,
)
from .control import SHORTEST_STEP, FlowSettings, PredictiveController
from .rodas import GAMMA, Rodas5P, corrected


class LearningRates(eqx.Module):
    """Rate of each parameter in units of time; zero keeps it as it is.

    Attributes:
        embeddings: η of E.
        query: η_p of p.
        head: η_v of v.
    """

    embeddings: Float[Scalar, ""] | float = 1.0
    query: Float[Scalar, ""] | float = 1.0
    head: Float[Scalar, ""] | float = 1.0

    def array(self, dtype: Any) -> Float[Array, "3"]:
        """(η, η_p, η_v)."""
        both = (self.embeddings, self.query, self.head)
        return jnp.stack([jnp.asarray(rate, dtype) for rate in both])

    def check(self) -> None:
        """Refuse concrete rates that are below zero, infinite, NaN or all zero.

        Raises:
            BadInput: what arrived and what was wanted.
        """
        given = (self.embeddings, self.query, self.head)
        if any(isinstance(rate, jax.core.Tracer) for rate in given):
            return
        shown = [float(rate) for rate in given]
        if not all(0 <= rate < math.inf for rate in shown) or not any(shown):
            raise BadInput(f"rates {shown}: wanted numbers ≥ 0, one of them above 0")


# Part of the mean of T's diagonal that is added to it: with p or v out of reach T has
# no inverse, and its factor only needs a positive diagonal.
RIDGE = 1e-13


class JointProblem(NamedTuple):
    """Inputs of a joint flow: bags, rates (η, η_p, η_v) and the number of axes of Z."""

    corpus: Corpus
    rates: Float[Array, "3"]


class JointState(NamedTuple):
    """The Gram matrix of E, p and v, and their coordinates.

    Attributes:
        tokens: K = E Eᵀ.
        both: W = E [p v].
        pair: G = [p v]ᵀ[p v].
        rows: Z, coordinates of E, p and v; nothing depends on them.
    """

    tokens: Float[Array, "vocabulary vocabulary"]
    both: Float[Array, "vocabulary 2"]
    pair: Float[Array, "2 2"]
    rows: Float[Array, "rows axes"]


def flat(state: JointState) -> Array:
    """All entries in one vector."""
    return jnp.concatenate([part.ravel() for part in state])


def unflat(vector: Array, vocabulary: int) -> JointState:
    """The inverse of `flat`."""
    sizes = vocabulary**2, 2 * vocabulary, 4
    ends = [sum(sizes[: number + 1]) for number in range(3)]
    tokens, both, pair, rows = jnp.split(vector, ends)
    return JointState(
        tokens.reshape(vocabulary, vocabulary),
        both.reshape(vocabulary, 2),
        pair.reshape(2, 2),
        rows.reshape(vocabulary + 2, -1),
    )


def _descent(both: Array, problem: JointProblem, log_time: PyTree) -> Array:
    """h; with E and v fixed h_b moves nothing, and overflows: it counts as zero."""
    moves = ((problem.rates[0] > 0) | (problem.rates[1:] > 0))[None]
    # h does not depend on what is fixed either, so that ∂h/∂W stays symmetric.
    both = jnp.where(moves, both, lax.stop_gradient(both))
    scores, values = both.T
    push = negative_gradient(scores, values, problem.corpus, log_time)
    return jnp.where(moves, jnp.stack(push, axis=1), 0.0)


def _moved(push: Array, state: JointState, rates: Array) -> JointState:
    """D Σ(h) Z, and D Σ(h) Z Zᵀ with its transpose: linear in h and in the state."""
    eta, pace = rates[0], rates[1:]
    tokens = eta * push @ state.both.T
    pair = pace[:, None] * (push.T @ state.both)
    embeddings, rest = state.rows[:-2], state.rows[-2:]
    moved = eta * push @ rest, pace[:, None] * (push.T @ embeddings)
    return JointState(
        tokens + tokens.T,
        eta * push @ state.pair + state.tokens @ push * pace[None],
        pair + pair.T,
        jnp.concatenate(moved),
    )


@full_precision
def field(log_time: PyTree, vector: PyTree, problem: PyTree) -> Array:
    """The field of the flow in τ."""
    state = unflat(vector, problem.corpus.vocabulary)
    push = _descent(state.both, problem, log_time)
    return flat(_moved(push, state, problem.rates))


class JointJacobian(eqx.Module):
    """The Jacobian of the field at one point, never formed.

    Attributes:
        state: the point.
        rates: (η, η_p, η_v).
        push: h.
        curvature: H = ∂h/∂W, symmetric; W and h as their columns, one after the other.
    """

    state: JointState
    rates: Float[Array, "3"]
    push: Float[Array, "vocabulary 2"]
    curvature: Float[Array, "size size"]

    def bent(self, both: Float[Array, "vocabulary 2"]) -> Float[Array, "vocabulary 2"]:
        """H δW."""
        return _matrix(self.curvature @ _columns(both))

    def times(self, change: JointState) -> JointState:
        """The Jacobian's product with a change of the state."""
        own = _moved(self.push, change, self.rates)
        bent = _moved(self.bent(change.both), self.state, self.rates)
        return jax.tree.map(jnp.add, own, bent)

    def system(self, width: Float[Scalar, ""]) -> Float[Array, "size size"]:
        """I/τ − J without K and G, which depend on W and no longer on themselves."""
        state, push, (eta, pace) = self.state, self.push, self._rates()
        basis = jnp.eye(push.size, dtype=push.dtype)
        square, turn = push.T @ push, state.both.T @ push

        def by_both(column: Array) -> Array:
            """W's own part: h (x_G) + (x_K) h of K and G that W has moved."""
            x = _matrix(column)
            pair = pace[:, None] * (push.T @ x)
            tokens = push @ (x.T @ push) + x @ square
            moved = eta * push @ (pair + pair.T) + eta * tokens * pace[None]
            return _columns(width * moved)

        def by_push(column: Array) -> Array:
            """That of a change of h."""
            change = _matrix(column)
            pair = pace[:, None] * (change.T @ state.both)
            tokens = change @ turn + state.both @ (change.T @ push)
            moved = eta * push @ (pair + pair.T) + eta * tokens * pace[None]
            direct = eta * change @ state.pair + state.tokens @ change * pace[None]
            return _columns(direct + width * moved)

        own, bent = (jax.vmap(part, 0, 1)(basis) for part in (by_both, by_push))
        return basis / width - own - bent @ self.curvature

    def inverse(
        self, width: Float[Scalar, ""], factor: tuple[Array, Array], right: JointState
    ) -> JointState:
        """(I/τ − J)⁻¹ r: W from its own system, then K and G, then Z."""
        state, push, (eta, pace) = self.state, self.push, self._rates()
        moved = eta * push @ right.pair + right.tokens @ push * pace[None]
        both = _matrix(lu_solve(factor, _columns(right.both + width * moved)))
        bent = self.bent(both)
        known = right._replace(rows=jnp.zeros_like(right.rows))
        nothing = jax.tree.map(jnp.zeros_like, known)
        fed = jax.tree.map(
            jnp.add,
            _moved(push, nothing._replace(both=both), self.rates),
            _moved(bent, state, self.rates),
        )
        rows = self._followed(width, right.rows + fed.rows)
        return JointState(
            width * (right.tokens + fed.tokens),
            both,
            width * (right.pair + fed.pair),
            rows,
        )

    def _followed(self, width: Float[Scalar, ""], right: Array) -> Array:
        """(I/τ − D Σ(h))⁻¹ r for the rows of Z, by a system of two unknowns."""
        push, (eta, pace) = self.push, self._rates()
        turn = pace[:, None] * (push.T @ push)
        small = jnp.eye(2, dtype=push.dtype) / width - width * eta * turn
        pulled = pace[:, None] * (push.T @ right[:-2])
        pair = jnp.linalg.solve(small, right[-2:] + width * pulled)
        return jnp.concatenate([width * (right[:-2] + eta * push @ pair), pair])

    def is_definite(self, width: Float[Scalar, ""]) -> Bool[Scalar, ""]:
        """Whether nothing grows faster than 1/τ in the gradient flow of Z.

        With A = I/τ − D Σ(h), P the map from δZ to δW and T = P A⁻¹ D Pᵀ: T, which is
        L Lᵀ then, and I − Lᵀ H L are positive definite.
        """
        state, push, (eta, pace) = self.state, self.push, self._rates()
        root = jnp.sqrt(pace)
        square = eta * root[:, None] * (push.T @ push) * root[None]
        small = jnp.eye(2, dtype=push.dtype) / width - width * square
        # R Θ, symmetric.
        theta = root[:, None] * jnp.linalg.inv(small) * root[None]

        def column(change: Array) -> Array:
            delta = _matrix(change)
            straight = width * eta * delta @ state.pair
            pair = delta.T @ state.both + width * eta * (push.T @ delta) @ state.pair
            other = state.tokens @ delta + width * eta * state.both @ (delta.T @ push)
            return _columns(
                straight + width * eta * push @ (theta @ pair) + other @ theta
            )

        identity = jnp.eye(push.size, dtype=push.dtype)
        system = jax.vmap(column)(identity)
        ridge = RIDGE * jnp.trace(system) / len(system)
        factor = jnp.linalg.cholesky(system + ridge * identity)
        inner = identity - factor.T @ (self.curvature @ factor)
        return jnp.isfinite(jnp.linalg.cholesky(inner)).all()

    def _rates(self) -> tuple[Float[Scalar, ""], Float[Array, "2"]]:
        return self.rates[0], self.rates[1:]


def _columns(matrix: Float[Array, "vocabulary 2"]) -> Float[Array, " size"]:
    return matrix.T.ravel()


def _matrix(columns: Float[Array, " size"]) -> Float[Array, "vocabulary 2"]:
    return columns.reshape(2, -1).T


@full_precision
def linearise(
    log_time: PyTree, vector: PyTree, problem: PyTree
) -> tuple[Array, Array, JointJacobian]:
    """The field, its derivative in τ, the field again, and its Jacobian."""
    state = unflat(vector, problem.corpus.vocabulary)

    def push(columns: Array) -> Array:
        return _columns(_descent(_matrix(columns), problem, log_time))

    columns = _columns(state.both)
    pushed, curvature = _matrix(push(columns)), jax.jacfwd(push)(columns)
    moved = flat(_moved(pushed, state, problem.rates))
    return moved, moved, JointJacobian(state, problem.rates, pushed, curvature)


class JointRodas5P(Rodas5P):
    """Rodas5P for the joint flow: (I/(γh) − J) x = r by a system of 2|S| unknowns.

    As in every gradient flow a step is refused where a direction grows faster than
    1/(γh).
    """

    def solver(
        self, jacobian: PyTree, h: Float[Scalar, ""], y0: Float[Array, " dim"]
    ) -> tuple[Callable[[Array], Array], Bool[Scalar, ""], Float[Scalar, ""]]:
        """Solve (I/(γh) − J) x = r: the function, if h is right, h or a tiny one."""
        vocabulary = len(jacobian.push)
        still, width = lax.stop_gradient((jacobian, GAMMA * h))
        system = still.system(width)
        sound = still.is_definite(width) & jnp.isfinite(system).all()
        h = jnp.where(sound, h, jnp.finfo(y0.dtype).eps)
        # A refused step keeps a harmless system: no push, no curvature.
        jacobian = eqx.tree_at(
            lambda j: (j.push, j.curvature),
            jacobian,
            replace_fn=lambda x: jnp.where(sound, x, 0.0),
        )
        still, width = lax.stop_gradient((jacobian, GAMMA * h))
        identity = jnp.eye(len(system), dtype=y0.dtype)
        factor = lu_factor(jnp.where(sound, system, identity / width))

        def times(x: Array) -> Array:
            return x / (GAMMA * h) - flat(jacobian.times(unflat(x, vocabulary)))

        def inverse(right: Array) -> Array:
            return flat(still.inverse(width, factor, unflat(right, vocabulary)))

        def refined(right: Array) -> Array:
            # A long step has a system of condition τ‖J‖: one refinement.
            first = inverse(right)
            product = first / width - flat(still.times(unflat(first, vocabulary)))
            return first + inverse(right - product)

        def solve(right: Array) -> Array:
            return lax.custom_linear_solve(
                times,
                right,
                lambda _, x: refined(x),
                lambda _, x: jax.linear_transpose(refined, x)(x)[0],
            )

        return solve, sound, h


# With v fixed E Eᵀ grows like s², and an error of it acts on the scores in full size:
# at 1e-6 flows to s = 10⁶ leave the solution unseen, at this none of 24 does.
HEAD_FIXED = 1e-9


class JointFlow(eqx.Module):
    """The end of a joint flow, and its path.

    Attributes:
        embeddings: E at the end.
        query: p at the end.
        head: v at the end.
        log_time: log(1+t) at the end.
        status: a `FlowStatus`.
        num_steps: steps tried.
        num_rejected: of these, rejected.
        path_log_times: the log-times asked for; ∞ after the end of the flow.
        path_embeddings: E at these times; ∞ after the end of the flow.
        path_query: p, likewise.
        path_head: v, likewise.
    """

    embeddings: Float[Array, "vocabulary dim"]
    query: Float[Array, " dim"]
    head: Float[Array, " dim"]
    log_time: Float[Scalar, ""]
    status: Int[Scalar, ""]
    num_steps: Int[Scalar, ""]
    num_rejected: Int[Scalar, ""]
    path_log_times: Float[Array, " times"]
    path_embeddings: Float[Array, "times vocabulary dim"]
    path_query: Float[Array, "times dim"]
    path_head: Float[Array, "times dim"]


@for_corpus(-1, 1)
def joint_flow(
    parameters: Parameters,
    corpus: Corpus,
    *,
    rates: LearningRates = LearningRates(),
    until_log_time: Float[Scalar, ""] | float,
    path_log_times: Float[Array, " times"] | None = None,
    settings: FlowSettings = FlowSettings(),
) -> JointFlow:
    """Gradient flow of E, p and v together, each at its rate.

    dE/dτ = e^τ η (h_a pᵀ + h_b vᵀ), dp/dτ = e^τ η_p Eᵀh_a, dv/dτ = e^τ η_v Eᵀh_b, with
    τ = log(1+t). A step costs a system of 2|S| unknowns; d costs one product E Eᵀ and
    one with E.

    Source: mathematics, section 3i.

    Args:
        parameters: (E, p, v) at the start.
        corpus: n bags with labels ±1.
        rates: η, η_p and η_v; a rate of zero keeps its parameter fixed.
        until_log_time: log(1+t) to stop at; in float64 up to 10⁹, where the exponent
            log t − y f of a sequence still has digits, and up to 10⁶ where E is
            trained and v fixed.
        path_log_times: increasing values of log(1+t) to save E, p and v at; none by
            default.
        settings: tolerances and bounds; tolerances of E, p and v each, and at most
            `HEAD_FIXED` where E is trained and v fixed.

    Returns:
        The flow's end, its status and the path; differentiable once, in both modes.

    Raises:
        BadInput: another vocabulary, labels other than ±1, rates below zero or all
            zero, a bound that is NaN, times that go back.

    Example:
        >>> from jaxselect.data.corpus import from_sequences
        >>> bags = from_sequences([[0, 2], [1, 2]], [1, -1], vocabulary=3)
        >>> v = jnp.array([1.0, -1.0, 0.0])
        >>> start = Parameters(jnp.eye(3), jnp.zeros(3), v)
        >>> end = jax.jit(joint_flow)(start, bags, until_log_time=1e4)
        >>> value = end.embeddings[0] @ end.head
        >>> FlowStatus(end.status.item()).name, round(value.item(), -3)
        ('REACHED', 10000.0)
    """
    rates.check()
    at_least("until_log_time", until_log_time, 0.0)
    if path_log_times is not None:
        increasing("path_log_times", path_log_times)
    dtype = parameters.query.dtype
    times = jax.tree.map(
        lambda time: jnp.asarray(time, dtype), (until_log_time, path_log_times)
    )
    inputs = parameters, corpus, rates.array(dtype), *times
    found, cancelled = _integrate(lax.stop_gradient(inputs), settings)
    return _arrival((*inputs, found.log_time, cancelled), settings, known=found)


@in_both_modes
@full_precision
def _arrival(inputs: PyTree, settings: FlowSettings, adjoint: Any) -> JointFlow:
    """The flow to a known log-time: no event, whose search could raise."""
    *inputs, log_time, cancelled = inputs
    return _integrate(inputs, settings, adjoint, known_end=(log_time, cancelled))[0]


@full_precision
def _integrate(
    inputs: PyTree,
    settings: FlowSettings,
    adjoint: Any = None,
    *,
    known_end: tuple[Float[Scalar, ""], Bool[Scalar, ""]] | None = None,
) -> tuple[JointFlow, Bool[Scalar, ""]]:
    """The flow, and whether it ended where gradients cancel."""
    parameters, corpus, rates, until_log_time, path_log_times = inputs
    dtype = parameters.query.dtype
    pair = jnp.stack([parameters.query, parameters.head])
    vectors = jnp.concatenate([parameters.embeddings, pair])
    gram, identity = vectors @ vectors.T, jnp.eye(len(vectors), dtype=dtype)
    start = JointState(gram[:-2, :-2], gram[:-2, -2:], gram[-2:, -2:], identity)
    problem = JointProblem(corpus, rates)
    solver: Any = JointRodas5P(linearise)
    recorded = path_log_times is not None or known_end is not None
    if recorded:
        times = jnp.zeros(0, dtype) if path_log_times is None else path_log_times
        solver = Recorder(solver, times)
    if known_end is not None:
        end_time = jnp.minimum(known_end[0], until_log_time)
    solution: Any = dfx.diffeqsolve(
        dfx.ODETerm(field),
        solver,
        t0=jnp.zeros((), dtype),
        t1=until_log_time if known_end is None else end_time,
        dt0=None,
        y0=flat(start),
        args=problem,
        saveat=dfx.SaveAt(t1=True, solver_state=recorded),
        stepsize_controller=_step_control(settings, corpus.vocabulary, rates),
        event=dfx.Event(_excess_pull, optx.Newton(rtol=1e-9, atol=1e-9), direction=True)
        if known_end is None
        else None,
        max_steps=settings.max_steps,
        adjoint=adjoint or dfx.RecursiveCheckpointAdjoint(),
        throw=False,
    )
    if known_end is None:
        log_time, state = solution.ts[0], solution.ys[0]
        cancelled = solution.event_mask
    else:
        log_time, state = _shifted(solution, known_end[1], problem)
        cancelled = jnp.zeros((), bool)

    def parameters_of(vector: Array) -> Array:
        """(E, p, v) as rows; ∞ after the end of the flow."""
        there = jnp.isfinite(vector).all()
        state = unflat(jnp.where(there, vector, flat(start)), corpus.vocabulary)
        propagator = corrected(state.rows, state.both, gram, rates)
        return jnp.where(there, propagator @ vectors, jnp.inf)

    end = parameters_of(state)
    path_times, path = jnp.zeros(0, dtype), end[None][:0]
    if path_log_times is not None:
        path_times, path = record(
            solution.solver_state, path_log_times, 0.0, solution.ts[0]
        )
        path = jax.vmap(parameters_of)(path)
    flow = JointFlow(
        embeddings=end[:-2],
        query=end[-2],
        head=end[-1],
        log_time=log_time,
        status=_status(solution, cancelled, problem),
        num_steps=solution.stats["num_steps"],
        num_rejected=solution.stats["num_rejected_steps"],
        path_log_times=path_times,
        path_embeddings=path[:, :-2],
        path_query=path[:, -2],
        path_head=path[:, -1],
    )
    return flow, cancelled


def _shifted(
    solution: Any, ended: Bool[Scalar, ""], problem: JointProblem
) -> tuple[Float[Scalar, ""], Array]:
    """Time and state of the end, moving with its event."""
    log_time, state = solution.ts[0], solution.ys[0]
    slope = lax.stop_gradient(solution.solver_state[2])
    # Without an event any point will do at which h has a derivative.
    here = jnp.where(ended, state, lax.stop_gradient(state))
    excess = partial(_excess_pull, args=problem)
    step = event_shift(excess, log_time, here, slope, ended)
    return log_time + step, state + step * slope


def _step_control(
    settings: FlowSettings, vocabulary: int, rates: Float[Array, "3"]
) -> PredictiveController:
    """Errors of scores, values, E, p and v each against the tolerance."""
    fixed = lax.stop_gradient((rates[0] > 0) & (rates[2] == 0))

    def tolerance(asked: float) -> Float[Scalar, ""]:
        most = jnp.where(fixed, HEAD_FIXED, jnp.inf)
        return jnp.minimum(asked, most).astype(rates.dtype)

    def largest(errors: PyTree) -> Float[Scalar, ""]:
        parts = unflat(errors, vocabulary)
        each = [parts.tokens, parts.pair, *parts.both.T]
        each += [parts.rows[:-2], *parts.rows[-2:]]
        return jnp.stack([optx.rms_norm(part) for part in each]).max()

    return PredictiveController(
        tolerance(settings.rtol),
        tolerance(settings.atol),
        norm=largest,
        dtmin=SHORTEST_STEP,
        force_dtmin=False,
    )


@full_precision
def _excess_pull(t: PyTree, y: PyTree, args: PyTree, **_: PyTree) -> Float[Scalar, ""]:
    """Positive where pulls are so strong that their sum is rounding."""
    scores, values = unflat(y, args.corpus.vocabulary).both.T
    strongest = t + log_strongest_pull(scores, values, args.corpus)
    return (strongest + CANCELLATION_POWER * jnp.log(jnp.finfo(y.dtype).eps)).astype(
        float
    )


def _status(
    solution: Any, cancelled: Bool[Scalar, ""], problem: JointProblem
) -> Int[Scalar, ""]:
    slow = solution.result == dfx.RESULTS.max_steps_reached
    status = jnp.where(slow, FlowStatus.OUT_OF_STEPS, FlowStatus.FAILED)
    reached = solution.result == dfx.RESULTS.successful
    status = jnp.where(reached, FlowStatus.REACHED, status)
    spent = solution.result == dfx.RESULTS.dt_min_reached
    status = jnp.where(spent, FlowStatus.TIME_UNRESOLVED, status)
    held = _opposes(solution.ts[0], solution.ys[0], problem)
    held = jnp.where(held, FlowStatus.TIES_UNPROVED, FlowStatus.TIME_UNRESOLVED)
    status = jnp.where(cancelled, held, status)
    finite = jnp.isfinite(solution.ys[0]).all()
    return jnp.where(finite, status, FlowStatus.FAILED).astype(jnp.int32)


def _opposes(log_time: PyTree, state: Array, problem: JointProblem) -> Array:
    """Whether pulls oppose moving scores along the values, as in a tie."""
    _, _, jacobian = linearise(log_time, state, problem)
    size = problem.corpus.vocabulary
    values = jacobian.state.both[:, 1]
    return values @ jacobian.curvature[:size, :size] @ values < 0


@for_corpus(-1, 1)
def cls_head_flow(
    parameters: Parameters,
    corpus: Corpus,
    *,
    until_log_time: Float[Scalar, ""] | float,
    path_log_times: Float[Array, " times"] | None = None,
    settings: FlowSettings = FlowSettings(),
) -> JointFlow:
    """Gradient flow of p and v together, with E fixed: `joint_flow` at η = 0.

    Late v = v_mm s + …, where v_mm = argmin ‖v‖ with y vᵀE_{s*} ≥ 1 for every selected
    token s*. A sequence that v_mm needs keeps a residual of order 1/t, so
    p = p_mm τ + ρ in the time τ = log(½ s²), and ‖p‖ grows like log log t. If v_mm
    needs every sequence, p points where it does alone. One that v_mm fits with room to
    spare fades faster than 1/t: of p it only asks to go on selecting, D_kᵀp ≥ 0 in
    place of D_kᵀp ≥ 1.

    Source: mathematics, sections 3h and 4b.

    Args:
        parameters: (E, p_0, v_0).
        corpus: n bags with labels ±1.
        until_log_time: log(1+t) to stop at, as in `joint_flow`.
        path_log_times: increasing values of log(1+t) to save p and v at; none by
            default.
        settings: tolerances and bounds.

    Returns:
        The end of the flow, its status and the path.

    Raises:
        BadInput: as `joint_flow`.

    Example:
        See `joint_flow`, with `rates=LearningRates(embeddings=0.0)`.
    """
    return joint_flow(
        parameters,
        corpus,
        rates=LearningRates(embeddings=0.0),
        until_log_time=until_log_time,
        path_log_times=path_log_times,
        settings=settings,
    )


@for_corpus(by_head=True)
@full_precision
def key_query_flow(
    parameters: Parameters,
    key_query: Float[Array, "dim dim"],
    corpus: Corpus,
    *,
    until_norm: Float[Scalar, ""] | float = jnp.inf,
    until_log_time: Float[Scalar, ""] | float = 1e15,
    path_log_times: Float[Array, " times"] | None = None,
    settings: FlowSettings = FlowSettings(),
) -> tuple[Float[Array, "dim dim"], Flow]:
    """Gradient flow of a key-query matrix W in front of a fixed p.

    The scores are E W p, so dW/dt = Eᵀ(−∂L/∂a) pᵀ and u = W p obeys the flow of a CLS
    embedding in the time ‖p‖² t. W follows from it by `key_query_of`.

    Source: mathematics, section 3h.

    Args:
        parameters: (E, p, v), all fixed; p ≠ 0.
        key_query: W_0.
        corpus: n labelled bags.
        until_norm: ‖W p‖ to stop at.
        until_log_time: log(1 + ‖p‖² t) to stop at.
        path_log_times: increasing values of it to save W p at; none by default.
        settings: tolerances and bounds.

    Returns:
        W at the end, and the flow of W p in the time ‖p‖² t.

    Example:
        See `cls_flow` and `key_query_of`.
    """
    query = key_query @ parameters.query
    flow = cls_flow(
        Parameters(parameters.embeddings, query, parameters.head),
        corpus,
        until_norm=until_norm,
        until_log_time=until_log_time,
        path_log_times=path_log_times,
        settings=settings,
    )
    return key_query_of(key_query, parameters.query, flow.query), flow


@full_precision
def key_query_of(
    key_query: Float[Array, "dim dim"],
    cls: Float[Array, " dim"],
    query: Float[Array, " dim"],
) -> Float[Array, "dim dim"]:
    """W_t = W_0 + (u_t − W_0 p) pᵀ / ‖p‖²: a flow moves W along p alone.

    Source: mathematics, section 3h.

    Args:
        key_query: W_0.
        cls: p ≠ 0.
        query: u_t, which W_t makes of p.

    Returns:
        W_t.

    Example:
        >>> cls, query = jnp.array([2.0, 0.0]), jnp.array([6.0, 4.0])
        >>> key_query_of(jnp.eye(2), cls, query).tolist()
        [[3.0, 0.0], [2.0, 1.0]]
    """
    return key_query + jnp.outer(query - key_query @ cls, cls) / (cls @ cls)
