"""How hard each token of a sequence is pulled, in bag layout."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .attention import Attention
from .corpus import Corpus


def log_weighted_residual(
    attention: Attention, corpus: Corpus
) -> Float[Array, "sequences width"]:
    """Log of q σ(−y f) / n in bag layout, −∞ on padding."""
    label = corpus.labels.astype(attention.output.dtype)
    log_residual = jax.nn.log_sigmoid(-label * attention.output) - jnp.log(len(label))
    return attention.log_weights + log_residual[:, None]


def pulls(
    exponent: Float[Array, "sequences width"], attention: Attention, corpus: Corpus
) -> Float[Array, "sequences width"]:
    """Pull y e^{exponent} (b − f) in bag layout; the top token is minus the others."""
    label = corpus.labels.astype(exponent.dtype)
    top = jnp.arange(exponent.shape[1])[None] == attention.top[:, None]
    # The top token's exponent may overflow: it is dropped before, not after, `exp`.
    used = ~top & (corpus.counts > 0) & (attention.advantage != 0)
    exponent = jnp.where(used, exponent, -jnp.inf)
    others = label[:, None] * jnp.exp(exponent) * attention.advantage
    return jnp.where(top, -others.sum(axis=1, keepdims=True), others)
