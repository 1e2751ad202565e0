"""The certificate of p and λ for a max-margin problem, measured on the tokens.

A method may work on centred, scaled or reduced tokens and stop by other criteria;
claims about its answer rest on the numbers here alone (mathematics, section 3c).
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Scalar

from ._precise import combination, precise_differences
from ._scale import norm
from ._thresholds import ALLOWED, LARGEST_GAP, REFUTED, SOLVED, SUM
from .pair_graph import potentials, score_differences


class Problem(NamedTuple):
    """The tokens of a max-margin problem, of size one, and its pairs.

    Attributes:
        tokens: E, as they were given but for a power of two.
        pairs: an edge at [s, r] where s must score above r by the margin.
        blur: the size up to which differences may be lost to the format; usually zero.
    """

    tokens: Float[Array, "vocabulary dim"]
    pairs: Bool[Array, "vocabulary vocabulary"]
    blur: Float[Scalar, ""]


class Candidate(NamedTuple):
    """The answer of a method, of which nothing is believed.

    Attributes:
        direction: p, or zero for duals that refute the problem.
        duals: λ.
        near: how far from the margin a pair counts as active; one number, or by pair.
    """

    direction: Float[Array, " dim"]
    duals: Float[Array, "vocabulary vocabulary"]
    near: Float[Array, "*pairs"]


class Answer(NamedTuple):
    """A candidate's p and λ, and the numbers measured of them.

    Attributes:
        direction: p, or zero for duals that refute the problem.
        duals: λ.
        active: the pairs at the margin.
        gap: as in `MaxMargin`.
        infeasibility: as in `MaxMargin`.
        balance: ‖Σ λ D‖ / Σ λ ‖D‖, infinite unless p is zero.
        allowed: the gap that rounding of p allows, for duals that cancel to
            ‖p‖ = Σ λ ‖D‖ / ψ; zero where it is not measured.
    """

    direction: Float[Array, " dim"]
    duals: Float[Array, "vocabulary vocabulary"]
    active: Bool[Array, "vocabulary vocabulary"]
    gap: Float[Scalar, ""]
    infeasibility: Float[Scalar, ""]
    balance: Float[Scalar, ""]
    allowed: Float[Scalar, ""]

    @property
    def solved(self) -> Bool[Scalar, ""]:
        """Whether p is proved to be the solution; a NaN proves nothing."""
        eps = jnp.finfo(self.gap.dtype).eps
        solved = self.gap <= jnp.fmax(self.allowed, SOLVED * eps)
        return solved & (self.infeasibility <= SOLVED * eps)

    @property
    def refuted(self) -> Bool[Scalar, ""]:
        """Whether λ proves that the problem has no solution."""
        return self.balance <= REFUTED * jnp.finfo(self.gap.dtype).eps

    @property
    def proved(self) -> Bool[Scalar, ""]:
        """Whether either is."""
        return self.solved | self.refuted

    @property
    def to_rounding(self) -> Bool[Scalar, ""]:
        """Whether it is without the gap that cancellation allows."""
        return self._replace(allowed=jnp.zeros_like(self.gap)).proved


def measured(problem: Problem, candidate: Candidate) -> Answer:
    """The certificate; with twice the digits where rounding might turn a decision."""
    tokens, pairs, blur = problem
    direction, duals, _ = candidate
    leads = score_differences(tokens @ direction)
    answer = _certificate(problem, candidate, leads, potentials(duals) @ tokens)
    # Scores cancel to leads, and the gap contains what rounding leaves of Dᵀλ through
    # its product with p, which is made of scores, too.
    longest = jnp.max(jnp.abs(tokens) @ jnp.abs(direction))
    eps = jnp.finfo(tokens.dtype).eps
    error = jnp.maximum(answer.gap, answer.infeasibility) + SUM * eps * longest
    doubtful = pairs.any() & (~(error <= SOLVED * eps) | (blur > 0))
    # In a loop p and λ are numbers stored. Within one program the two uses of a dual
    # may be computed twice, in two roundings that do not cancel.
    return where_asked(doubtful, partial(_precise, problem, candidate.near), answer)


def _precise(problem: Problem, near: Float[Array, "*pairs"], answer: Answer) -> Answer:
    """The certificate with twice the digits, and with the lengths ‖D‖."""
    tokens, pairs, blur = problem
    candidate = Candidate(answer.direction, answer.duals, near)
    direction, duals, _ = candidate
    leads, point = precise_differences(tokens, direction), combination(tokens, duals)
    answer = _certificate(problem, candidate, leads, point)
    some, total = jnp.any(direction != 0), jnp.sum(duals)
    length = lengths(tokens, pairs)
    # Where differences that vanish carry all of the duals, so does their sum.
    carried = jnp.sum(duals * length)
    balance = jnp.where(carried > 0, norm(point) / carried, 0.0)
    convex = jnp.abs(total - 1) <= SUM * jnp.finfo(total.dtype).eps
    convex = convex & jnp.all(duals >= 0) & jnp.all(pairs | (duals == 0))
    balance = jnp.where(convex & ~some, balance, jnp.inf)
    clear = jnp.min(jnp.where(pairs, length, jnp.inf)) >= blur
    return answer._replace(
        gap=jnp.where(clear, answer.gap, jnp.nan),
        balance=jnp.where(clear, balance, jnp.nan),
        allowed=jnp.where(some, allowed_gap(carried / norm(direction)), 0.0),
    )


def _certificate(
    problem: Problem,
    candidate: Candidate,
    leads: Float[Array, "vocabulary vocabulary"],
    point: Float[Array, " dim"],
) -> Answer:
    """Gap, infeasibility and active pairs, of D p by pair and of Dᵀλ."""
    (direction, duals, near), pairs = candidate, problem.pairs
    least = jnp.min(jnp.where(pairs, leads, jnp.inf), initial=jnp.inf)
    some, none = jnp.any(direction != 0), pairs.any().astype(point.dtype)
    value = 2 * jnp.sum(duals) - point @ point
    gap = jnp.abs(1 - value / (direction @ direction))
    return Answer(
        direction=direction,
        duals=duals,
        active=pairs & some & (jnp.abs(leads - 1) <= near),
        gap=jnp.where(some, gap, none),
        infeasibility=jnp.where(some, jnp.maximum(0.0, 1 - least), none),
        balance=jnp.full_like(gap, jnp.inf),
        allowed=jnp.zeros_like(gap),
    )


def where_asked(
    condition: Bool[Scalar, ""], function: Callable[[Answer], Answer], start: Answer
) -> Answer:
    """The function of the start where the condition holds, else the start.

    Where no lane asks, the function is not run.
    """
    return jax.lax.while_loop(
        lambda state: state[0],
        lambda state: (jnp.zeros_like(state[0]), function(state[1])),
        (condition, start),
    )[1]


def allowed_gap(cancellation: Float[Scalar, ""]) -> Float[Scalar, ""]:
    """Gap that rounding of p allows, of ψ = Σ λ ‖D‖ / ‖p‖."""
    eps = jnp.finfo(cancellation.dtype).eps
    return jnp.minimum(ALLOWED * eps * cancellation, eps**LARGEST_GAP)


def lengths(
    tokens: Float[Array, "vocabulary dim"], pairs: Bool[Array, "vocabulary vocabulary"]
) -> Float[Array, "vocabulary vocabulary"]:
    """‖E_s − E_r‖ of every pair, of the difference itself; zero off the pairs."""
    apart = jnp.abs(tokens[:, None, :] - tokens[None, :, :])
    largest = jnp.max(apart, axis=2, initial=0.0)
    unit = jnp.where(largest > 0, largest, 1.0)
    size = largest * jnp.sqrt(jnp.sum((apart / unit[:, :, None]) ** 2, axis=2))
    return jnp.where(pairs, size, 0.0)
