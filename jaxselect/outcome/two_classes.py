"""Two classes that compete for p: the flow of their mean scores, symmetric and not.

Under Assumption 1 and for d → ∞ the flow keeps three numbers: u₊ and u₋, by how much an
important token of a positive (negative) sequence leads its irrelevant ones, and time.
With q = e^u/(e^u + T − 1), P = γ² + 1/R + 1/I and N = γ² − 1/I

    du±/dt = P g± − N g∓,        g(q) = ½ γ σ(−γ q) q (1 − q)

Functions take real numbers, concrete or traced, and are differentiable in all of them.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optimistix as optx
from jaxtyping import Array, Float, PyTree, Scalar

from ..program import one_program

Real = Float[Scalar, ""] | float


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
        """Important tokens per sequence, 1 + (T − 1)(1 − ρ) in the mean."""
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
        """ρ = δ̃ |S| / (|S| − 1)."""
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

    γ σ(γ/T) = T − T/(T − 1): there the pull g is largest at the start, q = 1/T.

    Source: mathematics, section 6a.

    Args:
        ensemble: of corpora.

    Returns:
        γ_c; its derivative is that of the implicit function.

    Example:
        >>> round(critical_alignment(Ensemble(200, 8, 8, 48)).item(), 3)
        9.065
    """
    odds = as_real(ensemble).odds

    def excess(log: Float[Scalar, ""], odds: Float[Scalar, ""]) -> Float[Scalar, ""]:
        return -steepness(1.0 / (1.0 + odds), jnp.exp(log))

    return jnp.exp(_root(excess, jnp.log(1e-3), jnp.log(4.0 * odds + 4.0), odds))


@one_program()
def amplification(ensemble: Ensemble, alignment: Real) -> Float[Scalar, ""]:
    """A(γ) = ν log(g(q*)/g(1/T)), by how much log δ grows on the symmetric path.

    An asymmetry grows as a power of the pull, δ ∝ g^ν, ν = (2γ² + 1/R)/(1/R + 2/I), as
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
    of = as_real(ensemble)
    gamma = jnp.asarray(alignment, float)
    start, top = 1.0 / (1.0 + of.odds), strongest_weight(of, gamma)
    grown = jnp.log(pull(top, gamma) / pull(start, gamma))
    return growth_exponent(of, gamma) * grown


def pull(weight: Real, alignment: Real) -> Float[Scalar, ""]:
    """g(q) = ½ γ σ(−γq) q (1 − q), the pull of a class on its important tokens.

    Source: mathematics, section 6.

    Args:
        weight: q of the important token in its sequences.
        alignment: γ.

    Returns:
        g.

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


def growth_exponent(of: Ensemble, gamma: Float[Scalar, ""]) -> Float[Scalar, ""]:
    """ν = (2γ² + 1/R)/(1/R + 2/I)."""
    own = 1.0 / of.relevant
    return (2.0 * gamma**2 + own) / (own + 2.0 / of.irrelevant)


def steepness(
    weight: Float[Array, "*classes"] | float, gamma: Real
) -> Float[Array, "*classes"]:
    """Slope of log g in q: 1/q − 1/(1 − q) − γ σ(γq)."""
    late = jax.nn.sigmoid(jnp.asarray(gamma * weight, float))
    return 1.0 / weight - 1.0 / (1.0 - weight) - gamma * late


def strongest_weight(of: Ensemble, gamma: Float[Scalar, ""]) -> Float[Scalar, ""]:
    """q* ≥ 1/T at which the pull is largest."""
    start = 1.0 / (1.0 + of.odds)
    top = _root(steepness, 1e-9, 0.5, gamma)
    return jnp.maximum(top, start)


def _root(function: Callable, low: Real, high: Real, inner: PyTree) -> Any:
    """Where function(x, inner) = 0 between two signs, by the implicit function."""
    low, high = (jax.lax.stop_gradient(jnp.asarray(x, float)) for x in (low, high))
    solver: Any = optx.Bisection(  # type: ignore[call-arg]
        rtol=1e-14, atol=1e-14, flip="detect"
    )
    found: Any = optx.root_find(
        function,
        solver,
        0.5 * (low + high),
        args=inner,
        options={"lower": low, "upper": high},
        max_steps=64,
        throw=False,
    )
    return jnp.where(found.result == optx.RESULTS.successful, found.value, jnp.nan)
