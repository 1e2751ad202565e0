"""The propagator U of a joint flow, Z_t = U_t Z_0, moved back onto its conserved form.

With Δ = diag(η, …, η, −η_p, −η_v) the flow keeps U Δ Uᵀ = Δ, as D Σ(h) Δ is
antisymmetric. An integration keeps that to its tolerance only, and W = E [p v] of U to
its tolerance times ‖E‖ ‖v‖, while the W that drives the flow corrects itself
(mathematics, section 3i).
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ..precision import full_precision

# Both corrections converge quadratically; errors begin below 1e-2.
CORRECTIONS = 4

# Part of its trace that is added to a system with directions that nothing trains.
RIDGE = 1e-15


@full_precision
def corrected(
    propagator: Float[Array, "rows rows"],
    both: Float[Array, "vocabulary 2"],
    gram: Float[Array, "rows rows"],
    rates: Float[Array, "3"],
) -> Float[Array, "rows rows"]:
    """The nearby propagator with U Δ Uᵀ = Δ and W as integrated.

    An impulse x, U ← (1 + D Σ(x)) U, changes W by η x G + K x diag(η_p, η_v): as many
    unknowns as W has entries.

    Args:
        propagator: U, to the accuracy of the integration.
        both: W = E [p v].
        gram: Z_0 Z_0ᵀ.
        rates: (η, η_p, η_v).

    Returns:
        U.
    """
    vocabulary = len(both)
    eta, pace = rates[0], rates[1:]
    form = jnp.concatenate([jnp.full(vocabulary, eta), -pace])
    trained = form != 0
    inverse = jnp.where(trained, 1 / jnp.where(trained, form, 1.0), 0.0)

    def once(_: PyTree, propagator: Array) -> Array:
        now = propagator @ gram @ propagator.T
        tokens, pair = now[:-2, :-2], now[-2:, -2:]
        identity = jnp.eye(vocabulary, dtype=both.dtype)
        system = eta * jnp.kron(pair, identity) + jnp.kron(jnp.diag(pace), tokens)
        ridge = RIDGE * jnp.trace(system) * jnp.eye(len(system), dtype=both.dtype)
        missing = (both - now[:-2, -2:]).T.ravel()
        impulse = jnp.linalg.solve(system + ridge, missing).reshape(2, -1).T
        embeddings = propagator[:-2] + eta * impulse @ propagator[-2:]
        vectors = propagator[-2:] + pace[:, None] * (impulse.T @ propagator[:-2])
        moved = jnp.concatenate([embeddings, vectors])
        off = jnp.diag(form) - (moved * form[None]) @ moved.T
        return moved + 0.5 * (off * inverse[None]) @ moved

    return jax.lax.fori_loop(0, CORRECTIONS, once, propagator)
