"""Where pairs, p_mm and ties on a manifold balance (mathematics, section 7e)."""

import numpy as np
from jaxtyping import Float

from ..pairs.manifold_balance import Stationary, second_order
from ..pairs.tie_manifold import TieManifold

NEWTON_STEPS = 60
# In scores: longest step of Newton's method, and the last one.
LONGEST, LAST = 1.0, 1e-10


def stationary(
    ties: TieManifold, cls: Float[np.ndarray, " dim"], log_time: float
) -> Stationary | None:
    """Newton's method for f = target and a balance along the manifold.

    Args:
        ties: the late flow.
        cls: p to begin with.
        log_time: s.

    Returns:
        The last point; none where the method does not settle.
    """
    for _ in range(NEWTON_STEPS):
        now = second_order(ties, cls, log_time)
        normal = now.point.normal @ ties.axes
        zero = np.zeros((len(normal), len(normal)))
        system = np.block([[now.hessian, normal.T], [normal, zero]])
        right = -np.concatenate([now.left, now.point.off])
        try:
            step = np.linalg.solve(system, right)[: len(now.left)]
        except np.linalg.LinAlgError:
            return None
        scores = ties.embeddings @ (ties.axes @ step)
        size = float(np.ptp(scores))
        if not np.isfinite(size):
            return None
        cls = cls + ties.axes @ step * min(1.0, LONGEST / max(size, 1e-300))
        if size <= LAST:
            return second_order(ties, cls, log_time)
    return None
