"""Two layers of attention over one bag: self-attention, then that of the CLS token.

The first layer makes h_s = ρ E_s + Σ_r A[s, r] E_r of token s. It is linear in E given
its weights, so the output is Σ_r w_r E_rᵀv with weights w of its own: no vector of R^d
is ever mixed.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def weigh(
    logits: Float[Array, " width"], counts: Float[Array, " width"]
) -> Float[Array, " width"]:
    """Softmax over a bag: weights ∝ C[s] e^{logit}.

    Args:
        logits: one per distinct token.
        counts: C; zero on padding.

    Returns:
        Weights that add up to one, zero on padding.

    Example:
        >>> weigh(jnp.zeros(3), jnp.array([3.0, 1.0, 0.0])).round(6).tolist()
        [0.75, 0.25, 0.0]
    """
    present = counts > 0
    # The inner `where` keeps the derivative of log finite on padding.
    log_counts = jnp.log(jnp.where(present, counts, 1))
    return jax.nn.softmax(jnp.where(present, logits + log_counts, -jnp.inf))


@jax.custom_vjp
def inner_products(rows: Float[Array, "width dim"]) -> Float[Array, "width width"]:
    """H Hᵀ, with a gradient of one product instead of two.

    From G = ∂L/∂(H Hᵀ) it is (G + Gᵀ) H.

    Args:
        rows: H.

    Returns:
        All inner products.

    Example:
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
    pairs: Float[Array, "width width"],
    counts: Float[Array, " width"],
    residual: bool,
) -> Float[Array, " width"]:
    """Weight of each token in the output of two layers of attention over one bag.

    With A[s, r] ∝ C[r] e^{pairs[s, r]}, ρ = 1 with the residual and 0 without it,
    logits a'_s = ρ a_s + Σ_r A[s, r] a_r and q = `weigh`(a', C),
    w_r = ρ q_r + Σ_s q_s A[s, r], and f = Σ_r w_r b_r.

    Source: mathematics, section 5.

    Args:
        scores: a_s = E_sᵀW²p.
        pairs: E_sᵀW¹E_r.
        counts: C; zero on padding.
        residual: whether ρ is 1 or 0.

    Returns:
        w, adding up to 1 + ρ.

    Example:
        >>> one = two_layer_weights(jnp.zeros(2), jnp.zeros((2, 2)), jnp.ones(2), True)
        >>> one.tolist()
        [1.0, 1.0]
    """
    mixing = jax.vmap(weigh, in_axes=(0, None))(pairs, counts)
    mixed = mixing @ scores
    reached = weigh(mixed + scores if residual else mixed, counts)
    passed = reached @ mixing
    return passed + reached if residual else passed
