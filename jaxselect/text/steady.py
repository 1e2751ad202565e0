"""A late flow that has come to its line, proved where some pairs pull the wrong way.

p = p_mm s + z moves z by Σ λ_k D_k − p_mm, λ_k = c_k e^{−D_kᵀz}, over the pairs that
p_mm holds at a margin of one. Where all c_k > 0 this is a flow of a convex function;
where pairs depend on each other some c_k < 0 may be among them, and z may rest still
(mathematics, section 7d).
"""

from functools import partial
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from .flow import LATEST, TextFlowSettings, follow
from .rest import Rest, certified, newton, span_axes

# Terms change by less than e^{1/8} within 1/8 of the longest difference.
BALL = 0.125
# The flow of z shall end within a basin.
CLOSELY = TextFlowSettings(tolerance=1e-6, max_steps=600)
# A pull e³⁰ times what it was comes to no rest: it grows no more, and z runs away.
ASTRAY = 30.0


class Line(NamedTuple):
    """Where z rests, and whether it comes there.

    Attributes:
        rest: z at rest, in axes of the span of the differences, from where it is now.
        distance: from there, of where the flow of z has come to, and what pairs that
            fade may still push.
    """

    rest: Rest
    distance: float

    def holds(self, push: float = 0.0) -> bool:
        """Whether z is proved to end at rest, pushed by others on its way.

        Args:
            push: how far at most.

        Returns:
            Whether its flow ends within the basin of a rest that is proved.
        """
        return bool(self.rest.proved and self.distance + push <= self.rest.basin)


def steady(
    apart: Float[np.ndarray, "pairs dim"],
    force: Float[np.ndarray, " pairs"],
    spare: Float[np.ndarray, " pairs"],
    growth: Float[np.ndarray, " dim"],
) -> Line:
    """Where the flow of z ends, and what proves it.

    Source: mathematics, sections 7b and 7d.

    Args:
        apart: D_k.
        force: λ_k, negative where the bags pull towards the loser.
        spare: margins under p_mm less one. Zero stays; others fade like e^{−spare s}.
        growth: p_mm.

    Returns:
        The end of z and its certificate, whether or not it proves anything.

    Example:
        >>> pair, growth = np.array([[2.0, 0.0]]), np.array([0.5, 0.0])
        >>> found = steady(pair, np.array([0.25]), np.zeros(1), growth)
        >>> found.holds(), abs(found.rest.cls.item())
        (True, 0.0)
    """
    staying = spare == 0
    axes = span_axes(apart[staying])
    apart, wanted = apart @ axes, axes.T @ growth
    end, passed = _ending(_Pull(apart, force, spare, wanted))
    fading = np.exp(-spare[~staying] * passed) / spare[~staying]
    push = np.abs(force[~staying]) * np.linalg.norm(apart[~staying], axis=1) @ fading
    apart = apart[staying]
    rests = _Pull(apart, force[staying], spare[staying], wanted)
    pull, hessian = partial(rests.total, 0.0), partial(rests.hessian, 0.0)
    place = newton(end, pull, hessian)
    (now, exact), left = rests.strength(0.0, place), pull(place)
    lengths = np.linalg.norm(apart, axis=1)
    longest = lengths.max(initial=0.0)
    roundings = (16 + np.abs(apart @ place).max(initial=0.0)) * np.finfo(float).eps
    error = roundings * np.abs(now)

    def decrement(root: np.ndarray) -> float:
        seen = np.linalg.norm(apart @ root, axis=1)
        return float(np.linalg.norm(left @ root) + error @ seen)

    change = np.exp(BALL) * longest * (apart.T * np.abs(now)) @ apart
    found = certified(
        place,
        gradient=float(np.linalg.norm(left) + error @ lengths),
        decrement=decrement,
        hessian=hessian(place),
        change=(change, BALL / longest if longest else np.inf),
    )
    distance = float(np.linalg.norm(end - place) + push)
    return Line(found, distance if exact.all() else np.inf)


class _Pull(NamedTuple):
    """dz/ds = Σ λ_k e^{−D_kᵀz − spare_k s} D_k − p_mm, as long as nothing is astray."""

    apart: Float[np.ndarray, "pairs dim"]
    force: Float[np.ndarray, " pairs"]
    spare: Float[np.ndarray, " pairs"]
    growth: Float[np.ndarray, " dim"]

    def strength(
        self, time: float, place: Float[np.ndarray, " dim"]
    ) -> tuple[np.ndarray, np.ndarray]:
        """λ of every pair, and whether it is all of it."""
        exponent = -self.apart @ place - self.spare * time
        return self.force * np.exp(np.minimum(exponent, ASTRAY)), exponent < ASTRAY

    def total(self, time: float, place: Float[np.ndarray, " dim"]) -> np.ndarray:
        """dz/ds."""
        return self.strength(time, place)[0] @ self.apart - self.growth

    def hessian(self, time: float, place: Float[np.ndarray, " dim"]) -> np.ndarray:
        """Of Φ: minus the derivative of dz/ds."""
        now, exact = self.strength(time, place)
        return (self.apart.T * (now * exact)) @ self.apart


def _ending(pull: _Pull) -> tuple[Float[np.ndarray, " dim"], float]:
    """Where the flow of z comes to, from zero, and when: it need not come far."""
    flow = follow(
        pull.total,
        lambda time, place: -pull.hessian(time, place),
        np.zeros(len(pull.growth)),
        until_log_time=LATEST,
        path_log_times=np.zeros(0),
        settings=CLOSELY,
        watch=lambda log_time: None,
    )
    return np.asarray(flow.cls), float(np.expm1(flow.log_time))
