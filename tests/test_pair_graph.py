"""Pairs of tokens as a graph."""

import jax.numpy as jnp
import numpy as np

from jaxselect.pair_graph import laplacian

from .tolerances import assert_close


def test_laplacian_is_the_energy_of_the_pairs():
    rng = np.random.default_rng(0)
    weights, scores = rng.random((6, 6)), rng.normal(size=6)
    ahead = scores[:, None] - scores[None, :]
    assert_close(
        scores @ laplacian(jnp.asarray(weights)) @ scores, (weights * ahead**2).sum()
    )
