"""Linearised fields of tests, by automatic differentiation."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from jaxselect.flow.rodas import Linearisation


def from_autodiff(field: Callable[..., Float[Array, " dim"]]) -> Linearisation:
    """Linearise a field (t, y, args) with a symmetric Jacobian by autodiff."""

    def linearise(t: PyTree, y: PyTree, args: PyTree) -> tuple[PyTree, PyTree, PyTree]:
        t = jnp.asarray(t, y.dtype)
        value, in_time = jax.jvp(lambda t: field(t, y, args), (t,), (jnp.ones_like(t),))
        return value, in_time, jax.jacfwd(lambda y: field(t, y, args))(y)

    return linearise
