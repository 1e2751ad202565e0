"""How strongly the pairs of a selection pull late in the flow."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Scalar

from ..corpora.checks import for_corpus
from ..corpora.corpus import Corpus
from ..model.functional_margin import functional_margin


class PairStrength(NamedTuple):
    """c = factor · e^{log_scale}, by pair.

    After a large step on E the residual −ℓ′(y b) of a sequence with the right sign is
    e^{−γ}, which underflows; its logarithm does not.

    Attributes:
        factor: zero for pairs that never meet; positive where the winner deserves to
            win.
        log_scale: a natural logarithm, constant in derivatives.
        magnitude: sum of the absolute terms of `factor`; c has a rounding of it.
    """

    factor: Float[Array, "vocabulary vocabulary"]
    log_scale: Float[Array, "vocabulary vocabulary"]
    magnitude: Float[Array, "vocabulary vocabulary"]

    def times_exp(
        self, exponent: Float[Array, "vocabulary vocabulary"] | Float[Scalar, ""]
    ) -> Float[Array, "vocabulary vocabulary"]:
        """The product c e^{exponent}, rounded once."""
        meets = self.factor != 0
        return self.factor * jnp.exp(
            jnp.where(meets, self.log_scale + exponent, -jnp.inf)
        )


@for_corpus(by_head=True)
def pair_strength(
    values: Float[Array, " vocabulary *classes"],
    corpus: Corpus,
    selected: Bool[Array, "sequences width"],
) -> PairStrength:
    """Strength c_{s*r} of a pair in the late flow, for one selected token a sequence.

    c_{s*r} = Σ_{X∋s*,r} w_X (−ℓ′(y b_{s*})) (C_X[r] / C_X[s*]) y (b_{s*} − b_r).

    With K heads y (b_{s*} − b_r) is the margin's derivative along that difference.

    Source: mathematics, sections 1b, 1c and 3b.

    Args:
        values: b = E v.
        corpus: n labelled bags.
        selected: one token per sequence, in bag layout.

    Returns:
        c, the scale of a pair being its largest residual −ℓ′(y b_{s*}).

    Example:
        >>> from jaxselect.corpora.corpus import from_sequences
        >>> bags = from_sequences([[0, 1]], [1], vocabulary=2)
        >>> chosen = jnp.array([[True, False]])
        >>> strength = jax.jit(pair_strength)(jnp.array([1.0, -1.0]), bags, chosen)
        >>> c = strength.times_exp(jnp.array(0.0))
        >>> round(c[0, 1].item(), 4), c[1, 0].item()
        (0.5379, 0.0)
    """
    slot = jnp.argmax(selected, axis=1)[:, None]
    counts = corpus.counts.astype(values.dtype)
    winner = jnp.take_along_axis(corpus.tokens, slot, axis=1)
    ratio = counts / jnp.take_along_axis(counts, slot, axis=1)
    margin = functional_margin(corpus.labels, values[winner[:, 0]])
    ahead = margin.along(values[winner] - values[corpus.tokens])
    log_residual = corpus.loss.log_slope(margin.value)[:, None]
    loses = ~selected & corpus.present
    pair, shape = (winner, corpus.tokens), (corpus.vocabulary, corpus.vocabulary)
    largest = jnp.where(loses, jax.lax.stop_gradient(log_residual), -jnp.inf)
    log_scale = jnp.full(shape, -jnp.inf, values.dtype).at[pair].max(largest)
    log_scale = jnp.where(jnp.isfinite(log_scale), log_scale, 0.0)
    residual = jnp.exp(jnp.where(loses, log_residual - log_scale[pair], -jnp.inf))
    strength = corpus.weighted(residual * ratio * ahead)
    zero = jnp.zeros_like(log_scale)
    return PairStrength(
        factor=zero.at[pair].add(strength),
        log_scale=log_scale,
        magnitude=zero.at[pair].add(jax.lax.stop_gradient(jnp.abs(strength))),
    )
