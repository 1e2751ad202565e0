"""The flow of pairs where ties rest on a manifold: along it, and orthogonal to ties."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from scipy.integrate import BDF

from ..model.manifold_balance import second_order
from ..model.tie_manifold import TieManifold, at_point, forces
from .bdf import step

# Tolerance of a step, absolute, in p − p_mm τ.
TOLERANCE = 1e-8
MAX_STEPS = 500
# Share of a bag at which a lost token has returned.
RETURNED = 1e-3
# Fall of a score per unit of log-time from which a token has lost.
SLOW = 1e-2
# Longest step where a pair of wrong sign grows, in log-time.
WATCHED = 0.5
CORRECTIONS = 3


class _Late(NamedTuple):
    """z = p − p_mm τ, at constant f of the twins."""

    ties: TieManifold
    every: TieManifold

    @classmethod
    def of(cls, ties: TieManifold) -> "_Late":
        """With all pairs and axes, of which the derivative is."""
        axes = np.eye(len(ties.growth))
        return cls(ties, ties._replace(excess=np.zeros_like(ties.excess), axes=axes))

    def parts(
        self, log_time: float, moved: Float[np.ndarray, " dim"]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Forces of the pairs, their directions, and axes of ∂f/∂p."""
        found = at_point(self.ties, moved + self.ties.growth * log_time)
        force = forces(self.ties, found, log_time)
        return force, found.towards, np.linalg.qr(found.normal.T)[0]

    def field(self, log_time: float, moved: np.ndarray) -> np.ndarray:
        """dz/dτ."""
        force, towards, normal = self.parts(log_time, moved)
        pull = force @ towards
        return pull - normal @ (normal.T @ pull) - self.ties.growth

    def jacobian(self, log_time: float, moved: np.ndarray) -> np.ndarray:
        """Its derivative on the manifold: that of the Lagrangian of all pairs."""
        found = second_order(self.every, moved + self.ties.growth * log_time, log_time)
        along = found.tangent @ found.tangent.T
        return -along @ found.hessian @ along

    def longest(self, log_time: float, moved: np.ndarray, pace: np.ndarray) -> float:
        """Longest step in which no pair of wrong sign grows unseen."""
        force, towards, _ = self.parts(log_time, moved)
        grows = 1 - towards @ (pace + self.ties.growth)
        wrong = (force < 0) & (grows > RETURNED)
        if not wrong.any():
            return np.inf
        far = np.log(RETURNED * np.linalg.norm(self.ties.growth))
        size = np.log(-force[wrong]) + np.log(np.linalg.norm(towards[wrong], axis=1))
        return max(WATCHED, float(((far - size) / grows[wrong]).min()) / 2)


def still_tied(
    ties: TieManifold, cls: Float[np.ndarray, " dim"], log_time: float
) -> Bool[np.ndarray, "contents words"]:
    """The tokens of every content that are tied at p: those that fall are not.

    Source: mathematics, section 7e.

    Args:
        ties: the late flow.
        cls: p on the manifold.
        log_time: τ.

    Returns:
        For every content and every token of contents.
    """
    late = _Late.of(ties)
    pace = late.field(log_time, cls - ties.growth * log_time) + ties.growth
    pace = (ties.embeddings @ pace)[ties.words]
    share = at_point(ties, cls).share
    ahead = pace[share.argmax(axis=1)][:, None]
    tied = (share >= RETURNED) | (pace > ahead - SLOW)
    return tied & (ties.counts > 0)


def manifold_flow(
    ties: TieManifold,
    cls: Float[np.ndarray, " dim"],
    from_log_time: float,
    until_log_time: float,
) -> Float[np.ndarray, " dim"] | None:
    """Where p is at a later log-time, ties on their manifold.

    Source: mathematics, section 7e.

    Args:
        ties: the late flow.
        cls: p near the manifold.
        from_log_time: s there.
        until_log_time: s to stop at.

    Returns:
        p; none where a lost token returns on the way, or the integration fails.
    """
    late = _Late.of(ties)
    bdf = BDF(
        late.field,
        from_log_time,
        cls - ties.growth * from_log_time,
        until_log_time,
        jac=late.jacobian,
        rtol=TOLERANCE,
        atol=TOLERANCE,
    )
    for _ in range(MAX_STEPS):
        bdf.max_step = late.longest(bdf.t, bdf.y, late.field(bdf.t, bdf.y))
        try:
            taken = step(bdf)
        except ValueError:
            # Forces beyond all numbers.
            taken = False
        if not taken:
            return None
        cls = bdf.y + ties.growth * bdf.t
        if np.exp(-at_point(ties, cls).lead).max() * ties.heaviest > RETURNED:
            return None
        if bdf.status == "finished":
            return on_manifold(ties, cls)
    return None


def on_manifold(
    ties: TieManifold, cls: Float[np.ndarray, " dim"]
) -> Float[np.ndarray, " dim"]:
    """The point with f = target that Newton's method finds by the shortest steps.

    Args:
        ties: the late flow.
        cls: p near the manifold.

    Returns:
        A point; NaN where weights are beyond all numbers.
    """
    for _ in range(CORRECTIONS):
        found = at_point(ties, cls)
        if not np.isfinite(found.normal).all():
            return np.full_like(cls, np.nan)
        cls = cls - np.linalg.lstsq(found.normal, found.off, rcond=None)[0]
    return cls
