"""How an event that ends a flow moves with the inputs, without a search for it."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, PyTree, Scalar


def event_shift(
    excess: Callable[[PyTree, PyTree], Float[Scalar, ""]],
    log_time: Float[Scalar, ""],
    state: Array,
    slope: Array,
    ended: Bool[Scalar, ""],
) -> Float[Scalar, ""]:
    """Change of the log-time at which h(s, y) = 0: −h/h′, h′ along the solution.

    At the event it is zero to rounding, and its derivative is that of the event.

    Args:
        excess: h; differentiable at the state, also where no event ended the flow.
        log_time: s of the event.
        state: y there, as a function of the inputs.
        slope: dy/ds there.
        ended: whether the event ended the flow; else the change is zero.

    Returns:
        The change; NaN where h′ = 0.

    Example:
        >>> def end(rate):  # e^{rate s} = 2 at s = log 2 / rate
        ...     s = lax.stop_gradient(jnp.log(2.0) / rate)
        ...     y = jnp.exp(rate * s)
        ...     return s + event_shift(
        ...         lambda s, y: y - 2, s, y, rate * y, jnp.array(True)
        ...     )
        >>> round(jax.grad(end)(1.0).item(), 4)
        -0.6931
    """
    here, slope, log_time = lax.stop_gradient((state, slope, log_time))
    _, rate = jax.jvp(excess, (log_time, here), (jnp.ones_like(log_time), slope))
    rate = lax.stop_gradient(jnp.where(ended, rate, 1.0))
    step = -excess(log_time, state) / jnp.where(rate != 0, rate, jnp.nan)
    return jnp.where(ended, step, 0.0).astype(state.dtype)
