"""Training of E on the exact family, reduced to two variables.

The exact family keeps two numbers for d → ∞: β = y b_s, the value of an important
token, and u, its score above an irrelevant one. `reduced_steps` takes k gradient steps
on E with p and v fixed (mathematics, section 3i). `decay_end` computes the end of
training of E, p and v under weight decay λ, that is with ½ λ (‖E‖² + |p|² + |v|²) added
to the loss (mathematics, section 3k).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Scalar

from experiments.theory.two_classes import last_positive
from jaxselect.checks import whole

_Number = Float[Scalar, ""] | float | int


class ReducedSteps(NamedTuple):
    """Results of k steps on E, for every k.

    Attributes:
        value: β, the alignment γ of an important token.
        score: u, along p_0.
        log_unselected: log(1 − q), q the weight of the important token while p = p_0.
        margin_norm: ‖p_mm‖ of the selection of all important tokens.
        cosine: cos(p_mm, p_0).
    """

    value: Float[Array, " steps"]
    score: Float[Array, " steps"]
    log_unselected: Float[Array, " steps"]
    margin_norm: Float[Array, " steps"]
    cosine: Float[Array, " steps"]


def reduced_steps(
    *,
    relevant: _Number,
    irrelevant: _Number,
    length: _Number,
    step_size: _Number,
    number: int,
) -> ReducedSteps:
    """Compute β, u, attention and ‖p_mm‖ after each step on E.

    β ← β + (η₀/2R) g q,  u ← u + (η₀/M) g q (1 − q) β,  1/M = 1/2R + 1/I, with
    q = 1/(1 + (T − 1)e^{−u}) and g = σ(−qβ); ‖p_mm‖ = (1/M + u²)^{−1/2}.

    Source: mathematics, section 2a.

    Args:
        relevant: important tokens per class R.
        irrelevant: irrelevant tokens I.
        length: T.
        step_size: η₀ of each step.
        number: of steps; static.

    Returns:
        Numbers after 0, 1, …, `number` steps.

    Raises:
        BadInput: a number of steps that is none.

    Example:
        >>> sizes = dict(relevant=8, irrelevant=48, length=8, step_size=100.0)
        >>> found = reduced_steps(**sizes, number=4)
        >>> found.cosine.round(3).tolist()
        [0.0, 0.0, 0.516, 0.886, 0.974]
    """
    whole("number", number, least=0)
    size, length = jnp.asarray(step_size, float), jnp.asarray(length, float)
    share = 0.5 / jnp.asarray(relevant, float)
    inverse_mass = share + 1 / jnp.asarray(irrelevant, float)
    odds = jnp.log(length - 1)

    def step(state: tuple, _: None) -> tuple[tuple, tuple]:
        value, score = state
        weight = jax.nn.sigmoid(score - odds)
        unselected = jax.nn.sigmoid(odds - score)
        pull = size * jax.nn.sigmoid(-weight * value) * weight
        after = (value + share * pull, score + inverse_mass * pull * unselected * value)
        return after, after

    zero = jnp.zeros(())
    _, path = jax.lax.scan(step, (zero, zero), length=number)
    value, score = (jnp.concatenate([zero[None], column]) for column in path)
    square = inverse_mass + score**2
    return ReducedSteps(
        value=value,
        score=score,
        log_unselected=jax.nn.log_sigmoid(odds - score),
        margin_norm=1 / jnp.sqrt(square),
        cosine=score / jnp.sqrt(square),
    )


class DecayEnd(NamedTuple):
    """The stationary point with selected tokens; NaN if none exists.

    Attributes:
        value: β.
        score: u.
        unselected: 1 − q, the weight off the important token.
        cls_square: |p|².
        head_square: |v|².
    """

    value: Float[Scalar, ""]
    score: Float[Scalar, ""]
    unselected: Float[Scalar, ""]
    cls_square: Float[Scalar, ""]
    head_square: Float[Scalar, ""]


def decay_end(
    *, relevant: _Number, irrelevant: _Number, length: _Number, decay: _Number
) -> DecayEnd:
    """Compute the end of training of E, p and v under weight decay λ.

    It solves q σ(−qβ) = λ √N and √(N/M) β (1 − q) = 1 with N = 2R, 1/M = 1/N + 1/I;
    then u = log((T − 1) q/(1 − q)), |v|² = β √N and |p|² = √M u.

    Source: mathematics, section 3k.

    Args:
        relevant: important tokens per class R.
        irrelevant: irrelevant tokens I.
        length: tokens per sequence T.
        decay: λ > 0.

    Returns:
        The end; of two stationary points with u > 0 the one of larger β.

    Example:
        >>> end = decay_end(relevant=2, irrelevant=4, length=4, decay=1e-4)
        >>> round((end.unselected * end.value).item(), 4)  # 1/√2
        0.7071
    """
    tokens, decay = jnp.asarray(2.0 * relevant), jnp.asarray(decay, float)
    inverse_mass = 1 / tokens + 1 / jnp.asarray(irrelevant, float)
    ratio = jnp.sqrt(tokens * inverse_mass)

    def excess(value: Array) -> Array:
        """Compute log of q σ(−qβ)/(λ √N), where qβ = β − √(M/N)."""
        margin = value - 1 / ratio
        push = jnp.log(margin / value) - jax.nn.softplus(margin)
        return push - jnp.log(decay * jnp.sqrt(tokens))

    def slope(value: Array) -> Array:
        """Compute the sign of its derivative, which is positive up to one maximum."""
        margin = value - 1 / ratio
        return 1 / (ratio * value * margin) - jax.nn.sigmoid(margin)

    least = 1 / ratio
    top = last_positive(slope, least, least + 10.0)
    most = jnp.maximum(-jnp.log(decay * jnp.sqrt(tokens)), 0.0) + least + 1.0
    value = last_positive(excess, top, jnp.maximum(most, top))
    unselected = 1 / (ratio * value)
    score = jnp.log((jnp.asarray(length, float) - 1) * (1 - unselected) / unselected)
    exists = (excess(top) >= 0) & (score > 0)
    found = (
        value,
        score,
        unselected,
        score / jnp.sqrt(inverse_mass),
        value * jnp.sqrt(tokens),
    )
    return DecayEnd(*(jnp.where(exists, number, jnp.nan) for number in found))
