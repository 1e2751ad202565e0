"""What shows that p is on its predicted late line, and will stay there.

The active pairs must lie on p_mm log t + ρ, and the inactive ones must have nearly
finished: one whose margin m is hardly above one pulls like t^−(m − 1), long after all
else has settled.
"""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Scalar

from ..model.corpus import Corpus
from ..model.parameters import Parameters
from .limit import Limit
from .max_margin import MaxMargin
from .pair_graph import lead
from .pair_strength import pair_strength


def drift(
    after: Parameters,
    cls: Float[Array, " dim"],
    log_time: Float[Scalar, ""],
    margin: MaxMargin,
    late: Limit,
) -> Float[Scalar, ""]:
    """Largest distance of an active margin from the late flow that is predicted.

    Args:
        after: (E¹, p_0, v).
        cls: p late in a flow.
        log_time: log(1+t) there.
        margin: the max-margin solution of its selection.
        late: the prediction p_mm log t + ρ.

    Returns:
        max |Dᵀ(p − p_mm log t − ρ)| over the active pairs, in units of scores.

    Example:
        See `pending`.
    """
    off = lead(after.embeddings @ (cls - late.cls_at(log_time)))
    return jnp.max(jnp.where(margin.active, jnp.abs(off), 0.0))


def pending(
    after: Parameters,
    corpus: Corpus,
    selected: Bool[Array, "sequences width"],
    cls: Float[Array, " dim"],
    log_time: Float[Scalar, ""],
    margin: MaxMargin,
    late: Limit,
) -> Float[Scalar, ""]:
    """How far the inactive pairs may still move p, over the error constant.

    A pair of margin m = Dᵀp_mm > 1 pulls with λ = c e^{s − Dᵀp}, which falls as
    e^{−(m − 1) s}, so it adds λ D / (m − 1) to p from here on: Σ λ ‖D‖ / (m − 1).

    Args:
        after: (E¹, p_0, v).
        corpus: n bags with labels ±1.
        selected: the selection the flow ended in, in bag layout.
        cls: p late in a flow.
        log_time: log(1+t) there.
        margin: the max-margin solution of that selection.
        late: the prediction, for the error constant.

    Returns:
        A bound on the relative change to come of the error constant.

    Example:
        >>> from jaxselect.model.corpus import from_sequences
        >>> from jaxselect.margin.limit import limit
        >>> from jaxselect.margin.max_margin import max_margin
        >>> from jaxselect.model.selection import competing_pairs
        >>> bags = from_sequences([[0, 1, 2]], [1], vocabulary=3)
        >>> tokens = jnp.array([[1.0, 0.0], [0.0, 0.0], [-0.5, -0.4]])
        >>> after = Parameters(tokens, jnp.array([0.0, 0.1]), jnp.array([1.0, 0.0]))
        >>> chosen = jnp.array([[True, False, False]])
        >>> margin = max_margin(tokens, competing_pairs(chosen, bags))
        >>> late = limit(after, bags, chosen, margin, jnp.array([5.0, 0.2]))
        >>> def at(s):
        ...     s = jnp.asarray(s)
        ...     cls = late.cls_at(s)
        ...     return pending(after, bags, chosen, cls, s, margin, late).item()
        >>> at(100.0) < 1e-12 < 1e-2 < at(3.0)
        True
    """
    embeddings = after.embeddings
    strength = pair_strength(embeddings @ after.head, corpus, selected)
    exponent = log_time - lead(embeddings @ cls)
    beyond = lead(embeddings @ margin.direction) - 1
    pulls = (strength.factor != 0) & ~margin.active & (beyond > 0)
    pull = jnp.where(pulls, jnp.abs(strength.times_exp(exponent)), 0.0)
    square = jnp.sum(embeddings**2, axis=1)
    overlap = embeddings @ embeddings.T
    apart = jnp.sqrt(jnp.maximum(square[:, None] + square[None, :] - 2 * overlap, 0.0))
    to_come = jnp.sum(pull * apart / jnp.where(pulls, beyond, 1.0))
    return to_come / jnp.maximum(late.error_constant, jnp.finfo(to_come.dtype).tiny)
