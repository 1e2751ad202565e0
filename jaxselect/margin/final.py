"""Selections and directions that are final though p has not converged to a late flow.

Either p is near its line but for half a score; or every c_k > 0, so that no force acts
towards a losing token: then p need not be near its line p_mm log t + ρ, nor need there
be a ρ, and p/‖p‖ → p_mm/‖p_mm‖ (mathematics, remark 3e.7 and section 7c).
"""

import math
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Scalar

from ..flow.cls import Flow
from ..model.attention import functional_margin
from ..problem import Problem
from ..status import Reason
from .certificate import (
    FORCES_HOLD,
    GROSS,
    NONLINEAR,
    TOLERANCE,
    UNSELECTED,
    Certificate,
    PredictedEnd,
    perturbations,
)
from .pairs import ROUNDINGS, lead_range, response_to_weights
from .perturbation import RestingTies, tie_motion

# Bound on the change of scores by later forces where the direction alone is certified.
# Chosen: weights grow by less than the certificate's `GROWTH` meanwhile.
HALF_A_SCORE = 0.5


def direction_is_final(
    problem: Problem, flow: Flow, found: Certificate, ties: RestingTies | None = None
) -> Bool[Scalar, ""]:
    """Check whether selection and p/‖p‖ → p_mm/‖p_mm‖ are certain.

    They may be where the late flow is not, by theorem 3e.4 or 7c.4 with a tolerance of
    half a score, or by theorem 7c.3. The flow reached its norm.

    Source: mathematics, remark 3e.7.
    """
    end, here = found.ending, (flow.query, flow.log_time)
    later = perturbations(problem, end, here, HALF_A_SCORE, ties=ties, convex=True)
    near = later.bound(end.late.basin) <= HALF_A_SCORE
    near &= end.late.status == Reason.NONE
    near &= later.displacement <= TOLERANCE
    # Before these reasons there is no flow or no p_mm; after them ties may move.
    only = (found.reason > Reason.NOT_CONVERGED) & (found.reason <= Reason.HISTORY)
    return only & (near | _all_attract(problem, end, *here, ties))


def _all_attract(
    problem: Problem,
    end: PredictedEnd,
    query: Float[Array, " dim"],
    log_time: Float[Scalar, ""],
    ties: RestingTies | None = None,
) -> Bool[Scalar, ""]:
    """Check theorem 7c.3 at one p: all c_k > 0, and all that they leave out is small.

    With F = 2 max(Σλ, 2‖p_mm‖²) and R = max λ̄_k/λ_k, shares of losing tokens stay below
    those of forces that add up to F, and what the sum over pairs leaves out below
    η D R Σλ, η from these shares and from ties off their rest. If that is at most
    Σλ/(2‖p_mm‖), half of what the sum is at least, Σλ ≤ F for ever.
    """
    margin, selected, strength = end.margin, end.selected, end.late.strength
    corpus, rows, pairs = problem.corpus, problem.rows, margin.pairs
    eps = jnp.finfo(rows.dtype).eps
    unknown = ROUNDINGS * eps * strength.magnitude + strength.error
    sure = strength.factor - unknown
    attracts = pairs.held & (sure > 0)
    log_sure = strength.log_scale + jnp.log(jnp.where(attracts, sure, 1.0))
    most = strength.log_scale + jnp.log(jnp.where(attracts, sure + 2 * unknown, 1.0))
    exponent = most + log_time - pairs.leads(rows @ query)
    total = jnp.sum(jnp.exp(jnp.where(attracts, exponent, -jnp.inf)))
    norm = margin.norm
    bound = 2 * jnp.maximum(total, 2 * norm**2)

    slots = jnp.argmax(selected, axis=1)
    loses = corpus.present & ~selected
    entry = corpus.at(problem.values, slots)
    best = functional_margin(corpus.labels, entry, corpus.loss)
    spread = lead_range(best, problem.values, corpus.present)
    spread = spread if ties is None else jnp.maximum(spread, ties.ranges)
    pair = pairs.places(corpus, slots)
    odds = problem.offsets - corpus.at(problem.offsets, slots)[:, None]
    odds = jnp.where(loses, odds - log_sure[pair], -jnp.inf)
    share = GROSS * jnp.exp(odds + jnp.log(bound) - log_time).sum(axis=1)
    unselected = jnp.max(share * (1 + best.largest_ratio(corpus.loss) * spread))
    size = jnp.exp(corpus.loss.log_slope(best.value)[:, None] + odds)
    size = size * (best.steepness * spread)[:, None]
    gross = jnp.zeros(pairs.held.shape, rows.dtype)
    gross = gross.at[pair].add(corpus.weighted(size))
    ratio = GROSS * jnp.max(jnp.where(pairs.held, gross, 0.0))

    longest = jnp.max(jnp.where(pairs.held, pairs.lengths(rows), 0.0))
    left_out, rest = NONLINEAR * unselected, jnp.asarray(True)
    if ties is not None:
        response = ties.widths * response_to_weights(spread, corpus.loss, best)
        moved, passing, rest = _by_ties(
            ties, jnp.max(response), ratio * bound, log_time
        )
        left_out = left_out + moved
        # What is off at first is over at once, and lets Σλ grow by 2 at most.
        rest &= longest**2 * ratio * bound * passing <= math.log(2)
    small = longest * ratio * left_out * 2 * norm <= 1
    one = jnp.all(selected.sum(axis=1) <= 1)
    solved = (margin.status == Reason.NONE) & one
    positive = jnp.all(attracts | ~pairs.held) & pairs.held.any()
    return solved & positive & (unselected <= UNSELECTED) & small & rest


def _by_ties(
    ties: RestingTies,
    response: Float[Scalar, ""],
    force: Float[Scalar, ""],
    log_time: Float[Scalar, ""],
) -> tuple[Any, Any, Bool[Scalar, ""]]:
    """Bound the relative change of forces by ties that losers move, and that passes.

    `force` bounds the gross forces of all bags, per unit of τ, and `response` their
    relative change by a unit of displacement.

    Returns:
        The change that lasts, the integral of what passes, and whether both hold.
    """
    on_ties, room = (1 + FORCES_HOLD) * force * response, ties.room(TOLERANCE)
    motion = tie_motion(ties.rest, ties.moved, on_ties, log_time)
    alone = tie_motion(ties.rest, room, 0.0 * on_ties, log_time)
    holds = response * jnp.maximum(room, motion.largest) <= FORCES_HOLD
    moved, passing = (
        jnp.where(ties.tied, (1 + FORCES_HOLD) * response * off, 0.0)
        for off in (motion.largest - ties.moved, alone.integral)
    )
    return moved, passing, holds | ~ties.tied
