"""The certificate of p and λ for a max-margin problem, measured on the tokens.

A method may work on centred, scaled or reduced tokens and stop by other criteria;
claims about its answer rest on the numbers here alone (mathematics, section 3c).
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Scalar

from ._precise import combination, precise_differences
from ._scale import norm
from ._thresholds import ALLOWED, LARGEST_GAP, SUM


class Answer(NamedTuple):
    """The answer of a method, and the numbers measured of it.

    Attributes:
        direction: p, or zero for duals that refute the problem.
        duals: λ.
        active: the pairs at the margin.
        near: how near to it that is.
        gap: as in `MaxMargin`.
        infeasibility: as in `MaxMargin`.
        balance: ‖Σ λ D‖ / Σ λ ‖D‖, infinite unless p is zero.
        allowed: the gap that rounding of p allows, for duals that cancel to
            ‖p‖ = Σ λ ‖D‖ / ψ; zero where it is not measured.
    """

    direction: Float[Array, " dim"]
    duals: Float[Array, "vocabulary vocabulary"]
    active: Bool[Array, "vocabulary vocabulary"]
    near: Float[Array, "vocabulary vocabulary"]
    gap: Float[Scalar, ""]
    infeasibility: Float[Scalar, ""]
    balance: Float[Scalar, ""]
    allowed: Float[Scalar, ""]


def measured(
    tokens: Float[Array, "vocabulary dim"],
    pairs: Bool[Array, "vocabulary vocabulary"],
    apart: Float[Array, "vocabulary vocabulary"],
    answer: Answer,
) -> Answer:
    """The answer with all that is measured; `apart` holds the lengths ‖D‖."""
    direction, duals = answer.direction, answer.duals
    ahead = precise_differences(tokens, direction)
    least = jnp.min(jnp.where(pairs, ahead, jnp.inf))
    point, total = combination(tokens, duals), jnp.sum(duals)
    some = jnp.any(direction != 0)
    gap = jnp.abs(1 - (2 * total - point @ point) / (direction @ direction))
    # Where differences that vanish carry all of the duals, so does their sum.
    carried = jnp.sum(duals * apart)
    balance = jnp.where(carried > 0, norm(point) / carried, 0.0)
    convex = jnp.abs(total - 1) <= SUM * jnp.finfo(total.dtype).eps
    convex = convex & jnp.all(duals >= 0) & jnp.all(pairs | (duals == 0))
    return answer._replace(
        active=pairs & some & (jnp.abs(ahead - 1) <= answer.near),
        gap=jnp.where(some, gap, 1.0),
        infeasibility=jnp.where(some, jnp.maximum(0.0, 1 - least), 1.0),
        balance=jnp.where(convex & ~some, balance, jnp.inf),
        allowed=jnp.where(some, allowed_gap(carried / norm(direction)), 0.0),
    )


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
