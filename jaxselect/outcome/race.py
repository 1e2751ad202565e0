"""The race of two classes: how far they part, and when the losing one is back.

Time divides out of their flow: with Σ = u₊ + u₋ and δ = (u₊ − u₋)/2 the orbit obeys one
equation, dδ/dΣ = (ν/2) tanh(½ log(g₊/g₋)). Steps along it are exact for a linear one,
so that its fast growth and its stiff balance cost the same; it compiles in a blink.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Scalar

from ..program import one_program
from .two_classes import Ensemble, Real, as_real, growth_exponent, steepness

Place = tuple[Float[Scalar, ""], Float[Scalar, ""]]
# Of an orbit: its steps, and their length in units of u.
STEPS, STRIDE = 2048, 1.0 / 32.0


class Race(NamedTuple):
    """What becomes of a small asymmetry between the classes.

    Attributes:
        ratio: log q₊/q₋ where it is largest, the greater over the lesser weight.
        log_time: log(1+t) at which the losing class holds half of its sequences'
            weight, or the end of the orbit, some 60 later than its start.
        log_unpaired: log(1 + ∫ … dt) until then, of the share of a class's pull on
            irrelevant tokens that the other does not undo.
    """

    ratio: Float[Scalar, ""]
    log_time: Float[Scalar, ""]
    log_unpaired: Float[Scalar, ""]


@one_program()
def race(ensemble: Ensemble, alignment: Real, asymmetry: Real) -> Race:
    """Follow both classes from u± = ± δ until the losing one is back.

    Time divides out: with Σ = u₊ + u₋ the orbit is one equation,
    dδ/dΣ = (ν/2) tanh(½ log(g₊/g₋)), and dt = dΣ / ((1/R + 2/I)(g₊ + g₋)) beside it.

    Source: mathematics, section 6b.

    Args:
        ensemble: of corpora.
        alignment: γ.
        asymmetry: δ > 0.

    Returns:
        How far the classes part, and when the loser is back.

    Example:
        >>> found = race(Ensemble(200, 8, 8, 48), 3.9, 1e-3)
        >>> round(found.log_time.item(), 1)
        10.2
    """
    of, gamma = as_real(ensemble), jnp.asarray(alignment, float)
    delta = jnp.asarray(asymmetry, float)

    def step(place: Place, _: None) -> tuple[Place, Place]:
        turn, slope = _turning(of, gamma, *place)
        # By length in u, and not behind the return, where the balance is stiff.
        asked = 0.5 * place[0] - place[1] < jnp.log(of.odds)
        length = jnp.where(asked, STRIDE / (1.0 + jnp.abs(turn)), 0.0)
        half = place[1] + 0.5 * length * _mean_exp(0.5 * length * slope) * turn
        turn, slope = _turning(of, gamma, place[0] + 0.5 * length, half)
        turn = turn + slope * (place[1] - half)
        moved = place[1] + length * _mean_exp(length * slope) * turn
        return (place[0] + length, moved), place

    _, (total, apart) = jax.lax.scan(step, (0.0 * delta, delta), length=STEPS)
    lead, log_pull, log_alone = jax.vmap(partial(_classes, of, gamma))(total, apart)
    pace = 1.0 / of.relevant + 2.0 / of.irrelevant
    log_pace = -jnp.log(pace) - jax.nn.logsumexp(log_pull, axis=1)
    # σ(−γq)(1 − q) falls with q: the loser's is the greater.
    unpaired = 2.0 * (jnp.exp(log_alone[:, 1]) - jnp.exp(log_alone[:, 0]))
    steps = jnp.diff(total)
    time = _integral(steps, jnp.exp(log_pace))
    alone = _integral(steps, jnp.exp(log_pace) * unpaired)
    weight = jax.nn.log_sigmoid(lead)
    # The step that crossed q = ½ is cut there.
    back = jnp.clip(jnp.sum(steps > 0), 1, STEPS - 1)
    cut = jnp.clip(lead[back, 1] / (lead[back, 1] - lead[back - 1, 1]), 0.0, 1.0)

    def at_return(values: Float[Array, " steps"]) -> Float[Scalar, ""]:
        return values[back] - cut * (values[back] - values[back - 1])

    return Race(
        ratio=jnp.max(weight[:, 0] - weight[:, 1]),
        log_time=at_return(jnp.log1p(time)),
        log_unpaired=at_return(jnp.log1p(alone)),
    )


def _classes(
    of: Ensemble, gamma: Float[Scalar, ""], total: Real, apart: Real
) -> tuple[Float[Array, " 2"], Float[Array, " 2"], Float[Array, " 2"]]:
    """By class, the winner first: log q/(1 − q), log g and log σ(−γq)(1 − q)."""
    sides = jnp.array([1.0, -1.0])
    lead = 0.5 * total - jnp.log(of.odds) + apart * sides
    log_alone = jax.nn.log_sigmoid(-gamma * jax.nn.sigmoid(lead))
    log_alone = log_alone + jax.nn.log_sigmoid(-lead)
    log_pull = jnp.log(0.5 * gamma) + log_alone + jax.nn.log_sigmoid(lead)
    return lead, log_pull, log_alone


def _turning(
    of: Ensemble, gamma: Float[Scalar, ""], total: Real, apart: Real
) -> tuple[Float[Scalar, ""], Float[Scalar, ""]]:
    """dδ/dΣ = (ν/2) tanh(½ log(g₊/g₋)), and its derivative in δ."""
    lead, log_pull, _ = _classes(of, gamma, total, apart)
    weight = jax.nn.sigmoid(lead)
    slope = weight * (1.0 - weight) * steepness(weight, gamma)
    lever = jnp.tanh(0.5 * (log_pull[0] - log_pull[1]))
    power = 0.5 * growth_exponent(of, gamma)
    return power * lever, 0.5 * power * (1.0 - lever**2) * slope.sum()


def _mean_exp(rate: Float[Scalar, ""]) -> Float[Scalar, ""]:
    """(e^x − 1)/x, by which a step is exact for a linear equation."""
    small = jnp.abs(rate) < 1e-6
    safe = jnp.where(small, 1.0, rate)
    return jnp.where(small, 1.0 + 0.5 * rate, jnp.expm1(safe) / safe)


def _integral(
    steps: Float[Array, " intervals"], values: Float[Array, " points"]
) -> Float[Array, " points"]:
    """∫ from the first point to each, by trapezoids."""
    pieces = 0.5 * steps * (values[1:] + values[:-1])
    return jnp.concatenate([jnp.zeros(1), jnp.cumsum(pieces)])
