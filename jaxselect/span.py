"""The projector on the span of some vectors, with its derivative."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


@jax.custom_jvp
def span_projector(gram: Float[Array, "dim dim"]) -> Float[Array, "dim dim"]:
    """Orthogonal projector N on the range of G = Σ D Dᵀ, a gap above its null space.

    The derivative is that at constant rank, dN = (I − N) dG G⁺ + its transpose, which
    is right where the vectors move without leaving or entering a common hyperplane, as
    differences of the same pairs of tokens do.

    Args:
        gram: G, symmetric and positive semi-definite, with its rank well determined:
            eigenvalues below ten roundings of the largest count as zero.

    Returns:
        N, with N² = N = Nᵀ and N G = G; differentiable in both modes.

    Example:
        >>> span_projector(jnp.array([[4.0, 0.0], [0.0, 0.0]])).tolist()
        [[1.0, 0.0], [0.0, 0.0]]
    """
    return _projector_and_inverse(gram)[0]


@span_projector.defjvp
def _span_projector_jvp(
    primals: tuple[Array], tangents: tuple[Array]
) -> tuple[Array, Array]:
    (gram,), (change,) = primals, tangents
    projector, inverse = _projector_and_inverse(gram)
    turn = (change - projector @ change) @ inverse
    return projector, turn + turn.T


def _projector_and_inverse(
    gram: Float[Array, "dim dim"],
) -> tuple[Float[Array, "dim dim"], Float[Array, "dim dim"]]:
    value, vector = jnp.linalg.eigh(gram)
    floor = len(gram) * jnp.finfo(gram.dtype).eps * jnp.maximum(value[-1], 0.0)
    kept = (value > 10 * floor)[None]
    used = jnp.where(kept, vector, 0.0)
    return used @ used.T, (used / jnp.where(kept, value[None], 1.0)) @ used.T
