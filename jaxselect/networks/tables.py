"""Quantities of a network per token, and its output for a bag.

Self-attention over the tokens of a sequence knows no positions either, so what it makes
of a token depends on the token and the bag alone: it is computed once per distinct
token, with counts. And attention that is fed attention is attention with other weights:
the sequence's output is Σ_r w_X[r] b_r, so neither layer ever mixes vectors of R^d.
"""

from typing import NamedTuple

import jax
from jaxtyping import Array, Float, Int

from ..checks import BadInput
from ..compilation import one_program
from ..data.corpus import Corpus, same_vocabulary
from ..model.attention import attention_weights
from .design import ACTIVATIONS, Design
from .self_attention import inner_products, two_layer_weights


class Tables(NamedTuple):
    """Quantities of a network that do not depend on the sequence.

    Attributes:
        scores: E W²p, logits of the CLS attention.
        values: what attention averages: E Vᵀ, or E in front of an MLP.
        queries: E W¹; None with one layer.
        keys: E; None with one layer, or where the queries are the keys too.
        hidden: U of the MLP, or None.
        bias: c of the MLP, or None.
        heads: V behind the MLP, or None.
    """

    scores: Float[Array, " vocabulary"]
    values: Float[Array, "vocabulary width"]
    queries: Float[Array, "vocabulary dim"] | None = None
    keys: Float[Array, "vocabulary dim"] | None = None
    hidden: Float[Array, "dim dim"] | None = None
    bias: Float[Array, " dim"] | None = None
    heads: Float[Array, "heads dim"] | None = None


# Fields of `Tables` with a row for each token; the others belong to all of them.
BY_TOKEN = ("scores", "values", "queries", "keys")


def look_up(tables: Tables, tokens: Int[Array, "*bags width"]) -> Tables:
    """Rows of some tokens.

    Args:
        tables: of `Network.tables`.
        tokens: ids.

    Returns:
        Tables with a row per id instead of one per token of the vocabulary.

    Example:
        >>> import jax.numpy as jnp
        >>> tables = Tables(jnp.zeros(2), jnp.array([[1.0], [3.0]]))
        >>> look_up(tables, jnp.array([1, 1])).values.tolist()
        [[3.0], [3.0]]
    """
    return Tables._make(
        field[tokens] if name in BY_TOKEN and field is not None else field
        for name, field in zip(Tables._fields, tables, strict=True)
    )


@one_program("design")
def output(
    rows: Tables, counts: Float[Array, " width"], design: Design
) -> Float[Array, " heads"]:
    """Output of a network for one bag.

    Source: mathematics, section 5.

    Args:
        rows: of `look_up`, for the distinct tokens of the bag; any on padding.
        counts: C; zero on padding.
        design: which network.

    Returns:
        One number per head.

    Raises:
        BadInput: an MLP in the design that the tables do not have.

    Example:
        >>> import jax.numpy as jnp
        >>> rows = Tables(jnp.zeros(2), jnp.array([[1.0], [3.0]]))
        >>> output(rows, jnp.ones(2), Design()).tolist()
        [2.0]
    """
    counts = counts.astype(rows.scores.dtype)
    if rows.queries is None:
        weights = attention_weights(rows.scores, counts)
    else:
        if rows.keys is None:
            logits = inner_products(rows.queries)
        else:
            logits = rows.queries @ rows.keys.T
        weights = two_layer_weights(rows.scores, logits, counts, design.residual)
    average = weights @ rows.values
    if design.activation is None:
        return average
    if rows.hidden is None or rows.bias is None or rows.heads is None:
        raise BadInput(f"{design}: the tables are those of a network without an MLP")
    hidden = ACTIVATIONS[design.activation](rows.hidden @ average + rows.bias)
    return rows.heads @ hidden


@one_program("design")
def outputs(
    tables: Tables, corpus: Corpus, design: Design
) -> Float[Array, "sequences heads"]:
    """`output` for every bag of a corpus.

    Args:
        tables: of `Network.tables`.
        corpus: n bags.
        design: which network.

    Returns:
        One row per sequence.

    Raises:
        BadInput: tables of another vocabulary.
    """
    same_vocabulary(tables.scores, corpus.vocabulary)
    return outputs_of_rows(look_up(tables, corpus.tokens), corpus.counts, design)


def outputs_of_rows(
    rows: Tables, counts: Float[Array, "sequences width"], design: Design
) -> Float[Array, "sequences heads"]:
    """`output` for every bag whose rows were looked up.

    Args:
        rows: of `look_up`, with the tokens of many bags.
        counts: C of each bag.
        design: which network.

    Returns:
        One row per sequence.
    """
    axes = Tables._make(0 if name in BY_TOKEN else None for name in Tables._fields)
    return jax.vmap(output, in_axes=(axes, 0, None))(rows, counts, design)
