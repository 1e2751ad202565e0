"""Rates at which E, p and v are trained together."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Scalar

from ..errors import BadInput


class LearningRates(eqx.Module):
    """Rate of each parameter in units of time; zero keeps it as it is.

    Attributes:
        embeddings: η of E.
        query: η_p of p.
        head: η_v of v.
    """

    embeddings: Float[Scalar, ""] | float = 1.0
    query: Float[Scalar, ""] | float = 1.0
    head: Float[Scalar, ""] | float = 1.0

    def array(self, dtype: Any) -> Float[Array, "3"]:
        """(η, η_p, η_v)."""
        both = (self.embeddings, self.query, self.head)
        return jnp.stack([jnp.asarray(rate, dtype) for rate in both])

    def check(self) -> None:
        """Refuse concrete rates that are below zero, infinite, NaN or all zero.

        Raises:
            BadInput: what arrived and what was wanted.
        """
        given = (self.embeddings, self.query, self.head)
        if any(isinstance(rate, jax.core.Tracer) for rate in given):
            return
        shown = [float(rate) for rate in given]
        if not all(0 <= rate < math.inf for rate in shown) or not any(shown):
            raise BadInput(f"rates {shown}: wanted numbers ≥ 0, one of them above 0")
