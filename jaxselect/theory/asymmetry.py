"""Noise of a draw at finite d: of order d^{−1/2} in scores and values."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Scalar

from ..program import one_program
from .two_classes import (
    Ensemble,
    Real,
    as_real,
    growth_exponent,
    log_pull,
    strongest_log_odds,
)

NODES, WEIGHTS = np.polynomial.legendre.leggauss(48)


@one_program()
def start_asymmetry(ensemble: Ensemble, alignment: Real) -> Float[Scalar, ""]:
    """√d times the standard deviation of the start's asymmetry δ.

    δ = (u₊ − u₋)/2 at the start, and what noise in E adds on the way, brought back to
    the start by (h/h(1/T))^{−ω}.

    Source: mathematics, section 6a.

    Args:
        ensemble: of corpora.
        alignment: γ.

    Returns:
        A number of order one.

    Example:
        >>> round(start_asymmetry(Ensemble(200, 8, 8, 48), 1.0).item(), 2)
        1.86
    """
    ensemble, gamma = as_real(ensemble), jnp.asarray(alignment, float)
    inverse, tokens, others = (
        1.0 + ensemble.odds,
        ensemble.relevant,
        ensemble.irrelevant,
    )
    share = ensemble.odds / inverse
    reduction = damping(ensemble, gamma)
    # Columns: p_0ᵀv; half the difference of the classes' mean E_sᵀp_0; half the sum of
    # their mean E_sᵀv; the irrelevant tokens' mean E_sᵀv; overlaps of tokens.
    deviation = jnp.sqrt(
        jnp.stack([1.0, 0.5 / tokens, 0.5 / tokens, 1.0 / others, 1.0])
    )
    zero = jnp.zeros(())
    start = jnp.stack([gamma, 1.0, gamma * share, -gamma * share, zero])
    level = jnp.stack(
        [zero, -2.0 * reduction, -reduction, 1.0 - reduction * ensemble.odds, zero]
    )
    gap = -level + jnp.stack(
        [zero, gamma * share, 1.0 - 0.5 * gamma / inverse, -0.5 * gamma * share, zero]
    )
    rate = 1.0 / tokens + 2.0 / others
    overlaps = jnp.zeros(5).at[4].set(1.0 / jnp.sqrt(tokens * rate))
    power = growth_exponent(ensemble, gamma)
    first = -jnp.log(ensemble.odds)
    end = strongest_log_odds(ensemble, gamma) - first

    def forcing(node: Float[Scalar, ""]) -> Float[Array, " 5"]:
        # Nodes crowd at the start, where a large ω forgets within 1/ω.
        score = end * node**3
        weight = jax.nn.sigmoid(first + score)
        late = jax.nn.sigmoid(gamma * weight)
        through_pull = gap * (1.0 - gamma * weight * late) - gamma * late * level
        added = power / gamma * through_pull + 2.0 * gamma / rate * gap + overlaps
        grown = log_pull(first + score, gamma) - log_pull(first, gamma)
        return 3.0 * end * node**2 * jnp.exp(-power * grown) * added

    nodes = jnp.asarray(0.5 + 0.5 * NODES)
    added = jnp.asarray(0.5 * WEIGHTS) @ jax.vmap(forcing)(nodes)
    return jnp.linalg.norm(deviation * (start + added))


@one_program()
def noise(ensemble: Ensemble, alignment: Real) -> Float[Scalar, ""]:
    """√d times the standard deviation of an irrelevant token's E_rᵀv.

    (1 − γ_I)² + γ_I² (T + ½)/N_r, γ_I = γR(T − 1)/(IT), N_r = n(T − 1)/(2I): a step on
    E lowers the part of f that an irrelevant token has in every sequence it is in.

    Source: mathematics, section 6c.

    Args:
        ensemble: of corpora.
        alignment: γ.

    Returns:
        One for γ = 0.

    Example:
        >>> noise(Ensemble(200, 8, 8, 48), 0.0).item()
        1.0
    """
    ensemble = as_real(ensemble)
    reduction = damping(ensemble, jnp.asarray(alignment, float))
    pairs = ensemble.sequences * ensemble.odds / (2.0 * ensemble.irrelevant)
    return jnp.sqrt(
        (1.0 - reduction) ** 2 + reduction**2 * (ensemble.odds + 1.5) / pairs
    )


def damping(ensemble: Ensemble, gamma: Float[Scalar, ""]) -> Float[Scalar, ""]:
    """γ_I = γR(T − 1)/(IT), the share of its value that an irrelevant token loses."""
    ensemble = as_real(ensemble)
    return (
        gamma
        * ensemble.relevant
        * ensemble.odds
        / (ensemble.irrelevant * (1.0 + ensemble.odds))
    )
