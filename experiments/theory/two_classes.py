"""The flow of the mean scores of two classes that compete for p, and its solution.

Under Assumption 1 and for d → ∞ the flow has two variables: u₊ (u₋), the score lead of
the important token over the irrelevant ones in a positive (negative) sequence. With q =
e^u/(e^u + T − 1), K_+ = γ² + 1/R + 1/I and K_− = γ² − 1/I

    du±/dt = K_+ h± − K_− h∓,      h(q) = ½ γ σ(−γ q) q (1 − q)

Time divides out: with z = u₊ + u₋ and δ = (u₊ − u₋)/2 the orbit obeys one equation,
dδ/dz = (ω/2) tanh(½ log(h₊/h₋)). Weights and pulls are stored as logarithms, and steps
grow with the distance from q = ½, so a return at any log t costs a few hundred steps.

At finite d the noise of a draw in scores and values is of order d^{−1/2}. Functions
take real numbers, concrete or traced, and are differentiable in all of them.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Scalar

# A real number, traced or not.
Real = Float[Scalar, ""] | float
# Least γ at which an edge is sought; γ_c is less for T − 2 < 10⁻³ alone.
SMALLEST = 1e-3
# A bracket's width over that of its root, 2⁻⁶⁰, is below rounding.
HALVINGS = 60


class Ensemble(NamedTuple):
    """A law of corpora, with two classes of equal size.

    Attributes:
        sequences: n.
        length: tokens per sequence T.
        relevant: important tokens per class R.
        irrelevant: irrelevant tokens I.
        irrelevant_share: δ̃ of `synthetic.independent_tokens`, to first order; by
            default its upper end, Assumption 1.
    """

    sequences: Real
    length: Real
    relevant: Real
    irrelevant: Real
    irrelevant_share: Real | None = None

    @property
    def important(self) -> Real:
        """Important tokens per sequence, 1 + (T − 1)(1 − ι) in the mean."""
        return 1.0 + (self.length - 1.0) * (1.0 - self._mixing)

    @property
    def odds(self) -> Real:
        """Irrelevant tokens for each important one in a sequence, T − 1."""
        return self.length / self.important - 1.0

    @property
    def strength(self) -> Real:
        """Mean posterior difference of an important token."""
        return 1.0 - 0.45 * (1.0 - self._mixing)

    @property
    def _mixing(self) -> Real:
        """ι = δ̃ |S| / (|S| − 1)."""
        tokens = 2.0 * self.relevant + self.irrelevant
        share = self.irrelevant_share
        return 1.0 if share is None else share * tokens / (tokens - 1.0)


def alignment(ensemble: Ensemble, step_size: Real) -> Real:
    """Compute γ = η₀/(4RT), the |E_sᵀv| of important tokens after the step on E.

    With several important tokens per sequence it holds to first order.

    Source: Lemma 4.1; mathematics, section 6.

    Example:
        >>> alignment(Ensemble(200, 8, 8, 48), 256.0)
        1.0
    """
    return step_size / _steps(ensemble)


def step_size(ensemble: Ensemble, alignment: Real) -> Real:
    """Compute η₀ = 4RTγ, the step size that gives important tokens the alignment γ.

    Source: mathematics, section 6.

    Example:
        >>> step_size(Ensemble(200, 8, 8, 48), 1.0)
        256.0
    """
    return alignment * _steps(ensemble)


@partial(jax.jit, inline=True)
def critical_alignment(ensemble: Ensemble) -> Float[Scalar, ""]:
    """Compute γ_c, beyond which an asymmetry of the classes never grows.

    It solves γ σ(γ/T) = T − T/(T − 1); beyond it the pull h is largest at the start, q
    = 1/T. It is zero for T ≤ 2; its derivative is that of the implicit function.

    Source: mathematics, section 6a.

    Example:
        >>> round(critical_alignment(Ensemble(200, 8, 8, 48)).item(), 3)
        9.065
    """
    odds = as_real(ensemble).odds
    # At T = 2 the pull is largest at the start for every γ.
    grows = odds > 1.0
    safe = jnp.where(grows, odds, 2.0)

    def slope(log: Float[Scalar, ""], odds: Float[Scalar, ""]) -> Float[Scalar, ""]:
        return log_pull_slope(-jnp.log(odds), jnp.exp(log))

    found = _root(slope, jnp.log(SMALLEST), jnp.log(4.0 * safe + 4.0), safe)
    return jnp.where(grows, jnp.exp(found), 0.0)


@partial(jax.jit, inline=True)
def amplification(ensemble: Ensemble, alignment: Real) -> Float[Scalar, ""]:
    """Compute amp(γ) = ω log(h(q*)/h(1/T)), the growth of log δ on the symmetric path.

    An asymmetry grows as a power of the pull, δ ∝ h^ω, ω = (2γ² + 1/R)/(1/R + 2/I), as
    long as h grows, that is until q*. The result is zero beyond γ_c.

    Source: mathematics, section 6a.

    Example:
        >>> round(amplification(Ensemble(200, 8, 8, 48), 1.0).item(), 3)
        8.077
    """
    ensemble = as_real(ensemble)
    gamma = jnp.asarray(alignment, float)
    start, top = -jnp.log(ensemble.odds), strongest_log_odds(ensemble, gamma)
    return growth_exponent(ensemble, gamma) * (
        log_pull(top, gamma) - log_pull(start, gamma)
    )


def pull(weight: Real, alignment: Real) -> Float[Scalar, ""]:
    """Compute the pull h(q) = ½ γ σ(−γq) q (1 − q) of a class on its important tokens.

    Source: mathematics, section 6.

    Example:
        >>> pull(0.5, 0.0).item()
        0.0
    """
    late = jax.nn.sigmoid(-jnp.asarray(alignment * weight, float))
    return 0.5 * alignment * late * weight * (1.0 - weight)


def as_real(ensemble: Ensemble) -> Ensemble:
    """Convert the fields to arrays that JAX can differentiate."""
    return jax.tree.map(lambda x: jnp.asarray(x, float), ensemble)


def _steps(ensemble: Ensemble) -> Real:
    """Compute η₀/γ = 4RT / strength, with the strength in units of 1/(2RT)."""
    important = ensemble.important * ensemble.strength
    return 4.0 * ensemble.relevant * ensemble.length / important


def growth_exponent(ensemble: Ensemble, gamma: Float[Scalar, ""]) -> Float[Scalar, ""]:
    """ω = (2γ² + 1/R)/(1/R + 2/I)."""
    own = 1.0 / ensemble.relevant
    return (2.0 * gamma**2 + own) / (own + 2.0 / ensemble.irrelevant)


def log_pull(
    log_odds: Float[Array, "*classes"], alignment: Real
) -> Float[Array, "*classes"]:
    """Compute log h(q) without cancellation for q close to zero or one.

    Source: mathematics, section 6.

    Example:
        >>> log_pull(jnp.array(-1000.0), 4.0).item()
        -1000.0
    """
    late = jax.nn.log_sigmoid(-alignment * jax.nn.sigmoid(log_odds))
    log_product = jax.nn.log_sigmoid(log_odds) + jax.nn.log_sigmoid(-log_odds)
    return jnp.log(0.5 * jnp.asarray(alignment, float)) + late + log_product


def log_pull_slope(
    log_odds: Float[Array, "*classes"], alignment: Real
) -> Float[Array, "*classes"]:
    """Slope of log h in the log-odds of q: (1 − q) − q − γ q (1 − q) σ(γq)."""
    weight, unselected = jax.nn.sigmoid(log_odds), jax.nn.sigmoid(-log_odds)
    return (
        unselected
        - weight
        - alignment * weight * unselected * jax.nn.sigmoid(alignment * weight)
    )


def strongest_log_odds(
    ensemble: Ensemble, gamma: Float[Scalar, ""]
) -> Float[Scalar, ""]:
    """Find the log-odds of the q* ≥ 1/T at which the pull is largest."""
    top = _root(log_pull_slope, -jnp.log(2.0 + 4.0 * gamma), 0.0, gamma)
    return jnp.maximum(top, -jnp.log(ensemble.odds))


def last_positive(
    function: Callable[..., Float[Scalar, ""]],
    low: Float[Scalar, ""],
    high: Float[Scalar, ""],
) -> Float[Scalar, ""]:
    """Find by bisection the zero of a function that is positive, then negative."""

    def halve(_: Any, bracket: Array) -> Array:
        middle = bracket.mean()
        left = jnp.stack([bracket[0], middle])
        right = jnp.stack([middle, bracket[1]])
        return jnp.where(function(middle) > 0.0, right, left)

    ends = jnp.stack([low, high])
    return jax.lax.fori_loop(0, HALVINGS, halve, ends).mean()


def _root(
    function: Callable[..., Float[Scalar, ""]], low: Real, high: Real, inner: Real
) -> Float[Scalar, ""]:
    """Find the x at which function(x, inner) becomes negative, or return NaN.

    It is differentiable by the implicit function theorem.
    """

    def solve(at: Callable, _: Float[Scalar, ""]) -> tuple[Any, Any]:
        ends = [jax.lax.stop_gradient(jnp.asarray(x, float)) for x in (low, high)]
        inside = (at(ends[0]) > 0.0) & (at(ends[1]) < 0.0)
        return last_positive(at, *ends), jnp.where(inside, 0.0, jnp.nan)

    def tangent_solve(linear: Callable, change: Float[Scalar, ""]) -> Any:
        return change / linear(jnp.ones(()))

    root, unknown = jax.lax.custom_root(
        lambda x: function(x, inner), jnp.zeros(()), solve, tangent_solve, has_aux=True
    )
    return root + unknown


# Number of steps, and their length in units of the scores where q is neither 0 nor 1.
STEPS, MAX_STEP = 1536, 1.0 / 32.0
# δ below which log(h₊/h₋) is 2δ times its slope: a difference would lose its digits.
SMALL = 1e-5
# Log-odds of the losing class within which the orbit has come to q₋ = ½.
REACHED = 1e-6


class TwoClassOrbit(NamedTuple):
    """The orbit of (z, δ), from an initial asymmetry to the return of the losing class.

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
    """The equation at a point of the orbit, with the winning class first."""

    log_odds: Float[Array, " 2"]
    log_pull: Float[Array, " 2"]
    lever: Float[Scalar, ""]
    velocity: Float[Scalar, ""]
    slope: Float[Scalar, ""]
    acceleration: Float[Scalar, ""]


