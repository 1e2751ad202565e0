"""The max-margin problem pair by pair, each difference brought to length one.

min ½‖p‖² subject to u_kᵀp ≥ b_k with u_k = D_k/‖D_k‖ and b_k = 1/‖D_k‖: however mixed
the lengths, no row is longer than another. The dual method of D. Goldfarb and
A. Idnani, A numerically stable dual method for solving strictly convex quadratic
programs (1983), begins at p = 0 and takes in the pair that p misses most; where no p
reaches it, the combination that says so is Farkas' certificate (mathematics,
section 3c).

The orthogonal factors of the active rows only steer. What p misses and what the duals
leave over is measured on the tokens, with `_precise`, and taken off at every step.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Bool, Float, Int, Scalar

from ._precise import combination, leads
from ._thresholds import DEPENDENT, GUARD
from .pair_graph import lead

# An entry and at most one exit for each pair that stays, twice over.
_STEPS_PER_ROW = 4


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


def active_set(
    tokens: Float[Array, "vocabulary dim"],
    pairs: Bool[Array, "vocabulary vocabulary"],
    lengths: Float[Array, "vocabulary vocabulary"],
    going: Bool[Scalar, ""],
) -> tuple[Float[Array, " dim"], Float[Array, "vocabulary vocabulary"]]:
    """The solution p and its duals; or zero and duals, of sum one, that refute it."""
    vocabulary, dim = tokens.shape
    eps, tiny = jnp.finfo(tokens.dtype).eps, jnp.finfo(tokens.dtype).tiny
    if 4 * dim <= 5 * vocabulary:
        basis, axes = None, tokens.T
    else:
        basis, axes = jnp.linalg.qr(tokens.T)
    rank = max(1, min(len(axes), vocabulary - 1))
    # In units of the longest bound: p is of size one or more. A difference that
    # vanishes cannot be reached, and is asked for first.
    least = jnp.min(jnp.where(pairs & (lengths > 0), lengths, jnp.inf))
    least = jnp.where(jnp.isfinite(least), least, 1.0)
    length = jnp.where(lengths > 0, lengths, 1.0)
    bound = jnp.where(lengths > 0, least / length, 2.0)

    def row(winner: Array, loser: Array) -> Array:
        return (axes[:, winner] - axes[:, loser]) / length[winner, loser][None]

    def whole(change: Array) -> Array:
        return change if basis is None else basis @ change

    def part(point: Array) -> Array:
        return point if basis is None else point @ basis

    def gathered(state: _State) -> Array:
        weights = jnp.zeros_like(length)
        weights = weights.at[state.winner, state.loser].add(state.weight)
        return weights.at[jnp.divmod(state.entering, vocabulary)].add(state.entered)

    def factored(state: _State) -> tuple[Array, Array]:
        """Q and R of the rows in use, which come first."""
        used = state.used
        rows = jnp.where(used[None, :], row(state.winner, state.loser), 0.0)
        across, factor = jnp.linalg.qr(rows)
        one = jnp.eye(len(used), dtype=rows.dtype)
        factor = jnp.where(used[:, None] & used[None, :], factor, one)
        return jnp.where(used[None, :], across, 0.0), factor

    def mended(state: _State, across: Array, factor: Array) -> tuple[_State, Array]:
        """What p misses on the rows in use, and Σ weight u of p, made up for."""
        used = state.used
        target = bound + GUARD * eps * jnp.linalg.norm(state.point)
        short = target - leads(tokens, state.point) / length
        missing = jnp.where(used, short[state.winner, state.loser], 0.0)
        change = whole(across @ solve_triangular(factor, missing, trans=1))
        short = jnp.where(pairs, short - lead(tokens @ change) / length, -jnp.inf)
        point = state.point + change
        excess = part(point - combination(tokens, gathered(state) / length))
        weight = state.weight + solve_triangular(factor, excess @ across)
        weight = jnp.where(used, weight, 0.0)
        return state._replace(point=point, weight=weight), short

    def step(state: _State) -> _State:
        order = jnp.argsort(~state.used)
        state = state._replace(
            winner=state.winner[order],
            loser=state.loser[order],
            weight=state.weight[order],
            used=state.used[order],
            steps=state.steps + 1,
        )
        across, factor = factored(state)
        state, short = mended(state, across, factor)
        farthest = jnp.argmax(short).astype(jnp.int32)
        entering = jnp.where(state.pending, state.entering, farthest)
        pair = jnp.divmod(entering, vocabulary)
        missed = jnp.maximum(short[pair], 0.0)
        rounding = GUARD / 2 * eps * jnp.linalg.norm(state.point)
        solved = ~state.pending & (missed <= rounding)

        # The entering row is Σ falls u of the rows in use, and a part apart from them.
        wanted = row(*pair)
        along = wanted @ across
        apart = wanted - across @ along
        again = apart @ across
        along, apart = along + again, apart - across @ again
        falls = jnp.where(state.used, solve_triangular(factor, along), 0.0)
        total = 1 + jnp.sum(jnp.abs(falls))
        square = apart @ apart
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
            point=state.point + jnp.where(free, pace, 0.0) * whole(apart),
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
        moved = _choose(jnp.isinf(pace), refuted, moved)
        stays = solved | jnp.isnan(pace)
        return _choose(stays, state._replace(going=jnp.asarray(False)), moved)

    zero = jnp.zeros((), jnp.int32)
    no = jnp.asarray(False)
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
    end = lax.while_loop(lambda state: state.going, step, start)
    weights = jnp.maximum(gathered(end), 0.0) / length
    total = jnp.where(end.refuted, weights.sum(), least)
    return end.point / least, weights / total


def _choose(condition: Array, one: _State, other: _State) -> _State:
    """One state or the other."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), one, other)
