"""The Jacobian −∂²L/∂a² of the forces in score space."""

from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Scalar

from ..data.corpus import GATHERED, Corpus, row_sums
from .attention import (
    Attention,
    advances,
    attend_bags,
    functional_margin,
    log_weighted_residual,
    negative_entry_gradient,
    score_gradient,
)


@partial(jax.jit, inline=True)
def score_curvature(
    logits: Float[Array, "sequences width"],
    values: Float[Array, " sequences width *classes"],
    corpus: Corpus,
    log_scale: Float[Scalar, ""] | float = 0.0,
) -> tuple[Float[Array, " vocabulary"], Float[Array, "vocabulary vocabulary"]]:
    """Compute −∂L/∂a and its symmetric Jacobian −∂²L/∂a², both times e^{log_scale}.

    With h_X = w_X (−ℓ′) q_X y (b − f) one sequence contributes diag(h) − h xᵀ − x hᵀ, x
    = q (1 + ½ (ℓ″/−ℓ′) y (b − f)): the derivatives of the weights, of the mean, and of
    −ℓ′ together. For K classes `_bends` adds the terms of ∂²m/∂f². Stacked over
    sequences the sum is one matrix product.

    Source: mathematics, sections 1b, 1c and 3a.

    Example:
        >>> from jaxselect.data.corpus import from_sequences
        >>> corpus = from_sequences([[0, 1]], [1], vocabulary=2)
        >>> even = jnp.zeros((1, 2)), jnp.array([[1.0, 0.0]])
        >>> _, jacobian = score_curvature(*even, corpus)
        >>> [round(x, 4) for x in jacobian[0].tolist()]
        [-0.0147, 0.0147]
    """
    pull, partner, tokens = _entry_curvature(logits, values, corpus, log_scale)
    gradient = corpus.scatter(pull[: len(corpus.tokens)])
    cross = _cross(pull, partner, tokens, corpus.vocabulary)
    return gradient, jnp.diag(gradient) - cross - cross.T


def query_curvature(
    rows: Float[Array, "vocabulary dim"],
    parts: Sequence[tuple[Array, Array, Corpus]],
    log_scale: Float[Scalar, ""] | float = 0.0,
) -> tuple[Float[Array, " dim"], Float[Array, "dim dim"]]:
    """Compute −∂L/∂p and −∂²L/∂p² for scores A p, both times e^{log_scale}.

    By tokens AᵀJA with the Jacobian J of `score_curvature`; for a large vocabulary by
    sequences, Σ_r h_r A_r A_rᵀ over tokens less the products of Aᵀh and Aᵀx of every
    sequence. Parts of the bags, each with its logits and values, are added up.

    Example:
        >>> from jaxselect.data.corpus import from_sequences
        >>> corpus = from_sequences([[0, 1]], [1], vocabulary=2)
        >>> even = jnp.zeros((1, 2)), jnp.array([[1.0, 0.0]]), corpus
        >>> pull, _ = query_curvature(jnp.eye(2), [even])
        >>> [round(x, 4) for x in pull.tolist()]
        [0.0944, -0.0944]
    """
    vocabulary, dim = rows.shape
    sequences = sum(len(corpus.tokens) for _, _, corpus in parts)
    laid_out = sum(
        len(corpus.tokens) * min(vocabulary, GATHERED * corpus.tokens.shape[1])
        for _, _, corpus in parts
    )
    by_sequence = 2 * (sequences * dim**2 + 2 * dim * laid_out)
    if vocabulary**2 * (sequences + dim) <= by_sequence:
        found = [score_curvature(*part, log_scale) for part in parts]
        gradient, jacobian = _sum_of(found)
        return gradient @ rows, rows.T @ (jacobian @ rows)
    gradient, cross = _sum_of([_by_sequence(rows, *part, log_scale) for part in parts])
    return gradient @ rows, (rows.T * gradient[None]) @ rows - cross - cross.T


def _sum_of(found: list[tuple[Array, Array]]) -> tuple[Array, Array]:
    return jax.tree.map(lambda *each: sum(each[1:], each[0]), *found)


def _by_sequence(
    rows: Float[Array, "vocabulary dim"],
    logits: Float[Array, "sequences width"],
    values: Float[Array, " sequences width *classes"],
    corpus: Corpus,
    log_scale: Float[Scalar, ""] | float,
) -> tuple[Float[Array, " vocabulary"], Float[Array, "dim dim"]]:
    """Compute −∂L/∂a and Σ_X (Aᵀx) (Aᵀh)ᵀ."""
    pull, partner, tokens = _entry_curvature(logits, values, corpus, log_scale)
    sums = row_sums(rows, tokens, jnp.stack([partner, pull], axis=2))
    partners, pulls = jnp.moveaxis(sums, 1, 0)
    return corpus.scatter(pull[: len(corpus.tokens)]), partners.T @ pulls


