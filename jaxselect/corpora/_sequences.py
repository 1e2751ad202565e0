"""Bags of drawn sequences, and the shares that families of corpora take."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Scalar

from ..errors import BadInput
from .corpus import Corpus

# A share computed in floating point may miss its end by a few roundings.
ROUNDING = 1e-12


def counted(
    sequences: Int[Array, "sequences length"],
    labels: Int[Array, " sequences"],
    vocabulary: int,
) -> Corpus:
    """Bags of the given sequences: sorted, repeats counted, padded."""

    def bag(
        sequence: Int[Array, " length"],
    ) -> tuple[Int[Array, " length"], Float[Array, " length"]]:
        ordered = jnp.sort(sequence)
        new = jnp.concatenate([jnp.ones(1, bool), ordered[1:] != ordered[:-1]])
        slot = jnp.cumsum(new) - 1
        return jnp.zeros_like(ordered).at[slot].set(ordered), (
            jnp.zeros(ordered.shape).at[slot].add(1.0)
        )

    tokens, counts = jax.vmap(bag)(sequences)
    return Corpus(tokens, counts, labels, vocabulary)


def check_share(
    name: str,
    value: Float[Scalar, ""] | float,
    *,
    above: float = -ROUNDING,
    most: float = 1.0,
) -> None:
    """Refuse a concrete share outside (above, most]; traced ones pass."""
    if isinstance(value, jax.core.Tracer):
        return
    if not above < float(value) <= most + ROUNDING:
        least = "from 0" if above < 0 else "above 0"
        raise BadInput(f"{name} {float(value)}: wanted a number {least} to {most:.6g}")
