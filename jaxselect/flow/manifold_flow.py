"""The flow of pairs where ties rest on a manifold: along it, and orthogonal to ties."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from ..pairs.manifold_balance import second_order
from ..pairs.tie_manifold import TieManifold, at_point
from .arclength import ArclengthField, along_curve, hidden_step
from .arclength_flow import RETURNED, curve_flow
from .bdf import LOOK_BACK, BdfSettings
from .result import Flow

# Errors of a step, of p − p_mm τ.
CLOSELY = BdfSettings(tolerance=1e-7, max_steps=2000)
# Steps while f of a content rises: flows to proved ends take 230.
RISING_STEPS = 300
# Fall of a score per unit of log-time from which a token has lost.
SLOW = 1e-2
CORRECTIONS = 3


class _Along(NamedTuple):
    """(z, τ), z = p − p_start − p_mm (τ − τ_0), where f of the twins is constant."""

    ties: TieManifold
    every: TieManifold
    start: Float[np.ndarray, " dim"]
    begun: float

    @classmethod
    def of(
        cls, ties: TieManifold, start: Float[np.ndarray, " dim"], begun: float
    ) -> "_Along":
        """With all pairs and axes, of which the derivative is."""
        every = ties._replace(
            excess=np.zeros_like(ties.excess),
            axes=np.eye(len(start)),
            growth=np.zeros_like(start),
        )
        return cls(ties, every, start, begun)

    def cls(self, point: Float[np.ndarray, " axes"]) -> Float[np.ndarray, " dim"]:
        """The p there."""
        return self.start + point[:-1] + self.ties.growth * (point[-1] - self.begun)

    def motion(
        self, point: Float[np.ndarray, " axes"]
    ) -> tuple[ArclengthField, Float[np.ndarray, "pairs dim"], float]:
        """dp/dℓ and dτ/dℓ, ∂D_k/∂p, and log dℓ/dτ."""
        found = at_point(self.ties, self.cls(point))
        with np.errstate(divide="ignore"):
            exponent = np.log(np.abs(self.ties.strength)) + point[-1] - found.lead
        top = float(exponent.max(initial=np.finfo(float).min))
        force = np.sign(self.ties.strength) * np.exp(exponent - top)
        normal = np.linalg.qr(found.normal.T)[0]
        pull = force @ found.towards
        total = pull - normal @ (normal.T @ pull)
        size = float(np.linalg.norm(total))
        if not size:
            return ArclengthField(0 * force, total, 0.0, 1.0), found.towards, 0.0
        log_pace = top + np.log(size)
        log_unit = float(np.logaddexp(0.0, 2 * log_pace) / 2)
        speed = float(np.exp(-np.logaddexp(0.0, -2 * log_pace) / 2))
        rate = float(np.exp(-log_unit))
        field = ArclengthField(force * (speed / size), total / size, speed, rate)
        return field, found.towards, log_unit

    def pace(self) -> Float[np.ndarray, " dim"]:
        """dp/dτ at the start."""
        found = self.motion(np.append(np.zeros_like(self.start), self.begun))[0]
        return found.towards * (found.speed / found.rate)

    def field(self, _: float, point: np.ndarray) -> np.ndarray:
        """d(z, τ)/dℓ."""
        found = self.motion(point)[0]
        moved = found.speed * found.towards - found.rate * self.ties.growth
        return np.append(moved, found.rate)

    def jacobian(self, _: float, point: np.ndarray) -> np.ndarray:
        """Its derivative on the manifold: that of the Lagrangian of all pairs."""
        motion, _towards, log_unit = self.motion(point)
        found = second_order(self.every, self.cls(point), point[-1] - log_unit)
        along = found.tangent @ found.tangent.T
        whole = along_curve(motion, -along @ found.hessian @ along)
        whole[:-1] -= np.outer(self.ties.growth, whole[-1])
        whole[:, -1] += whole[:, :-1] @ self.ties.growth
        return whole

    def max_step(self, point: Float[np.ndarray, " axes"]) -> float:
        """Longest step in which no pair of wrong sign grows unseen."""
        motion, towards, _ = self.motion(point)
        against = self.ties.strength < 0
        grows = motion.rate - motion.speed * towards[against] @ motion.towards
        lengths = np.linalg.norm(towards[against], axis=1)
        return hidden_step(motion, np.abs(motion.force[against]) * lengths, grows)

    def nearest(self, point: Float[np.ndarray, " axes"]) -> float:
        """Largest log-share of a token that lost, less that of a return."""
        lead = at_point(self.ties, self.cls(point)).lead.min(initial=np.inf)
        return float(np.log(self.ties.heaviest) - lead - np.log(RETURNED))


def still_tied(
    ties: TieManifold, cls: Float[np.ndarray, " dim"], log_time: float
) -> Bool[np.ndarray, "contents words"]:
    """The tokens of every content that are tied at p.

    Source: mathematics, section 7e.

    Args:
        ties: the late flow.
        cls: p on the manifold.
        log_time: τ.

    Returns:
        For every content and every token of contents.
    """
    pace = (ties.embeddings @ _Along.of(ties, cls, log_time).pace())[ties.words]
    share = at_point(ties, cls).share
    # f of a content that rises shall be known to a thousandth.
    values = np.where(ties.counts > 0, ties.values[ties.words], np.nan)[ties.rising]
    least = np.full((len(share), 1), RETURNED)
    if len(ties.rising):
        spread = np.nanmax(values, axis=1) - np.nanmin(values, axis=1)
        least[ties.rising, 0] /= np.maximum(spread, 1.0)
    ahead = pace[share.argmax(axis=1)][:, None]
    tied = (share >= least) | (pace > ahead - SLOW)
    return tied & (ties.counts > 0)


def manifold_flow(
    ties: TieManifold,
    cls: Float[np.ndarray, " dim"],
    from_log_time: float,
    until_log_time: float,
) -> Flow:
    """The flow of p to a later log-time, ties on their manifold.

    Source: mathematics, section 7e.

    Args:
        ties: the late flow.
        cls: p near the manifold.
        from_log_time: τ there.
        until_log_time: τ to stop at.

    Returns:
        The flow's end; SELECTION_CHANGED where a token that had lost has a thousandth
        of some bag's weight again.
    """
    earlier = max(until_log_time - LOOK_BACK, from_log_time)
    return curve_flow(
        _Along.of(ties, cls, from_log_time),
        log_times=np.array([earlier, until_log_time]),
        settings=replace(CLOSELY, max_steps=RISING_STEPS)
        if len(ties.rising)
        else CLOSELY,
        callback=lambda log_time: None,
    )


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
