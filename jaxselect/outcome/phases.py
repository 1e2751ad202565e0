"""The phase diagram over (d, η₀): where selection begins, breaks, fails, and recovers.

Every edge is a root of one function of (d, η₀) and of the ensemble's sizes, for the
median draw, and differentiable by the implicit function.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.stats import norm
from jaxtyping import Bool, Float, Scalar

from ..program import one_program
from .asymmetry import noise, start_asymmetry
from .race import Race, race
from .two_classes import Ensemble, Real, alignment, critical_alignment
from .two_classes import step_size as step_size_of

# The median of |N(0, 1)|: half of the draws start with a larger |δ|.
MEDIAN = 0.6744897501960817
# log 2: the symmetry is broken where one class has ever had twice the other's weight.
BROKEN = 0.6931471805599453
# 2 e^{−γ_E}, Euler's γ_E: noise wins where its variance at the losing class's return
# would be larger (mathematics, section 6c).
NOISE_WINS = 1.1229189671337703
# An edge is sought on a grid, then in a cell of it, and so on, to rounding.
CELLS, ROUNDS = 32, 7
# d beyond which no capture is asked about.
LARGEST_DIM = 1e40


class Edges(NamedTuple):
    """A band of step sizes.

    Attributes:
        lower: η₀ at which it begins; NaN where there is no band.
        upper: η₀ at which it ends.
    """

    lower: Float[Scalar, ""]
    upper: Float[Scalar, ""]


@one_program()
def selection_edge(ensemble: Ensemble, dim: Real) -> Float[Scalar, ""]:
    """The smallest η₀ at which every important token is selected.

    γ √d = z + 2 ((1 + 1/λ)/(2R + 1))^{1/2}, Φ(z)^{2R} = ½, λ = n(T − 1)/(2RI): the
    weakest of 2R values γ + N(0, 1/d) must still outbid what it draws upon itself.

    Source: mathematics, section 6d.

    Args:
        ensemble: of corpora.
        dim: d.

    Returns:
        η₀ ∝ d^{−1/2}.

    Example:
        >>> round(selection_edge(Ensemble(200, 8, 8, 48), 1e4).item(), 2)
        5.96
    """
    tokens = jnp.asarray(ensemble.relevant, float)
    meetings = ensemble.sequences * ensemble.odds / 2.0 / tokens / ensemble.irrelevant
    weakest = norm.ppf(0.5 ** (0.5 / tokens))
    bid = 2.0 * jnp.sqrt((1.0 + 1.0 / meetings) / (2.0 * tokens + 1.0))
    gamma = (weakest + bid) / jnp.sqrt(jnp.asarray(dim, float))
    return jnp.asarray(step_size_of(ensemble, gamma))


@one_program()
def breaking_edges(ensemble: Ensemble, dim: Real) -> Edges:
    """The step sizes between which the symmetry of the classes breaks.

    The two roots of max_t log(q₊/q₋) = log 2 for δ = 0.674 `start_asymmetry`/√d: about
    A(γ) = ½ log d below, and just below γ_c above.

    Source: mathematics, sections 6a and 6b.

    Args:
        ensemble: of corpora.
        dim: d.

    Returns:
        Both step sizes.

    Example:
        >>> edges = breaking_edges(Ensemble(200, 8, 8, 48), 1e7)
        >>> [round(edge.item()) for edge in edges]
        [241, 2046]
    """
    return _band(_parted, ensemble, dim)


@one_program()
def capture_edges(ensemble: Ensemble, dim: Real) -> Edges:
    """The step sizes between which capture by one class is for good.

    The roots of θ²(1 − 1/(T − 1)) = 2 e^{−γ_E}, θ the spread that noise has given to
    the scores of irrelevant tokens as the losing class would come back.

    Source: mathematics, section 6c.

    Args:
        ensemble: of corpora.
        dim: d.

    Returns:
        Both step sizes; NaN at dimensions at which every capture is temporary.

    Example:
        >>> edges = capture_edges(Ensemble(200, 8, 8, 48), 1e4)
        >>> [round(edge.item()) for edge in edges]
        [265, 1018]
    """
    return _band(_lost, ensemble, dim)


@one_program()
def recovery_log_time(
    ensemble: Ensemble, dim: Real, step_size: Real
) -> Float[Scalar, ""]:
    """log(1+t) at which the losing class holds half of its sequences' weight again.

    Without noise, that is for d above `largest_captured_dim`.

    Source: mathematics, section 6b.

    Args:
        ensemble: of corpora.
        dim: d.
        step_size: η₀.

    Returns:
        The log-time of a median draw.

    Example:
        >>> when = recovery_log_time(Ensemble(200, 8, 8, 48), 1e7, 1000.0)
        >>> round(when.item(), 1)
        10.1
    """
    gamma = alignment(ensemble, step_size)
    return _median_race(ensemble, dim, gamma).log_time


@one_program()
def largest_captured_dim(ensemble: Ensemble, step_size: Real) -> Float[Scalar, ""]:
    """d_c up to which capture at a step size is for good.

    Source: mathematics, section 6c.

    Args:
        ensemble: of corpora.
        step_size: η₀.

    Returns:
        d_c; NaN where no dimension of at least one is captured for good.

    Example:
        >>> largest = largest_captured_dim(Ensemble(200, 8, 8, 48), 1000.0)
        >>> f"{largest:.1e}"
        '4.6e+04'
    """
    log_gamma = jnp.log(jnp.asarray(alignment(ensemble, step_size), float))

    def lost(log_dim: Float[Scalar, ""]) -> Float[Scalar, ""]:
        return _lost(log_gamma, ensemble, log_dim)

    return jnp.exp(_edge(lost, 0.0, jnp.log(LARGEST_DIM), jnp.array(True)))


def _median_race(ensemble: Ensemble, dim: Real, gamma: Real) -> Race:
    asymmetry = start_asymmetry(ensemble, gamma) / jnp.sqrt(dim)
    return race(ensemble, gamma, MEDIAN * asymmetry)


def _parted(
    log_gamma: Float[Scalar, ""], ensemble: Ensemble, log_dim: Float[Scalar, ""]
) -> Float[Scalar, ""]:
    """Positive where the symmetry of the classes breaks."""
    found = _median_race(ensemble, jnp.exp(log_dim), jnp.exp(log_gamma))
    return found.ratio - BROKEN


def _lost(
    log_gamma: Float[Scalar, ""], ensemble: Ensemble, log_dim: Float[Scalar, ""]
) -> Float[Scalar, ""]:
    """Positive where noise wins the losing class's sequences before it is back."""
    gamma = jnp.exp(log_gamma)
    apart = 1.0 - 1.0 / ensemble.odds
    spread = noise(ensemble, gamma) * apart / (4.0 * ensemble.irrelevant)
    found = _median_race(ensemble, jnp.exp(log_dim), gamma)
    log_theta = jnp.log(spread) + found.log_unpaired - 0.5 * log_dim
    return 2.0 * log_theta + jnp.log(apart) - jnp.log(NOISE_WINS)


