"""Several gradient steps on E with p and v fixed, reduced to two variables.

On the exact family (mathematics, section 3i) k steps keep two numbers for d → ∞: β = y
b_s, the value of an important token, and u, its score above an irrelevant one.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Scalar

from ..arguments import as_annotated
from ..checks import whole
from ..precision import full_precision

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


@as_annotated
@full_precision
def reduced_steps(
    *,
    relevant: _Number,
    irrelevant: _Number,
    length: _Number,
    step_size: _Number,
    number: int,
) -> ReducedSteps:
    """β, u and what follows from them, after each step on E.

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
