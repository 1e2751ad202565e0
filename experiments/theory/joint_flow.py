"""Gradient flow of any of E, p and v together, at any rates, in log-time.

dE/dt = η (h_a pᵀ + h_b vᵀ), dp/dt = η_p Eᵀh_a, dv/dt = η_v Eᵀh_b, with h_a = −∂L/∂a and
h_b = −∂L/∂b. In τ = log(1+t) the rows of Z = [E; pᵀ; vᵀ] obey

    dZ/dτ = D Σ(h) Z,    Σ(h) = [[0, h], [hᵀ, 0]],    h = e^τ [h_a h_b],

where D = diag(η, …, η, η_p, η_v) holds the rates. h depends on W = E [p v] alone. W is
a block of the Gram matrix Z Zᵀ = [[K, W], [Wᵀ, G]], whose equation does not need Z.
Late all its blocks are linear in τ, while E, p and v grow like √τ. A Rosenbrock method
therefore integrates the blocks in long steps, and Z is computed from them (mathematics,
section 3i).

The flow Z_τ = U_τ Z_0 keeps U Δ Uᵀ = Δ with Δ = diag(η, …, η, −η_p, −η_v), as D Σ(h) Δ
is antisymmetric. An integration keeps this only to its tolerance, and the W computed
from U only to its tolerance times ‖E‖ ‖v‖, while the integrated W corrects its own
errors. `corrected` therefore moves U back to both.
"""

import math
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optimistix as optx
from jax import lax
from jax.scipy.linalg import lu_factor, lu_solve
from jaxtyping import Array, Bool, Float, Int, PyTree, Scalar

from jaxselect.checks import BadInput, at_least, increasing
from jaxselect.compilation import full_precision
from jaxselect.data.corpus import Corpus
from jaxselect.flow.adjoint import in_both_modes
from jaxselect.flow.control import SHORTEST_STEP, FlowSettings, PredictiveController
from jaxselect.flow.integration import (
    End,
    Integration,
    cancellation,
    integrate,
    status_of,
)
from jaxselect.flow.rodas import GAMMA, Rodas5P
from jaxselect.model.attention import negative_gradient
from jaxselect.model.curvature import growth_along_values
from jaxselect.model.parameters import Parameters, check_problem

# With v fixed E Eᵀ grows like τ², and an error of it acts on the scores in full size:
# at 1e-6 flows to τ = 10⁶ leave the solution unseen, at this none of 24 does.
HEAD_FIXED = 1e-9

# Part of the mean of T's diagonal that is added to it: with p or v out of reach T has
# no inverse, and its factor only needs a positive diagonal.
_RIDGE = 1e-13
# Both corrections of U converge quadratically; errors begin below 1e-2.
_CORRECTIONS = 4
# Part of its trace that is added to a system with directions that nothing trains.
_UNTRAINED_RIDGE = 1e-15


class LearningRates(eqx.Module):
    """Learning rates of E, p and v; a rate of zero keeps a parameter fixed.

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


class JointFlow(eqx.Module):
    """The end of a joint flow, and its path.

    Attributes:
        embeddings: E at the end.
        query: p at the end.
        head: v at the end.
        log_time: log(1+t) at the end.
        status: the `Reason` why it broke off; NONE (0) if it did not.
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


