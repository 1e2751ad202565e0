"""The search for edges: changes of sign, bands of any width, and what is not known.

Source: mathematics, section 6c.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.theory import phases


@jax.jit
def edges_of(sign, place, hole, width):
    """Edges of sign · (x − place)(1 + x²) over (0, 1), NaN within a width of a hole."""

    def condition(x):
        value = sign * (x - place) * (1 + x**2)
        return jnp.where(abs(x - hole) < width, jnp.nan, value)

    return phases._edges(condition, jnp.array([0.0, 1.0]))


@pytest.mark.parametrize(
    ("sign", "place", "hole", "width", "wanted"),
    [
        (1.0, 0.3, 5.0, 0.05, (0.3, np.inf)),
        (-1.0, 0.3, 5.0, 0.05, (-np.inf, 0.3)),
        # Positive throughout, and nowhere.
        (1.0, -1.0, 5.0, 0.05, (-np.inf, np.inf)),
        (1.0, 2.0, 5.0, 0.05, (np.inf, -np.inf)),
        # Not known in between, at an end, or only where the search comes to.
        (1.0, 0.3, 0.7, 0.05, (np.nan, np.nan)),
        (1.0, 0.3, 0.0, 0.05, (np.nan, np.nan)),
        (1.0, 0.3, 1.0, 0.05, (np.nan, np.nan)),
        (1.0, 2.0, 0.5, 0.05, (np.nan, np.nan)),
        (1.0, 0.3, 0.3, 1e-3, (np.nan, np.inf)),
    ],
)
def test_an_edge_is_a_change_of_sign_and_never_nan(sign, place, hole, width, wanted):
    found = edges_of(sign, place, hole, width)
    np.testing.assert_allclose(found, wanted, rtol=1e-12)


@jax.jit
def band_of(height, place, width):
    """Edges of height − |x − place|³/width³ over (0, 10): two, or none."""

    def condition(x):
        return height - jnp.abs((x - place) / width) ** 3

    return phases._edges(condition, jnp.array([0.0, 10.0]))


@pytest.mark.parametrize("width", [1e-2, 0.1, 3.0])
def test_a_band_is_found_however_narrow(width):
    """Widths of a cell of 0.3 or a small part of one, anywhere in it."""
    for place in (3.777, 5.0, 5.15):
        wanted = place + width * np.array([-1.0, 1.0])
        np.testing.assert_allclose(band_of(1.0, place, width), wanted, rtol=1e-7)
        empty = band_of(-1.0, place, width)
        np.testing.assert_array_equal(empty, [np.inf, -np.inf])