def _band(condition: Callable, ensemble: Ensemble, dim: Real) -> Edges:
    """Where a condition first becomes positive as η₀ grows, and where it ceases to."""
    top = jnp.log(1.2 * critical_alignment(ensemble))
    log_dim = jnp.log(jnp.asarray(dim, float))

    def end(last: Bool[Scalar, ""]) -> Float[Scalar, ""]:
        at = _edge(lambda x: condition(x, ensemble, log_dim), top - 5.0, top, last)
        return jnp.asarray(step_size_of(ensemble, jnp.exp(at)))

    lower, upper = jax.vmap(end)(jnp.array([False, True]))
    return Edges(lower=lower, upper=upper)


def _edge(
    condition: Callable[[Float[Scalar, ""]], Float[Scalar, ""]],
    low: Real,
    high: Real,
    last: Bool[Scalar, ""],
) -> Float[Scalar, ""]:
    """The first place where a condition becomes positive, or the last where it is."""

    def solve(function: Callable, _: Float[Scalar, ""]) -> Float[Scalar, ""]:
        def zoom(_: Any, bracket: tuple) -> tuple:
            low, high, found = bracket
            places = jnp.linspace(low, high, CELLS + 1)
            inside = jax.lax.map(function, places, batch_size=CELLS + 1) > 0
            first, end = jnp.argmax(inside), CELLS - jnp.argmax(inside[::-1])
            there = jnp.any(inside) & jnp.where(last, end < CELLS, first > 0)
            cell = jnp.where(last, end, first - 1)
            return places[cell], places[cell + 1], found & there

        ends = jax.lax.stop_gradient((jnp.asarray(low, float), high))
        low_end, high_end, found = jax.lax.fori_loop(0, ROUNDS, zoom, (*ends, True))
        return jnp.where(found, 0.5 * (low_end + high_end), jnp.nan)

    def tangent_solve(linear: Callable, change: Float[Scalar, ""]) -> Any:
        return change / linear(jnp.ones(()))

    return jax.lax.custom_root(condition, jnp.zeros(()), solve, tangent_solve)