@full_precision
def joint_flow(
    parameters: Parameters,
    corpus: Corpus,
    *,
    rates: LearningRates = LearningRates(),
    until_log_time: Float[Scalar, ""] | float,
    path_log_times: Float[Array, " times"] | None = None,
    settings: FlowSettings = FlowSettings(),
) -> JointFlow:
    """Follow the gradient flow of E, p and v together, each at its rate.

    dE/dτ = e^τ η (h_a pᵀ + h_b vᵀ), dp/dτ = e^τ η_p Eᵀh_a, dv/dτ = e^τ η_v Eᵀh_b, with
    τ = log(1+t). A step solves a system of 2|S| unknowns; d enters only through E Eᵀ
    and one product with E.

    With E fixed, `LearningRates(embeddings=0.0)`, late v = v_mm τ + …, where
    v_mm = argmin ‖v‖ with y vᵀE_{s*} ≥ 1 for every selected token s*. A sequence that
    v_mm needs keeps a residual of order 1/t, so p = p_mm σ + ρ in σ = log(½ τ²), and
    ‖p‖ grows like log log t.

    Source: mathematics, sections 3h, 3i and 4b.

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
        >>> from jaxselect import from_sequences
        >>> bags = from_sequences([[0, 2], [1, 2]], [1, -1], vocabulary=3)
        >>> v = jnp.array([1.0, -1.0, 0.0])
        >>> start = Parameters(jnp.eye(3), jnp.zeros(3), v)
        >>> end = jax.jit(joint_flow)(start, bags, until_log_time=1e4)
        >>> value = end.embeddings[0] @ end.head
        >>> end.status.item(), round(value.item(), -3)
        (0, 10000.0)
    """
    check_problem(parameters, corpus)
    if corpus.classes is not None:
        raise BadInput(f"{corpus.classes} classes: wanted one head, and labels ±1")
    rates.check()
    at_least("until_log_time", until_log_time, 0.0)
    if path_log_times is not None:
        increasing("path_log_times", path_log_times)
    dtype = parameters.query.dtype
    times = jax.tree.map(
        lambda time: jnp.asarray(time, dtype), (until_log_time, path_log_times)
    )
    inputs = parameters, corpus, rates.array(dtype), *times
    found, end = _flow(lax.stop_gradient(inputs), settings)
    return _again((inputs, end), settings, known=found)


@in_both_modes
def _again(inputs: PyTree, settings: FlowSettings, adjoint: Any) -> JointFlow:
    """The flow to an end that is known."""
    given, end = inputs
    return _flow(given, settings, adjoint, end)[0]


def _flow(
    inputs: PyTree,
    settings: FlowSettings,
    adjoint: Any = None,
    known: End | None = None,
) -> tuple[JointFlow, End]:
    """The flow, and its end."""
    parameters, corpus, rates, until_log_time, path_log_times = inputs
    pair = jnp.stack([parameters.query, parameters.head])
    vectors = jnp.concatenate([parameters.embeddings, pair])
    gram, identity = vectors @ vectors.T, jnp.eye(len(vectors), dtype=vectors.dtype)
    start = flat(JointState(gram[:-2, :-2], gram[:-2, -2:], gram[-2:, -2:], identity))
    found = integrate(
        field,
        JointRodas5P(linearise),
        _step_control(settings, corpus.vocabulary, rates),
        JointProblem(corpus, rates),
        start,
        (jnp.zeros((), vectors.dtype), until_log_time),
        OrderedDict(cancellation=_cancelled),
        max_steps=settings.max_steps,
        path_log_times=path_log_times,
        adjoint=adjoint,
        known=known,
    )

    def parameters_at(vector: Array) -> Array:
        """Return (E, p, v) as rows; ∞ after the end of the flow."""
        there = jnp.isfinite(vector).all()
        state = unflat(jnp.where(there, vector, start), corpus.vocabulary)
        propagator = corrected(state.rows, state.both, gram, rates)
        return jnp.where(there, propagator @ vectors, jnp.inf)

    end = parameters_at(found.state)
    # No time is asked for as a rule, and `vmap` would trace the correction once more.
    path = end[None][:0]
    if path_log_times is not None:
        path = jax.vmap(parameters_at)(found.path)
    stats = found.solution.stats
    flow = JointFlow(
        embeddings=end[:-2],
        query=end[-2],
        head=end[-1],
        log_time=found.log_time,
        status=_status(corpus, found),
        num_steps=stats["num_steps"],
        num_rejected=stats["num_rejected_steps"],
        path_log_times=found.path_log_times,
        path_embeddings=path[:, :-2],
        path_query=path[:, -2],
        path_head=path[:, -1],
    )
    return flow, found.end


