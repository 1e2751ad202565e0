"""Two classes that compete for p: the flow of their mean scores.

Under Assumption 1 and for d → ∞ the flow keeps three numbers: u₊ and u₋, by how much an
important token of a positive (negative) sequence leads its irrelevant ones, and time.
With q = e^u/(e^u + T − 1), K_+ = γ² + 1/R + 1/I and K_− = γ² − 1/I

    du±/dt = K_+ h± − K_− h∓,      h(q) = ½ γ σ(−γ q) q (1 − q)

Functions take real numbers, concrete or traced, and are differentiable in all of them.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Scalar

from ..program import one_program

Real = Float[Scalar, ""] | float
# Least γ at which an edge is sought; γ_c is less for T − 2 < 10⁻³ alone.
SMALLEST = 1e-3
# A bracket's width over that of its root, 2⁻⁶⁰, is below rounding.
HALVINGS = 60


class Ensemble(NamedTuple):
    """A law of corpora, with two classes of equal size.

    Attributes:
        sequences: n.
        length: tokens per sequence T.
        relevant: important tokens per class R.
        irrelevant: irrelevant tokens I.
        irrelevant_share: δ̃ of `synthetic.independent_tokens`, to first order; by
            default its upper end, Assumption 1.
    """

    sequences: Real
    length: Real
    relevant: Real
    irrelevant: Real
    irrelevant_share: Real | None = None

    @property
    def important(self) -> Real:
        """Important tokens per sequence, 1 + (T − 1)(1 − ι) in the mean."""
        return 1.0 + (self.length - 1.0) * (1.0 - self._mixing)

    @property
    def odds(self) -> Real:
        """Irrelevant tokens for each important one in a sequence, T − 1."""
        return self.length / self.important - 1.0

    @property
    def strength(self) -> Real:
        """Mean posterior difference of an important token."""
        return 1.0 - 0.45 * (1.0 - self._mixing)

    @property
    def _mixing(self) -> Real:
        """ι = δ̃ |S| / (|S| − 1)."""
        tokens = 2.0 * self.relevant + self.irrelevant
        share = self.irrelevant_share
        return 1.0 if share is None else share * tokens / (tokens - 1.0)


def alignment(ensemble: Ensemble, step_size: Real) -> Real:
    """γ = η₀/(4RT), the |E_sᵀv| of the important tokens after the step on E.

    Source: Lemma 4.1; mathematics, section 6.

    Args:
        ensemble: of corpora.
        step_size: η₀.

    Returns:
        γ; with several important tokens per sequence to first order.

    Example:
        >>> alignment(Ensemble(200, 8, 8, 48), 256.0)
        1.0
    """
    return step_size / _steps(ensemble)


def step_size(ensemble: Ensemble, alignment: Real) -> Real:
    """η₀ = 4RTγ, by which important tokens get the alignment γ.

    Source: mathematics, section 6.

    Args:
        ensemble: of corpora.
        alignment: γ.

    Returns:
        η₀.

    Example:
        >>> step_size(Ensemble(200, 8, 8, 48), 1.0)
        256.0
    """
    return alignment * _steps(ensemble)


@one_program()
def critical_alignment(ensemble: Ensemble) -> Float[Scalar, ""]:
    """γ_c beyond which an asymmetry of the classes never grows.

    γ σ(γ/T) = T − T/(T − 1): there the pull h is largest at the start, q = 1/T.

    Source: mathematics, section 6a.

    Args:
        ensemble: of corpora.

    Returns:
        γ_c, zero for T ≤ 2; its derivative is that of the implicit function.

    Example:
        >>> round(critical_alignment(Ensemble(200, 8, 8, 48)).item(), 3)
        9.065
    """
    odds = as_real(ensemble).odds
    # At T = 2 the pull is largest at the start for every γ.
    grows = odds > 1.0
    safe = jnp.where(grows, odds, 2.0)

    def slope(log: Float[Scalar, ""], odds: Float[Scalar, ""]) -> Float[Scalar, ""]:
        return log_pull_slope(-jnp.log(odds), jnp.exp(log))

    found = _root(slope, jnp.log(SMALLEST), jnp.log(4.0 * safe + 4.0), safe)
    return jnp.where(grows, jnp.exp(found), 0.0)


@one_program()
def amplification(ensemble: Ensemble, alignment: Real) -> Float[Scalar, ""]:
    """amp(γ) = ω log(h(q*)/h(1/T)), by how much log δ grows on the symmetric path.

    An asymmetry grows as a power of the pull, δ ∝ h^ω, ω = (2γ² + 1/R)/(1/R + 2/I), as
    long as that grows, until q*.

    Source: mathematics, section 6a.

    Args:
        ensemble: of corpora.
        alignment: γ.

    Returns:
        A ≥ 0; zero beyond γ_c.

    Example:
        >>> round(amplification(Ensemble(200, 8, 8, 48), 1.0).item(), 3)
        8.077
    """
    ensemble = as_real(ensemble)
    gamma = jnp.asarray(alignment, float)
    start, top = -jnp.log(ensemble.odds), strongest_log_odds(ensemble, gamma)
    return growth_exponent(ensemble, gamma) * (
        log_pull(top, gamma) - log_pull(start, gamma)
    )


def pull(weight: Real, alignment: Real) -> Float[Scalar, ""]:
    """h(q) = ½ γ σ(−γq) q (1 − q), the pull of a class on its important tokens.

    Source: mathematics, section 6.

    Args:
        weight: q of the important token in its sequences.
        alignment: γ.

    Returns:
        h.

    Example:
        >>> pull(0.5, 0.0).item()
        0.0
    """
    late = jax.nn.sigmoid(-jnp.asarray(alignment * weight, float))
    return 0.5 * alignment * late * weight * (1.0 - weight)


def as_real(ensemble: Ensemble) -> Ensemble:
    """The same with numbers that JAX can differentiate."""
    return jax.tree.map(lambda x: jnp.asarray(x, float), ensemble)


def _steps(ensemble: Ensemble) -> Real:
    """η₀/γ = 4RT over the importance of a token in units of 1/(2RT)."""
    important = ensemble.important * ensemble.strength
    return 4.0 * ensemble.relevant * ensemble.length / important


def growth_exponent(ensemble: Ensemble, gamma: Float[Scalar, ""]) -> Float[Scalar, ""]:
    """ω = (2γ² + 1/R)/(1/R + 2/I)."""
    own = 1.0 / ensemble.relevant
    return (2.0 * gamma**2 + own) / (own + 2.0 / ensemble.irrelevant)


def log_pull(
    log_odds: Float[Array, "*classes"], alignment: Real
) -> Float[Array, "*classes"]:
    """Log h(q), exact however close q is to zero or one.

    Source: mathematics, section 6.

    Args:
        log_odds: log q/(1 − q) of a class, or of each.
        alignment: γ > 0.

    Returns:
        log h.

    Example:
        >>> log_pull(jnp.array(-1000.0), 4.0).item()
        -1000.0
    """
    late = jax.nn.log_sigmoid(-alignment * jax.nn.sigmoid(log_odds))
    log_product = jax.nn.log_sigmoid(log_odds) + jax.nn.log_sigmoid(-log_odds)
    return jnp.log(0.5 * jnp.asarray(alignment, float)) + late + log_product


def log_pull_slope(
    log_odds: Float[Array, "*classes"], alignment: Real
) -> Float[Array, "*classes"]:
    """(1 − q) − q − γ q (1 − q) σ(γq), the slope of log h in the log-odds of q."""
    weight, unselected = jax.nn.sigmoid(log_odds), jax.nn.sigmoid(-log_odds)
    return (
        unselected
        - weight
        - alignment * weight * unselected * jax.nn.sigmoid(alignment * weight)
    )


def strongest_log_odds(
    ensemble: Ensemble, gamma: Float[Scalar, ""]
) -> Float[Scalar, ""]:
    """Log-odds of the q* ≥ 1/T at which the pull is largest."""
    top = _root(log_pull_slope, -jnp.log(2.0 + 4.0 * gamma), 0.0, gamma)
    return jnp.maximum(top, -jnp.log(ensemble.odds))


def _root(
    function: Callable[..., Float[Scalar, ""]], low: Real, high: Real, inner: Real
) -> Float[Scalar, ""]:
    """The x at which function(x, inner) turns negative, or NaN.

    Its derivative is that of the implicit function.
    """

    def solve(at: Callable, _: Float[Scalar, ""]) -> tuple[Any, Any]:
        ends = [jax.lax.stop_gradient(jnp.asarray(x, float)) for x in (low, high)]

        def halve(_: Any, bracket: Array) -> Array:
            middle = bracket.mean()
            left = jnp.stack([bracket[0], middle])
            right = jnp.stack([middle, bracket[1]])
            return jnp.where(at(middle) > 0.0, right, left)

        found = jax.lax.fori_loop(0, HALVINGS, halve, jnp.stack(ends))
        inside = (at(ends[0]) > 0.0) & (at(ends[1]) < 0.0)
        return found.mean(), jnp.where(inside, 0.0, jnp.nan)

    def tangent_solve(linear: Callable, change: Float[Scalar, ""]) -> Any:
        return change / linear(jnp.ones(()))

    root, unknown = jax.lax.custom_root(
        lambda x: function(x, inner), jnp.zeros(()), solve, tangent_solve, has_aux=True
    )
    return root + unknown
