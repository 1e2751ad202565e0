"""The model's parameters, drawn in R^d or in reduced coordinates.

Everything downstream depends on (E, p, v) through inner products only, so the |S| + 2
vectors may be rotated into R^(|S|+2): the dimension d becomes a number, not a shape.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key, Scalar

from .. import checks
from ..arguments import as_annotated, fields_as_annotated
from ..errors import BadInput
from ..program import one_program


class Parameters(eqx.Module):
    """Token embeddings, CLS embedding and head.

    Attributes:
        embeddings: E, one row E_s per token.
        query: p, the single trainable query.
        head: v, of unit norm at initialisation; with K classes a column v_k for each,
            orthonormal there.
    """

    embeddings: Float[Array, "vocabulary dim"]
    query: Float[Array, " dim"]
    head: Float[Array, " dim *classes"]

    def __check_init__(self) -> None:
        """Refuse lists, and arrays of another kind or shape."""
        fields_as_annotated(self, "take `gaussian`, or `jnp.asarray` of each")


@as_annotated
def gaussian(
    key: Key[Array, ""], *, vocabulary: int, dim: int, heads: int = 1
) -> Parameters:
    """Gaussian initialisation in R^d: E_s, p ~ N(0, I/d), v uniform on the sphere.

    Args:
        key: a `jax.random.key`.
        vocabulary: number of tokens |S|.
        dim: d ≥ 1.
        heads: one, or K ≥ 2 for K classes; orthonormal.

    Returns:
        The parameters.

    Raises:
        BadInput: vocabulary, dim or heads that is no whole number ≥ 1, d < K, or arrays
            too large for this machine; `gaussian_reduced` takes any dim.

    Example:
        >>> parameters = gaussian(jax.random.key(0), vocabulary=3, dim=5)
        >>> parameters.embeddings.shape
        (3, 5)
    """
    vocabulary = checks.whole("vocabulary", vocabulary, most=checks.MOST_TOKENS)
    heads = checks.whole("heads", heads)
    dim = checks.whole("dim", dim, least=heads)
    checks.in_memory("embeddings", vocabulary, dim)
    return _gaussian(key, vocabulary, dim, heads)


@one_program("vocabulary", "dim", "heads")
def _gaussian(key: Key[Array, ""], vocabulary: int, dim: int, heads: int) -> Parameters:
    embeddings_key, cls_key, head_key = jax.random.split(key, 3)
    embeddings = jax.random.normal(embeddings_key, (vocabulary, dim)) / dim**0.5
    query = jax.random.normal(cls_key, (dim,)) / dim**0.5
    if heads > 1:
        drawn = jax.random.normal(head_key, (dim, heads))
        # Each column is uniform on the sphere across those before it.
        return Parameters(embeddings, query, jnp.linalg.qr(drawn)[0])
    head = jax.random.normal(head_key, (dim,))
    return Parameters(embeddings, query, head / jnp.linalg.norm(head))


@as_annotated
def gaussian_reduced(
    key: Key[Array, ""],
    *,
    vocabulary: int,
    dim: Float[Scalar, ""] | float,
    heads: int = 1,
) -> Parameters:
    """The law of `gaussian`, rotated into |S| + 2 coordinates, at any d.

    The head is the first axis. In the other d − 1 the rows p, E_1, …, E_|S| are
    replaced by the triangular factor L of their LQ factorisation, which by Bartlett's
    theorem has independent entries: normals below the diagonal and chi variables with
    d − 1, d − 2, … degrees of freedom on it, all over √d. Where d < |S| + 2 there is no
    such factor: the rows are drawn in R^d and padded with zeros. K heads are the first
    K axes, in the other d − K the same holds, and there are |S| + 1 + K coordinates.

    The derivative in d is taken along quantiles: as d moves, every chi variable keeps
    the value of its distribution function, and every normal its value. A second draw
    with the same key at another d does not keep them, since the sampler of the chi
    variables rejects; a difference of two draws is not a difference quotient.

    Source: mathematics, sections 4 and 4a.

    Args:
        key: a `jax.random.key`.
        vocabulary: number of tokens |S|.
        dim: d ≥ 1, a whole number; traced, and for d ≥ |S| + 2 differentiable as a
            real one. With K heads d ≥ |S| + 1 + K.
        heads: one, or K ≥ 2 for K classes.

    Returns:
        Parameters whose Gram matrix has the law of that of `gaussian`; NaN where a
        traced d is no dimension.

    Raises:
        BadInput: a vocabulary or a concrete d out of its range.

    Example:
        >>> parameters = gaussian_reduced(jax.random.key(0), vocabulary=3, dim=1e9)
        >>> parameters.embeddings.shape
        (3, 5)
    """
    rows = 1 + checks.whole("vocabulary", vocabulary, most=checks.MOST_TOKENS)
    full = rows + checks.whole("heads", heads)
    known = not isinstance(dim, jax.core.Tracer)
    if known and not _is_dimension(float(dim), full, heads):
        raise BadInput(
            f"dim {dim}: wanted a whole number ≥ {heads}; from {full} on any real one"
        )
    return _gaussian_reduced(key, rows, dim, heads)


@one_program("rows", "heads")
def _gaussian_reduced(
    key: Key[Array, ""], rows: int, dim: Float[Scalar, ""] | float, heads: int
) -> Parameters:
    normal_key, chi_key = jax.random.split(key)
    dim = jnp.asarray(dim, dtype=float)
    # A traced number is checked here alone: a status downstream shows the NaN.
    full = rows + heads
    dim = jnp.where(_is_dimension(dim, full, heads), dim, jnp.nan)
    normal = jax.random.normal(normal_key, (rows, full))
    freedom = jnp.maximum(dim - heads - jnp.arange(rows, dtype=dim.dtype), 1.0)
    chi = jnp.sqrt(2 * jax.random.gamma(chi_key, freedom / 2))
    # The first axes are the heads'; the triangular factor fills the others.
    triangular = jnp.tril(normal[:, heads:], -1) + jnp.diag(chi)
    triangular = normal.at[:, heads:].set(triangular)
    inside = jnp.arange(full, dtype=dim.dtype) < dim
    padded = jnp.where(inside[None], normal, 0.0)
    vectors = jnp.where(dim >= full, triangular, padded) / jnp.sqrt(dim)
    head = jnp.eye(full, heads) if heads > 1 else jnp.zeros(full).at[0].set(1.0)
    return Parameters(vectors[1:], vectors[0], head)


@as_annotated
@one_program()
def reduce(parameters: Parameters) -> Parameters:
    """The same parameters, rotated into at most |S| + 2 coordinates.

    The rows of (v, p, E) are replaced by L in their LQ factorisation: every inner
    product between them is kept.

    Source: mathematics, section 4.

    Args:
        parameters: in R^d.

    Returns:
        Parameters in R^min(d, |S| + 2) with v on the first axis; K heads, which span
        the first K, take one more coordinate each.

    Example:
        >>> wide = gaussian(jax.random.key(0), vocabulary=3, dim=1000)
        >>> reduce(wide).query.shape
        (5,)
    """
    heads = parameters.head.T
    rows = jnp.vstack([heads, parameters.query, parameters.embeddings])
    number = len(rows) - len(parameters.embeddings) - 1
    lower = jnp.linalg.qr(rows.T, mode="r").T
    sign = jnp.where(jnp.diagonal(lower)[:number] < 0, -1.0, 1.0)
    lower = lower.at[:, :number].multiply(sign[None])
    head = lower[0] if heads.ndim == 1 else lower[:number].T
    return Parameters(lower[number + 1 :], lower[number], head)


def _is_dimension(
    dim: Float[Scalar, ""] | float, full: int, heads: int
) -> Bool[Scalar, ""] | bool:
    """Whether d is whole, or large enough for a real d."""
    return (dim < float("inf")) & ((dim >= full) | ((dim >= heads) & (dim % 1 == 0)))
