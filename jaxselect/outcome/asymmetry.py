"""What a draw adds to the limit d → ∞: noise of order d^{−1/2} in scores and values."""

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
    pull,
    strongest_weight,
)

NODES, WEIGHTS = np.polynomial.legendre.leggauss(48)


@one_program()
def start_asymmetry(ensemble: Ensemble, alignment: Real) -> Float[Scalar, ""]:
    """√d times the standard deviation of the asymmetry δ that a draw starts with.

    δ = (u₊ − u₋)/2 at the start, and what noise in E adds on the way, brought back to
    the start by (g/g(1/T))^{−ν}.

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
    of, gamma = as_real(ensemble), jnp.asarray(alignment, float)
    inverse, tokens, others = 1.0 + of.odds, of.relevant, of.irrelevant
    share = of.odds / inverse
    damping = gamma * tokens * share / others
    # Columns: p_0ᵀv; half the difference of the classes' mean E_sᵀp_0; half the sum of
    # their mean E_sᵀv; the irrelevant tokens' mean E_sᵀv; overlaps of tokens.
    deviation = jnp.sqrt(
        jnp.stack([1.0, 0.5 / tokens, 0.5 / tokens, 1.0 / others, 1.0])
    )
    zero = jnp.zeros(())
    start = jnp.stack([gamma, 1.0, gamma * share, -gamma * share, zero])
    level = jnp.stack([zero, -2.0 * damping, -damping, 1.0 - damping * of.odds, zero])
    gap = -level + jnp.stack(
        [zero, gamma * share, 1.0 - 0.5 * gamma / inverse, -0.5 * gamma * share, zero]
    )
    rate = 1.0 / tokens + 2.0 / others
    overlaps = jnp.zeros(5).at[4].set(1.0 / jnp.sqrt(tokens * rate))
    power = growth_exponent(of, gamma)
    end = jnp.log(of.odds) + jax.scipy.special.logit(strongest_weight(of, gamma))

    def forcing(node: Float[Scalar, ""]) -> Float[Array, " 5"]:
        # Nodes crowd at the start, where a large ν forgets within 1/ν.
        score = end * node**3
        weight = jax.nn.sigmoid(score - jnp.log(of.odds))
        late = jax.nn.sigmoid(gamma * weight)
        through_pull = gap * (1.0 - gamma * weight * late) - gamma * late * level
        added = power / gamma * through_pull + 2.0 * gamma / rate * gap + overlaps
        kept = (pull(weight, gamma) / pull(1.0 / inverse, gamma)) ** -power
        return 3.0 * end * node**2 * kept * added

    nodes = jnp.asarray(0.5 + 0.5 * NODES)
    added = jnp.asarray(0.5 * WEIGHTS) @ jax.vmap(forcing)(nodes)
    return jnp.linalg.norm(deviation * (start + added))


@one_program()
def noise(ensemble: Ensemble, alignment: Real) -> Float[Scalar, ""]:
    """√d times the standard deviation of E_rᵀv over irrelevant tokens after the step.

    (1 − κ)² + κ² (T + ½)/N_r, κ = γR(T − 1)/(IT), N_r = n(T − 1)/(2I): a step on E
    lowers the part of f that an irrelevant token has in every sequence it is in.

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
    of = as_real(ensemble)
    share = of.odds / (1.0 + of.odds)
    damping = alignment * of.relevant * share / of.irrelevant
    pairs = of.sequences * of.odds / (2.0 * of.irrelevant)
    return jnp.sqrt((1.0 - damping) ** 2 + damping**2 * (of.odds + 1.5) / pairs)
