"""What shows that p is on its predicted late line, and will stay there.

The active pairs must lie on p_mm log t + ρ, and the inactive ones must have nearly
finished: one whose margin m is hardly above one pulls like t^−(m − 1), long after all
else has settled.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float, Scalar

from ..arguments import as_annotated
from ..precision import full_precision
from .limit import Limit
from .max_margin import MaxMargin
from .pair_graph import lead


@as_annotated
@full_precision
def drift(
    embeddings: Float[Array, "vocabulary dim"],
    margin: MaxMargin,
    late: Limit,
    cls: Float[Array, " dim"],
    log_time: Float[Scalar, ""],
) -> Float[Scalar, ""]:
    """Largest distance of an active margin from the late flow that is predicted.

    Source: mathematics, section 3e.

    Args:
        embeddings: E.
        margin: the max-margin solution of a selection.
        late: the prediction p_mm log t + ρ from it.
        cls: p, late in a flow.
        log_time: log(1+t) there.

    Returns:
        max |Dᵀ(p − p_mm log t − ρ)| over the active pairs, in units of scores.

    Example:
        See `pending`.
    """
    off = lead(embeddings @ (cls - late.cls_at(log_time)))
    return jnp.max(jnp.where(margin.active, jnp.abs(off), 0.0))


@as_annotated
@full_precision
def pending(
    embeddings: Float[Array, "vocabulary dim"],
    margin: MaxMargin,
    late: Limit,
    cls: Float[Array, " dim"],
    log_time: Float[Scalar, ""],
) -> Float[Scalar, ""]:
    """How far the inactive pairs may still move p, over the error constant.

    A pair of margin m = Dᵀp_mm > 1 pulls with λ = c e^{s − Dᵀp}, which falls as
    e^{−(m − 1) s}, so it adds λ D / (m − 1) to p from here on: Σ λ ‖D‖ / (m − 1).

    Source: mathematics, section 3d.

    Args:
        embeddings: E.
        margin: the max-margin solution of a selection.
        late: the prediction from it.
        cls: p, late in a flow.
        log_time: log(1+t) there.

    Returns:
        A bound on the relative change to come of the error constant.

    Example:
        >>> import jax
        >>> from jaxselect.margin.limit import limit
        >>> from jaxselect.margin.max_margin import max_margin
        >>> from jaxselect.model.corpus import from_sequences
        >>> from jaxselect.model.parameters import Parameters
        >>> from jaxselect.model.selection import competing_pairs
        >>> bags = from_sequences([[0, 1, 2]], [1], vocabulary=3)
        >>> tokens = jnp.array([[1.0, 0.0], [0.0, 0.0], [-0.5, -0.4]])
        >>> after = Parameters(tokens, jnp.array([0.0, 0.1]), jnp.array([1.0, 0.0]))
        >>> chosen = jnp.array([[True, False, False]])
        >>> pairs = competing_pairs(chosen, bags)
        >>> margin = jax.jit(max_margin)(tokens, pairs)
        >>> reached = jnp.array([5.0, 0.2])
        >>> late = jax.jit(limit)(
        ...     after, bags, chosen, pairs, margin, late_cls=reached
        ... )
        >>> @jax.jit
        ... def at(s):
        ...     return pending(tokens, margin, late, late.cls_at(s), s)
        >>> (at(100.0) < 1e-12 < 1e-2 < at(3.0)).item()
        True
    """
    exponent = log_time - lead(embeddings @ cls)
    beyond = lead(embeddings @ margin.direction) - 1
    pulls = (late.strength.factor != 0) & ~margin.active & (beyond > 0)
    pull = jnp.where(pulls, jnp.abs(late.strength.times_exp(exponent)), 0.0)
    square = jnp.sum(embeddings**2, axis=1)
    overlap = embeddings @ embeddings.T
    apart = jnp.sqrt(jnp.maximum(square[:, None] + square[None, :] - 2 * overlap, 0.0))
    to_come = jnp.sum(pull * apart / jnp.where(pulls, beyond, 1.0))
    return to_come / jnp.maximum(late.error_constant, jnp.finfo(to_come.dtype).tiny)
