"""Edges of the phase diagram over (d, η₀).

Every edge is a root of one function of (d, η₀) and of the ensemble's sizes, for the
median draw with even counts, and is differentiable by the implicit function theorem.
The edges hold inside the domain that `in_domain` checks; for R ≥ I or small d it ends
below γ_c.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm
from jaxtyping import Array, Bool, Float, Scalar

from experiments.theory.two_classes import (
    SMALLEST,
    Ensemble,
    Real,
    TwoClassOrbit,
    alignment,
    critical_alignment,
    damping,
    noise,
    start_asymmetry,
    two_class_ode,
)
from experiments.theory.two_classes import step_size as step_size_of

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


@partial(jax.jit, inline=True)
def small_numbers(ensemble: Ensemble, dim: Real, step_size: Real) -> SmallNumbers:
    """Compute the three numbers that the theory assumes to be small.

    They are γ_I/√d with γ_I = γR(T − 1)/(IT), `start_asymmetry`/√d, and the relative
    spread of counts (f(1 − f))^{1/2} 2R/n, with f the fractional part of n/(2R), for
    the even counts of `synthetic.assumption_one`.

    Source: mathematics, section 6e.

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


@partial(jax.jit, inline=True)
def in_domain(ensemble: Ensemble, dim: Real, step_size: Real) -> Bool[Scalar, ""]:
    """Whether (d, η₀) is in the domain of the theory.

    `small_numbers` are at most 0.03, 0.15 and 0.1. An edge that is infinite, zero or
    NaN is outside.

    Source: mathematics, section 6e.

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


# The median of |N(0, 1)|: half of the draws start with a larger |δ|.
MEDIAN = 0.6744897501960817
# log 2: the symmetry is broken where one class has ever had twice the other's weight.
BROKEN = 0.6931471805599453
# 2 e^{−γ_E}, Euler's γ_E: noise wins where its variance at the losing class's return
# would be larger (mathematics, section 6c).
NOISE_WINS = 1.1229189671337703
# An edge is sought in a cell of a grid, in rounds of two points each; the largest value
# of a condition, by which a narrow band is found, to 10⁻³ of η₀.
CELLS, ROUNDS, PEAK_ROUNDS = 32, 9, 3
# Edges of a band that reaches beyond both ends of the grid.
BEYOND = np.array([-np.inf, np.inf])
# Largest d at which capture is asked about.
LARGEST_DIM = 1e40

# A function of places on the grid that is positive inside a band.
Condition = Callable[[Float[Array, " places"]], Float[Array, " places"]]


class Edges(NamedTuple):
    """A band of step sizes lower < η₀ < upper; (∞, 0) where it is empty.

    An edge is NaN if an orbit of `two_class_ode` that it needs is unknown.

    Attributes:
        lower: η₀ at which it begins; 0 where it holds from the selection edge on.
        upper: η₀ at which it ends; ∞ where it holds up to 1.2 γ_c.
    """

    lower: Float[Scalar, ""]
    upper: Float[Scalar, ""]


@partial(jax.jit, inline=True)
def selection_edge(ensemble: Ensemble, dim: Real) -> Float[Scalar, ""]:
    """Find the smallest η₀ at which every important token is selected.

    γ √d = z + 2 ((1 + 1/λ)/(2R + 1))^{1/2}, Φ(z)^{2R} = ½, λ = n(T − 1)/(2RI): the
    smallest of 2R values γ + N(0, 1/d) must be large enough for its token to be
    selected against the irrelevant tokens that its own force raises. Hence η₀ ∝
    d^{−1/2}.

    Source: mathematics, section 6d.

    Example:
        >>> round(selection_edge(Ensemble(200, 8, 8, 48), 1e4).item(), 2)
        5.96
    """
    gamma = _least_bid(ensemble) / jnp.sqrt(jnp.asarray(dim, float))
    return jnp.asarray(step_size_of(ensemble, gamma))


@partial(jax.jit, inline=True)
def breaking_edges(ensemble: Ensemble, dim: Real) -> Edges:
    """Find the step sizes between which the symmetry of the classes breaks.

    They are the roots of max_t log(q₊/q₋) = log 2 for δ = 0.674 `start_asymmetry`/√d.
    The lower one is near amp(γ) = ½ log d, the upper one just below γ_c.

    Source: mathematics, sections 6a and 6b.

    Example:
        >>> edges = breaking_edges(Ensemble(200, 8, 8, 48), 1e7)
        >>> [round(edge.item()) for edge in edges]
        [241, 2046]
    """
    return _band(_parted, ensemble, dim)


@partial(jax.jit, inline=True)
def capture_edges(ensemble: Ensemble, dim: Real) -> Edges:
    """Find the step sizes between which capture by one class is permanent.

    They are the roots of Θ²(1 − 1/(T − 1)) = 2 e^{−γ_E}, where Θ is the spread of the
    scores of irrelevant tokens, caused by noise, at the time when the losing class
    would return. At dimensions where every capture is temporary they are (∞, 0).

    Source: mathematics, section 6c.
    """
    return _band(_lost, ensemble, dim)


@partial(jax.jit, inline=True)
def recovery_log_time(
    ensemble: Ensemble, dim: Real, step_size: Real
) -> Float[Scalar, ""]:
    """Compute log(1+t) at which the losing class has regained half of the weight.

    Noise is neglected, so the result holds for d above `largest_captured_dim`.

    Source: mathematics, section 6b.

    Args:
        ensemble: ensemble of corpora.
        dim: d.
        step_size: η₀.

    Returns:
        The log-time of a median draw, at most some 10⁴; NaN where it is not known.

    Example:
        >>> when = recovery_log_time(Ensemble(200, 8, 8, 48), 1e7, 1000.0)
        >>> round(when.item(), 1)
        10.1
    """
    gamma = alignment(ensemble, step_size)
    return _median_orbit(ensemble, dim, gamma).log_time


@partial(jax.jit, inline=True)
def largest_captured_dim(ensemble: Ensemble, step_size: Real) -> Float[Scalar, ""]:
    """Find the dimension d_c up to which capture at a step size is permanent.

    Source: mathematics, section 6c.

    Args:
        ensemble: ensemble of corpora.
        step_size: η₀.

    Returns:
        d_c; 0 where no d above the selection edge is captured for good, ∞ where every
        d ≤ 10⁴⁰ is, NaN where it is not known.
    """
    log_gamma = jnp.log(jnp.asarray(alignment(ensemble, step_size), float))
    least = 2.0 * (jnp.log(_least_bid(ensemble)) - log_gamma)

    def lost(log_dim: Float[Scalar, ""]) -> Float[Scalar, ""]:
        return _lost(log_gamma, ensemble, log_dim)

    ends = jnp.stack([jnp.maximum(least, 0.0), jnp.log(LARGEST_DIM)])
    return jnp.exp(_edges(lost, ends)[1])


def _least_bid(ensemble: Ensemble) -> Float[Scalar, ""]:
    """Compute γ √d at which half of the draws select every important token."""
    tokens = jnp.asarray(ensemble.relevant, float)
    meetings = ensemble.sequences * ensemble.odds / 2.0 / tokens / ensemble.irrelevant
    weakest = norm.ppf(0.5 ** (0.5 / tokens))
    return weakest + 2.0 * jnp.sqrt((1.0 + 1.0 / meetings) / (2.0 * tokens + 1.0))


def _median_orbit(ensemble: Ensemble, dim: Real, gamma: Real) -> TwoClassOrbit:
    asymmetry = start_asymmetry(ensemble, gamma) / jnp.sqrt(dim)
    return two_class_ode(ensemble, gamma, MEDIAN * asymmetry)


def _parted(
    log_gamma: Float[Scalar, ""], ensemble: Ensemble, log_dim: Float[Scalar, ""]
) -> Float[Scalar, ""]:
    """Positive where the symmetry of the classes breaks."""
    found = _median_orbit(ensemble, jnp.exp(log_dim), jnp.exp(log_gamma))
    return found.ratio - BROKEN


def _lost(
    log_gamma: Float[Scalar, ""], ensemble: Ensemble, log_dim: Float[Scalar, ""]
) -> Float[Scalar, ""]:
    """Positive where noise prevents the return of the losing class."""
    gamma = jnp.exp(log_gamma)
    share = 1.0 - 1.0 / ensemble.odds
    spread = noise(ensemble, gamma) * share / (4.0 * ensemble.irrelevant)
    found = _median_orbit(ensemble, jnp.exp(log_dim), gamma)
    log_theta = jnp.log(spread) + found.log_unpaired - 0.5 * log_dim
    return 2.0 * log_theta + jnp.log(share) - jnp.log(NOISE_WINS)


def _band(condition: Callable, ensemble: Ensemble, dim: Real) -> Edges:
    """Find the first and the last η₀ at which a condition is positive."""
    log_dim = jnp.log(jnp.asarray(dim, float))
    largest = 1.2 * jnp.maximum(critical_alignment(ensemble), SMALLEST)
    least = jnp.minimum(_least_bid(ensemble) / jnp.sqrt(dim), 0.5 * largest)
    ends = jnp.log(jnp.stack([least, largest]))
    found = _edges(lambda x: condition(x, ensemble, log_dim), ends)
    lower, upper = jnp.asarray(step_size_of(ensemble, 1.0)) * jnp.exp(found)
    return Edges(lower=lower, upper=upper)


def _edges(
    condition: Callable[[Float[Scalar, ""]], Float[Scalar, ""]],
    ends: Float[Array, " 2"],
) -> Float[Array, " 2"]:
    """Find the first and the last point at which a condition is positive.

    If it is positive at an end of the range, that edge is ∓∞; if nowhere, the edges are
    (∞, −∞); if a value met in the search is NaN, so is the edge.
    """
    values_at = jax.vmap(condition)

    # `custom_root` hands over a function of two points at a time, and no more.
    def solve(_: Condition, __: Float[Array, " 2"]) -> tuple[Any, Any]:
        start = _brackets(values_at, jax.lax.stop_gradient(ends))

        def narrow(step: Any, state: tuple) -> tuple:
            # The false position, then the middle, so that either end comes closer.
            share = jnp.where(step % 2 == 0, _share(state), 0.5)
            x = state[0] + share * (state[1] - state[0])
            return _replaced(state, x, values_at(x))

        state = jax.lax.fori_loop(0, 2 * ROUNDS, narrow, start)
        return state[0] + _share(state) * (state[1] - state[0]), state[-1]

    def tangent_solve(linear: Callable, change: Float[Array, " 2"]) -> Any:
        return change / linear(jnp.ones(2))

    roots, flag = jax.lax.custom_root(
        values_at, jnp.zeros(2), solve, tangent_solve, has_aux=True
    )
    return jnp.where(flag == 0.0, roots, flag)


def _share(state: tuple) -> Float[Array, " 2"]:
    """Find the zero of a straight line, as a share of the bracket."""
    _, _, below, above, _ = state
    bracketed = (below <= 0.0) & (above > 0.0)
    return jnp.where(bracketed, below / jnp.where(bracketed, below - above, 1.0), 0.5)


def _replaced(state: tuple, x: Float[Array, " 2"], value: Float[Array, " 2"]) -> tuple:
    """Replace the end of a bracket that has the sign of a new point."""
    outside, inside, below, above, flag = state
    positive = value > 0.0
    return (
        jnp.where(positive, outside, x),
        jnp.where(positive, x, inside),
        jnp.where(positive, below, value),
        jnp.where(positive, value, above),
        jnp.where((flag == 0.0) & jnp.isnan(value), jnp.nan, flag),
    )


def _brackets(
    function: Condition, ends: Float[Array, " 2"]
) -> tuple[Float[Array, " 2"], ...]:
    """Find points outside and inside each edge, their values, and whether it exists."""

    def refine(state: tuple) -> tuple:
        iteration, ends, _, _ = state
        points = jnp.linspace(ends[0], ends[1], CELLS + 1)
        values = function(points)
        around = jnp.argmax(values) + jnp.array([-1, 1])
        return iteration + 1, points[jnp.clip(around, 0, CELLS)], points, values

    # Where no value is positive, a narrow band may be next to the largest.
    nothing = jnp.zeros(CELLS + 1, ends.dtype)
    _, _, points, values = jax.lax.while_loop(
        lambda state: (state[0] < PEAK_ROUNDS) & (state[3].max() <= 0.0),
        refine,
        (0, ends, nothing, nothing),
    )
    positive = values > 0.0
    first, last = jnp.argmax(positive), CELLS - jnp.argmax(positive[::-1])
    outside = jnp.clip(jnp.stack([first - 1, last + 1]), 0, CELLS)
    inside = jnp.stack([first, last])
    flag = jnp.where(positive[jnp.array([0, CELLS])], BEYOND, 0.0)
    flag = jnp.where(positive.any(), flag, -BEYOND)
    flag = jnp.where(jnp.isnan(values).any(), jnp.nan, flag)
    return points[outside], points[inside], values[outside], values[inside], flag
