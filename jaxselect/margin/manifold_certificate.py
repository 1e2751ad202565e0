"""A proof that the late flow of twins' ties stays near a point of their manifold.

F_τ(p) = e^τ (L − L_∞) + p_mmᵀp falls along the flow of p − p_mm τ, up to what fades. A
wall around a strict minimum of it on the manifold, higher than F_s at p, holds p for
ever (mathematics, section 7e).
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ..pairs.manifold_balance import Stationary
from ..pairs.tie_contents import CANCELLED, NARROW
from ..pairs.tie_manifold import TieManifold
from ._carried_tokens import Carried, carried_tokens

# Radii that are tried, in units of the Hessian along the manifold.
RADII = tuple(np.geomspace(1.0, 1e-7, 29).tolist())
# Rate in log-time from which ties are at rest for the pairs.
STIFF = 1e3
# In scores: how far all that fades may move p where nothing holds it.
PUSH = 1.0
# Bound on what the terms of second order in lost weight are in units of those of
# `pair_forces`' response, which counts the pull on the loser alone.
SECOND = 8.0
# Bounds are for ranges a part larger than those they are computed from.
LARGER = 1.01
# Bound on what carried tokens change.
FADED = 1e-3
# Exponent with room for a product.
LARGEST = 600.0


class Bounds(NamedTuple):
    """Bounds on F_s around a balance, as functions of a radius.

    Attributes:
        ties: the late flow.
        rest: the balance.
        root: axes along the manifold, in which its Hessian is the identity.
        start: distance of p from the balance, in these axes and across.
        gross: what forces are the rest of, at the balance.
        unsure: relative to that, what rounding makes of a force.
        lead: change of every pair's lead, by a unit along and by one across.
        apart: the same of the largest score difference of every content.
        wide: diameter of every content's tokens.
        range: of E v over every content.
        carried: tokens that fall from their contents without a force on them.
    """

    ties: TieManifold
    rest: Stationary
    root: Float[np.ndarray, "axes free"]
    start: tuple[float, float]
    gross: Float[np.ndarray, " pairs"]
    unsure: float
    lead: tuple[np.ndarray, np.ndarray]
    apart: tuple[np.ndarray, np.ndarray]
    wide: Float[np.ndarray, " contents"]
    range: Float[np.ndarray, " contents"]
    carried: Carried

    @property
    def off(self) -> float:
        """Distance from the manifold, now and as carried tokens fade."""
        now = float(np.linalg.norm(self.rest.point.off / self.rest.scale))
        return now + self.ties.strict.radius + self.carried.share * self.carried.range

    @property
    def scale(self) -> Float[np.ndarray, " twins"]:
        """Lengths of the gradients of f."""
        return self.rest.scale[: len(self.ties.twins)]

    @property
    def length(self) -> Float[np.ndarray, " pairs"]:
        """Bound on the gradients of leads while score differences change by one."""
        turned = np.maximum(1.0, self.wide / 4)[self.ties.content]
        return np.linalg.norm(self.rest.point.towards, axis=1) + turned

    def ranges(self, radius: float) -> tuple[np.ndarray, np.ndarray, float] | None:
        """Largest changes of score differences and leads within a wall, and across."""
        rest, across, off = self.rest, 0.0, self.off
        for _ in range(4):
            apart = self.apart[0] * radius + self.apart[1] * across
            if not apart.max() <= 1:
                return None
            across = 2.2 * (float(np.linalg.norm(self.bent(apart))) + off) / rest.rate
        apart = LARGER * (self.apart[0] * radius + self.apart[1] * across)
        lead = LARGER * (self.lead[0] * radius + self.lead[1] * across)
        moved = self.carried.lead[0] * radius + self.carried.lead[1] * across
        most = max(apart.max(), lead.max(), LARGER * moved)
        return (apart, lead, across) if most <= 1 else None

    def bent(self, apart: Float[np.ndarray, " contents"]) -> np.ndarray:
        """The remainder of f beyond first order: |f_uu| <= range · difference²/4."""
        twins = self.ties.twins
        return self.range[twins] * apart[twins] ** 2 / (8 * self.scale)

    def holds(self, radius: float, log_time: float, *, response: float) -> bool:
        """Whether the wall at a radius is higher than where p starts."""
        ties, rest, found = self.ties, self.rest, self.ranges(radius)
        twins, number = ties.twins, len(ties.twins)
        if found is None or self.start[0] >= radius:
            return False
        apart, lead, across = found
        bent = float(np.linalg.norm(self.bent(apart))) + self.off
        turned = self.range[twins] * apart[twins] * self.wide[twins] / (4 * self.scale)
        narrow = (bent + across * np.sqrt(number)) * self.scale.max()
        if (
            rest.rate * across < 2 * bent
            or self.start[1] > across
            or np.linalg.norm(turned) > rest.rate / 2
            or narrow > NARROW
            or across + self.off > ties.strict.basin
        ):
            return False
        size = self.gross * np.exp(lead + apart[ties.content])
        fading = self.fading(size, lead, response)
        stiff = np.exp(min(log_time, LARGEST) - NARROW)
        stiff *= float((ties.curvature * rest.scale**2).min())
        held = np.linalg.norm(rest.multiplier[number:])
        pull = self.pull(size) + max(np.abs(rest.multiplier[:number]).max(), held)
        rate = stiff * rest.rate**2 / 4
        if fading is None or rate < STIFF * (1 + pull / rest.rate):
            return False
        axes = self.root, rest.across
        mixed = np.linalg.norm(axes[0].T @ rest.hessian @ axes[1], 2)
        steep = np.linalg.norm(axes[1].T @ rest.hessian @ axes[1], 2)
        left = (np.linalg.norm(frame.T @ rest.left) for frame in axes)
        on = ties.excess == 0
        loose = self.third(apart, lead) + self.unsure * (self.gross * lead)[on].sum()
        loose += (number + (held > 0)) * pull**2 / stiff + mixed * radius * across
        loose += pull * ties.strict.radius
        sensitivity = (size[on].sum() + pull / rest.rate) * (1 + self.carried.range)
        blurred = self.carried.blur(sensitivity)
        if blurred > FADED:
            return False
        loose += (
            blurred + steep * across**2 / 2 + next(left) * radius + next(left) * across
        )
        # Ties at rest for the pairs, |e^τ φ′| <= 2 pull/rate, hold little energy.
        begin = self.start[0] ** 2 / 2 + loose + fading + 9 * pull**2 / rate
        side = stiff * (rest.rate * across) ** 2 / 16 - radius**2 / 2
        return bool(begin < min(radius**2 / 2, side) - loose)

    def pull(self, size: Float[np.ndarray, " pairs"]) -> float:
        """Bound on twice ‖∇Φ‖, with c_k as the function of f that it is."""
        ties, on = self.ties, self.ties.excess == 0
        # A covariance is at most a quarter of the product of the ranges.
        steep = (self.range * self.wide / 4)[ties.content]
        slope = (1 + 1 / ties.spread) * steep
        growth = float(np.linalg.norm(ties.growth))
        return 2 * float(size[on] @ (self.length + slope)[on] + growth)

    def third(
        self, apart: Float[np.ndarray, " contents"], lead: Float[np.ndarray, " pairs"]
    ) -> float:
        """The remainder of the Lagrangian beyond second order."""
        ties, rest = self.ties, self.rest
        spread = apart[ties.content]
        second, third = spread**2 / 8, spread**3 / 24
        exponent = lead + second + third
        left = third + lead * (second + third) + (second + third) ** 2 / 2
        left += exponent**3 * np.exp(exponent) / 6
        held = self.range[ties.twins] * apart[ties.twins] ** 3 * 7 / 96 / self.scale
        multiplier = np.abs(rest.multiplier[: len(held)])
        return float(np.abs(rest.force) @ left + multiplier @ held)

    def fading(
        self,
        size: Float[np.ndarray, " pairs"],
        lead: Float[np.ndarray, " pairs"],
        response: float,
    ) -> float | None:
        """Bound on what fading pairs add to F_s; none where p moves far."""
        ties, off, length = self.ties, self.ties.excess > 0, self.length
        push = size[off] * length[off] * np.exp(PUSH)
        # Shares of losers, of which the forces are the first order.
        with np.errstate(over="ignore"):
            share = ties.heaviest * np.exp(lead - self.rest.point.lead)
        lost = np.bincount(ties.content, share, len(ties.counts)).max()
        second = SECOND * response * (1 + 1 / ties.spread) * lost * (size @ length)
        way = float((push / ties.excess[off]).sum() + second)
        far = way * length.max(initial=0.0) > PUSH
        return None if far else float(push.sum() + second) * way


def bounds(
    ties: TieManifold,
    rest: Stationary,
    cls: Float[np.ndarray, " dim"],
    log_time: float,
) -> Bounds | None:
    """The bounds around a balance that is a strict minimum along the manifold.

    Args:
        ties: the late flow.
        rest: of `stationary`.
        cls: p.
        log_time: s.

    Returns:
        None where the Hessian along the manifold is not positive beyond rounding.
    """
    along = rest.tangent.T @ rest.hessian @ rest.tangent
    spectrum, vectors = np.linalg.eigh(along)
    roundings = 64 + 8 * np.abs(ties.embeddings @ cls).max()
    unsure = float(roundings * np.finfo(float).eps + CANCELLED)
    with np.errstate(over="ignore"):
        gross = ties.gross * np.exp(log_time - rest.point.lead)
    lengths = np.linalg.norm(rest.point.towards, axis=1)
    blur = 16 * len(along) * np.finfo(float).eps * np.abs(rest.hessian).sum()
    blur += unsure * float(np.where(ties.excess == 0, gross, 0.0) @ lengths**2)
    if not (rest.rate > 0 and len(spectrum) and spectrum[0] > 100 * blur):
        return None
    root = rest.tangent @ (vectors / np.sqrt(spectrum))
    frames = ties.axes @ root, ties.axes @ rest.across
    apart, (wide, span) = (
        np.zeros((2, len(ties.counts))),
        np.zeros((2, len(ties.counts))),
    )
    tied = ties.tied
    for content in np.flatnonzero(tied.any(axis=1)):
        held = ties.words[tied[content]]
        one, other = np.triu_indices(len(held), 1)
        differences = ties.embeddings[held[one]] - ties.embeddings[held[other]]
        for place, frame in enumerate(frames):
            apart[place, content] = np.linalg.norm(differences @ frame, axis=1).max()
        wide[content] = np.linalg.norm(differences, axis=1).max()
        span[content] = np.ptp(ties.values[held])
    moved = ties.axes.T @ (cls - rest.cls)
    along = (vectors * np.sqrt(spectrum)).T @ (rest.tangent.T @ moved)
    lead = (np.linalg.norm(rest.point.towards @ frame, axis=1) for frame in frames)
    return Bounds(
        ties=ties,
        rest=rest,
        root=root,
        start=(
            float(np.linalg.norm(along)),
            float(np.linalg.norm(rest.across.T @ moved)),
        ),
        gross=gross,
        unsure=unsure,
        lead=(next(lead), next(lead)),
        apart=(apart[0], apart[1]),
        wide=wide,
        range=span,
        carried=carried_tokens(ties, rest, frames),
    )


def is_trapped(
    ties: TieManifold,
    rest: Stationary,
    cls: Float[np.ndarray, " dim"],
    log_time: float,
    *,
    response: float,
) -> bool:
    """Whether p provably stays near a strict minimum on the manifold.

    Source: mathematics, section 7e.

    Args:
        ties: the late flow.
        rest: of `stationary`.
        cls: p.
        log_time: s.
        response: of `pair_forces`, for terms of second order in lost weight.

    Returns:
        True where every hypothesis of the theorem holds on the numbers.
    """
    found = bounds(ties, rest, cls, log_time)
    return found is not None and any(
        found.holds(radius, log_time, response=response) for radius in RADII
    )
