"""What may still change: one lemma, to which every certificate gives a list.

**Perturbed contraction.** Let Φ be convex on the ball of radius R around its minimum ρ,
and let z follow −∇Φ but for perturbations, forces or jumps, of total displacement
B_i = ∫‖d_i‖. If δ_0 + Σ B_i ≤ R, then ‖z − ρ‖ ≤ δ_0 + Σ B_i at all later times
(mathematics, lemma 3e.3).

The list of a certificate: inactive pairs, terms that the pair sum omits, ties near
equilibrium. The study of gradient descent adds its steps.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Float

from .minimum import Minimum, Number


def farthest(
    distance: Number, displacements: Sequence[Number], basin: Number
) -> Number:
    """Bound ‖z − ρ‖ at all later times by δ_0 + Σ B_i; ∞ beyond the basin.

    Source: mathematics, lemma 3e.3.

    Args:
        distance: δ_0 = ‖z − ρ‖ now.
        displacements: B_i, in total from now on, by each perturbation.
        basin: R, radius of a ball around ρ on which Φ is convex.

    Returns:
        The bound.

    Example:
        >>> [farthest(1.0, [0.25, 0.5], basin).item() for basin in (2.0, 1.5)]
        [1.75, inf]
    """
    bound = distance + sum(displacements)
    return jnp.where(bound <= basin, bound, jnp.inf)


class RestingTies(NamedTuple):
    """Ties that were contracted, as far as a certificate depends on them.

    Attributes:
        tied: whether there are any.
        rest: z*, where they rest, with the numbers that prove it.
        moved: ‖Πp − z*‖ when they were contracted.
        widths: Λ_X = max ‖Π(E_s − E_r)‖ over the tokens of every bag.
        ranges: w, the range of b over the same tokens.
    """

    tied: Any
    rest: Minimum
    moved: Number
    widths: Float[Any, " sequences"]
    ranges: Float[Any, " sequences"]

    def room(self, tolerance: float) -> Number:
        """How far forces may have moved them since they were contracted."""
        widest = jnp.where(self.tied, jnp.max(self.widths), 1.0)
        return jnp.minimum(self.rest.basin, tolerance / widest)


class TieMotion(NamedTuple):
    """How far ties may be off their rest z*, from now on.

    Attributes:
        largest: bound on ‖Πp − z*‖; ∞ where the basin does not hold it.
        integral: bound on ∫‖Πp − z*‖ dτ.
    """

    largest: Number
    integral: Number


def tie_motion(
    rest: Minimum, distance: Number, force: Number, log_time: Number
) -> TieMotion:
    """Bound the displacement of ties by the forces of losing tokens.

    Within the basin the curvature is at least μ/2, so that δ = Πp − z* obeys d‖δ‖/dt ≤
    −½ μ‖δ‖ + x. Where x falls like 1/(1+t), e^τ x at τ_0 bounds it later, and

        ‖δ‖ ≤ δ_0 + 2x/μ,    ∫‖δ‖ dτ ≤ δ_0 log(1 + 2/(μ e^{τ_0})) + 2x/μ.

    Source: mathematics, lemma 3g.5.

    Args:
        rest: z*, with μ and its basin.
        distance: δ_0 = ‖Πp − z*‖ now.
        force: e^τ x, bound on the forces of all losing tokens along the ties, per
            unit of τ.
        log_time: τ_0.

    Returns:
        The bounds.

    Example:
        >>> rest = Minimum(jnp.zeros(1), 0.0, 2.0, 1.0, 1.0, 0.5)
        >>> found = tie_motion(rest, 0.1, 0.2, 0.0)
        >>> round(float(found.largest), 6), round(float(found.integral), 6)
        (0.3, 0.269315)
    """
    # No tie is infinitely stiff.
    soft = jnp.where(rest.stiffness > 0, rest.stiffness, jnp.inf) / 2
    latest = jnp.log(jnp.finfo(rest.point.dtype).max)
    rate = soft * jnp.exp(jnp.minimum(log_time, latest))
    kept = force / rate
    largest = farthest(distance, [kept], rest.basin)
    return TieMotion(largest, distance * jnp.log1p(1 / rate) + kept)
