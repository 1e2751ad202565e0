"""The field dp/dτ of the flow of p in τ = log(1+t), and its linearisation."""

from itertools import pairwise
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree, Scalar

from ..corpora.components import centred_in_components
from ..corpora.corpus import Corpus
from ..model.curvature import score_curvature
from ..model.objective import negative_gradient
from ..model.parameters import Parameters
from ..precision import full_precision

# Tuned on the default sweep and on float32 grids: an axis of the span is empty below
# this many roundings of the longest.
EMPTY_AXIS = 100

# From this many axes on a Jacobian costs many fields: it is turned in so many blocks,
# and explicit steps are taken where they are stable.
MANY_AXES, BLOCKS = 128, 4


class Problem(NamedTuple):
    """The flow of x = p − p_0 in rotated axes.

    Attributes:
        rows: E, less the mean of each component of tokens that share sequences.
        scores: `rows` times p_0: differences within a sequence are those of E p_0.
        values: b = E v.
        corpus: n labelled bags.
        start: p_0 in the rotated axes.
        until_norm: ‖p‖ to stop at.
        held: sequences whose selection the flow must not change; None for none.
    """

    rows: Float[Array, "vocabulary dim"]
    scores: Float[Array, " vocabulary"]
    values: Float[Array, " vocabulary *classes"]
    corpus: Corpus
    start: Float[Array, " dim"]
    until_norm: Float[Scalar, ""]
    held: Bool[Array, " sequences"] | None = None


def aligned(
    parameters: Parameters,
    corpus: Corpus,
    until_norm: Float[Scalar, ""],
    held: Bool[Array, " sequences"] | None = None,
) -> tuple[Float[Array, "dim dim"], Problem]:
    """A rotation, and the flow of p − p_0 in its axes.

    p − p_0 stays in the span of the differences E_s − E_r within sequences. The rows
    are exactly zero on axes orthogonal to that span, so x is zero there at any time.
    """
    centred = centred_in_components(parameters.embeddings, corpus)
    # Any rotation will do, so its derivative is zero.
    rotation = jnp.linalg.qr(jax.lax.stop_gradient(centred).T, mode="complete")[0]
    rows = centred @ rotation
    size = jnp.linalg.norm(jax.lax.stop_gradient(rows), axis=0, keepdims=True)
    empty = size <= EMPTY_AXIS * jnp.finfo(rows.dtype).eps * size.max()
    return rotation, Problem(
        rows=jnp.where(empty, rows - jax.lax.stop_gradient(rows), rows),
        scores=centred @ parameters.query,
        values=parameters.embeddings @ parameters.head,
        corpus=corpus,
        start=parameters.query @ rotation,
        until_norm=until_norm,
        held=held,
    )


@full_precision
def field(log_time: PyTree, moved: PyTree, problem: PyTree) -> Float[Array, " dim"]:
    """`velocity` at p_0 + x, in the axes of the rows."""
    scores = problem.scores + problem.rows @ moved
    gradient = negative_gradient(scores, problem.values, problem.corpus, log_time)
    return gradient.scores @ problem.rows


@full_precision
def linearise(
    log_time: PyTree, moved: PyTree, problem: PyTree
) -> tuple[PyTree, PyTree, PyTree]:
    """The field, its derivative in τ and its Jacobian."""
    rows, scores = problem.rows, problem.scores + problem.rows @ moved
    gradient, jacobian = score_curvature(
        scores, problem.values, problem.corpus, log_time
    )
    velocity = gradient @ rows
    # The field depends on s through the factor e^τ alone: it is its own derivative.
    turn = _turned if min(rows.shape) < MANY_AXES else _turned_in_blocks
    return velocity, velocity, turn(jacobian, rows)


def _turned(
    jacobian: Float[Array, "vocabulary vocabulary"],
    rows: Float[Array, "vocabulary dim"],
) -> Float[Array, "dim dim"]:
    return rows.T @ (jacobian @ rows)


@jax.custom_jvp
def _turned_in_blocks(
    jacobian: Float[Array, "vocabulary vocabulary"],
    rows: Float[Array, "vocabulary dim"],
) -> Float[Array, "dim dim"]:
    """`_turned` at half the work: `aligned` rows are triangular, the result symmetric.

    A block of columns of the result needs the rows from its first axis on.
    """
    # Laid out beforehand: a product that transposes a factor takes half as long again.
    columns = jax.lax.optimization_barrier(rows.T)
    dim = rows.shape[1]
    edges = [dim * block // BLOCKS for block in range(BLOCKS + 1)]
    below = []
    for begin, end in pairwise(edges):
        moved = jacobian[begin:, begin:] @ rows[begin:, begin:end]
        block = columns[begin:, begin:] @ moved
        below.append(jnp.pad(block, ((begin, 0), (0, 0))))
    lower = jnp.concatenate(below, axis=1)
    return jnp.tril(lower) + jnp.tril(lower, -1).T


@_turned_in_blocks.defjvp
@full_precision
def _turned_in_blocks_jvp(
    primals: tuple[Array, Array], tangents: tuple[Array, Array]
) -> tuple[Array, Array]:
    """Derivative of the whole product: changes of rows need not be triangular."""
    return _turned_in_blocks(*primals), jax.jvp(_turned, primals, tangents)[1]
