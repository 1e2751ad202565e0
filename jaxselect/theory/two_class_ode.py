"""Solution of the two-class equations until the losing class is back.

Time divides out: with z = u₊ + u₋ and δ = (u₊ − u₋)/2 the orbit obeys one equation,
dδ/dz = (ω/2) tanh(½ log(h₊/h₋)). Weights and pulls stand as logarithms and steps grow
with the distance from q = ½, so that a return at any log t costs a few hundred steps.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Scalar

from ..program import one_program
from .two_classes import (
    Ensemble,
    Real,
    as_real,
    growth_exponent,
    log_pull,
    log_pull_slope,
)

# Number of steps, and their length in units of the scores where q is neither 0 nor 1.
STEPS, MAX_STEP = 1536, 1.0 / 32.0
# δ below which log(h₊/h₋) is 2δ times its slope: a difference would lose its digits.
SMALL = 1e-5
# Log-odds of the losing class within which the orbit has come to q₋ = ½.
REACHED = 1e-6


class TwoClassOrbit(NamedTuple):
    """The orbit of an asymmetry between the classes, and its end.

    Attributes:
        ratio: log q₊/q₋ where it is largest, the greater over the lesser weight.
        log_time: log(1+t) at which the losing class holds half of its sequences'
            weight.
        log_unpaired: log(1 + ∫ … dt) until then, of the share of a class's pull on
            irrelevant tokens that the other does not undo.
    """

    ratio: Float[Scalar, ""]
    log_time: Float[Scalar, ""]
    log_unpaired: Float[Scalar, ""]


class _Local(NamedTuple):
    """The equation at a point of the orbit; the winning class first."""

    log_odds: Float[Array, " 2"]
    log_pull: Float[Array, " 2"]
    lever: Float[Scalar, ""]
    velocity: Float[Scalar, ""]
    slope: Float[Scalar, ""]
    acceleration: Float[Scalar, ""]


@one_program()
def two_class_ode(
    ensemble: Ensemble, alignment: Real, asymmetry: Real
) -> TwoClassOrbit:
    """The orbit from u± = ± δ until the losing class is back.

    dδ/dz = (ω/2) tanh(½ log(h₊/h₋)), and dt = dz / ((1/R + 2/I)(h₊ + h₋)) along it.

    Source: mathematics, section 6b.

    Args:
        ensemble: of corpora.
        alignment: γ > 0.
        asymmetry: δ > 0.

    Returns:
        How far the classes part, and when the loser is back; NaN where the orbit has
        not come back within `STEPS` steps.

    Example:
        >>> found = two_class_ode(Ensemble(200, 8, 8, 48), 3.9, 1e-3)
        >>> round(found.log_time.item(), 1)
        10.2
    """
    ensemble, gamma = as_real(ensemble), jnp.asarray(alignment, float)
    delta = jnp.asarray(asymmetry, float)

    def step(at: Array, _: None) -> tuple[Array, tuple[Array, Array]]:
        local = _local(ensemble, gamma, at)
        length = _length(ensemble, gamma, local)
        velocity = local.velocity + 0.25 * length * local.acceleration
        half = at[1] + _linear(0.5 * length, velocity, local.slope, local.acceleration)
        middle = _local(ensemble, gamma, jnp.stack([at[0] + 0.5 * length, half]))
        velocity = middle.velocity + middle.slope * (at[1] - half)
        moved = at[1] + _linear(length, velocity, middle.slope, middle.acceleration)
        return jnp.stack([at[0] + length, moved]), (at, length)

    start = jnp.stack([0.0 * delta, delta])
    end, (points, lengths) = jax.lax.scan(step, start, length=STEPS)
    orbit = jax.vmap(lambda at: _local(ensemble, gamma, at))(points)
    between = jax.vmap(lambda at: _local(ensemble, gamma, at))(
        _halfway(points, orbit.velocity)
    )
    log_time, log_unpaired = _log_times(ensemble, gamma, orbit, between, lengths[:-1])
    back = jnp.abs(_local(ensemble, gamma, end).log_odds[1]) < REACHED
    found = TwoClassOrbit(_largest_ratio(orbit, between), log_time, log_unpaired)
    return TwoClassOrbit(*(jnp.where(back, value, jnp.nan) for value in found))


def _local(
    ensemble: Ensemble, gamma: Float[Scalar, ""], at: Float[Array, " 2"]
) -> _Local:
    """dδ/dz at (z, δ), its derivatives in δ and z, and what they are made of."""
    offsets = at[1] * jnp.array([1.0, -1.0])
    log_odds = 0.5 * at[0] - jnp.log(ensemble.odds) + offsets
    log_pulls = log_pull(log_odds, gamma)
    # d log(h₊/h₋)/dδ; by the trapezoid rule it is log(h₊/h₋)/δ.
    slopes = log_pull_slope(log_odds, gamma)
    steepness = slopes[0] + slopes[1]
    difference = jnp.where(
        jnp.abs(at[1]) < SMALL, at[1] * steepness, log_pulls[0] - log_pulls[1]
    )
    lever = jnp.tanh(0.5 * difference)
    power = 0.5 * growth_exponent(ensemble, gamma)
    return _Local(
        log_odds=log_odds,
        log_pull=log_pulls,
        lever=lever,
        velocity=power * lever,
        slope=0.5 * power * (1.0 - lever**2) * steepness,
        acceleration=0.25 * power * (1.0 - lever**2) * (slopes[0] - slopes[1]),
    )


def _length(
    ensemble: Ensemble, gamma: Float[Scalar, ""], local: _Local
) -> Float[Scalar, ""]:
    """Length of the next step in z; at the end Newton's, to q₋ = ½.

    Where x = min(log(1/(1 − q₊)), log(1/q₋)) is large, log h± are linear and δ(z) is
    known: there steps in δ grow with x. But t, the integral of about e^δ, has its
    mass within 2/√ω of the largest δ.
    """
    depth = jnp.minimum(local.log_odds[0] - jnp.log1p(gamma), -local.log_odds[1])
    depth = jnp.maximum(depth, 0.0)
    max_step = MAX_STEP * (1.0 + 4.0 * depth)
    # A step that makes δ grow by `max_step`, exponentially where it does: 1/length.
    speed = jnp.maximum(jnp.abs(local.velocity), jnp.finfo(local.velocity.dtype).tiny)
    grown = max_step * local.slope / speed
    curved = grown > 1e-6
    by_growth = jnp.where(
        curved,
        local.slope / jnp.log1p(jnp.where(curved, grown, 1.0)),
        speed / max_step,
    )
    root = jnp.sqrt(growth_exponent(ensemble, gamma))
    by_mass = 8.0 * root / (1.0 + 0.25 * root * jnp.abs(local.lever))
    by_mass = by_mass * jnp.sqrt(1.0 - local.lever**2) * depth / (1.0 + depth)
    length = 1.0 / (1.0 / max_step + by_growth + by_mass)
    nearing = 0.5 - local.velocity
    newton = -local.log_odds[1] / jnp.where(nearing > 0.0, nearing, 1.0)
    return jnp.where(nearing > 0.0, jnp.minimum(length, newton), length)


def _halfway(
    points: Float[Array, "points 2"], velocity: Float[Array, " points"]
) -> Float[Array, "intervals 2"]:
    """Between points, from the cubic that has their values and slopes."""
    middle = 0.5 * (points[1:] + points[:-1])
    bulge = 0.125 * jnp.diff(points[:, 0]) * -jnp.diff(velocity)
    return middle.at[:, 1].add(bulge)


def _log_times(
    ensemble: Ensemble,
    gamma: Float[Scalar, ""],
    orbit: _Local,
    between: _Local,
    lengths: Float[Array, " intervals"],
) -> tuple[Float[Scalar, ""], Float[Scalar, ""]]:
    """log(1 + t) and log(1 + ∫ 2(σ(−γq₋)(1 − q₋) − σ(−γq₊)(1 − q₊)) dt)."""
    pace = 1.0 / ensemble.relevant + 2.0 / ensemble.irrelevant
    largest = jax.lax.stop_gradient(-jnp.logaddexp(*orbit.log_pull.T).min())

    def rates(at: _Local) -> tuple[Array, Array]:
        # dt/dz in units of e^largest.
        rate = jnp.exp(-jnp.logaddexp(*at.log_pull.T) - largest) / pace
        alone = at.log_pull - jax.nn.log_sigmoid(at.log_odds)
        share = 4.0 / gamma * (jnp.exp(alone[:, 1]) - jnp.exp(alone[:, 0]))
        return rate, rate * share

    def log_integral(
        ends: Float[Array, " points"], middle: Float[Array, " intervals"]
    ) -> Float[Scalar, ""]:
        total = lengths / 6.0 @ (ends[1:] + 4.0 * middle + ends[:-1])
        # Classes that never part leave a rounding of either sign.
        positive = jnp.maximum(total, jnp.finfo(total.dtype).tiny)
        return jax.nn.softplus(largest + jnp.log(positive))

    time, unpaired = map(log_integral, rates(orbit), rates(between))
    return time, unpaired


def _largest_ratio(orbit: _Local, between: _Local) -> Float[Scalar, ""]:
    """Max log q₊/q₋, by a parabola through three points of each interval."""

    def ratio(at: _Local) -> Float[Array, " points"]:
        weights = jax.nn.log_sigmoid(at.log_odds)
        return weights[:, 0] - weights[:, 1]

    ends, middle = ratio(orbit), ratio(between)
    before, after = ends[:-1], ends[1:]
    bend = 2.0 * middle - before - after
    # Below the least normal number a quotient may be 0/0.
    least = 4.0 * jnp.finfo(bend.dtype).tiny
    inside = 2.0 * bend > jnp.abs(after - before) + least
    top = (after - before) ** 2 / (8.0 * jnp.where(inside, bend, 1.0))
    peaks = middle + jnp.where(inside, top, 0.0)
    return jnp.maximum(ends.max(), jnp.where(inside, peaks, before).max())


def _linear(
    length: Float[Scalar, ""],
    velocity: Float[Scalar, ""],
    slope: Float[Scalar, ""],
    acceleration: Float[Scalar, ""],
) -> Float[Scalar, ""]:
    """Change of δ over a step of δ′ = velocity + slope (δ − δ₀) + acceleration · z.

    z is measured from the middle of the step.

    Where a balance is stiff, slope → −∞, the end of the step must lie on it. Growth is
    the exponential of the slope at the middle: acceleration has no part in it.
    """
    stiff = jnp.minimum(length * slope, 0.0)
    small = stiff > -1e-2
    safe = jnp.where(small, -1.0, stiff)
    mean = jnp.expm1(safe) / safe
    lag = jnp.where(
        small,
        -stiff * (1.0 / 12.0 + stiff / 24.0 + stiff**2 / 80.0),
        (mean - 1.0) / safe - 0.5 * mean,
    )
    return (
        length * _mean_exp(length * slope) * velocity + length**2 * lag * acceleration
    )


def _mean_exp(rate: Float[Scalar, ""]) -> Float[Scalar, ""]:
    """(e^x − 1)/x, by which a step is exact for a linear equation."""
    small = jnp.abs(rate) < 1e-6
    safe = jnp.where(small, 1.0, rate)
    return jnp.where(small, 1.0 + 0.5 * rate, jnp.expm1(safe) / safe)
