"""The field dp/ds of the flow of p in s = log(1+t), and its linearisation."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree, Scalar

from ..model.corpus import Corpus
from ..model.objective import negative_gradient, score_curvature
from ..precision import full_precision

# Tuned on the default sweep and on float32 grids: an axis of the span is empty below
# this many roundings of the longest.
EMPTY_AXIS = 100


class Problem(NamedTuple):
    """What a flow of p is given, in any axes: rows E, values E v."""

    rows: Float[Array, "vocabulary dim"]
    values: Float[Array, " vocabulary"]
    corpus: Corpus
    until_norm: Float[Scalar, ""]


def aligned(
    embeddings: Float[Array, "vocabulary dim"],
) -> tuple[Float[Array, "dim dim"], Float[Array, "vocabulary dim"]]:
    """A rotation, and E − mean E in its axes, zero off the span of its rows.

    The flow moves p in the span of the differences E_s − E_r only. With that span on
    axes of its own, what is orthogonal to it is conserved exactly; a solver in other
    axes would let it drift by the rounding of a system with entries up to ‖p‖.
    """
    centred = embeddings - embeddings.mean(axis=0, keepdims=True)
    # Any rotation will do, so its own derivative is zero.
    rotation = jnp.linalg.qr(jax.lax.stop_gradient(centred).T, mode="complete")[0]
    rows = centred @ rotation
    size = jnp.linalg.norm(jax.lax.stop_gradient(rows), axis=0, keepdims=True)
    empty = size <= EMPTY_AXIS * jnp.finfo(rows.dtype).eps * size.max()
    return rotation, jnp.where(empty, rows - jax.lax.stop_gradient(rows), rows)


@full_precision
def field(log_time: PyTree, cls: PyTree, problem: PyTree) -> Float[Array, " dim"]:
    """`velocity` in the axes of the rows."""
    rows, values, corpus, _ = problem
    return negative_gradient(rows @ cls, values, corpus, log_time).scores @ rows


@full_precision
def linearise(
    log_time: PyTree, cls: PyTree, problem: PyTree
) -> tuple[PyTree, PyTree, PyTree]:
    """The field, its derivative in s and its Jacobian."""
    rows, values, corpus, _ = problem
    gradient, jacobian = score_curvature(rows @ cls, values, corpus, log_time)
    pull = gradient @ rows
    # The field depends on s through the factor e^s alone: it is its own derivative.
    return pull, pull, rows.T @ (jacobian @ rows)