def _step_control(
    settings: FlowSettings, vocabulary: int, rates: Float[Array, "3"]
) -> PredictiveController:
    """Compare the errors of scores, values, E, p and v each with the tolerance."""
    fixed = lax.stop_gradient((rates[0] > 0) & (rates[2] == 0))

    def tolerance(asked: float | Array) -> Float[Scalar, ""]:
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


def _cancelled(log_time: PyTree, vector: PyTree, problem: PyTree) -> Array:
    scores, values = unflat(vector, problem.corpus.vocabulary).both.T
    corpus = problem.corpus
    entries = corpus.logits(scores), corpus.gather(values)
    return cancellation(log_time, *entries, corpus)


def _status(corpus: Corpus, found: Integration) -> Int[Scalar, ""]:
    scores, values = unflat(found.state, corpus.vocabulary).both.T
    entries = corpus.logits(scores), corpus.gather(values), corpus
    growth = growth_along_values([entries], found.log_time)
    return status_of(found, growth)


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
    """Compute h, with h_b set to zero (it might overflow) if E and v are fixed."""
    moves = ((problem.rates[0] > 0) | (problem.rates[1:] > 0))[None]
    # h does not depend on what is fixed either, so that ∂h/∂W stays symmetric.
    both = jnp.where(moves, both, lax.stop_gradient(both))
    scores, values = both.T
    push = negative_gradient(scores, values, problem.corpus, log_time)
    return jnp.where(moves, jnp.stack(push, axis=1), 0.0)


def _moved(push: Array, state: JointState, rates: Array) -> JointState:
    """Compute D Σ(h) Z, and D Σ(h) Z Zᵀ plus its transpose."""
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
        """The matrix of the system I/τ − J after K and G are eliminated."""
        state, push, (eta, pace) = self.state, self.push, self._rates()
        basis = jnp.eye(push.size, dtype=push.dtype)
        square, turn = push.T @ push, state.both.T @ push

        def by_both(column: Array) -> Array:
            """Apply the Jacobian to a change of W, including the changes of K and G."""
            x = _matrix(column)
            pair = pace[:, None] * (push.T @ x)
            tokens = push @ (x.T @ push) + x @ square
            moved = eta * push @ (pair + pair.T) + eta * tokens * pace[None]
            return _columns(width * moved)

        def by_push(column: Array) -> Array:
            """Differentiate the change of W along changes of h, K and G."""
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
        """Solve (I/τ − J) x = r, first for W, then for K and G, then for Z."""
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
        """Solve (I/τ − D Σ(h)) x = r for the rows of Z, by a system of two unknowns."""
        push, (eta, pace) = self.push, self._rates()
        turn = pace[:, None] * (push.T @ push)
        small = jnp.eye(2, dtype=push.dtype) / width - width * eta * turn
        pulled = pace[:, None] * (push.T @ right[:-2])
        pair = jnp.linalg.solve(small, right[-2:] + width * pulled)
        return jnp.concatenate([width * (right[:-2] + eta * push @ pair), pair])

    def is_definite(self, width: Float[Scalar, ""]) -> Bool[Scalar, ""]:
        """Whether no direction grows faster than 1/τ in the gradient flow of Z.

        Let A = I/τ − D Σ(h), P the map from δZ to δW and T = P A⁻¹ D Pᵀ. It is so if T
        = L Lᵀ and I − Lᵀ H L are positive definite.
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
        ridge = _RIDGE * jnp.trace(system) / len(system)
        factor = jnp.linalg.cholesky(system + ridge * identity)
        inner = identity - factor.T @ (self.curvature @ factor)
        return jnp.isfinite(jnp.linalg.cholesky(inner)).all()

    def _rates(self) -> tuple[Float[Scalar, ""], Float[Array, "2"]]:
        return self.rates[0], self.rates[1:]


def _columns(matrix: Float[Array, "vocabulary 2"]) -> Float[Array, " size"]:
    return matrix.T.ravel()


def _matrix(columns: Float[Array, " size"]) -> Float[Array, "vocabulary 2"]:
    return columns.reshape(2, -1).T


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

    A step is refused if a direction grows faster than 1/(γh).
    """

    def solver(
        self, jacobian: PyTree, h: Float[Scalar, ""], y0: Float[Array, " dim"]
    ) -> tuple[Callable[[Array], Array], Bool[Scalar, ""], Float[Scalar, ""]]:
        """Factorise I/(γh) − J: the solver, whether h is allowed, and the h used."""
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

        # A step solves several systems; without this each is traced anew.
        return jax.jit(solve, inline=True), sound, h


