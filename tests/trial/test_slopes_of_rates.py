"""Derivatives of rates at the default tolerance, where they are hard to get.

Source: mathematics, section 3f.
"""

import jax
import jax.numpy as jnp
import numpy as np

from experiments.common.rates import REAL_RATES
from jaxselect import Corpus, Parameters, Reason
from jaxselect.convergence import rates

# The path decides a part of ρ, by a change of tokens within 1e-7 of log t: p moves a
# million times faster than before and after. Without shifts of time the derivative of
# the error constant is −0.87, and 0.43 at a closer tolerance.
SUDDEN = {
    "tokens": [
        [3, 2, 0], [4, 0, 3], [0, 4, 1], [5, 6, 2], [4, 0, 2], [2, 3, 1], [0, 1, 5],
    ],
    "counts": [
        [1.0, 1.0, 0.0], [3.0, 1.0, 1.0], [4.0, 4.0, 0.0], [1.0, 1.0, 1.0],
        [4.0, 4.0, 1.0], [3.0, 4.0, 0.0], [3.0, 1.0, 1.0],
    ],
    "labels": [1, 1, 1, -1, 1, 1, 1],
    "weights": [0.063, 0.221, 0.076, 0.146, 0.157, 0.278, 0.059],
    "rows": [
        [2.637, 0.619, 0.224, -0.477, 0.501], [1.311, -0.36, -1.328, 1.518, -0.288],
        [-0.36, -1.423, -0.487, -2.112, 0.377], [-0.745, 0.188, -0.666, 1.753, -0.426],
        [0.007, -1.612, 0.609, -1.871, -0.566], [0.894, 0.037, 0.858, -0.693, 0.959],
        [-0.473, 0.46, 0.907, 0.149, -0.011],
    ],
    "query": [-1.975, -0.132, -0.821, 3.721, 0.306],
    "head": [2.11, 0.269, 1.165, -0.662, -2.339],
    "change": [
        [-0.865, 0.04, 1.649, -0.021, -0.812], [-1.624, -0.341, 0.228, 0.341, -2.121],
        [0.831, 0.217, -2.376, -0.37, 1.371], [-0.221, -0.681, 0.551, 0.046, -0.382],
        [0.626, 0.024, 1.407, 1.698, -0.557], [1.104, -0.713, -0.799, -0.027, -0.96],
        [0.085, -0.639, -0.866, 0.979, -0.447],
    ],
}  # fmt: skip


@jax.jit
def moved(move):
    """Rates of the problem moved so far in E and p_0, their slopes, and smoothness."""
    given = {name: jnp.array(numbers) for name, numbers in SUDDEN.items()}
    tokens, labels = (given[name].astype(jnp.int32) for name in ("tokens", "labels"))
    weights = given["weights"] / given["weights"].sum()
    corpus = Corpus(tokens, given["counts"], labels, len(given["rows"]), weights)

    def real(move):
        rows = given["rows"] + 0.1 * move * given["change"]
        found = rates(Parameters(rows, given["query"], given["head"]), corpus, 0.0)
        smooth = (found.status == Reason.NONE) & ~found.kink
        return jnp.stack([getattr(found, name) for name in REAL_RATES]), smooth

    return jax.jvp(real, (move,), (jnp.ones_like(move),), has_aux=True)


def test_slopes_at_the_default_tolerance_are_those_of_differences():
    step = 0.002
    value, slope, smooth = moved(0.0)
    ends = {k: moved(k * step) for k in (-2, -1, 1, 2)}
    assert smooth and all(end[2] for end in ends.values())
    near, far = ((ends[k][0] - ends[-k][0]) / (2 * k * step) for k in (1, 2))
    difference = (4 * near - far) / 3
    # A derivative that is nothing beside the value is compared with the value.
    scale = np.maximum(np.abs(difference), 1e-3 * np.abs(value))
    known = np.isfinite(value)
    off = np.abs(slope - difference)[known] / np.where(scale > 0, scale, 1)[known]
    np.testing.assert_array_less(off, 5e-4)
