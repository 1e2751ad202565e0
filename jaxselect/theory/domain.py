"""The domain of the theory of the phase diagram: small numbers and bounds."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Bool, Float, Scalar

from ..program import one_program
from .asymmetry import damping, start_asymmetry
from .two_classes import Ensemble, Real, alignment, critical_alignment

# Bounds within which edges were measured at 0.90 to 1.10 of their prediction, on
# shapes with R from I/5 to 2I.
LARGEST_VALUE, LARGEST_START, LARGEST_SPREAD = 0.03, 0.15, 0.1


class SmallNumbers(NamedTuple):
    """Numbers that the theory assumes to be small.

    Attributes:
        value: γ_I d^{−1/2}, the step's change of an irrelevant token's value that comes
            from values of irrelevant tokens; of first order in the theory.
        start: δ at the start, at γ or at γ_c/2 if that is less; of first order too.
        spread: standard deviation of the important tokens' counts over their mean
            n/(2R), where each occurs ⌊n/(2R)⌋ or ⌈n/(2R)⌉ times; zero in the theory.
    """

    value: Float[Scalar, ""]
    start: Float[Scalar, ""]
    spread: Float[Scalar, ""]


@one_program()
def small_numbers(ensemble: Ensemble, dim: Real, step_size: Real) -> SmallNumbers:
    """The three numbers whose smallness the theory assumes.

    γ_I = γR(T − 1)/(IT) over √d; `start_asymmetry`/√d; and (f(1 − f))^{1/2} 2R/n, f the
    fractional part of n/(2R), for the even counts of `synthetic.assumption_one`.

    Source: mathematics, section 6e.

    Args:
        ensemble: of corpora.
        dim: d.
        step_size: η₀.

    Returns:
        The numbers, each zero in the theory's limit.

    Example:
        >>> found = small_numbers(Ensemble(200, 8, 8, 48), 1e4, 1000.0)
        >>> [round(number.item(), 3) for number in found]
        [0.006, 0.045, 0.04]
    """
    gamma = jnp.asarray(alignment(ensemble, step_size), float)
    root = jnp.sqrt(jnp.asarray(dim, float))
    # Near γ_c there is little growth: classes part where they start apart.
    growing = jnp.minimum(gamma, 0.5 * critical_alignment(ensemble))
    count = jnp.asarray(ensemble.sequences / (2.0 * ensemble.relevant), float)
    part = count - jnp.floor(count)
    return SmallNumbers(
        value=damping(ensemble, gamma) / root,
        start=start_asymmetry(ensemble, growing) / root,
        spread=jnp.sqrt(part * (1.0 - part)) / count,
    )


@one_program()
def in_domain(ensemble: Ensemble, dim: Real, step_size: Real) -> Bool[Scalar, ""]:
    """Whether (d, η₀) is in the domain of the theory.

    `small_numbers` are at most 0.03, 0.15 and 0.1.

    Source: mathematics, section 6e.

    Args:
        ensemble: of corpora.
        dim: d.
        step_size: η₀, for instance a predicted edge.

    Returns:
        True within the domain; False also for an edge that is infinite, zero or NaN.

    Example:
        >>> wide = Ensemble(96, 8, 16, 16)
        >>> [in_domain(wide, dim, 4615.0).item() for dim in (1e4, 1e7)]
        [False, True]
    """
    found = small_numbers(ensemble, dim, step_size)
    within = jnp.asarray(step_size) > 0.0
    bounds = LARGEST_VALUE, LARGEST_START, LARGEST_SPREAD
    for number, bound in zip(found, bounds, strict=True):
        within &= number <= bound
    return within
