"""How far two computations of the same number may differ, by precision."""

import numpy as np
from numpy.typing import ArrayLike

# A few hundred roundings of sums over some thousand terms.
TOLERANCE = {np.dtype("float64"): 1e-12, np.dtype("float32"): 1e-4}


def assert_close(actual: ArrayLike, wanted: ArrayLike, worse: float = 1.0) -> None:
    """Equal up to `worse` times the tolerance, measured against the largest entry.

    `worse` is for quantities that lose digits for a reason the test names, such as
    second derivatives or a division by a small margin.
    """
    # In NumPy, where another shape costs no program.
    actual, wanted = np.asarray(actual), np.asarray(wanted)
    bound = worse * TOLERANCE[actual.dtype]
    scale = max(1.0, float(np.max(np.abs(wanted), initial=0.0)))
    np.testing.assert_allclose(actual, wanted, rtol=bound, atol=bound * scale)