def _entry_curvature(
    logits: Float[Array, "sequences width"],
    values: Float[Array, " sequences width *classes"],
    corpus: Corpus,
    log_scale: Float[Scalar, ""] | float,
) -> tuple[
    Float[Array, "many width"], Float[Array, "many width"], Int[Array, "many width"]
]:
    """Compute h and x of every sequence, and then of its classes, with their tokens."""
    attention = attend_bags(logits, values, corpus)
    exponent = log_weighted_residual(attention, corpus) + log_scale
    advance = advances(attention, corpus)
    pull = score_gradient(exponent, advance, attention, corpus)
    margin = functional_margin(corpus.labels, attention.output, corpus.loss).value
    tilt = 0.5 * corpus.loss.ratio(margin)
    partner = jnp.exp(attention.log_weights) * (1 + tilt[:, None] * advance)
    tokens = corpus.tokens
    if values.ndim > 2:
        pulls, partners = _bends(exponent, attention, corpus)
        pull, partner = jnp.vstack([pull, pulls]), jnp.vstack([partner, partners])
        tokens = jnp.tile(tokens, (1 + values.shape[2], 1))
    return pull, partner, tokens


def growth_along_values(
    parts: Sequence[tuple[Array, Array, Corpus]], log_scale: Float[Scalar, ""]
) -> Float[Scalar, ""]:
    """Compute −e^{log_scale} bᵀ(∂²L/∂a²)b, negative where forces oppose a move along b.

    When scores move along the values, each f changes by the variance of b under its
    weights, to which every pair of entries contributes. At a tie the result is
    negative; where one token overtakes another it is positive. With several heads it is
    the sum, or the largest if any is positive.
    """

    def of_part(
        logits: Array, values: Array, corpus: Corpus
    ) -> Float[Array, " *heads"]:
        def pull(logits: Array) -> Float[Array, "sequences width"]:
            return negative_entry_gradient(logits, values, corpus, log_scale)[0]

        def along(value: Float[Array, "sequences width"]) -> Float[Scalar, ""]:
            move = lambda logits: jnp.vdot(value, pull(logits))  # noqa: E731
            return jax.jvp(move, (logits,), (value,))[1]

        if values.ndim == 2:
            return along(values)
        return jax.vmap(along)(jnp.moveaxis(values, 2, 0))

    first, *others = (of_part(*part) for part in parts)
    each = sum(others, first)
    return jnp.where(jnp.any(each > 0), each.max(), each.sum())


def _bends(
    exponent: Float[Array, "sequences width"], attention: Attention, corpus: Corpus
) -> tuple[Float[Array, "many width"], Float[Array, "many width"]]:
    """Compute the terms of −∂²L/∂a² that come from ∂²m/∂f², for each class.

    With −∂²m/∂f² of the products of x_k and z_k, with factors w_k, they add up to Σ_k
    w_k (q x_k)(q z_k)ᵀ times w_X (−ℓ′); each factor gets half of it.
    """
    margin = functional_margin(corpus.labels, attention.output, corpus.loss)
    weights = 0.5 * jnp.exp(attention.log_weights)

    def of_class(
        log_share: Float[Array, " sequences"],
        one: Float[Array, "sequences width"],
        other: Float[Array, "sequences width"],
    ) -> tuple[Array, Array]:
        scale = exponent + log_share[:, None]
        return score_gradient(scale, one, attention, corpus), weights * other

    bends = margin.bends(attention.advantage)
    pull, partner = jax.vmap(of_class, (1, 2, 2))(*bends)
    shape = (-1, pull.shape[-1])
    return pull.reshape(shape), partner.reshape(shape)


def _cross(
    pull: Float[Array, "many width"],
    partner: Float[Array, "many width"],
    tokens: Int[Array, "many width"],
    vocabulary: int,
) -> Float[Array, "vocabulary vocabulary"]:
    """Σ_X x hᵀ as a matrix product."""
    sequence = jnp.arange(len(tokens), dtype=tokens.dtype)[:, None]
    # One factor is laid out by token, the other by sequence: the product is twice as
    # fast as one that has to transpose a factor first.
    shape = (vocabulary, len(tokens))
    partners = jnp.zeros(shape, pull.dtype).at[tokens, sequence].add(partner)
    by_sequence = jnp.zeros(shape[::-1], pull.dtype).at[sequence, tokens].add(pull)
    return partners @ by_sequence
