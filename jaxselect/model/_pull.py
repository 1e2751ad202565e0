"""Pulls of a sequence on the scores of its tokens, in bag layout."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from .attention import Attention
from .corpus import Corpus
from .functional_margin import functional_margin


def log_residual(attention: Attention, corpus: Corpus) -> Float[Array, " sequences"]:
    """Log of w_X (−ℓ′(m)), −∞ where w_X = 0."""
    margin = functional_margin(corpus.labels, attention.output).value
    return corpus.loss.log_slope(margin) + corpus.log_weights(margin.dtype)


def log_weighted_residual(
    attention: Attention, corpus: Corpus
) -> Float[Array, "sequences width"]:
    """Log of w_X q (−ℓ′(m)) in bag layout, −∞ on padding and where w_X = 0."""
    return attention.log_weights + log_residual(attention, corpus)[:, None]


def advances(attention: Attention, corpus: Corpus) -> Float[Array, "sequences width"]:
    """Derivative of m along b_s − f in bag layout: y (b_s − f) for two classes."""
    margin = functional_margin(corpus.labels, attention.output)
    return margin.along(attention.advantage)


def pulls(
    exponent: Float[Array, "sequences width"],
    advance: Float[Array, "sequences width"],
    attention: Attention,
    corpus: Corpus,
) -> Float[Array, "sequences width"]:
    """Pulls e^{exponent} · advance; the top token's is minus the others' sum.

    The sum over a sequence is zero.
    """
    top = jnp.arange(exponent.shape[1])[None] == attention.top[:, None]
    # The top token's exponent may overflow: it is dropped before, not after, `exp`.
    used = ~top & (corpus.counts > 0) & (advance != 0)
    exponent = jnp.where(used, exponent, -jnp.inf)
    others = jnp.exp(exponent) * advance
    return jnp.where(top, -others.sum(axis=1, keepdims=True), others)