@partial(jax.jit, inline=True)
def two_class_ode(
    ensemble: Ensemble, alignment: Real, asymmetry: Real
) -> TwoClassOrbit:
    """Integrate the orbit from u± = ± δ until the losing class returns.

    It obeys dδ/dz = (ω/2) tanh(½ log(h₊/h₋)) and dt = dz / ((1/R + 2/I)(h₊ + h₋)). The
    result is NaN if the class has not returned within `STEPS` steps.

    Source: mathematics, section 6b.

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
    """Compute dδ/dz at (z, δ) and its derivatives in δ and z."""
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
    """Choose the next step in z; the last one is a Newton step to q₋ = ½.

    If x = min(log(1/(1 − q₊)), log(1/q₋)) is large, log h± are linear and δ(z) is
    known, so steps in δ may grow with x. The integral for t, of about e^δ, has its mass
    within 2/√ω of the largest δ, where steps must stay short.
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
    """Interpolate half-way between points by the cubic Hermite polynomial."""
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
    """Compute log(1 + t) and log(1 + ∫ 2(σ(−γq₋)(1 − q₋) − σ(−γq₊)(1 − q₊)) dt)."""
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
    """Compute max log q₊/q₋ by a parabola through three points of each interval."""

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
    """Solve δ′ = velocity + slope (δ − δ₀) + acceleration · z over one step.

    z is measured from the middle of the step.

    If slope → −∞ (a stiff equilibrium), the step ends on the equilibrium. Growth is the
    exponential of the slope in the middle, without the acceleration.
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
    """Compute (e^x − 1)/x, which makes a step exact for a linear equation."""
    small = jnp.abs(rate) < 1e-6
    safe = jnp.where(small, 1.0, rate)
    return jnp.where(small, 1.0 + 0.5 * rate, jnp.expm1(safe) / safe)


# Nodes and weights of Gauss and Legendre on [−1, 1].
NODES, WEIGHTS = np.polynomial.legendre.leggauss(48)


@partial(jax.jit, inline=True)
def start_asymmetry(ensemble: Ensemble, alignment: Real) -> Float[Scalar, ""]:
    """Compute √d times the standard deviation of the initial asymmetry δ.

    It includes δ = (u₊ − u₋)/2 at the start and the contributions of noise in E along
    the path, each weighted by (h/h(1/T))^{−ω}.

    Source: mathematics, section 6a.

    Example:
        >>> round(start_asymmetry(Ensemble(200, 8, 8, 48), 1.0).item(), 2)
        1.86
    """
    ensemble, gamma = as_real(ensemble), jnp.asarray(alignment, float)
    inverse, tokens, others = (
        1.0 + ensemble.odds,
        ensemble.relevant,
        ensemble.irrelevant,
    )
    share = ensemble.odds / inverse
    reduction = damping(ensemble, gamma)
    # Columns: p_0ᵀv; half the difference of the classes' mean E_sᵀp_0; half the sum of
    # their mean E_sᵀv; the irrelevant tokens' mean E_sᵀv; overlaps of tokens.
    deviation = jnp.sqrt(
        jnp.stack([1.0, 0.5 / tokens, 0.5 / tokens, 1.0 / others, 1.0])
    )
    zero = jnp.zeros(())
    start = jnp.stack([gamma, 1.0, gamma * share, -gamma * share, zero])
    level = jnp.stack(
        [zero, -2.0 * reduction, -reduction, 1.0 - reduction * ensemble.odds, zero]
    )
    gap = -level + jnp.stack(
        [zero, gamma * share, 1.0 - 0.5 * gamma / inverse, -0.5 * gamma * share, zero]
    )
    rate = 1.0 / tokens + 2.0 / others
    overlaps = jnp.zeros(5).at[4].set(1.0 / jnp.sqrt(tokens * rate))
    power = growth_exponent(ensemble, gamma)
    first = -jnp.log(ensemble.odds)
    end = strongest_log_odds(ensemble, gamma) - first

    def forcing(node: Float[Scalar, ""]) -> Float[Array, " 5"]:
        # Nodes crowd at the start, where a large ω forgets within 1/ω.
        score = end * node**3
        weight = jax.nn.sigmoid(first + score)
        late = jax.nn.sigmoid(gamma * weight)
        through_pull = gap * (1.0 - gamma * weight * late) - gamma * late * level
        added = power / gamma * through_pull + 2.0 * gamma / rate * gap + overlaps
        grown = log_pull(first + score, gamma) - log_pull(first, gamma)
        return 3.0 * end * node**2 * jnp.exp(-power * grown) * added

    nodes = jnp.asarray(0.5 + 0.5 * NODES)
    added = jnp.asarray(0.5 * WEIGHTS) @ jax.vmap(forcing)(nodes)
    return jnp.linalg.norm(deviation * (start + added))


@partial(jax.jit, inline=True)
def noise(ensemble: Ensemble, alignment: Real) -> Float[Scalar, ""]:
    """Compute √d times the standard deviation of an irrelevant token's E_rᵀv.

    Its square is (1 − γ_I)² + γ_I² (T + ½)/N_r with γ_I = γR(T − 1)/(IT) and N_r = n(T
    − 1)/(2I), because a step on E reduces the contribution of an irrelevant token to
    the f of its sequences.

    Source: mathematics, section 6c.

    Example:
        >>> noise(Ensemble(200, 8, 8, 48), 0.0).item()
        1.0
    """
    ensemble = as_real(ensemble)
    reduction = damping(ensemble, jnp.asarray(alignment, float))
    pairs = ensemble.sequences * ensemble.odds / (2.0 * ensemble.irrelevant)
    return jnp.sqrt(
        (1.0 - reduction) ** 2 + reduction**2 * (ensemble.odds + 1.5) / pairs
    )


def damping(ensemble: Ensemble, gamma: Float[Scalar, ""]) -> Float[Scalar, ""]:
    """γ_I = γR(T − 1)/(IT), the share of its value that an irrelevant token loses."""
    ensemble = as_real(ensemble)
    return (
        gamma
        * ensemble.relevant
        * ensemble.odds
        / (ensemble.irrelevant * (1.0 + ensemble.odds))
    )
