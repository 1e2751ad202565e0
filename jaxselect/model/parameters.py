"""The model's parameters (E, p, v): random draws, and rotations into few coordinates.

The model depends on them through inner products only, so the |S| + 2 vectors may be
rotated into R^(|S|+2): the dimension d is a number and not the shape of an array. If
parameters are given in R^d with d > |S| + 2, the flow of p, its limit and its rates are
computed in a `frame`, |S| + 1 coordinates of the span of E and p_0. The cost of d is
then one factorisation of E and products with its axes (mathematics, section 4b).
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Bool, Float, Key, Scalar

from .. import checks
from ..checks import BadInput, is_array, shown
from ..compilation import compiled_alone, full_precision
from ..data.corpus import check_corpus, labels_suit, same_vocabulary


class Parameters(eqx.Module):
    """Parameters (E, p, v) of the model.

    Source: mathematics, section 1.

    Attributes:
        embeddings: E, one row E_s in R^d per token.
        query: p in R^d, the single trainable query (embedding of the CLS token).
        head: v, of unit norm at initialisation; with K classes a column v_k for each,
            orthonormal there.
    """

    embeddings: Float[Array, "vocabulary dim"]
    query: Float[Array, " dim"]
    head: Float[Array, " dim *classes"]


def check_problem(parameters: Any, corpus: Any) -> None:
    """Refuse parameters and a corpus that do not go together.

    Entry points call it before anything is traced, since JAX reads past the end of E
    without an error.
    """
    checks.of_kind("parameters", parameters, Parameters)
    check_corpus(corpus)
    kinds = []
    for name, *axes in (("embeddings", 2), ("query", 1), ("head", 1, 2)):
        given = getattr(parameters, name)
        if not is_array(given, jnp.floating, *axes):
            number = " or ".join(map(str, axes))
            raise BadInput(f"{name} {shown(given)}: wanted floats, {number} axes")
        kinds.append(checks.precise(name, given))
        checks.finite(name, given)
    if len(set(kinds)) > 1:
        said = ", ".join(map(str, kinds))
        raise BadInput(f"embeddings, query and head of types {said}: wanted one type")
    dims = {len(array) for array in (parameters.query, parameters.head)}
    if dims != {parameters.embeddings.shape[1]}:
        raise BadInput(
            f"embeddings, query and head of shapes {parameters.embeddings.shape}, "
            f"{parameters.query.shape}, {parameters.head.shape}: wanted one dimension d"
        )
    same_vocabulary(parameters.embeddings, corpus.vocabulary)
    labels_suit(parameters.head.shape[1:], corpus)


def gaussian(
    key: Key[Array, ""], *, vocabulary: int, dim: int | float, heads: int = 1
) -> Parameters:
    """Draw E_s, p ~ N(0, I/d) in R^d and v, uniform on the sphere.

    Args:
        key: a `jax.random.key`.
        vocabulary: number of tokens |S|.
        dim: d ≥ 1.
        heads: one, or K ≥ 2 for K classes; orthonormal.

    Returns:
        The parameters.

    Raises:
        BadInput: vocabulary, dim or heads not a whole number ≥ 1, d < K, or arrays
            too large for this machine; `gaussian_reduced` takes any dim.

    Example:
        >>> parameters = gaussian(jax.random.key(0), vocabulary=3, dim=5)
        >>> parameters.embeddings.shape
        (3, 5)
    """
    checks.key(key)
    vocabulary = checks.whole("vocabulary", vocabulary, most=checks.MOST_TOKENS)
    heads = checks.whole("heads", heads)
    if isinstance(dim, float) and dim.is_integer():  # 1e6, say
        dim = int(dim)
    dim = checks.whole("dim", dim, least=heads)
    checks.in_memory("embeddings", vocabulary, dim)
    return _gaussian(key, vocabulary, dim, heads)


@partial(jax.jit, static_argnums=(1, 2, 3), inline=True)
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


def gaussian_reduced(
    key: Key[Array, ""],
    *,
    vocabulary: int,
    dim: Float[Scalar, ""] | float,
    heads: int = 1,
) -> Parameters:
    """Draw from the law of `gaussian` in |S| + 2 rotated coordinates, at any d.

    The head is the first axis. In the other d − 1 the rows p, E_1, …, E_|S| are
    replaced by the triangular factor L of their LQ factorisation, which by Bartlett's
    theorem has independent entries: normals below the diagonal and chi variables with d
    − 1, d − 2, … degrees of freedom on it, all over √d. If d < |S| + 2, rows are drawn
    in R^d and padded with zeros. With K heads, head k is axis k, the chi variables have
    d − K, d − K − 1, … degrees of freedom, and there are |S| + 1 + K coordinates.

    The derivative in d is taken along quantiles: as d changes, every chi variable keeps
    the value of its distribution function, and every normal its value. A second draw
    with the same key at another d does not keep them, because the sampler of chi
    variables rejects proposals, so the difference of two draws is no difference
    quotient.

    Source: mathematics, section 4.

    Args:
        key: a `jax.random.key`.
        vocabulary: number of tokens |S|.
        dim: d ≥ 1, a whole number; traced, and for d ≥ |S| + 2 differentiable as a
            real one. With K heads d ≥ |S| + 1 + K.
        heads: one, or K ≥ 2 for K classes.

    Returns:
        Parameters whose Gram matrix has the same law as with `gaussian`; NaN if a
        traced d is not a whole number ≥ 1.

    Raises:
        BadInput: a vocabulary or a concrete d out of its range.

    Example:
        >>> parameters = gaussian_reduced(jax.random.key(0), vocabulary=3, dim=1e9)
        >>> parameters.embeddings.shape
        (3, 5)
    """
    checks.key(key)
    rows = 1 + checks.whole("vocabulary", vocabulary, most=checks.MOST_TOKENS)
    full = rows + checks.whole("heads", heads)
    number = checks.real("dim", dim)
    if number is not None and not _is_dimension(number, full, heads):
        raise BadInput(
            f"dim {dim}: wanted a whole number ≥ {heads}; from {full} on any real one"
        )
    return _gaussian_reduced(key, dim, rows=rows, heads=heads)


@partial(compiled_alone, static=("rows", "heads"))
def _gaussian_reduced(
    key: Key[Array, ""], dim: Float[Scalar, ""] | float, *, rows: int, heads: int
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


def _is_dimension(
    dim: Float[Scalar, ""] | float, full: int, heads: int
) -> Bool[Scalar, ""] | bool:
    """Whether d is an integer, or large enough for d to be any real number."""
    return (dim < float("inf")) & ((dim >= full) | ((dim >= heads) & (dim % 1 == 0)))


# A row of E depends on those before it where it is so many roundings, times √|S|, off
# their span: five times what copies, sums and centring leave of one.
DEPENDENT = 100
_ONCE = "A frame can be differentiated once, and here it is differentiated twice."


class Products(eqx.Module):
    """Orthonormal coordinates of d × d′ matrices U M Vᵀ, and of one more.

    Attributes:
        left: U, orthonormal columns.
        right: V, likewise.
        other: a matrix of norm one, or zero, orthogonal to all U M Vᵀ; None for none.
    """

    left: Float[Array, "dim axes"]
    right: Float[Array, "dim2 axes2"]
    other: Float[Array, "dim dim2"] | None

    def coordinates(
        self, vectors: Float[Array, "*rows ambient"]
    ) -> Float[Array, "*rows coordinates"]:
        """Compute (Uᵀ W V, ⟨W, other⟩) of matrices W; infinite ones stay infinite."""

        def inside(flat: Array) -> Array:
            batch = flat.shape[:-1]
            matrices = flat.reshape(*batch, len(self.left), len(self.right))
            few = (self.left.T @ matrices @ self.right).reshape(*batch, -1)
            if self.other is None:
                return few
            return jnp.concatenate([few, flat @ self.other.reshape(-1, 1)], axis=-1)

        return _of_finite(inside, vectors)

    def lift(
        self, vectors: Float[Array, "*rows coordinates"]
    ) -> Float[Array, "*rows ambient"]:
        """Compute U M Vᵀ + c · other."""

        def outside(few: Array) -> Array:
            sizes = self.left.shape[1], self.right.shape[1]
            within = few[..., : sizes[0] * sizes[1]]
            within = within.reshape(*few.shape[:-1], *sizes)
            flat = self.left @ within @ self.right.T
            flat = flat.reshape(*few.shape[:-1], -1)
            if self.other is None:
                return flat
            return flat + few[..., -1:] @ self.other.reshape(1, -1)

        return _of_finite(outside, vectors)


def frame(
    parameters: Parameters,
) -> tuple[Parameters, Float[Array, "dim axes"] | None, Float[Array, " dim"] | None]:
    """Find few coordinates that hold (E, p_0).

    F holds orthonormal axes Q of the span of E, and p_0's direction off that span, or
    zero. E p, E v, ‖p‖ and E Eᵀ are the same in the frame, and so are their
    derivatives, once and in both modes, even along changes of E that leave the span.
    Where rows of E depend on each other, a change of E may add to their span what no
    coordinate holds: derivatives in E are NaN there, those in p_0 and v are not.

    Source: mathematics, section 4b.

    Returns:
        (E, p_0, v) in the frame, F, and p_0 − F Fᵀp_0, which is zero, but not its
        derivative in p_0 and E. Where d ≤ |S| + 2, the parameters themselves and None.

    Example:
        >>> from jaxselect.model.parameters import gaussian
        >>> wide = gaussian(jax.random.key(0), vocabulary=3, dim=1000)
        >>> few, axes, residual = frame(wide)
        >>> few.query.shape
        (4,)
        >>> bool(jnp.allclose(axes @ few.query + residual, wide.query))
        True
    """
    embeddings = parameters.embeddings
    vocabulary, dim = embeddings.shape
    if dim <= vocabulary + 2:
        return parameters, None, None
    query = _once(parameters.query)
    axes = _axes(embeddings, jax.lax.stop_gradient(query))
    # The axes follow the rows, which get no part off their span.
    rows = embeddings @ jax.lax.stop_gradient(axes)
    head = parameters.head
    inside = head @ axes if head.ndim == 1 else axes.T @ head
    few = Parameters(rows.at[:, -1].set(0.0), query @ axes, inside)
    return few, axes, query - axes @ few.query


@jax.custom_jvp
def _once(query: Float[Array, " dim"]) -> Float[Array, " dim"]:
    """Return p, and refuse second derivatives, which would be wrong for ‖p‖²."""
    return query


@_once.defjvp
def _once_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    fixed = eqx.internal.nondifferentiable(primals[0], msg=_ONCE)
    return primals[0], tangents[0] * jnp.where(fixed == fixed, 1.0, jnp.nan)


@jax.custom_jvp
@full_precision
def _axes(
    embeddings: Float[Array, "vocabulary dim"], query: Float[Array, " dim"]
) -> Float[Array, "dim axes"]:
    """Axes of the span of E, in which E is triangular, and one more for p."""
    span = jnp.linalg.qr(embeddings.T)[0]
    off_span = query
    for _ in range(2):
        off_span = off_span - span @ (off_span @ span)
    size = jnp.linalg.norm(off_span)
    nonzero = size > DEPENDENT * jnp.finfo(query.dtype).eps * jnp.linalg.norm(query)
    unit = jnp.where(nonzero, off_span / jnp.where(nonzero, size, 1.0), 0.0)
    return jnp.concatenate([span, unit[:, None]], axis=1)


@_axes.defjvp
@full_precision
def _axes_jvp(
    primals: tuple[Array, Array], tangents: tuple[Array, Array]
) -> tuple[Array, Array]:
    """The axes' derivatives, dQ = (I − QQᵀ) dEᵀ (E Q)^{−T} and du = −Q dQᵀu."""
    axes = _axes(*primals)
    embeddings, fixed = eqx.internal.nondifferentiable((primals[0], axes), msg=_ONCE)
    change, _ = tangents
    span, off_span = fixed[:, :-1], fixed[:, -1]
    rows = embeddings @ span
    rounding = DEPENDENT * len(rows) ** 0.5 * jnp.finfo(rows.dtype).eps
    independent = jnp.abs(jnp.diag(rows)) > rounding * jnp.linalg.norm(
        embeddings, axis=1
    )
    leaving = change - (change @ span) @ span.T
    rotation = solve_triangular(rows, leaving, lower=True).T
    rotation = rotation * jnp.where(independent.all(), 1.0, jnp.nan)
    tilt = -span @ (off_span @ rotation)
    return axes, jnp.concatenate([rotation, tilt[:, None]], axis=1)


def times(
    vectors: Float[Array, "*rows before"], matrix: Float[Array, "before after"]
) -> Float[Array, "*rows after"]:
    """Multiply rows by a matrix; infinite ones (a path after its end) stay infinite."""
    return _of_finite(lambda rows: rows @ matrix, vectors)


def _of_finite(
    function: Callable[[Array], Array], vectors: Float[Array, "*rows before"]
) -> Float[Array, "*rows after"]:
    """Apply a function to rows that are finite."""
    finite = ~jnp.isinf(vectors).any(axis=-1, keepdims=True)
    return jnp.where(finite, function(jnp.where(finite, vectors, 0.0)), jnp.inf)
