"""Residuals of the limit problems of a joint flow, at one time.

With E and v trained the values head for argmin |b| with y_X f_X ≥ 1: a bag is explained
by one token, and |b|² counts the tokens that explain (mathematics, section 3i).
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Scalar

from ..corpora.checks import for_corpus
from ..corpora.corpus import Corpus
from ..model.attention import attend_corpus
from ..model.functional_margin import functional_margin
from ..model.objective import negative_gradient
from ..precision import full_precision

# Part of the smallest margin at which a value counts as that of a selected token: in
# the limit it is one or zero.
HALF = 0.5


class JointLimit(eqx.Module):
    """Distances of scores and values from a limit of the joint flow.

    Attributes:
        selected: tokens whose value is at least half of the smallest margin m.
        square: |b|²/m²; in the limit the number of selected tokens.
        stationarity: |b/|b| − h_b/|h_b||, h_b = −∂L/∂b; zero at a KKT point.
        slackness: Σ λ_X (m_X/m − 1), λ_X ∝ −ℓ′(m_X) adding up to one; likewise.
        balance: M₊/M₋, by which the classes pull the scores along b; one in the limit.
    """

    selected: Bool[Array, " vocabulary"]
    square: Float[Scalar, ""]
    stationarity: Float[Scalar, ""]
    slackness: Float[Scalar, ""]
    balance: Float[Scalar, ""]


@for_corpus(-1, 1)
@full_precision
def joint_limit(
    scores: Float[Array, " vocabulary"],
    values: Float[Array, " vocabulary"],
    corpus: Corpus,
) -> JointLimit:
    """Residuals of the limit problem of the values, at given scores.

    b/m solves min |b| subject to y_X Σ_s q_X[s] b_s ≥ 1 if b ∝ Σ_X λ_X y_X q_X,
    with λ_X ≥ 0 that vanish where m_X > m = min m_X; the flow has λ_X ∝ −ℓ′(m_X). With
    M_± = Σ_X λ_X Σ_s q_X[s] (b_s − f_X)² over one class, h_a ⊥ b says M₊ = M₋.

    Source: mathematics, section 3i.

    Args:
        scores: a = E p.
        values: b = E v.
        corpus: n bags with labels ±1.

    Returns:
        The residuals; NaN where some bag is on the wrong side, m ≤ 0.

    Raises:
        BadInput: another vocabulary, labels other than ±1.

    Example:
        >>> from jaxselect.corpora.corpus import from_sequences
        >>> bags = from_sequences([[0, 2], [1, 2]], [1, -1], vocabulary=3)
        >>> late = jnp.array([60.0, 60.0, 0.0]), jnp.array([9.0, -9.0, 0.0])
        >>> found = joint_limit(*late, bags)
        >>> found.selected.tolist(), found.square.round(6).item()
        ([True, True, False], 2.0)
    """
    attention = attend_corpus(scores, values, corpus)
    margins = functional_margin(corpus.labels, attention.output).value
    nonempty = corpus.present.any(axis=1)
    least = jnp.min(jnp.where(nonempty, margins, jnp.inf))
    least = jnp.where(least > 0, least, jnp.nan)
    log_slope = corpus.loss.log_slope(margins)
    scale = jnp.max(jnp.where(nonempty, log_slope, -jnp.inf))
    share = corpus.weighted(jnp.exp(log_slope - scale))
    share = share / share.sum()
    pull = negative_gradient(scores, values, corpus, -scale).values
    spread = jnp.exp(attention.log_weights) * attention.advantage**2
    variance = jnp.where(corpus.present, spread, 0.0).sum(axis=1)
    strength = [
        jnp.where(corpus.labels == label, share * variance, 0.0).sum()
        for label in (1, -1)
    ]
    return JointLimit(
        selected=jnp.abs(values) >= HALF * least,
        square=values @ values / least**2,
        stationarity=jnp.linalg.norm(_unit(values) - _unit(pull)),
        slackness=share @ jnp.where(nonempty, margins / least - 1, 0.0),
        balance=strength[0] / strength[1],
    )


def _unit(vector: Array) -> Array:
    return vector / jnp.linalg.norm(vector)
