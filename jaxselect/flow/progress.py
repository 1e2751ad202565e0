"""How far a flow of p has come: its pace, its errors and its loss."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Scalar

from ..arguments import as_annotated
from ..corpora.checks import for_corpus
from ..corpora.corpus import Corpus
from ..model.attention import attend_corpus
from ..model.functional_margin import functional_margin
from ..model.parameters import Parameters
from ..precision import full_precision
from ..program import one_program
from .cls_flow import velocity


@as_annotated
@one_program()
def direction_error(
    query: Float[Array, " dim"], direction: Float[Array, " dim"]
) -> Float[Scalar, ""]:
    """‖p/‖p‖ − direction/‖direction‖‖.

    Args:
        query: p.
        direction: of any length, such as p_mm.

    Returns:
        A number in [0, 2]; one where either is zero.

    Example:
        >>> round(direction_error(jnp.array([2.0, 0]), jnp.array([0, 1.0])).item(), 4)
        1.4142
    """
    tiny = jnp.finfo(query.dtype).tiny
    one, other = (x / jnp.maximum(jnp.linalg.norm(x), tiny) for x in (query, direction))
    return jnp.linalg.norm(one - other)


@for_corpus(by_head=True)
@one_program()
@full_precision
def local_exponents(
    after: Parameters,
    corpus: Corpus,
    direction: Float[Array, " dim"],
    log_time: Float[Scalar, ""],
    query: Float[Array, " dim"],
) -> tuple[Float[Scalar, ""], Float[Scalar, ""]]:
    """Exponents of the direction error at one point of a flow.

    Both are exact: the field gives dp/dτ there.

    Source: mathematics, section 3b.

    Args:
        after: (E¹, p_0, v).
        corpus: n labelled bags.
        direction: of any length, such as p_mm.
        log_time: τ = log(1+t) > 0.
        query: p at that time.

    Returns:
        d log(error) / d log‖p‖ and d log(error) / d log s; late both tend to −1.

    Example:
        >>> from jaxselect.corpora.corpus import from_sequences
        >>> bags = from_sequences([[0, 1]], [1], vocabulary=2)
        >>> start = Parameters(jnp.eye(2), jnp.ones(2), jnp.array([1.0, 0.0]))
        >>> s = jnp.array(1e6)
        >>> late = s / 2 * jnp.array([1.0, -1.0]) + jnp.ones(2)
        >>> target = jnp.array([1.0, -1.0])
        >>> by_norm, _ = local_exponents(start, bags, target, s, late)
        >>> round(by_norm.item(), 4)
        -1.0
    """

    def logs(p: Float[Array, " dim"]) -> Float[Array, " 2"]:
        error = direction_error(p, direction)
        return jnp.log(jnp.stack([error, jnp.linalg.norm(p)]))

    slope = velocity(after, corpus, log_time, query)
    _, (error, norm) = jax.jvp(logs, (query,), (slope,))
    return error / norm, error * log_time


@for_corpus(by_head=True)
@one_program()
@full_precision
def excess_loss(
    after: Parameters,
    corpus: Corpus,
    selected: Bool[Array, "sequences width"],
    query: Float[Array, " dim"],
) -> Float[Scalar, ""]:
    """L(p) − L_∞ without cancellation, for one selected token in a sequence.

    ℓ(y f) − ℓ(y b) with b = b_{s*}: for the logistic loss
    log(1 + σ(−yb) (e^{y(b−f)} − 1)).

    Source: mathematics, sections 1b and 3f.

    Args:
        after: (E¹, ·, v).
        corpus: n labelled bags.
        selected: the final selection.
        query: p.

    Returns:
        The loss still to go; exact down to where it underflows.
    """
    values = after.embeddings @ after.head
    attention = attend_corpus(after.embeddings @ query, values, corpus)
    slot = jnp.argmax(selected, axis=1)[:, None]
    ahead = jax.vmap(lambda own, at: own[at])(attention.advantage, slot[:, 0])
    winner = jnp.take_along_axis(corpus.tokens, slot, axis=1)[:, 0]
    margin = functional_margin(corpus.labels, values[winner])
    return corpus.mean(corpus.loss.excess(margin.value, margin.fall(ahead)))
