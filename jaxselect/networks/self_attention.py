"""Two layers of attention over one bag: self-attention, then that of the CLS token.

The first layer makes h_s = ρ E_s + Σ_r A[s, r] E_r of token s. It is linear in E given
its weights, so the output is Σ_r w_r E_rᵀv with weights w: no vector of R^d
is ever mixed.
"""

import jax
from jaxtyping import Array, Float

from ..model.attention import attention_weights


@jax.custom_vjp
def inner_products(rows: Float[Array, "width dim"]) -> Float[Array, "width width"]:
    """H Hᵀ, with a gradient of one product instead of two.

    From G = ∂L/∂(H Hᵀ) it is (G + Gᵀ) H.

    Args:
        rows: H.

    Returns:
        All inner products.

    Example:
        >>> import jax.numpy as jnp
        >>> inner_products(jnp.array([[1.0, 2.0], [0.0, 1.0]])).tolist()
        [[5.0, 2.0], [2.0, 1.0]]
    """
    return rows @ rows.T


inner_products.defvjp(
    lambda rows: (rows @ rows.T, rows),
    lambda rows, slope: ((slope + slope.T) @ rows,),
)


def two_layer_weights(
    scores: Float[Array, " width"],
    logits: Float[Array, "width width"],
    counts: Float[Array, " width"],
    residual: bool,
) -> Float[Array, " width"]:
    """Weight of each token in the output of two attention layers.

    With A[s, r] ∝ C[r] e^{logits[s, r]}, ρ = 1 with the residual and 0 without it,
    scores a'_s = ρ a_s + Σ_r A[s, r] a_r and q = `attention_weights`(a', C),
    w_r = ρ q_r + Σ_s q_s A[s, r], and f = Σ_r w_r b_r.

    Source: mathematics, section 5.

    Args:
        scores: a_s = E_sᵀW²p.
        logits: E_sᵀW¹E_r, those of the first layer.
        counts: C; zero on padding.
        residual: whether ρ is 1 or 0.

    Returns:
        w, adding up to 1 + ρ.

    Example:
        >>> import jax.numpy as jnp
        >>> one = two_layer_weights(jnp.zeros(2), jnp.zeros((2, 2)), jnp.ones(2), True)
        >>> one.tolist()
        [1.0, 1.0]
    """
    mixing = jax.vmap(attention_weights, in_axes=(0, None))(logits, counts)
    mixed = mixing @ scores
    attended = attention_weights(mixed + scores if residual else mixed, counts)
    passed = attended @ mixing
    return passed + attended if residual else passed