def corrected(
    propagator: Float[Array, "rows rows"],
    both: Float[Array, "vocabulary 2"],
    gram: Float[Array, "rows rows"],
    rates: Float[Array, "3"],
) -> Float[Array, "rows rows"]:
    """Correct the propagator U so that U Δ Uᵀ = Δ and its W is the integrated one.

    The correction U ← (1 + D Σ(x)) U changes W by η x G + K x diag(η_p, η_v), so x has
    as many unknowns as W has entries. `gram` is Z_0 Z_0ᵀ.
    """
    vocabulary = len(both)
    eta, pace = rates[0], rates[1:]
    form = jnp.concatenate([jnp.full(vocabulary, eta), -pace])
    trained = form != 0
    inverse = jnp.where(trained, 1 / jnp.where(trained, form, 1.0), 0.0)

    def once(_: PyTree, propagator: Array) -> Array:
        now = propagator @ gram @ propagator.T
        tokens, pair = now[:-2, :-2], now[-2:, -2:]
        identity = jnp.eye(vocabulary, dtype=both.dtype)
        system = eta * jnp.kron(pair, identity) + jnp.kron(jnp.diag(pace), tokens)
        ridge = (
            _UNTRAINED_RIDGE
            * jnp.trace(system)
            * jnp.eye(len(system), dtype=both.dtype)
        )
        missing = (both - now[:-2, -2:]).T.ravel()
        impulse = jnp.linalg.solve(system + ridge, missing).reshape(2, -1).T
        embeddings = propagator[:-2] + eta * impulse @ propagator[-2:]
        vectors = propagator[-2:] + pace[:, None] * (impulse.T @ propagator[:-2])
        moved = jnp.concatenate([embeddings, vectors])
        off = jnp.diag(form) - (moved * form[None]) @ moved.T
        return moved + 0.5 * (off * inverse[None]) @ moved

    return lax.fori_loop(0, _CORRECTIONS, once, propagator)


@full_precision
def key_query_at(
    key_query: Float[Array, "dim dim"],
    query: Float[Array, " dim"],
    moved: Float[Array, " dim"],
) -> Float[Array, "dim dim"]:
    """Compute W_t = W_0 + (u_t − W_0 p) pᵀ / ‖p‖² of a key-query matrix before p.

    The scores are E W p, so dW/dt = Eᵀ(−∂L/∂a) pᵀ moves W along p alone, and u = W p
    obeys the flow of a query, `cls_flow` of (E, W_0 p, v), in the time ‖p‖² t.

    Source: mathematics, section 3h.

    Args:
        key_query: W_0.
        query: p ≠ 0, fixed.
        moved: u_t, where the flow of W p is at some time.

    Returns:
        W_t.

    Example:
        >>> query, moved = jnp.array([2.0, 0.0]), jnp.array([6.0, 4.0])
        >>> key_query_at(jnp.eye(2), query, moved).tolist()
        [[3.0, 0.0], [2.0, 1.0]]
    """
    return key_query + jnp.outer(moved - key_query @ query, query) / (query @ query)
