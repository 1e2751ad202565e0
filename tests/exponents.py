"""The exponent with which a random error falls as the dimension grows."""

import jax
import jax.numpy as jnp
import numpy as np


def mean_error_exponent(error, points=4, draws=100):
    """Slope of log mean error(key, d) against log d, over d = 10³ … 10⁹."""
    dims = jnp.logspace(3, 9, points)
    keys = jax.random.split(jax.random.key(8), (draws, points))
    over_all = jax.jit(jax.vmap(jax.vmap(error), in_axes=(0, None)))
    mean = over_all(keys, dims).mean(axis=0)
    return np.polyfit(np.log(dims), np.log(mean), 1)[0]
