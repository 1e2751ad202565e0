"""The max-margin problem pair by pair, each difference brought to length one.

min ½‖p‖² subject to u_kᵀp ≥ b_k with u_k = D_k/‖D_k‖ and b_k = 1/‖D_k‖: however mixed
the lengths, no row is longer than another. The dual method of D. Goldfarb and
A. Idnani, A numerically stable dual method for solving strictly convex quadratic
programs (1983), begins at p = 0 and takes in the pair that p misses most; where no p
reaches it, the combination that says so is Farkas' certificate (mathematics,
section 3c).

The orthogonal factors of the active rows only steer. The residuals of p and of the
duals are measured on the tokens, with `_precise`, and taken off at every step.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Bool, Float, Int, Scalar

from ._measure import Candidate, Problem, lengths
from ._precise import combination, precise_differences
from ._thresholds import ACTIVE, DEPENDENT, GUARD
from .pair_graph import score_differences

# An entry and at most one exit for each pair that stays, twice over.
_STEPS_PER_ROW = 4


class _Rows(NamedTuple):
    """The rows u_k in coordinates of a space that holds the tokens, and their bounds.

    Attributes:
        tokens: E.
        pairs: a row each.
        axes: the tokens, transposed, in the coordinates of their span; where d is
            small in those of R^d.
        basis: of that span; none for R^d.
        length: ‖D_k‖; one where it vanishes.
        unit: the shortest of them.
        bound: b_k in units of the largest, so that p is of size one or more. A
            difference that vanishes cannot be reached, and is asked for first.
    """

    tokens: Float[Array, "vocabulary dim"]
    pairs: Bool[Array, "vocabulary vocabulary"]
    axes: Float[Array, "rank vocabulary"]
    basis: Float[Array, "dim rank"] | None
    length: Float[Array, "vocabulary vocabulary"]
    unit: Float[Scalar, ""]
    bound: Float[Array, "vocabulary vocabulary"]

    def row(self, winner: Array, loser: Array) -> Array:
        """u_k of pairs, a column each."""
        difference = self.axes[:, winner] - self.axes[:, loser]
        return difference / self.length[winner, loser][None]

    def lifted(self, change: Array) -> Array:
        """A vector in R^d."""
        return change if self.basis is None else self.basis @ change

    def reduced(self, point: Array) -> Array:
        """A vector of R^d in these coordinates."""
        return point if self.basis is None else point @ self.basis


class _State(NamedTuple):
    """A point p = Σ weight_j u_j, tight on the rows in use, and a row to take in."""

    point: Float[Array, " dim"]
    winner: Int[Array, " rows"]
    loser: Int[Array, " rows"]
    weight: Float[Array, " rows"]
    used: Bool[Array, " rows"]
    entering: Int[Scalar, ""]
    entered: Float[Scalar, ""]
    pending: Bool[Scalar, ""]
    refuted: Bool[Scalar, ""]
    going: Bool[Scalar, ""]
    steps: Int[Scalar, ""]

    def duals(self, vocabulary: int) -> Array:
        """The weight of every pair."""
        weights = jnp.zeros((vocabulary, vocabulary), self.weight.dtype)
        weights = weights.at[self.winner, self.loser].add(self.weight)
        return weights.at[jnp.divmod(self.entering, vocabulary)].add(self.entered)


def active_set(problem: Problem, going: Bool[Scalar, ""]) -> Candidate:
    """The solution p and its duals; or zero and duals that refute it."""
    tokens, pairs, _ = problem
    length = lengths(tokens, pairs)
    rows = _rows(tokens, pairs, length)
    rank = max(1, min(len(rows.axes), len(tokens) - 1))
    zero, no = jnp.zeros((), jnp.int32), jnp.asarray(False)
    start = _State(
        point=jnp.zeros_like(tokens[0]),
        winner=jnp.zeros(rank, jnp.int32),
        loser=jnp.zeros(rank, jnp.int32),
        weight=jnp.zeros(rank, tokens.dtype),
        used=jnp.zeros(rank, bool),
        entering=zero,
        entered=jnp.zeros((), tokens.dtype),
        pending=no,
        refuted=no,
        going=going,
        steps=zero,
    )
    end = lax.while_loop(lambda state: state.going, partial(_step, rows), start)
    weights = jnp.maximum(end.duals(len(tokens)), 0.0) / rows.length
    total = jnp.where(end.refuted, weights.sum(), rows.unit)
    direction = end.point / rows.unit
    size = jnp.maximum(1.0, length * jnp.linalg.norm(direction))
    near = ACTIVE * jnp.finfo(size.dtype).eps * size
    return Candidate(direction, weights / total, near)


def _rows(tokens: Array, pairs: Array, lengths: Array) -> _Rows:
    """The rows in the span of the tokens, where that is small."""
    vocabulary, dim = tokens.shape
    if 4 * dim <= 5 * vocabulary:
        basis, axes = None, tokens.T
    else:
        basis, axes = jnp.linalg.qr(tokens.T)
    unit = jnp.min(jnp.where(pairs & (lengths > 0), lengths, jnp.inf))
    unit = jnp.where(jnp.isfinite(unit), unit, 1.0)
    length = jnp.where(lengths > 0, lengths, 1.0)
    bound = jnp.where(lengths > 0, unit / length, 2.0)
    return _Rows(tokens, pairs, axes, basis, length, unit, bound)


def _step(rows: _Rows, state: _State) -> _State:
    """The state, corrected, after one row has come in or gone out."""
    order = jnp.argsort(~state.used)
    state = state._replace(
        winner=state.winner[order],
        loser=state.loser[order],
        weight=state.weight[order],
        used=state.used[order],
        steps=state.steps + 1,
    )
    across, factor = _factors(rows, state)
    state, short = _corrected(rows, state, across, factor)
    farthest = jnp.argmax(short).astype(jnp.int32)
    entering = jnp.where(state.pending, state.entering, farthest)
    missed = jnp.maximum(short[jnp.divmod(entering, len(short))], 0.0)
    rounding = GUARD / 2 * jnp.finfo(short.dtype).eps * jnp.linalg.norm(state.point)
    solved = ~state.pending & (missed <= rounding)
    moved = _towards(rows, state, across, factor, entering, missed)
    stays = solved | jnp.isnan(moved.entered)
    return _choose(stays, state._replace(going=jnp.asarray(False)), moved)


def _factors(rows: _Rows, state: _State) -> tuple[Array, Array]:
    """Q and R of the rows in use, which come first."""
    used = state.used
    unit = jnp.where(used[None, :], rows.row(state.winner, state.loser), 0.0)
    across, factor = jnp.linalg.qr(unit)
    one = jnp.eye(len(used), dtype=unit.dtype)
    factor = jnp.where(used[:, None] & used[None, :], factor, one)
    return jnp.where(used[None, :], across, 0.0), factor


def _corrected(
    rows: _Rows, state: _State, across: Array, factor: Array
) -> tuple[_State, Array]:
    """P tight on the rows in use; what it misses of others."""
    tokens, length, used = rows.tokens, rows.length, state.used
    guard = GUARD * jnp.finfo(tokens.dtype).eps * jnp.linalg.norm(state.point)
    short = rows.bound + guard - precise_differences(tokens, state.point) / length
    missing = jnp.where(used, short[state.winner, state.loser], 0.0)
    change = rows.lifted(across @ solve_triangular(factor, missing, trans=1))
    short = short - score_differences(tokens @ change) / length
    point = state.point + change
    duals = state.duals(len(tokens)) / length
    excess = rows.reduced(point - combination(tokens, duals))
    weight = state.weight + solve_triangular(factor, excess @ across)
    weight = jnp.where(used, weight, 0.0)
    short = jnp.where(rows.pairs, short, -jnp.inf)
    return state._replace(point=point, weight=weight), short


def _towards(
    rows: _Rows,
    state: _State,
    across: Array,
    factor: Array,
    entering: Int[Scalar, ""],
    missed: Float[Scalar, ""],
) -> _State:
    """The state after one step towards a row; `entered` NaN without one."""
    pair = jnp.divmod(entering, len(rows.tokens))
    eps, tiny = jnp.finfo(across.dtype).eps, jnp.finfo(across.dtype).tiny
    # The entering row is Σ falls u of the rows in use, and a part orthogonal to them.
    row = rows.row(*pair)
    along = row @ across
    orthogonal = row - across @ along
    again = orthogonal @ across
    along, orthogonal = along + again, orthogonal - across @ again
    falls = jnp.where(state.used, solve_triangular(factor, along), 0.0)
    total = 1 + jnp.sum(jnp.abs(falls))
    square = orthogonal @ orthogonal
    free = (jnp.sqrt(square) > DEPENDENT * eps * total) & ~state.used.all()

    # How far p may go along it until the row is tight, or a weight is zero.
    fall = jnp.where(falls > eps * total, falls, 0.0)
    until = jnp.where(fall > 0, jnp.maximum(state.weight, 0.0) / fall, jnp.inf)
    leaving = jnp.argmin(until)
    reach = jnp.where(free, missed / jnp.maximum(square, tiny), jnp.inf)
    enters = reach <= until[leaving]
    pace = jnp.minimum(reach, until[leaving])
    slot = jnp.where(enters, jnp.argmin(state.used), leaving)
    entered = state.entered + pace
    winner = jnp.where(enters, pair[0], state.winner[slot])
    loser = jnp.where(enters, pair[1], state.loser[slot])
    weight = state.weight - pace * falls
    moved = state._replace(
        point=state.point + jnp.where(free, pace, 0.0) * rows.lifted(orthogonal),
        winner=state.winner.at[slot].set(winner),
        loser=state.loser.at[slot].set(loser),
        weight=weight.at[slot].set(jnp.where(enters, entered, 0.0)),
        used=state.used.at[slot].set(enters),
        entering=entering,
        entered=jnp.where(enters, 0.0, entered),
        pending=~enters,
        going=state.steps < _STEPS_PER_ROW * len(state.used) + 8,
    )
    # No row is in the way and none is left to go: the rest of them refutes it.
    refuted = state._replace(
        point=jnp.zeros_like(state.point),
        weight=jnp.maximum(-falls, 0.0),
        entering=entering,
        entered=jnp.ones_like(pace),
        refuted=jnp.asarray(True),
        going=jnp.asarray(False),
    )
    return _choose(jnp.isinf(pace), refuted, moved)


def _choose(condition: Array, one: _State, other: _State) -> _State:
    """One state or the other."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), one, other)
