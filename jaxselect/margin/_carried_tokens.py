"""Tokens that all bags of a content hold, and that fall from it with no force on them.

Their effect on a wall on the manifold fades (mathematics, section 7e).
"""

from typing import NamedTuple

import numpy as np

from ..pairs.manifold_balance import Stationary
from ..pairs.ragged_pairs import INACTIVE
from ..pairs.tie_manifold import TieManifold

# Bound on the sum of the constants in what carried tokens change.
CARRIED = 64.0


class Carried(NamedTuple):
    """Tokens that all bags of a content hold, and that fall from it.

    Attributes:
        share: bound on what all of them have of their contents, from now on.
        fall: least margin of one under p_mm.
        lead: change of the largest lead over one, by a unit along and by one across.
        range: largest range of E v over a content, over the gradient of its f.
        diameter: bound on their distance from the tokens they fell from.
    """

    share: float
    fall: float
    lead: tuple[float, float]
    range: float
    diameter: float

    def blur(self, sensitivity: float) -> float:
        """Bound on what they change of F_τ and of scores, from now on.

        Args:
            sensitivity: of forces and of e^τ φ′ to a share.

        Returns:
            A bound; ∞ where one of them does not fall.
        """
        if self.fall <= INACTIVE:
            return np.inf
        each = 1 + sensitivity * (1 + self.diameter) * (1 + 1 / self.fall)
        return CARRIED * self.share * each**2


def carried_tokens(
    ties: TieManifold, rest: Stationary, frames: tuple[np.ndarray, np.ndarray]
) -> Carried:
    """Bounds on the tokens that fall from their contents.

    Args:
        ties: the late flow.
        rest: of `stationary`.
        frames: axes along the manifold and across, as directions of p.

    Returns:
        Bounds; without such tokens nothing changes.
    """
    content, word = np.nonzero(ties.carried)
    if not len(content):
        return Carried(0.0, np.inf, (0.0, 0.0), 0.0, 0.0)
    share = rest.point.share
    best = ties.words[share.argmax(axis=1)][content]
    apart = ties.embeddings[best] - ties.embeddings[ties.words[word]]
    lead = (float(np.linalg.norm(apart @ frame, axis=1).max()) for frame in frames)
    values = np.where(ties.counts > 0, ties.values[ties.words], np.nan)[ties.twins]
    span = np.nanmax(values, axis=1) - np.nanmin(values, axis=1)
    span /= rest.scale[: len(span)]
    return Carried(
        # Leads may change by one within the wall, on either side.
        share=float(np.exp(2.0) * share[ties.carried].sum()),
        fall=float(ties.falls[ties.carried].min()),
        lead=(next(lead), next(lead)),
        range=float(span.max()),
        diameter=float(np.linalg.norm(apart, axis=1).max()),
    )
