"""A proof that tied tokens hold p for good in the span of their differences.

The risk of the tied tokens alone has a strict minimum there, hardly away from p, and
every other token is pushed further back: then Σλ of the losers stays bounded, and with
their weights, of order e^{−s}, all that could move p in that span dies.
"""

from dataclasses import replace

import numpy as np

from .forces import NEVER, Lanes, curvature, scaled

# The minimum is found by Newton's method within this distance, in scores.
NEAR = 1e-2
ITERATIONS = 30
STIFF = 1e-9


def rests(lanes: Lanes, y: np.ndarray) -> bool:
    """Whether p rests in the span of the tied tokens, of one lane."""
    at = scaled(lanes, y)
    sizes = np.abs(at.terms) * np.sqrt((at.pull.from_top**2).sum(3))
    tied = sizes > np.sqrt(sizes.max() * min(at.length()[0], sizes.max()))
    lost = ~tied & np.isfinite(at.pull.log_size)
    if (at.pull.sign[lost] > 0).any() or not tied.any():
        return False
    rows = at.pull.from_top[tied]
    _, size, axes = np.linalg.svd(rows, full_matrices=False)
    axes = axes[size > 1e-9 * size[0]]
    top = np.arange(tied.shape[2]) == at.pull.top[..., None]
    kept = np.where(tied | top, lanes.log_counts, NEVER)
    alone = replace(lanes, log_counts=kept, growth=0 * lanes.growth)
    here, moved = y.copy(), np.zeros(len(axes))
    here[:, :-1] += lanes.growth * y[:, -1:]
    here[:, -1] = 0.0
    for _ in range(ITERATIONS):
        at = scaled(alone, here)
        force = axes @ at.force[0]
        stiffness = -axes @ curvature(at)[0] @ axes.T
        values, vectors = np.linalg.eigh((stiffness + stiffness.T) / 2)
        if values[0] <= STIFF * values[-1]:
            return False
        change = vectors @ ((vectors.T @ force) / values)
        here[0, :-1] += change @ axes
        moved = moved + change
        reach = np.abs(rows @ (moved @ axes)).max()
        if not reach < NEAR:
            return False
        if np.abs(change).max() <= 1e-10 * (1 + np.abs(here).max()):
            return True
    return False
